"""Each condition under which what was settled is *not* taken over: by what it changes, it was judged again."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.pipeline.conftest import ALL_KINDS, write_rules
from tests.pipeline.conversations import PROFILES, calls, returns, says
from tests.pipeline.session_stores import Clock

from cmf import Message, Request, SubjectExtension, ToolDefinition
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict
from cmf.json.value import to_bytes
from pipeline import Config, Context, Pipeline
from pipeline.conversation.turn_cache import Section
from pipeline.decisions.decision import Action, Effect, Hit, Verdict, ViewDecision
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import load_policies
from pipeline.run.outcome import Outcome
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes, Grant

HERE = Context(subject=SubjectExtension(id="ann"), session="s", labels=frozenset({"pii"}))
ONCE_CALLED = 'input.session.counters["calls:tool://_/t"] > 0'
RULES = {
    "mask": (
        ALL_KINDS,
        """
redact contains {"code": "m", "reason": "r", "spans": [[at, at + 6]]} if {
\tsome at in indexof_n(input.content, "secret")
}
""",
    ),
    "number": (
        "text",
        """
redact contains {"code": "n", "reason": "r", "spans": [[at, at + 7]], "replacement": "token"} if {
\tsome at in indexof_n(input.content, "number")
}
""",
    ),
    "sign": ("thinking", 'redact contains {"code": "s", "reason": "r", "spans": [[0, 1]]} if true\n'),
    "tag": (
        "text, tool_definition",
        'label contains {"code": "l", "reason": "r", "label": "pii"} if contains(input.content, "personal")\n',
    ),
    "count": (
        "tool_call",
        f"""
redact contains {{"code": "k", "reason": "r", "pointer": "/arguments/key"}} if {{
\t{ONCE_CALLED}
\tinput.arguments.key != "[MASKED]"
}}
label contains {{"code": "c", "reason": "r", "label": "called"}} if {ONCE_CALLED}
""",
    ),
    "offered": ("tool_definition", f'warn contains {{"code": "o", "reason": "r"}} if {ONCE_CALLED}\n'),
    "fits": (
        "tool_call",
        """
