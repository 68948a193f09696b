"""The library's front door."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.pipeline.conftest import Rules, write_rules

from cmf import Extensions, Message, Request, SecurityExtension, TextPart, ToolCallPart, ToolResultPart
from cmf.errors import ShapeError
from pipeline import (
    ApprovalRequired,
    Config,
    ConfigError,
    Denied,
    Guard,
    Pipeline,
    PolicyError,
    PolicyUnavailable,
    Unjudgeable,
    as_stage,
)
from pipeline.decisions.cancellation import Deadline
from pipeline.decisions.decision import NO_EFFECTS
from pipeline.decisions.engine import Decided, EngineResult
from pipeline.policy.policy_set import load
from pipeline.policy.shipped import shipped
from pipeline.provenance.profiles import Profiles

DENY = 'deny contains {"code": "test.no", "reason": "You may not."} if contains(input.content, "no")'
APPROVE = 'require_approval contains {"code": "test.ask", "reason": "Ask first."} if contains(input.content, "ask")'
LABEL = 'label contains {"code": "l", "reason": "x", "label": "seen"} if contains(input.content, "taint")'


def says(text: str) -> Message:
    return Message(role="user", content=[TextPart(text=text)])


@pytest.mark.spec("GRD-1")
def test_check_raises_what_stops_and_decide_never_does(guarded: Rules) -> None:
    guard = guarded({"deny": DENY, "ask": APPROVE})

    with pytest.raises(Denied) as denied:
        guard.check(says("no"))
    with pytest.raises(ApprovalRequired):
        guard.check(says("ask"))
    assert denied.value.decision.verdict == "deny"
    assert guard.decide(says("no")).action == "refuse"
    assert guard.decide(says("ask")).action == "suspend"
    assert guard.check(says("yes")).value is not None


@pytest.mark.spec("GRD-1")
async def test_awaited_check_raises_the_same(guarded: Rules) -> None:
    guard = guarded({"deny": DENY})

    with pytest.raises(Denied):
        await guard.acheck(says("no"))
    assert (await guard.acheck(says("yes"))).value is not None
    assert (await guard.adecide(says("no"))).action == "refuse"


@pytest.mark.spec("GRD-2")
def test_an_engine_without_an_answer_is_an_outage_and_no_denial(guarded: Rules) -> None:
    loops = "\n".join(f"\tsome {name} in numbers.range(1, 300)" for name in "abc")
    slow = f'deny contains {{"code": "x", "reason": "x"}} if {{\n{loops}\n\ta + b + c == 1\n}}'
    guard = guarded({"slow": slow}, config=Config(timeout_seconds=0.02), kinds="text")

    with pytest.raises(PolicyUnavailable) as caught:
        guard.check(says("x"))

    assert caught.value.retryable is True
    assert Denied.retryable is False
    assert caught.value.code == "engine.timeout"


@pytest.mark.spec("ENG-8", "PIPE-20")
def test_a_pattern_that_reads_on_from_each_match_is_stopped_at_the_deadline(guarded: Rules) -> None:
    rule = 'deny contains {"code": "x", "reason": "x"} if count(regex.find_n(`a[^c]*?END|a`, input.content, -1)) == 1'
    guard = guarded({"r": rule}, config=Config(timeout_seconds=0.1), kinds="text")

    started = time.process_time()
    with pytest.raises(Unjudgeable) as caught:
        guard.check(says("a" * 400_000))

    assert caught.value.code == "input.too-much-work"
    assert time.process_time() - started < 5  # two minutes when each match is looked for to the end


@pytest.mark.spec("GRD-2")
@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("to_number(input.content) > 1", "engine.builtin-error"),
        ("value\nvalue := 1 if input.content\nvalue := 2 if input.content", "engine.conflict"),
    ],
)
def test_a_failure_that_the_same_input_always_meets_is_not_worth_a_retry(guarded: Rules, rule: str, code: str) -> None:
    guard = guarded({"r": f'deny contains {{"code": "x", "reason": "x"}} if {rule}'}, kinds="text")

    with pytest.raises(PolicyUnavailable) as caught:
        guard.check(says("x"))

    assert (caught.value.code, caught.value.retryable) == (code, False)


@pytest.mark.spec("PIPE-21")
def test_what_is_too_large_for_a_builtin_is_refused_as_unjudgeable(guarded: Rules) -> None:
    rule = "count(numbers.range(1, count(input.content) * 100000000)) > 1"
    guard = guarded({"r": f'deny contains {{"code": "x", "reason": "x"}} if {rule}'}, kinds="text")

    with pytest.raises(Unjudgeable) as caught:
        guard.check(says("x"))

    assert (caught.value.code, caught.value.retryable) == ("engine.builtin-limit", False)


@pytest.mark.spec("GRD-3")
@pytest.mark.spec("SES-1")
def test_labels_hold_only_for_the_session_of_one_subject(guarded: Rules) -> None:
    guard = guarded({"label": LABEL}, kinds="text")

    guard.check(says("taint"), subject={"id": "ann"}, session="s")

    assert guard.run(says("x"), subject={"id": "ann"}, session="s").labels == {"seen"}
    assert guard.run(says("x"), subject={"id": "bob"}, session="s").labels == set()
    assert guard.run(says("x"), subject={"id": "ann"}, session="t").labels == set()
    assert guard.run(says("x"), subject={"id": "ann"}).labels == set()


@pytest.mark.spec("GRD-4")
def test_an_error_says_reason_path_and_decision_but_no_content(guarded: Rules) -> None:
    with pytest.raises(Denied) as caught:
        guarded({"deny": DENY}).check(Request(messages=[says("no canary-9731")]))

    error = caught.value
    assert (error.user_message, error.code, error.path) == ("You may not.", "test.no", "messages[0].content[0]")
    assert f"You may not at messages[0].content[0]; decision {error.decision.id}" in str(error)
    assert "canary" not in str(error) + repr(error) + json.dumps(error.decision.to_json())


@pytest.mark.spec("GRD-4")
@pytest.mark.spec("DEC-6")
def test_a_decision_has_the_promised_keys(guarded: Rules) -> None:
    shown = guarded({"deny": DENY}).decide(says("no")).to_json()

    assert list(shown) == ["verdict", "action", "mode", "revision", "decision_id", "coverage", "views"]
    assert list(shown["coverage"]) == ["produced", "evaluated", "skipped"]
    assert list(shown["views"][0]) == [
        "path", "kind", "role", "uri", "name", "action", "direction", "verdict", "outcome", "hits",
    ]  # fmt: skip
    assert list(shown["views"][0]["hits"][0]) == ["rule", "code", "effect", "reason", "severity"]


@pytest.mark.spec("GRD-5")
def test_a_directory_with_only_data_goes_over_the_shipped_rules(tmp_path: Path) -> None:
    home = tmp_path / "cmf" / "defaults"
    home.mkdir(parents=True)
    roles = {"identity": {"tool_role": {"tools": {"tool://**/list_*": {"roles": ["dba"]}}}}}
    (home / "data.json").write_text(json.dumps(roles), encoding="utf-8")
    call = Message(role="assistant", content=[ToolCallPart(name="list_tables", arguments={})])

    guard = Guard(tmp_path)

    assert guard.decide(call, subject={"id": "ann", "roles": ["dba"]}).action == "forward"
    assert [hit.rule for hit in guard.decide(call, subject={"id": "bob"}).hits] == ["identity/tool_role"]
    assert Guard().decide(call).action == "forward"


@pytest.mark.spec("GRD-5")
def test_a_directory_with_rules_is_the_whole_set_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    guard = Guard(write_rules(tmp_path / "own", {"deny": DENY}))
    assert guard.decide(says("AKIAIOSFODNN7EXAMPLE")).hits == ()

    (tmp_path / "empty").mkdir()
    with pytest.raises(PolicyError, match="no policies found"):
        Guard(tmp_path / "empty")


def test_a_guard_lets_go_of_its_engine_at_the_end_of_its_block(guarded: Rules) -> None:
    with guarded({"deny": DENY}) as guard:
        assert guard.decide(says("no")).action == "refuse"

    assert guard.decide(says("no")).action == "refuse"


async def test_a_guard_can_be_awaited_in_a_block_and_tells_what_happens(guarded: Rules) -> None:
    seen: list[object] = []

    async def label(message: Message, _: object) -> Message:
        security = SecurityExtension(labels={"x"})
        return message.model_copy(update={"extensions": Extensions(security=security)})

    async with Guard(stages=[as_stage("label")(label)]) as guard:
        guard.events.subscribe(seen.append)
        await guard.acheck(says("hi"))

    assert [type(event).__name__ for event in seen] == ["LabelAdded"]


@pytest.mark.spec("STG-10")
async def test_a_guard_that_is_closed_in_a_loop_ends_what_its_stages_still_do(guarded: Rules) -> None:
    ended = asyncio.Event()

    async def forever(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    guard = Guard(stages=[as_stage("forever", mode="fire_and_forget", timeout_seconds=60)(forever)])
    await guard.acheck(says("hi"))
    await asyncio.sleep(0)

    await guard.aclose()

    assert ended.is_set()


def test_a_loaded_set_can_be_given_and_names_the_revision() -> None:
    policies = load(shipped())

    assert Guard(policies).decide(says("hi")).revision == policies.revision


def test_the_shipped_policies_mask_a_key_label_it_and_stop_the_mail() -> None:
    guard = Guard()
    secret = Message(role="tool", content=[ToolResultPart(content="key AKIAIOSFODNN7EXAMPLE")])
    mail = Message(role="assistant", content=[ToolCallPart(name="send_email", arguments={"to": "x@example.com"})])

    outcome = guard.check(Request(messages=[says("read it"), secret]), session="s")

    assert outcome.request is not None
    assert outcome.request.messages[1].content[0].content == "key [MASKED]"
    assert "secret" in outcome.labels
    with pytest.raises(Denied) as caught:
        guard.check(mail, session="s")
    assert caught.value.code == "data.label-to-sink"
    assert guard.decide(mail).action == "forward"


def test_a_guard_says_what_it_judges_by_and_what_it_cannot_be_made_of(guarded: Rules, tmp_path: Path) -> None:
    guard = guarded({"deny": DENY})

    assert repr(guard) == f"<Guard: <PolicySet: 1 rule, revision {guard.revision[:12]}>, tools: 0>"
    assert repr(Profiles.load({"profiles": {"look": {"actions": ["read"]}}})) == "<Profiles: 1 profile>"
    assert "CONTENT" not in repr(guard.run(Message(role="user", content=[TextPart(text="CONTENT")])))
    with pytest.raises(ConfigError, match=r"Store\.at"):
        Guard(store=tmp_path / "cmf.db")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="from_wire_request"):
        guard.decide([{"role": "user", "content": "x"}])  # type: ignore[arg-type]


def test_a_context_or_subject_of_the_wrong_type_is_refused_with_what_to_write(guarded: Rules) -> None:
    guard, pipeline = guarded({"deny": DENY}), Pipeline()

    for judge in (guard.run, pipeline.run):
        with pytest.raises(TypeError, match=r"not a dict; write `Context\(subject=…"):
            judge(says("x"), context={"subject": {"id": "ann"}})  # type: ignore[operator, arg-type]
    with guard.session("s"), pytest.raises(TypeError, match="not a dict"):
        guard.run(says("x"), context={"session": "s"})  # type: ignore[arg-type]
    for subject, path in (("ann", "subject"), ({"id": "ann", "role": "x"}, "subject.role")):
        with pytest.raises(ShapeError, match=r"write \{'id': …, 'roles': \[…\]\}") as caught:
            guard.decide(says("x"), subject=subject)  # type: ignore[arg-type]
        assert caught.value.path == path


class Slow:
    """An engine that lets the deadline pass, and answers as if it had not."""

    revision = "slow"

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        time.sleep(timeout_seconds + 0.01)
        return [Decided(NO_EFFECTS)] * len(views)

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        return await asyncio.to_thread(self.evaluate, entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.mark.spec("PIPE-20")
def test_a_run_that_waits_beyond_its_deadline_is_refused_as_an_outage() -> None:
    guard = Guard(engine=Slow(), config=Config(timeout_seconds=0.05))

    with pytest.raises(PolicyUnavailable) as caught:
        guard.check(says("hello"))
    with pytest.raises(PolicyUnavailable) as caught_async:
        asyncio.run(guard.acheck(says("hello")))

    assert (caught.value.code, caught.value.retryable) == ("pipeline.deadline", True)
    assert caught_async.value.code == "pipeline.deadline"


def _call(**arguments: object) -> Request:
    call = ToolCallPart(tool_call_id="c", name="f", arguments=arguments)
    said = Message(role="user", content=[TextPart(text="go on with value 7")])
    return Request(model="openai:m", messages=[said, Message(role="assistant", content=[call])])


@pytest.mark.spec("PIPE-20", "PIPE-21")
def test_a_run_that_works_beyond_its_deadline_is_refused_as_too_much() -> None:
    guard = Guard(config=Config(timeout_seconds=0.02))
    request = _call(**{f"key{at}": f"value {at}" for at in range(2_000)})

    with pytest.raises(Unjudgeable) as caught:
        guard.check(request)
    with pytest.raises(Unjudgeable) as caught_async:
        asyncio.run(guard.acheck(request))

    assert (caught.value.code, caught.value.retryable) == ("input.too-much-work", False)
    assert "policy_seconds" in caught.value.user_message
    assert caught_async.value.code == "input.too-much-work"


@pytest.mark.spec("PIPE-20")
@pytest.mark.parametrize(
    ("text", "looks"),
    [(json.dumps({f"key{at}": at for at in range(1_000)}), 2_000), ("the quick brown fox " * 10_000, 20)],
)
def test_the_clock_is_looked_at_all_through_one_large_result(
    monkeypatch: pytest.MonkeyPatch, text: str, looks: int
) -> None:
    looked = 0

    def look(_deadline: Deadline) -> None:
        nonlocal looked
        looked += 1

    monkeypatch.setattr(Deadline, "check", look)
    call = ToolCallPart(tool_call_id="c", name="f", arguments={})
    result = ToolResultPart(tool_call_id="c", tool_name="f", content=text)
    said = Message(role="assistant", content=[call]), Message(role="tool", content=[result])

    Guard().check(Request(model="openai:m", messages=[*said, Message(role="assistant", content=[call])]))

    assert looked >= looks


@pytest.mark.spec("PIPE-20")
def test_the_clock_is_looked_at_all_through_one_large_call(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def look(_deadline: Deadline) -> None:
        nonlocal looked
        looked += 1

    monkeypatch.setattr(Deadline, "check", look)
    call = ToolCallPart(tool_call_id="c", name="f", arguments={"series": list(range(2_000))})

    Guard().check(Message(role="assistant", content=[call]))

    assert looked >= 2_000


@pytest.mark.spec("PIPE-19")
def test_shipped_rules_judge_a_long_text_in_a_coroutine() -> None:
    decision = asyncio.run(Guard(config=Config(timeout_seconds=60.0)).adecide(says("the quick brown fox " * 100_000)))

    assert decision.verdict == "allow"


@pytest.mark.spec("PIPE-21")
@pytest.mark.parametrize("digits", [4_301, 10_000])
def test_a_number_too_long_to_be_shown_is_refused_as_unjudgeable(digits: int) -> None:
    call = _call(amount=10 ** (digits - 1))
    with pytest.raises(Unjudgeable) as caught:
        Guard().check(call)
    with pytest.raises(Unjudgeable) as caught_async:
        asyncio.run(Guard().acheck(call))

    assert (caught.value.code, caught.value.retryable) == ("json.not-finite", False)
    assert "digits" in caught.value.user_message
    assert caught_async.value.code == "json.not-finite"


@pytest.mark.spec("VIEW-15")
@pytest.mark.parametrize("digits", [309, 310, 4_300])
def test_an_integer_beyond_doubles_is_judged(digits: int) -> None:
    call = ToolCallPart(tool_call_id="c", name="f", arguments={"amount": 10 ** (digits - 1)})

    decision = Guard().decide(Message(role="assistant", content=[call]))

    assert decision.verdict == "allow"


BASE_ALONE = """
import sys

