"""Lifting labels: who may, for how long, and that nothing else ever shrinks them."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules
from tests.pipeline.session_stores import ANN, Clock, at_once, taint, who

from cmf import Message, Request, TextPart, ToolCallPart
from cmf.json.codec import loads
from cmf.message.security import SubjectExtension
from cmf.message.tools import ToolDefinition
from pipeline import Pipeline
from pipeline.approvals.declassification import DeclassificationRules, declassify
from pipeline.audit.record import Record
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import DeclassificationError, SessionError, StoreBusy, StoreError
from pipeline.decisions.events import Declassified, Event, Events
from pipeline.decisions.timestamps import instant_of
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes, Taint

EVE = SubjectExtension(id="eve", permissions={"cmf:declassify"})
DAN = SubjectExtension(id="dan", permissions={"cmf:declassify"})
HOUR = timedelta(hours=1)


def lift(store: SessionStore, **other: Any) -> Any:
    given: dict[str, Any] = {"label": "secret", "actor": EVE, "reason": "reviewed", "expires_in": HOUR}
    return declassify(store, other.pop("context", ANN), **{**given, **other})


def tainted(store: SessionStore, *sources: str, label: str = "secret") -> None:
    for source in sources:
        store.commit(ANN, None, taint(label, source))


@pytest.mark.spec("SES-20")
@pytest.mark.parametrize(
    ("code", "other"),
    [
        ("declassify.not-authorised", {"actor": SubjectExtension(id="eve")}),
        ("declassify.not-authorised", {"actor": SubjectExtension(id="eve", permissions={"cmf:approve", "cmf"})}),
        ("declassify.not-authorised", {"actor": SubjectExtension(id="  ", permissions={"cmf:declassify"})}),
        ("declassify.not-authorised", {"seconder": SubjectExtension(id="dan")}),
        ("declassify.four-eyes", {"seconder": EVE}),
        ("declassify.four-eyes", {"rules": DeclassificationRules(four_eyes=True)}),
        ("declassify.too-long", {"expires_in": timedelta(days=1, seconds=1)}),
        ("declassify.too-long", {"expires_in": timedelta(0)}),
        ("declassify.four-eyes", {"seconder": SubjectExtension(id="\uff25ve\u200b", permissions={"cmf:declassify"})}),
        ("declassify.no-reason", {"reason": "  "}),
        ("declassify.no-reason", {"reason": "\u200b\u2060\ufeff\u00ad\u202e\u3164\u034f"}),
        ("declassify.no-reason", {"scope": ""}),
        ("declassify.no-reason", {"reason": "x" * 1_001}),
        ("declassify.no-reason", {"scope": "x" * 1_001}),
        ("declassify.nothing", {"label": "pii"}),
        ("declassify.nothing", {"sources": ()}),
        ("declassify.nothing", {"context": who("bob")}),
        ("session.unknown-source", {"sources": "e9"}),
        ("session.unknown-source", {"sources": {"e1", "e9"}}),
        ("session.none", {"context": who("ann", None)}),
    ],
)
def test_what_may_not_be_lifted_stays_and_leaves_no_trace(code: str, other: dict[str, Any]) -> None:
    store = MemorySessions()
    tainted(store, "e1")

    with pytest.raises(SessionError) as refused:
        lift(store, **other)

    assert refused.value.code == code
    assert store.read(ANN).labels == {"secret"}
    assert store.grants(ANN) == ()


@pytest.mark.spec("SES-20")
def test_a_lifted_label_does_not_count_until_the_grant_expires(store: SessionStore, clock: Clock) -> None:
    tainted(store, "e1", "e2")
    store.commit(ANN, None, taint("pii", "e1"))

    grant = lift(store, seconder=DAN, rules=DeclassificationRules(four_eyes=True))

    assert store.read(ANN).labels == {"pii"}
    assert grant.sources == {"e1", "e2"}
    clock.now += HOUR
    assert store.read(ANN).labels == {"secret", "pii"}


@pytest.mark.spec("SES-20")
def test_a_later_taint_survives_an_earlier_grant(store: SessionStore) -> None:
    tainted(store, "e1")
    lift(store)

    tainted(store, "e2")

    assert store.read(ANN).labels == {"secret"}
    assert store.read(ANN).label_sources == {"secret": frozenset({"e2"})}
    lift(store, sources={"e2"})
    assert store.read(ANN).labels == frozenset()


@pytest.mark.spec("SES-20")
def test_a_source_is_lifted_again_under_its_own_label_only(store: SessionStore, clock: Clock) -> None:
    tainted(store, "e1")
    tainted(store, "e2", label="pii")
    lift(store)
    lift(store, label="pii")

    recorded: list[Record] = []

    with pytest.raises(SessionError) as refused:
        lift(store, sources={"e2"}, record=recorded.append)
    lift(store, sources={"e1"}, expires_in=2 * HOUR)

    assert (refused.value.code, recorded) == ("session.unknown-source", [])
    clock.now += HOUR
    assert store.read(ANN).labels == {"pii"}


@pytest.mark.spec("SES-19")
def test_a_grant_is_recorded_and_published(store: SessionStore, clock: Clock) -> None:
    told: list[Event] = []
    events = Events()
    events.subscribe(told.append)
    tainted(store, "e1")

    grant = lift(store, seconder=DAN, events=events, scope="report for Q3")

    (kept,) = store.grants(ANN)
    assert (kept.actor, kept.seconder, kept.reason, kept.scope) == ("eve", "dan", "reviewed", "report for Q3")
    assert (kept.granted_at, kept.expires_at) == (clock.moment, clock.moment + 3_600_000_000)
    assert told == [
        Declassified(
            grant=grant.id,
            label="secret",
            session="s1",
            actor="eve",
            seconder="dan",
            sources=1,
            expires_at=grant.expires_at,
        )
    ]


@pytest.mark.spec("SES-23")
def test_what_is_lifted_is_on_record_before_and_what_cannot_be_is_not() -> None:
    store = MemorySessions()
    tainted(store, "e2", "e1")
    kept: list[Record] = []
    before: list[frozenset[str]] = []

    def fails(_: Record) -> None:
        raise StoreError("full", hint="free some")

    def keeps(record: Record) -> None:
        before.append(store.read(ANN).labels)
        kept.append(record)

    with pytest.raises(StoreError):
        lift(store, record=fails)
    assert store.grants(ANN) == ()
    for refused in ({"sources": "e9"}, {"label": "pii"}, {"actor": SubjectExtension(id="eve")}):
        with pytest.raises(SessionError):
            lift(store, record=keeps, **refused)
    assert kept == []
    grant = lift(store, record=keeps, seconder=DAN.model_copy(update={"roles": frozenset({"b", "a"})}))

    (record,) = kept
    assert before == [{"secret"}]
    assert (record.kind, record.action, record.subject, record.session) == ("declassify", "lift", "eve", "s1")
    said = loads(record.body)
    until = instant_of(grant.expires_at).isoformat()
    assert {name: said[name] for name in ("by", "second", "grant", "label", "session", "sources", "until")} == {
        "by": {"id": "eve"}, "second": {"id": "dan", "role": "a, b"}, "grant": grant.id, "label": "secret",
        "session": {"subject": "id:ann", "id": "s1"}, "sources": ["e1", "e2"], "until": until,
    }  # fmt: skip
    assert (said["reason"], said["scope"]) == ("reviewed", "session")
    assert store.grants(ANN) != ()

    tainted(store, "e1", label="what ann said")
    lift(store, label="what ann said", record=keeps)
    assert loads(kept[1].body)["label"] == f"sha256:{hashlib.sha256(b'what ann said').hexdigest()}"


@pytest.mark.spec("SES-23")
def test_what_comes_while_it_is_put_on_record_is_not_lifted() -> None:
    store = MemorySessions()
    tainted(store, "e1")

    grant = lift(store, record=lambda _: tainted(store, "e2"))

    assert grant.sources == {"e1"}
    assert store.read(ANN).label_sources == {"secret": frozenset({"e2"})}


@pytest.mark.spec("SES-20")
def test_who_may_and_for_how_long_are_settings() -> None:
    store = MemorySessions()
    tainted(store, "e1")
    rules = DeclassificationRules(authorise=lambda subject: subject.id == "zoe", longest=timedelta(days=30))
    zoe = SubjectExtension(id="zoe")

    with pytest.raises(DeclassificationError, match="at most 720 hours"):
        lift(store, actor=zoe, rules=rules, expires_in=timedelta(days=31))
    assert lift(store, actor=zoe, rules=rules, expires_in=timedelta(days=30)).actor == "zoe"


@pytest.mark.spec("SES-20")
def test_a_reason_and_a_scope_may_have_a_thousand_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemorySessions()
    tainted(store, "e1")

    grant = lift(store, reason="x" * 1_000, scope="y" * 1_000)

    assert (grant.reason, grant.scope) == ("x" * 1_000, "y" * 1_000)
    assert caplog.messages == [f"label lifted: grant {grant.id}"]


@pytest.mark.spec("SES-20")
def test_of_64_taints_and_grants_at_once_no_taint_is_lifted_that_came_after_its_grant(store: SessionStore) -> None:
    tainted(store, "e0")

    def turn(number: int) -> bool:
        if number % 8:
            tainted(store, f"e{number}")
        else:
            try:
                lift(store)
            except (DeclassificationError, StoreBusy):
                return False
        return True

    at_once(turn)

    lifted = {source for grant in store.grants(ANN) for source in grant.sources}
    left = store.read(ANN).label_sources.get("secret", frozenset())
    assert left == {"e0", *(f"e{n}" for n in range(64) if n % 8)} - lifted


def test_a_session_that_never_rests_is_not_declassified() -> None:
    class Contended(MemorySessions):
        def commit(self, context: Any, expected_version: int | None, changes: Changes) -> bool:
            return not changes.grants and super().commit(context, expected_version, changes)

    store = Contended()
    tainted(store, "e1")

    with pytest.raises(StoreBusy):
        lift(store)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("taint"), st.sampled_from("ab"), st.sampled_from("123")),
        st.tuples(st.just("lift"), st.sampled_from("ab"), st.integers(1, 90)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 60)),
    ),
    max_size=30,
)


@pytest.mark.spec("SES-20")
@given(STEPS)
def test_labels_shrink_by_exactly_the_active_grants(steps: list[tuple[str, str, Any]]) -> None:
    """Against a model of our own: every taint ever made, less what a grant that has not lapsed names."""
    clock = Clock()
    store = MemorySessions(clock)
    taints: set[tuple[str, str]] = set()
    grants: list[tuple[int, set[tuple[str, str]]]] = []
    for what, label, detail in steps:
        active = {pair for until, pairs in grants if clock.moment < until for pair in pairs}
        if what == "taint":
            store.commit(ANN, None, Changes(taints=frozenset({Taint(label, detail)})))
            taints.add((label, detail))
        elif what == "wait":
            clock.now += timedelta(minutes=detail)
        elif named := {pair for pair in taints - active if pair[0] == label}:
            lift(store, label=label, expires_in=timedelta(minutes=detail))
            grants.append((clock.moment + detail * 60_000_000, named))
        active = {pair for until, pairs in grants if clock.moment < until for pair in pairs}
        facts = store.read(ANN)
        assert facts.labels == {label for label, _ in taints - active}
        assert facts.lifted == active


LABELS = {
    "word": """\
