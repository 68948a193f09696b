"""Exceptions: what is refused, what they cover, and what they never do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write
from typer.testing import CliRunner

from cmf import Request
from pipeline.audit.record import Run, record_of
from pipeline.cli.app import app
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action, Effect, Hit, Mode, Verdict
from pipeline.guard import Guard
from pipeline.policy import policy_set
from pipeline.policy.exceptions import Excuses, RuleException, read
from pipeline.run.outcome import Outcome
from pipeline.run.pipeline import Pipeline
from pipeline.sessions.base import MemorySessions

__all__ = ["write"]  # a fixture

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)
MOMENT = int(NOW.timestamp() * 1_000_000)
ALL: dict[str, Any] = {"rule": "test/rule", "until": "2026-06-30", "owner": "ann", "reason": "ticket 4711"}
FOR_ALICE = {**ALL, "subject": "alice"}
HIT = Hit(rule="test/rule", code="test.rule", effect=Effect.DENY, reason="No.")
RULE = GOOD.replace("if input.properties.redacted", 'if contains(input.content, "marked")')
WORDS = {"role": "user", "content": [{"content_type": "text", "text": "marked 4111"}]}
MARKED = Request.model_validate({"messages": [WORDS]})


def excuses(*spelled: dict[str, Any], context: Context | None = None, moment: int = MOMENT) -> Excuses:
    found = read({"cmf": {"exceptions": list(spelled)}}, {"test/rule", "test/other"})
    return Excuses(found, context or Context.model_validate({"subject": {"id": "alice"}, "session": "s-1"}), moment)


def covered(*spelled: dict[str, Any], hit: Hit = HIT, uri: str | None = "tool://_/mail", **run: Any) -> bool:
    (marked,) = excuses(*spelled, **run)([hit], uri)
    return not marked.enforced and marked.excused is not None


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("EXC-1")
@pytest.mark.parametrize(
    "entry",
    [
        "test/rule",
        ALL,
        {**FOR_ALICE, "rule": "test/ruel"},
        {**FOR_ALICE, "rule": "*"},
        {**FOR_ALICE, "until": "soon"},
        {**FOR_ALICE, "until": "2026-6-31"},
        {**FOR_ALICE, "until": "2026-06-30T00:00:00Z"},
        {**FOR_ALICE, "until": 20260630},
        {**FOR_ALICE, "until": None},
        {**FOR_ALICE, "until": "9999-12-31"},
        {**FOR_ALICE, "owner": " "},
        {**FOR_ALICE, "subject": ""},
        {**FOR_ALICE, "subject": ["alice"]},
        {**FOR_ALICE, "uri": None},
        {**FOR_ALICE, "roles": "admin"},
        *({key: item for key, item in FOR_ALICE.items() if key != left_out} for left_out in ALL),
    ],
)
def test_a_set_with_half_an_exception_is_not_loaded(write: Write, entry: Any) -> None:
    data = {"exceptions": [FOR_ALICE, entry]}

    error = refusal(write({PLACE: GOOD, "cmf/data.json": json.dumps(data)}))

    assert (error.code, error.path) == ("policy.bad-exception", "data.cmf.exceptions[1]")


@pytest.mark.spec("EXC-1")
@pytest.mark.parametrize(("owner", "said"), [({}, "owner is missing"), ({"owner": 5}, "owner is not a string")])
def test_what_is_missing_is_told_from_what_is_no_text(write: Write, owner: dict[str, Any], said: str) -> None:
    entry = {name: item for name, item in FOR_ALICE.items() if name != "owner"} | owner
    data = {"exceptions": [entry]}

    assert refusal(write({PLACE: GOOD, "cmf/data.json": json.dumps(data)})).message == said


@pytest.mark.spec("EXC-1")
@pytest.mark.parametrize("spelled", [{}, "none", [[]], 1])
def test_anything_but_a_list_of_them_is_refused(write: Write, spelled: Any) -> None:
    error = refusal(write({PLACE: GOOD, "cmf/data.json": json.dumps({"exceptions": spelled})}))

    assert error.code == "policy.bad-exception"


@pytest.mark.spec("EXC-1")
def test_a_rule_that_is_not_there_is_guessed_at(write: Write) -> None:
    data = {"exceptions": [{**FOR_ALICE, "rule": "test/ruel"}]}

    assert "did you mean test/rule?" in refusal(write({PLACE: GOOD, "cmf/data.json": json.dumps(data)})).hint


@pytest.mark.spec("EXC-1")
@pytest.mark.parametrize("data", [{}, {"cmf": []}, {"cmf": {}}, {"cmf": {"exceptions": []}}])
def test_a_set_without_them_has_none(data: Any) -> None:
    assert read(data, {"test/rule"}) == ()


# -- what is covered ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("EXC-2")
@pytest.mark.parametrize(
    "entry",
    [
        {**ALL, "rule": "test/other", "subject": "alice"},
        {**ALL, "subject": "Alice"},
        {**ALL, "subject": "al"},
        {**ALL, "session": "s-2"},
        {**ALL, "uri": "tool://_/mai"},
        {**ALL, "subject": "alice", "uri": "tool://_/pay"},
        {**ALL, "subject": "bob", "uri": "tool://_/mail"},
        {**ALL, "session": "s-2", "uri": "tool://_/mail"},
    ],
)
def test_what_does_not_match_all_the_patterns_is_not_covered(entry: dict[str, Any]) -> None:
    assert not covered(entry)


@pytest.mark.spec("EXC-2")
@pytest.mark.parametrize(
    ("wanted", "other"),
    [
        ("alice", "al%69ce"),
        ("alice", "alic\te"),
        ("https://idp/alice", "https://idp/alice#mallory"),
        ("https://idp/alice", "https://mallory@idp/alice"),
        ("https://idp/alice", "https://idp/x/../alice"),
        ("https://idp/*", "https://other/../idp/alice"),
    ],
)
def test_an_id_that_is_another_is_not_covered_though_it_reads_as_the_same_address(
    write: Write, wanted: str, other: str
) -> None:
    data = {"exceptions": [{**FOR_ALICE, "subject": wanted, "until": "2999-12-31"}]}
    with Guard(write({PLACE: RULE, "cmf/data.json": json.dumps(data)})) as guard:
        for_other = guard.decide(MARKED, subject={"id": other})
        for_theirs = guard.decide(MARKED, subject={"id": wanted.replace("*", "bob")})

    assert (for_other.action, for_theirs.action) == (Action.REFUSE, Action.FORWARD)


@pytest.mark.spec("EXC-2")
@pytest.mark.parametrize("pattern", ["subject", "session", "uri"])
def test_what_is_not_known_matches_nothing(pattern: str) -> None:
    assert not covered({**ALL, pattern: "**"}, uri=None, context=Context())


@pytest.mark.spec("EXC-2")
@pytest.mark.parametrize(
    "entry",
    [
        {**ALL, "subject": "alice"},
        {**ALL, "subject": "al*"},
        {**ALL, "session": "s-*"},
        {**ALL, "uri": "tool://_/*"},
        {**ALL, "subject": "*", "session": "s-1", "uri": "tool://**"},
    ],
)
def test_what_matches_is_covered(entry: dict[str, Any]) -> None:
    assert covered({**ALL, "subject": "bob"}, entry)


@pytest.mark.spec("EXC-2")
@given(st.integers(-3, 3), st.integers(0, 86_399_999_999))
@example(0, 86_399_999_999)
@example(1, 0)
def test_it_holds_to_the_end_of_its_day_and_not_a_microsecond_longer(days: int, within: int) -> None:
    moment = int(datetime(2026, 6, 30, tzinfo=UTC).timestamp()) * 1_000_000 + days * 86_400_000_000 + within

    assert covered(FOR_ALICE, moment=moment) is (days <= 0)


@pytest.mark.spec("EXC-2")
@pytest.mark.parametrize("moment", [0, -1])
def test_a_run_without_a_moment_has_no_exceptions(moment: int) -> None:
    assert not covered(FOR_ALICE, moment=moment)


@pytest.mark.spec("EXC-4")
@pytest.mark.parametrize(
    "hit",
    [
        Hit(rule="engine", code="engine.timeout", effect=Effect.DENY, reason="No."),
        Hit(rule="test/rule", code="policy.bad-effect", effect=Effect.DENY, reason="No."),
        Hit(rule="test/rule", code="test.rule", effect=Effect.DENY, reason="No.", mode=Mode.OBSERVE),
    ],
)
def test_failures_are_not_covered_and_what_is_only_observed_needs_no_cover(hit: Hit) -> None:
    (same,) = excuses(FOR_ALICE)([hit], None)

    assert same is hit


# -- what becomes of it ------------------------------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


EFFECTS = """\
deny contains {"code": "test.rule", "reason": "No."} if contains(input.content, "marked")