EXTRAS = "PIL alembic click h11 jinja2 jwt psycopg redis rich sqlalchemy starlette typer uvicorn watchfiles".split()

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

from pipeline import ConfigError, Denied, Guard
from pipeline.run.assembly import open_sessions
"""


@pytest.mark.native
@pytest.mark.spec("GRD-17")
def test_without_extras_values_are_guarded_and_what_needs_one_says_which(tmp_path: Path) -> None:
    write_rules(tmp_path / "policy", {"no": DENY}, kinds="text")
    script = BASE_ALONE + (
        """
import importlib
from cmf import Message, TextPart

def asked(extra, ask):
    try:
        ask()
    except ConfigError as error:
        assert error.code == "extra.missing" and f'pip install "cmf-pipeline[{extra}]"' in str(error), error
        print(extra)

guard = Guard(["policy"])
try:
    guard.check(Message(role="user", content=[TextPart(text="no")]), session="s")
except Denied as error:
    print(error.code)
print(guard.decide(Message(role="user", content=[TextPart(text="yes")]), session="s").verdict)

@guard.tool
def add(count: int) -> int:
    return count + 1

print(add(1))
asked("sql", lambda: open_sessions("s.db").__enter__())
asked("sql", lambda: importlib.import_module("pipeline.store.database"))
asked("redis", lambda: open_sessions("redis://localhost").__enter__())
asked("watch", guard.watch)
asked("media", lambda: importlib.import_module("pipeline.media.media_pipeline"))
asked("gateway", lambda: importlib.import_module("pipeline.gateway.http.server"))
"""
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["test.no", "allow", "2", "sql", "sql", "redis", "watch", "media", "gateway"], done