label contains {"code": "t.word", "reason": "x", "label": "secret"} if contains(input.content, "classified")
""",
    "tool": """\
label contains {"code": "t.tool", "reason": "x", "label": "risky"} if input.name == "shell"
""",
    "model": """\
label contains {"code": "t.model", "reason": "x", "label": "costly"} if {
\tinput.kind == "request"
\tinput.uri == "llm://openai/big"
}
""",
    "stop": """\
deny contains {"code": "t.stop", "reason": "Not with secrets."} if {
\tinput.kind == "tool_call"
\t"secret" in input.extensions.security.labels
}
""",
}


@pytest.mark.spec("SES-20")
@pytest.mark.spec("PIPE-4")
def test_what_was_lifted_stays_so_when_the_same_words_are_presented_again(tmp_path: Path) -> None:
    store = MemorySessions()
    pipeline = Pipeline(policies=write_rules(tmp_path, LABELS), sessions=store)
    tools = [ToolDefinition(name="shell")]
    words = [Message(role="user", content=[TextPart(text="classified")])]
    call = Message(role="assistant", content=[ToolCallPart(name="send", arguments={})])
    before = pipeline.run(Request(messages=words, tools=tools), ANN)
    assert store.read(ANN).labels == {"secret", "risky"}
    assert pipeline.run(call, ANN).decision.action is Action.REFUSE

    lift(store)
    lift(store, label="risky")

    for value in (call, Request(messages=[*words, call], tools=tools)):
        assert pipeline.run(value, ANN).decision.action is Action.FORWARD
    assert store.read(ANN).labels == frozenset()
    assert before.labels == {"secret", "risky"}
    more = Message(role="user", content=[TextPart(text="classified too")])
    later = pipeline.run(Request(messages=[*words, more, call]), ANN)
    assert later.decision.action is Action.REFUSE
    pipeline.run(more, ANN)
    assert store.read(ANN).labels == {"secret"}


@pytest.mark.spec("SES-20")
def test_a_label_of_a_request_s_own_counts_anew_in_each_run(tmp_path: Path) -> None:
    store = MemorySessions()
    pipeline = Pipeline(policies=write_rules(tmp_path, LABELS), sessions=store)
    request = Request(model="openai:big", messages=[Message(role="user", content=[TextPart(text="hi")])])
    pipeline.run(request, ANN)
    lift(store, label="costly")
    assert store.read(ANN).labels == frozenset()

    pipeline.run(request, ANN)

    assert store.read(ANN).labels == {"costly"}