require_approval contains {"code": "test.rule", "reason": "Ask."} if contains(input.content, "marked")

redact contains {"code": "test.rule", "reason": "Cut.", "spans": [[0, 2]]} if contains(input.content, "marked")

label contains {"code": "test.rule", "reason": "Marked.", "label": "seen"} if contains(input.content, "marked")
"""
WITH_EFFECTS = GOOD.partition("deny contains")[0] + EFFECTS


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def pipe(write: Write, clock: _Clock) -> Iterator[Pipeline]:
    folder = write({PLACE: WITH_EFFECTS, "cmf/data.json": json.dumps({"exceptions": [FOR_ALICE]})})
    pipeline = Pipeline(policies=folder, sessions=MemorySessions(clock=clock))
    yield pipeline
    pipeline.close()


def run(pipe: Pipeline, subject: str, session: str | None = "s") -> Outcome:
    return pipe.run(MARKED, Context.model_validate({"subject": {"id": subject}, "session": session}))


@pytest.mark.spec("EXC-2")
def test_others_and_later_days_are_refused(pipe: Pipeline, clock: _Clock) -> None:
    other = run(pipe, "bob")
    claim = {**WORDS, "extensions": {"security": {"subject": {"id": "alice"}}}}
    claimed = pipe.run(
        Request.model_validate({"messages": [claim]}), Context.model_validate({"subject": {"id": "bob"}})
    )
    clock.now += timedelta(days=1)
    late = run(pipe, "alice")

    for outcome in (other, claimed, late):
        assert (outcome.decision.action, outcome.decision.excused) == (Action.REFUSE, 0)


@pytest.mark.spec("EXC-3")
def test_nothing_is_refused_asked_about_or_edited_but_labels_are_put_on(pipe: Pipeline) -> None:
    outcome = run(pipe, "alice")

    assert (outcome.decision.verdict, outcome.decision.action) == (Verdict.DENY, Action.FORWARD)
    assert outcome.decision.approvals == ()
    assert outcome.request is not None
    assert outcome.request.messages[0].content[0].text == "marked 4111"  # type: ignore[union-attr]
    assert outcome.labels == {"seen"}


@pytest.mark.spec("EXC-5")
def test_a_decision_says_who_answers_for_it_and_how_many_there_are(pipe: Pipeline) -> None:
    shown = run(pipe, "alice").decision.to_json()

    assert shown["excused"] == 4
    assert [(hit["effect"], hit["excused"]) for hit in shown["views"][-1]["hits"]] == [
        (effect, {"owner": "ann", "until": "2026-06-30"}) for effect in ("deny", "require_approval", "redact", "label")
    ]
    assert "excused" not in run(pipe, "bob").decision.to_json()


@pytest.mark.spec("EXC-4")
def test_what_the_pipeline_itself_refuses_stays_refused(write: Write) -> None:
    broken = GOOD.replace("if input.properties.redacted", "if to_number(input.content) > 1")
    data = {"exceptions": [{**ALL, "until": "2999-12-31", "subject": "**"}]}
    folder = write({PLACE: broken, "cmf/data.json": json.dumps(data)})

    with Guard(folder) as guard:
        decision = guard.decide(MARKED, subject={"id": "alice"}, session="s")

    assert [hit.rule for hit in decision.reasons] == ["engine"]
    assert (decision.action, decision.excused) == (Action.REFUSE, 0)


@pytest.mark.spec("EXC-5")
def test_eval_counts_them_apart(write: Write) -> None:
    data = {"exceptions": [{**ALL, "until": "2999-12-31", "subject": "alice"}]}
    folder = str(write({PLACE: RULE, "cmf/data.json": json.dumps(data)}))
    document = json.dumps(MARKED.model_dump())

    def evaluated(*options: str) -> Any:
        command = ["eval", "-", "--from", "canonical", "--policies", folder, "--subject", "alice", *options]
        return CliRunner().invoke(app, command, input=document)

    text = evaluated()
    assert text.exit_code == 0
    assert "(excused until 2999-12-31, ann)" in text.stdout
    assert "excused   1 not enforced by exception" in text.stdout
    assert json.loads(evaluated("--format", "json").stdout)["excused"] == 1


@pytest.mark.spec("EXC-5")
def test_a_record_says_it_too(pipe: Pipeline) -> None:
    outcome = run(pipe, "alice")

    record = json.loads(
        record_of(outcome.decision, Context(), Run(timestamp=NOW, input_digest="00")).body,
    )["result"]

    assert record["excused"] == 4
    assert [hit["excused"]["owner"] for hit in record["views"][-1]["hits"]] == ["ann"] * 4


def test_an_exception_is_what_it_says() -> None:
    (one,) = read({"cmf": {"exceptions": [FOR_ALICE]}}, {"test/rule"})

    assert one == RuleException(
        rule="test/rule", until=NOW.date(), owner="ann", reason="ticket 4711", subject="alice", uri=None, session=None
    )
    assert policy_set.load(policy_set.shipped()).exceptions == ()