warn contains {"code": "f", "reason": "r"} if {
\tsome entry in input.origins
\tentry.fits == false
}
warn contains {"code": "t", "reason": "r"} if {
\tsome entry in input.origins
\tsome source in entry.sources
\tsource.trust == "claimed"
}
""",
    ),
}


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    """Rules that read what changes from turn to turn, and an exception that ends with the first day."""
    home = tmp_path_factory.mktemp("settled")
    for name, (kinds, text) in RULES.items():
        write_rules(home, {name: text}, kinds=kinds, capabilities="read_labels, read_agent")
    excused = {"rule": "test/mask", "session": "s", "until": "2026-01-01", "owner": "o", "reason": "r"}
    (home / "data.json").write_bytes(dumps({"cmf": {"exceptions": [excused]}}))
    return load_policies(home)


class Pair:
    """Two pipelines that are told the same, of which one takes over what was settled: nobody can tell which."""

    def __init__(self, policies: PolicySet, profiles: Profiles | None = None) -> None:
        self.clock = Clock()
        self.pipelines = []
        for reuse in (True, False):
            sessions = MemorySessions(self.clock)
            config = Config(reuse=reuse)
            self.pipelines.append(Pipeline(policies=policies, config=config, sessions=sessions, profiles=profiles))

    def turn(self, messages: Sequence[Message], *tools: ToolDefinition) -> Outcome:
        """What came of a turn, from the one that takes over."""
        return self.run(Request(model="openai:gpt", messages=messages, tools=tools))

    def run(self, value: Message | Request) -> Outcome:
        taking, judging = (pipeline.run(value, HERE) for pipeline in self.pipelines)
        assert told(taking) == told(judging)
        assert judging.decision.coverage.reused == 0
        return taking

    def each(self, change: Callable[[Pipeline], object]) -> None:
        for pipeline in self.pipelines:
            change(pipeline)

    def lift(self, label: str) -> None:
        """Lift a label for all that brought it so far; the session still has it, from elsewhere."""

        def change(pipeline: Pipeline) -> None:
            facts = pipeline._sessions.read(HERE)
            sources = facts.label_sources[label]
            ends = facts.moment + 60_000_000
            grant = Grant(id="g", label=label, sources=sources, actor="b", reason="r", scope="s", expires_at=ends)
            pipeline._sessions.commit(HERE, None, Changes(grants=(grant,)))

        self.each(change)


def told(outcome: Outcome) -> dict[str, Any]:
    """All that came of a run but its id and what was taken over."""
    lines = [
        {name: item for name, item in view.to_json().items() if name != "reused"} for view in outcome.decision.views
    ]
    return {
        "lines": lines,
        "action": outcome.decision.action,
        "value": None if outcome.value is None else to_bytes(outcome.value),
        "digest": None if outcome.certificate is None else outcome.certificate.digest,
        "labels": outcome.labels,
        "events": outcome.events,
    }


def codes(outcome: Outcome) -> list[str]:
    return [hit.code for hit in outcome.decision.hits]


@pytest.mark.spec("PIPE-16")
def test_what_an_exception_excused_is_enforced_in_the_turn_after_it_ended(policies: PolicySet) -> None:
    pair, messages = Pair(policies), [says("user", "a secret"), says("assistant", "b")]
    assert pair.turn(messages).decision.action is Action.FORWARD
    assert pair.turn(messages).decision.coverage.reused == 2
    pair.clock.now += datetime.timedelta(days=1)
    outcome = pair.turn(messages)
    assert outcome.request is not None
    assert b"secret" not in to_bytes(outcome.request)


@pytest.mark.spec("PIPE-16")
@pytest.mark.parametrize("more", [(), ("c",), ("c", "personal")], ids=["the same", "more", "said again"])
def test_a_lifted_label_does_not_come_back_from_settled_or_repeated_messages(
    policies: PolicySet, more: tuple[str, ...]
) -> None:
    pair, messages = Pair(policies), [says("user", "personal"), says("assistant", "b")]
    assert len(pair.turn(messages).events) == 1
    pair.lift("pii")
    outcome = pair.turn([*messages, *(says("user", text) for text in more)])
    assert (outcome.events, outcome.decision.coverage.reused) == (frozenset(), 2)


@pytest.mark.spec("PIPE-16")
def test_a_lifted_label_does_not_come_back_from_a_tool_or_a_single_message(policies: PolicySet) -> None:
    pair, messages = Pair(policies), [says("user", "a")]
    tool = ToolDefinition(name="u", description="personal")
    assert len(pair.turn(messages, tool).events) == 1
    assert len(pair.run(says("user", "personal")).events) == 1
    pair.lift("pii")
    outcome = pair.turn(messages, tool)
    assert (outcome.events, outcome.decision.coverage.reused) == (frozenset(), 2)
    assert pair.run(says("user", "personal")).events == frozenset()


@pytest.mark.spec("PIPE-16")
def test_labels_of_messages_that_are_gone_are_not_brought_again(policies: PolicySet) -> None:
    pair, messages = Pair(policies), [says("user", "a"), says("assistant", "personal"), says("user", "c")]
    assert len(pair.turn(messages).events) == 1
    outcome = pair.turn([messages[0], says("assistant", "b")])
    assert (outcome.events, outcome.decision.coverage.reused) == (frozenset(), 1)


@pytest.mark.spec("PIPE-16")
def test_a_settled_call_and_tool_are_judged_again_when_the_count_that_their_rules_read_is_another(
    policies: PolicySet,
) -> None:
    pair = Pair(policies)
    messages = [says("user", "a"), calls("t", {"key": "k"}, "1"), returns("x", "1")]
    tool = ToolDefinition(name="t", description="does it")
    assert codes(pair.turn(messages, tool)) == []
    outcome = pair.turn(messages, tool)
    assert codes(outcome) == ["o", "k", "c"]
    assert "called" in outcome.labels
    assert outcome.request is not None
    assert outcome.request.messages[1].content[0].arguments == {"key": "[MASKED]"}
    assert codes(pair.turn(messages, tool)) == ["o", "k", "c"]


@pytest.mark.spec("PIPE-16")
def test_a_call_that_did_not_fit_its_schema_is_not_reported_in_later_turns(policies: PolicySet) -> None:
    pair = Pair(policies)
    schema = FrozenDict({"type": "object", "properties": {"to": FrozenDict({"type": "integer"})}})
    messages = [says("user", "a"), calls("u", {"to": "x"}, "1")]  # an answered call is not held to the schema
    tool = ToolDefinition(name="u", input_schema=schema)
    assert codes(pair.turn(messages, tool)) == ["f"]
    assert codes(pair.turn(messages, tool)) == []


@pytest.mark.spec("PIPE-16")
def test_a_settled_call_is_judged_again_when_what_it_was_made_of_is_a_claim_no_more(policies: PolicySet) -> None:
    pair = Pair(policies, PROFILES)
    said = says("assistant", "ann@x.com")
    messages = [says("user", "a"), said, says("user", "b"), calls("send", {"to": "ann@x.com"}, "1")]
    assert codes(pair.turn(messages)) == ["t"]
    pair.each(lambda pipeline: pipeline._sessions.commit(HERE, None, Changes(seen=marks(pipeline, said))))
    pair.each(lambda pipeline: [kept.trails.clear() for kept in pipeline._histories._kept.values()])
    outcome = pair.turn(messages)
    assert (codes(outcome), outcome.decision.coverage.reused) == ([], 3)


def marks(pipeline: Pipeline, message: Message) -> frozenset[str]:
    return pipeline._histories.open(HERE).marks(message)


@pytest.mark.spec("PIPE-16")
def test_tokens_are_counted_anew_when_more_came_after_them(policies: PolicySet) -> None:
    pair, messages = Pair(policies), [says("user", "number1"), says("assistant", "b")]
    for text in ("number2", "number3"):
        pair.turn(messages)
        messages.append(says("user", text))
    outcome = pair.turn(messages)
    assert outcome.request is not None
    assert [message.content[0].text for message in outcome.request.messages] == [
        "[TOKEN_3]",
        "b",
        "[TOKEN_2]",
        "[TOKEN_1]",
    ]


@pytest.mark.spec("PIPE-16")
def test_what_an_edit_took_out_of_messages_that_are_gone_moves_nothing(policies: PolicySet) -> None:
    pair = Pair(policies)
    parts = [{"content_type": "thinking", "text": "hm", "signature": "s"}, {"content_type": "text", "text": "number1"}]
    thought = Message.model_validate({"role": "assistant", "content": parts})
    messages = [says("user", "a"), thought, says("user", "c")]
    pair.turn(messages)
    assert pair.turn(messages).decision.coverage.reused > 0
    outcome = pair.turn([messages[0], says("assistant", "personal number2"), says("user", "c")])
    assert [view.path for view in outcome.decision.views][1:] == [f"messages[{place}].content[0]" for place in range(3)]


def line(code: str = "x", rule: str = "test/x", origins: Any = None) -> ViewDecision:
    hit = Hit(rule=rule, code=code, effect=Effect.DENY, reason="r")
    return ViewDecision(
        path="p", kind="text", role="user", uri=None, name=None, action="send", direction="pre",
        verdict=Verdict.DENY, outcome=Action.REFUSE, hits=(hit,), origins=origins,
    )  # fmt: skip


@pytest.mark.spec("PIPE-16")
def test_lines_of_failures_and_of_calls_that_had_just_come_are_judged_again() -> None:
    lines = [
        [line()],
        [line(rule="engine")],
        [line("data_policy.failed", "data_policy")],
        [line(origins=[{"type": "call", "fits": False}])],
        [line(origins=[{"type": "call"}])],
    ]
    section = Section().extended(tuple(range(5)), lines, {"text"})
    assert section.unstable == (1, 2, 3)
    assert section.first(2).unstable == (1,)
    assert (section.first(2).hit_places, section.first(2).kinds) == ((0, 1), {"text": (0, 1)})
    patched = section.patched({1: line(), 4: line(rule="engine")})
    assert patched.unstable == (2, 3, 4)
