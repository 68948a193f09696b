"""Stages: what they see, what they may change, and how they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cmf.strategies import messages
from tests.pipeline.conftest import write_rules

from cmf import (
    AgentExtension,
    Capability,
    Choice,
    DelegationExtension,
    DelegationHop,
    Extensions,
    HttpExtension,
    Message,
    PromptResultPart,
    Request,
    Response,
    SecurityExtension,
    SubjectExtension,
    TextPart,
)
from cmf.adapters import get
from cmf.message import Layout
from cmf.value import replace
from pipeline import Ask, Config, ConfigError, Context, Mode, Pipeline, Refuse, Stage, as_stage, emit
from pipeline.decision import Action, StageRecord, Verdict
from pipeline.draft import drafted
from pipeline.enforcement import TierViolationError, merged
from pipeline.runner import Outcome

ALLOW_ALL = 'deny contains {"code": "never", "reason": "x"} if input.content == "forbidden"'
HOP = DelegationHop(delegator="ann", delegate="bot")
EXTENSIONS = Extensions(
    agent=AgentExtension(session_id="s"),
    http=HttpExtension(headers={"Authorization": "Bearer x", "X-Trace": "t"}),
    security=SecurityExtension(labels={"pii"}, classification="internal"),
    delegation=DelegationExtension(chain=[HOP]),
    custom={"k": 1},
)
CONTEXT = Context(subject=SubjectExtension(id="ann", roles={"user"}))

Make = Callable[..., Pipeline]


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), {"never": ALLOW_ALL})


@pytest.fixture
def pipe(policies: Path) -> Make:
    def make(*stages: Stage, **options: Any) -> Pipeline:
        return Pipeline(stages, policies=policies, **options)

    return make


def says(*texts: str, extensions: Extensions | None = EXTENSIONS) -> Message:
    return Message(role="user", content=[TextPart(text=text) for text in texts], extensions=extensions)


def calling(call: Callable[[Any, Context], Any], **declared: Any) -> Stage:
    return as_stage(declared.pop("name", "one"), **declared)(call)


def with_slot(message: Message, **slots: Any) -> Message:
    return replace(message, extensions=replace(message.extensions or Extensions(), **slots))


def with_security(message: Message, **fields: Any) -> Message:
    assert message.extensions is not None
    return with_slot(message, security=replace(message.extensions.security or SecurityExtension(), **fields))


def stopped(outcome: Outcome) -> StageRecord:
    assert (outcome.decision.verdict, outcome.decision.action, outcome.value) == (Verdict.DENY, Action.REFUSE, None)
    assert not outcome.decision.coverage.full
    return outcome.decision.stages[-1]


def text_of(outcome: Outcome) -> list[str]:
    assert outcome.message is not None
    return [part.text for part in outcome.message.content]


ALL = list(Capability)
READ_MOST = [one for one in ALL if one is not Capability.WRITE_HEADERS]

# -- adversarial stages: what each does, under which capabilities and mode, and the slot it is caught at ---------------

HOSTILE: list[tuple[str, Callable[[Message, Context], Any], dict[str, Any], str, str]] = [
    (
        "drops labels",
        lambda m, _: with_security(m, labels=frozenset()),
        {"capabilities": ["read_labels"]},
        "security.labels",
        "monotonic",
    ),
    (
        "replaces security",
        lambda m, _: with_slot(m, security=None),
        {"capabilities": ["read_labels"]},
        "security.classification",
        "immutable",
    ),
    (
        "forges a subject",
        lambda m, _: with_security(m, subject=SubjectExtension(id="root", roles={"admin"})),
        {},
        "security.subject",
        "immutable",
    ),
    (
        "adds a role",
        lambda m, _: with_security(m, subject=SubjectExtension(id="ann", roles={"user", "admin"})),
        {"capabilities": ["read_subject", "read_roles"]},
        "security.subject",
        "immutable",
    ),
    (
        "drops the subject it saw",
        lambda m, _: with_security(m, subject=None),
        {"capabilities": ["read_roles"]},
        "security.subject",
        "immutable",
    ),
    (
        "edits headers",
        lambda m, _: with_slot(m, http=HttpExtension(headers={"X-Trace": "forged"})),
        {"capabilities": READ_MOST},
        "http",
        "guarded",
    ),
    ("drops headers", lambda m, _: with_slot(m, http=None), {"capabilities": READ_MOST}, "http", "guarded"),
    (
        "injects headers unseen",
        lambda m, _: with_slot(m, http=HttpExtension(headers={"X": "y"})),
        {},
        "http",
        "guarded",
    ),
    (
        "rewrites the agent",
        lambda m, _: with_slot(m, agent=AgentExtension(session_id="other")),
        {"capabilities": ["read_agent"]},
        "agent",
        "immutable",
    ),
    (
        "wipes the agent it saw",
        lambda m, _: with_slot(m, agent=None),
        {"capabilities": ["read_agent"]},
        "agent",
        "immutable",
    ),
    (
        "forges an agent unseen",
        lambda m, _: with_slot(m, agent=AgentExtension(session_id="s")),
        {},
        "agent",
        "immutable",
    ),
    (
        "cuts the delegation",
        lambda m, _: with_slot(m, delegation=None),
        {"capabilities": ["read_delegation"]},
        "delegation",
        "monotonic",
    ),
    (
        "rewrites the delegation",
        lambda m, _: with_slot(
            m, delegation=DelegationExtension(chain=[DelegationHop(delegator="eve", delegate="bot")])
        ),
        {"capabilities": ["read_delegation"]},
        "delegation",
        "monotonic",
    ),
    (
        "replaces a delegation unseen",
        lambda m, _: with_slot(m, delegation=DelegationExtension(chain=[HOP, HOP])),
        {},
        "delegation",
        "monotonic",
    ),
    (
        "edits content in audit mode",
        lambda m, _: replace(m, content=(TextPart(text="x"),)),
        {"mode": "audit"},
        "content",
        "mode audit",
    ),
    (
        "edits content concurrently",
        lambda m, _: replace(m, content=()),
        {"mode": "concurrent"},
        "content",
        "mode concurrent",
    ),
    (
        "changes the channel in audit mode",
        lambda m, _: replace(m, channel="final"),
        {"mode": "audit"},
        "channel",
        "mode audit",
    ),
    ("changes the role", lambda m, _: replace(m, role="system"), {"capabilities": ALL}, "role", "immutable"),
    ("changes the id", lambda m, _: replace(m, id="forged"), {"capabilities": ALL}, "id", "immutable"),
    ("returns a request", lambda m, _: Request(messages=[m]), {"capabilities": ALL}, "value", "immutable"),
]


@pytest.mark.spec("STG-3")
@pytest.mark.spec("STG-4")
@pytest.mark.spec("STG-5")
@pytest.mark.spec("STG-7")
@pytest.mark.spec("STG-9")
@pytest.mark.parametrize(("what", "call", "declared", "slot", "tier"), HOSTILE, ids=[row[0] for row in HOSTILE])
@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE])
def test_a_hostile_stage_ends_the_run(
    pipe: Make, what: str, call: Any, declared: dict[str, Any], slot: str, tier: str, mode: Mode
) -> None:
    outcome = pipe(calling(call, **declared), config=Config(mode=mode)).run(says("hi"), CONTEXT)

    record = stopped(outcome)
    assert record.hit is not None
    assert (record.hit.code, record.hit.rule) == ("stage.tier-violation", "stage/one")
    assert (record.hit.detail["slot"], record.hit.detail["tier"]) == (slot, tier)
    assert record.hit.detail["path"].startswith("$")


@pytest.mark.spec("STG-3")
def test_messages_cannot_be_added_or_removed(pipe: Make) -> None:
    request = Request(messages=[says("a"), says("b")])
    for call in (
        lambda r, _: replace(r, messages=r.messages[:1]),
        lambda r, _: replace(r, messages=(*r.messages, says("c"))),
        lambda r, _: replace(r, session_id="other"),
    ):
        record = stopped(pipe(calling(call, capabilities=ALL)).run(request))
        assert record.hit is not None
        assert record.hit.code == "stage.tier-violation"
    looking = stopped(pipe(calling(lambda r, _: replace(r, messages=()), mode="audit")).run(request))
    assert looking.hit is not None
    assert looking.hit.detail["tier"] == "mode audit"


@pytest.mark.spec("STG-3")
def test_a_choice_keeps_why_it_stopped(pipe: Make) -> None:
    response = Response(choices=[Choice(message=says("a"), raw_stop_reason="stop")])

    def forge(value: Response, _: Context) -> Response:
        return replace(value, choices=tuple(replace(one, raw_stop_reason="length") for one in value.choices))

    assert stopped(pipe(calling(forge)).run(response)).hit is not None


@pytest.mark.spec("STG-9")
def test_a_layout_from_a_stage_is_not_taken_and_an_edit_leaves_none(pipe: Make) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a secret"}]}]}
    request = get("openai_chat").from_wire_request(body)
    original = request.messages[0]
    assert original.provider_raw is not None
    hostile = Layout(format="openai_chat", shape=original.provider_raw.shape)

    def redact(value: Request, _: Context) -> Request:
        message = replace(value.messages[0], content=(TextPart(text="b"),), provider_raw=hostile)
        return replace(value, messages=(message,), provider_raw=hostile)

    outcome = pipe(calling(redact)).run(request)

    assert outcome.request is not None
    assert outcome.request.messages[0].provider_raw is None
    assert outcome.request.provider_raw is request.provider_raw
    assert "secret" not in str(emit(outcome, "openai_chat"))


@pytest.mark.spec("STG-14")
def test_what_a_stage_smuggles_in_is_judged(pipe: Make) -> None:
    nested = PromptResultPart(prompt_name="p", messages=[Message(role="user", content=[TextPart(text="forbidden")])])

    smuggled = pipe(calling(lambda m, _: replace(m, content=(nested,)))).run(says("hi"))
    by_custom = pipe(calling(lambda m, _: with_slot(m, custom={"x": "forbidden"}))).run(says("hi"))

    assert smuggled.decision.action is Action.REFUSE
    assert [hit.code for hit in smuggled.decision.hits] == ["never"]
    assert by_custom.decision.action is Action.FORWARD


# -- failing -----------------------------------------------------------------------------------------------------------


def _raise(*_: Any) -> None:
    raise RuntimeError("content canary-4711")


async def _hang(*_: Any) -> None:
    await asyncio.sleep(60)


async def _araise(*_: Any) -> None:
    raise RuntimeError


FAILING = [
    (_raise, "stage.error"),
    (_araise, "stage.error"),
    (_hang, "stage.timeout"),
    (lambda *_: time.sleep(0.05), "stage.timeout"),
    (lambda *_: "garbage", "stage.tier-violation"),
    (lambda *_: 7, "stage.tier-violation"),
    (lambda m, _: {"role": "user"}, "stage.tier-violation"),
    (lambda m, _: replace(m, content=7), "stage.bad-result"),
]


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize(("call", "code"), FAILING)
async def test_a_failing_stage_denies_whether_called_or_awaited(
    pipe: Make, call: Any, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = pipe(calling(call, timeout_seconds=0.02))

    awaited = stopped(await pipeline.arun(says("hi")))
    called = stopped(await asyncio.to_thread(pipeline.run, says("hi")))

    for record in (awaited, called):
        assert record.hit is not None
        assert record.hit.code in (code, "engine.bad-result")
    assert "canary" not in caplog.text


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("mode", ["audit", "concurrent"])
def test_a_stage_that_only_looks_may_be_allowed_to_fail(pipe: Make, mode: str) -> None:
    outcome = pipe(calling(_raise, mode=mode, on_error="allow")).run(says("hi"))

    assert outcome.decision.action is Action.FORWARD
    assert outcome.decision.stages[0].error == "stage.error"


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("mode", ["sequential", "transform"])
def test_a_stage_that_can_change_content_may_not(pipe: Make, mode: str) -> None:
    with pytest.raises(ConfigError, match="cannot be allowed"):
        pipe(calling(_raise, mode=mode, on_error="allow"))
    with pytest.raises(ConfigError, match="same name"):
        pipe(calling(_raise), calling(_raise))


@pytest.mark.spec("STG-12")
def test_who_may_refuse_and_what_it_comes_to(pipe: Make) -> None:
    def no(*_: Any) -> Refuse:
        return Refuse(code="my.no", reason="Because.")

    for mode in ("sequential", "concurrent"):
        record = stopped(pipe(calling(no, mode=mode)).run(says("hi")))
        assert record.hit is not None
        assert (record.hit.code, record.hit.reason) == ("my.no", "Because.")
    for mode in ("transform", "audit"):
        record = stopped(pipe(calling(no, mode=mode)).run(says("hi")))
        assert record.hit is not None
        assert record.hit.code == "stage.may-not-refuse"
    asked = pipe(calling(lambda *_: Ask(code="my.ask", reason="Ask."))).run(says("hi"))
    assert asked.decision.action is Action.SUSPEND
    observed = pipe(calling(no), config=Config(mode=Mode.OBSERVE)).run(says("hi"))
    assert (observed.decision.verdict, observed.decision.action) == (Verdict.DENY, Action.FORWARD)


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("STG-1")
@pytest.mark.spec("STG-10")
def test_stages_run_in_order_on_what_came_before(pipe: Make) -> None:
    def adding(text: str) -> Callable[[Message, Context], Message]:
        return lambda m, _: replace(m, content=(*m.content, TextPart(text=text)))

    outcome = pipe(calling(adding("b"), name="x"), calling(adding("c"), name="y", mode="transform")).run(says("a"))

    assert text_of(outcome) == ["a", "b", "c"]
    assert [(record.stage, record.changed) for record in outcome.decision.stages] == [("x", True), ("y", True)]
    assert outcome.decision.to_json()["stages"][0] == {"stage": "x", "mode": "sequential", "changed": True}
    assert "stages" not in pipe().run(says("a")).decision.to_json()


@pytest.mark.spec("STG-10")
async def test_the_first_no_of_concurrent_stages_cancels_the_others(pipe: Make) -> None:
    cancelled = []

    async def slow(*_: Any) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def no(*_: Any) -> Refuse:
        return Refuse(code="my.no", reason="x")

    begin = time.monotonic()
    outcome = await pipe(
        calling(slow, name="a", mode="concurrent", timeout_seconds=30), calling(no, name="b", mode="concurrent")
    ).arun(says("hi"))

    assert stopped(outcome).stage == "b"
    assert cancelled == [True]
    assert time.monotonic() - begin < 5
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.spec("STG-10")
async def test_concurrent_stages_see_the_same_value_and_their_labels_are_united(pipe: Make) -> None:
    def label(text: str) -> Any:
        async def call(message: Message, _: Context) -> Message:
            assert message.extensions is not None
            assert message.extensions.security is not None
            assert message.extensions.security.labels == frozenset()
            return with_security(message, labels=frozenset({text}))

        return call

    outcome = await pipe(*(calling(label(name), name=name, mode="concurrent") for name in "ab")).arun(says("hi"))

    assert outcome.labels == {"pii", "a", "b"}
    called = await asyncio.to_thread(
        pipe(*(calling(label(name), name=name, mode="concurrent") for name in "ab")).run, says("hi")
    )
    assert called.labels == {"pii", "a", "b"}


@pytest.mark.spec("STG-10")
async def test_fire_and_forget_stages_run_afterwards_change_nothing_and_leave_no_task(pipe: Make) -> None:
    seen: list[str] = []

    async def late(message: Message, _: Context) -> Message:
        await asyncio.sleep(0)
        seen.append(message.content[0].text)
        return replace(message, content=())

    async def forever(*_: Any) -> None:
        await asyncio.sleep(60)

    pipeline = pipe(
        calling(late, name="late", mode="fire_and_forget"),
        calling(_raise, name="broken", mode="fire_and_forget"),
        calling(forever, name="forever", mode="fire_and_forget", timeout_seconds=60),
    )

    outcome = await pipeline.arun(says("hi"))
    assert text_of(outcome) == ["hi"]
    await asyncio.sleep(0.01)
    assert seen == ["hi"]
    await pipeline.aclose()
    assert len(asyncio.all_tasks()) == 1
    await asyncio.to_thread(pipe(calling(late, mode="fire_and_forget")).run, says("there"))
    assert seen == ["hi", "there"]


@pytest.mark.spec("STG-13")
async def test_a_plain_stage_costs_no_task(pipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = asyncio.create_task
    monkeypatch.setattr(asyncio, "create_task", lambda *given, **more: made.append(given) or original(*given, **more))

    await pipe(calling(lambda m, _: m), calling(lambda *_: None, name="b")).arun(says("hi"))

    assert made == []


# -- sharing and merging -----------------------------------------------------------------------------------------------


@pytest.mark.spec("STG-2")
def test_what_is_not_touched_is_the_same_object(pipe: Make) -> None:
    request = Request(messages=[says("a", "b"), says("c")], tools=())
    given: list[Request] = []

    def edit(value: Request, _: Context) -> Request:
        given.append(value)
        first = value.messages[0]
        return replace(
            value, messages=(replace(first, content=(first.content[0], TextPart(text="x"))), value.messages[1])
        )

    outcome = pipe(calling(edit)).run(request)

    assert outcome.request is not None
    for held, original in ((given[0], request), (outcome.request, request)):
        assert held.messages[0].content[0] is original.messages[0].content[0]
        assert held.messages[1].content is original.messages[1].content
        assert held.tools is original.tools
    assert given[0].messages[0].extensions is given[0].messages[1].extensions


@pytest.mark.spec("STG-2")
def test_a_stage_that_may_see_everything_is_given_the_very_object() -> None:
    message = says("a")

    assert drafted(message, frozenset(Capability)) is message
    assert drafted(says("a", extensions=None), frozenset()).extensions is None
    bare = says("a", extensions=Extensions(custom={"k": 1}))
    assert drafted(bare, frozenset()) is bare
    request = Request(messages=[bare])
    assert drafted(request, frozenset()) is request


@pytest.mark.spec("STG-2")
@given(messages, st.sets(st.sampled_from(Capability)))
def test_returning_what_was_given_changes_nothing(message: Message, granted: set[Capability]) -> None:
    stage = calling(_raise, capabilities=list(granted))
    seen = drafted(message, stage.capabilities)

    assert merged(stage, message, seen, seen) == (message, ())
    assert merged(stage, message, seen, replace(seen))[0] is message


@pytest.mark.spec("STG-6")
@pytest.mark.spec("STG-8")
def test_a_stage_cannot_wipe_what_it_never_saw(pipe: Make) -> None:
    def none_everywhere(message: Message, _: Context) -> Message:
        assert message.extensions is not None
        assert (message.extensions.http, message.extensions.agent, message.extensions.delegation) == (None, None, None)
        return with_slot(message, custom={"k": 2})

    outcome = pipe(calling(none_everywhere)).run(says("hi"), CONTEXT)

    assert outcome.message is not None
    kept = outcome.message.extensions
    assert kept is not None
    assert (kept.http, kept.agent, kept.delegation) == (EXTENSIONS.http, EXTENSIONS.agent, EXTENSIONS.delegation)
    assert kept.security is not None
    assert (kept.security.labels, kept.security.subject) == ({"pii"}, CONTEXT.subject)
    assert kept.custom == {"k": 2}


@pytest.mark.spec("STG-4")
def test_growing_is_allowed(pipe: Make) -> None:
    def grow(message: Message, _: Context) -> Message:
        assert message.extensions is not None
        assert message.extensions.delegation is not None
        chain = (*message.extensions.delegation.chain, HOP)
        return with_security(
            with_slot(message, delegation=DelegationExtension(chain=chain)), labels=frozenset({"pii", "x"})
        )

    outcome = pipe(calling(grow, capabilities=["read_labels", "read_delegation"], mode="audit")).run(says("hi"))

    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.delegation is not None
    assert len(outcome.message.extensions.delegation.chain) == 2
    assert outcome.labels == {"pii", "x"}


@pytest.mark.spec("STG-5")
def test_every_header_change_is_on_record_and_sensitive_values_are_not(pipe: Make) -> None:
    def inject(message: Message, _: Context) -> Message:
        return with_slot(message, http=HttpExtension(headers={"Authorization": "Bearer new", "X-Id": "7"}))

    pipeline = pipe(calling(inject, capabilities=["write_headers"]))
    events: list[Any] = []
    pipeline.events.subscribe(events.append)

    outcome = pipeline.run(says("hi"))

    (record,) = outcome.decision.stages
    assert record.to_json()["headers"] == [
        {"name": "Authorization", "removed": False},
        {"name": "X-Id", "removed": False, "value": "7"},
        {"name": "X-Trace", "removed": True},
    ]
    assert tuple(events) == record.headers
    assert "Bearer" not in str(outcome.decision) + str(events)


@pytest.mark.spec("STG-7")
def test_the_envelope_of_a_request_is_content_too(pipe: Make) -> None:
    request = Request(model="openai:a", messages=[says("hi")])

    changed = pipe(calling(lambda r, _: replace(r, model="openai:b"), mode="transform")).run(request)
    looking = pipe(calling(lambda r, _: replace(r, model="openai:b"), mode="audit")).run(request)

    assert changed.request is not None
    assert changed.request.model == "openai:b"
    assert stopped(looking).hit is not None


@pytest.mark.spec("STG-4")
@settings(max_examples=60)
@given(
    start=st.sets(st.sampled_from("abcd")),
    steps=st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.booleans()), max_size=5),
)
def test_labels_never_shrink_over_random_runs(start: set[str], steps: list[tuple[set[str], bool]]) -> None:
    message = says("hi", extensions=Extensions(security=SecurityExtension(labels=start)))
    for wanted, reads in steps:
        stage = calling(_raise, capabilities=["read_labels"] if reads else [])
        seen = drafted(message, stage.capabilities)
        before = message
        try:
            message, _ = merged(stage, message, seen, with_security(seen, labels=frozenset(wanted)))
        except TierViolationError:
            assert reads
            assert not start <= wanted
        assert before.extensions is not None
        assert message.extensions is not None
        assert before.extensions.security is not None
        assert message.extensions.security is not None
        assert before.extensions.security.labels <= message.extensions.security.labels
        start = set(message.extensions.security.labels)


@pytest.mark.spec("EVT-1")
@pytest.mark.spec("EVT-2")
def test_events_come_in_order_and_a_broken_subscriber_stops_nobody(
    pipe: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = pipe(calling(lambda m, _: with_security(m, labels=frozenset({"b", "a"}))))
    seen: list[Any] = []
    pipeline.events.subscribe(_raise)  # type: ignore[arg-type]
    stop = pipeline.events.subscribe(seen.append)

    pipeline.run(says("canary-99"))
    stop()
    pipeline.run(says("hi"))

    assert [(event.label, event.path, event.by) for event in seen] == [
        ("a", "messages[0]", "one"),
        ("b", "messages[0]", "one"),
    ]
    assert "RuntimeError" in caplog.text
    assert "canary" not in caplog.text + str(seen)
