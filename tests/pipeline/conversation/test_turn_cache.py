"""What a turn takes over from the turn before it, and what it never does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import PROFILES, calls, returns, says

from cmf import Message, Request, SubjectExtension, TextPart, ToolDefinition
from cmf.json.frozen import FrozenDict, FrozenList
from cmf.json.value import replace, to_bytes
from cmf.message.message import Layout, PromptResultPart, RequestExtension, ToolCallPart, ToolResultPart
from pipeline import Config, Context, Pipeline
from pipeline.conversation.history import Histories
from pipeline.decisions.certificate import Digests, digest_of
from pipeline.decisions.decision import Action, Mode
from pipeline.decisions.engine import Engine, EngineResult, TimedOut
from pipeline.decisions.errors import EmissionError
from pipeline.decisions.traffic import equal_start, unchanged
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import build_engine, load_policies
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome
from pipeline.sessions.base import MemorySessions

HERE = Context(subject=SubjectExtension(id="ann"), session="s")
MASK = """\
redact contains {"code": "test.mask", "reason": "r", "spans": [[at, at + 6]]} if {
\tsome at in indexof_n(input.content, "secret")
}
"""
LABELLED = """\
warn contains {"code": "test.hot", "reason": "r"} if "hot" in input.session.labels
"""
FORBIDDEN = 'deny contains {"code": "test.no", "reason": "r"} if contains(input.content, "forbidden")\n'

UNRUN = 'deny contains {"code": "test.unrun", "reason": "r"} if input.hook == "tool_pre"\n'

Made = Callable[..., Pipeline]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A function that makes a pipeline with a mask, a rule on texts that reads the session, and one that forbids."""

    def make(config: Config | None = None, **options: Any) -> Pipeline:
        write_rules(tmp_path, {"mask": MASK, "forbidden": FORBIDDEN})
        write_rules(tmp_path, {"hot": LABELLED}, kinds="thinking, tool_result")
        return Pipeline(policies=tmp_path, config=config, **options)

    return make


def talk(*texts: str) -> list[Message]:
    return [says("assistant" if place % 2 else "user", text) for place, text in enumerate(texts)]


def turn(pipeline: Pipeline, messages: Sequence[Message], context: Context = HERE, **fields: Any) -> Outcome:
    return pipeline.run(Request(model="openai:gpt", messages=messages, **fields), context)


def judged(outcome: Outcome) -> list[str]:
    """The paths of the views that this run judged itself."""
    return [view.path for view in outcome.decision.views if not view.reused]


@pytest.mark.spec("PIPE-16")
@pytest.mark.spec("PIPE-17")
def test_a_turn_judges_the_request_and_what_is_new_and_says_what_it_took_over(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    assert turn(pipeline, messages).decision.coverage.to_json() == {"produced": 3, "evaluated": 3, "skipped": []}

    for number in range(20):
        messages += talk(f"secret {number}", "fine")
        outcome = turn(pipeline, messages)
        assert judged(outcome) == ["request", f"messages[{len(messages) - 2}].content[0]",
                                   f"messages[{len(messages) - 1}].content[0]"]  # fmt: skip
        coverage = outcome.decision.coverage
        assert (coverage.full, coverage.produced, coverage.reused) == (True, len(messages) + 1, len(messages) - 2)
    assert outcome.decision.to_json()["coverage"]["reused"] == 40
    assert outcome.decision.to_json()["views"][1]["reused"] is True
    assert outcome.request is not None
    assert b"secret" not in to_bytes(outcome.request)


@pytest.mark.spec("PIPE-16")
def test_awaiting_takes_over_too(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    asyncio.run(pipeline.arun(Request(messages=messages), HERE))
    outcome = asyncio.run(pipeline.arun(Request(messages=[*messages, says("user", "c")]), HERE))
    assert judged(outcome) == ["request", "messages[2].content[0]"]


@pytest.mark.spec("PIPE-16")
def test_what_only_looks_equal_is_judged_again(made: Made) -> None:
    pipeline = made()
    spellings: list[Any] = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0, "b": 2}, {"a": True, "b": 2}]
    for arguments in spellings:
        assert "messages[0].content[0]" in judged(turn(pipeline, [calls("t", arguments, "1")]))
    assert "messages[0].content[0]" not in judged(turn(pipeline, [calls("t", spellings[-1], "1")]))

    for content in (1, True, 1.0, "1"):
        assert "messages[1].content[0]" in judged(turn(pipeline, [calls("t", {}, "1"), returns(content, "1")]))


@pytest.mark.spec("PIPE-16")
def test_after_an_edit_of_history_all_from_there_on_is_judged(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b", "c", "d")
    turn(pipeline, messages)
    messages[2] = says("user", "secret")
    outcome = turn(pipeline, messages)
    assert judged(outcome) == ["request", "messages[2].content[0]", "messages[3].content[0]"]
    assert outcome.request is not None
    assert outcome.request.messages[2].content == (TextPart(text="[MASKED]"),)
    assert judged(turn(pipeline, messages[1:]))[1:] == [f"messages[{place}].content[0]" for place in range(3)]


@pytest.mark.spec("PIPE-16")
def test_only_kinds_whose_rules_read_what_changed_in_the_session_are_judged_again(made: Made) -> None:
    sessions = MemorySessions()
    pipeline = made(sessions=sessions)
    thought = Message.model_validate({"role": "assistant", "content": [{"content_type": "thinking", "text": "hm"}]})
    messages = [says("user", "a"), thought, calls("t", {}, "1"), returns("x", "1")]
    turn(pipeline, messages)
    assert judged(turn(pipeline, messages)) == ["request"]
    # An event of the session that no rule reads: the call was counted, an approval asked for, and so on.
    pipeline.run(calls("t", {"equal_start": 1}, "2"), HERE)
    assert judged(turn(pipeline, messages)) == ["request"]

    sessions.add_labels(HERE, frozenset({"hot"}))
    outcome = turn(pipeline, messages)
    assert judged(outcome) == [view.path for view in outcome.decision.views]  # the label is on each message as well
    assert [hit.code for hit in outcome.decision.hits] == ["test.hot", "test.hot"]
    assert [hit.code for hit in turn(pipeline, messages).decision.hits] == ["test.hot", "test.hot"]


@pytest.mark.spec("PIPE-16")
def test_other_facts_of_the_context_are_judged_anew(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    everything = ["request", "messages[0].content[0]", "messages[1].content[0]"]
    turn(pipeline, messages)
    assert judged(turn(pipeline, messages, replace(HERE, environment="production"))) == everything
    assert judged(turn(pipeline, messages, replace(HERE, session="other"))) == everything
    assert judged(turn(pipeline, messages, replace(HERE, subject=SubjectExtension(id="bob")))) == everything
    assert judged(turn(pipeline, messages, Context())) == judged(turn(pipeline, messages, Context())) == everything
    assert judged(turn(pipeline, messages, replace(HERE, history=(says("user", "a"),)))) == everything


@pytest.mark.spec("PIPE-16")
def test_an_id_and_a_time_of_each_request_leave_settled_what_no_rule_reads_them_for(tmp_path: Path) -> None:
    night = 'deny contains {"code": "test.night", "reason": "r"} if endswith(input.extensions.request.timestamp, "T22")'
    write_rules(tmp_path, {"forbidden": FORBIDDEN, "mask": MASK})
    write_rules(tmp_path, {"night": night}, kinds="tool_result, tool_definition")
    pipeline = Pipeline(policies=tmp_path)
    tools = [ToolDefinition(name="t", input_schema={"type": "object"})]
    messages = [says("user", "a secret"), calls("t", {"a": 1}, "1"), returns("fine", "1")]

    def at(number: int, time: str) -> Context:
        facts = RequestExtension(request_id=f"req_{number}", timestamp=time)
        return replace(HERE, request=facts, recorded=FrozenDict({"wire_in": str(number)}))

    turn(pipeline, messages, at(1, "T12"), tools=tools)
    same = turn(pipeline, messages, at(2, "T12"), tools=tools)
    assert same.request is not None
    assert judged(same) == ["request"]
    assert {message.extensions.request.request_id for message in same.request.messages} == {"req_2"}  # type: ignore[union-attr]
    late = turn(pipeline, messages, at(3, "T22"), tools=tools)
    assert (late.value, {hit.code for hit in late.decision.hits} & {"test.night"}) == (None, {"test.night"})
    assert judged(late) == ["request", "tools[0]", "messages[2].content[0]"]
    assert len(judged(turn(pipeline, messages, HERE, tools=tools))) == 5  # facts that the traffic brings count instead


@pytest.mark.spec("PIPE-16")
def test_nothing_is_taken_over_from_other_policies(made: Made, tmp_path: Path) -> None:
    pipeline, messages = made(), talk("a", "b")
    turn(pipeline, messages)
    write_rules(tmp_path, {"more": 'warn contains {"code": "test.more", "reason": "r"} if input.kind == "text"\n'})
    policies = load_policies(tmp_path)
    pipeline._serving.swap(policies, build_engine(policies, "embedded", Config()))
    outcome = turn(pipeline, messages)
    assert outcome.decision.coverage.reused == 0
    assert [hit.code for hit in outcome.decision.hits] == ["test.more", "test.more"]


@pytest.mark.spec("PIPE-16")
def test_it_can_be_switched_off_and_never_happens_where_answers_can_change(made: Made) -> None:
    messages = talk("a", "b")
    profiles = Profiles.load(lambda uri: None)
    policies = made().policies
    for pipeline in (
        made(Config(reuse=False)),
        made(profiles=profiles),
        made(engine=build_engine(policies, "embedded", Config())),
    ):
        turn(pipeline, messages)
        assert turn(pipeline, messages).decision.coverage.reused == 0


class _Flaky:
    """An engine that is out of time for every question but those after `failures` of them."""

    def __init__(self, engine: Engine, failures: int) -> None:
        self._engine = engine
        self._failures = failures
        self.revision = engine.revision

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        self._failures -= 1
        if self._failures >= 0:
            return [TimedOut()] * len(views)
        return self._engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.spec("PIPE-16")
def test_what_an_engine_failed_at_is_judged_again(made: Made) -> None:
    pipeline, messages = made(Config(mode=Mode.OBSERVE)), talk("a", "b")
    tools = [ToolDefinition(name="t")]
    runner = pipeline._serving.runner
    runner._engine = _Flaky(runner._engine, 1)  # type: ignore[assignment]
    assert [hit.code for hit in turn(pipeline, messages, tools=tools).decision.hits] == ["engine.timeout"] * 4
    assert turn(pipeline, messages, tools=tools).decision.hits == ()
    assert judged(turn(pipeline, messages, tools=tools)) == ["request"]


@pytest.mark.spec("PIPE-16")
def test_a_refused_turn_settles_nothing_and_leaves_what_was_settled(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    turn(pipeline, messages)
    refused = [*messages, says("user", "forbidden")]
    for _ in range(2):
        outcome = turn(pipeline, refused)
        assert (outcome.decision.action, judged(outcome)) == (Action.REFUSE, ["request", "messages[2].content[0]"])
    assert judged(turn(pipeline, [*messages, says("user", "c")])) == ["request", "messages[2].content[0]"]


@pytest.mark.spec("PIPE-17")
def test_what_may_not_be_kept_is_not_and_what_is_kept_is_bounded(made: Made) -> None:
    profiles = Profiles.load({"profiles": {"t": {"data_policy": {"retention": {"policy": "none"}}}}})
    pipeline = made(profiles=profiles)
    messages = [says("user", "a"), calls("t", {}, "1"), returns("x", "1")]
    for _ in range(2):
        assert turn(pipeline, messages).decision.coverage.reused == 0
    assert not pipeline._histories._kept

    small = made()
    small._histories = Histories(Profiles(), small._sessions, max_work=100)
    turn(small, talk("a", "b"))
    assert turn(small, talk("a", "b")).decision.coverage.reused == 2
    turn(small, talk(*"abcdefghijklm"))
    assert turn(small, talk(*"abcdefghijklm")).decision.coverage.reused == 0


@pytest.mark.spec("PIPE-16")
def test_tools_that_did_not_change_are_taken_over_and_others_are_judged(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    tools = [ToolDefinition(name="t", description="one"), ToolDefinition(name="u", description="two")]
    turn(pipeline, messages, tools=tools)
    assert judged(turn(pipeline, messages, tools=tools)) == ["request"]
    tools[1] = ToolDefinition(name="u", description="three")
    assert judged(turn(pipeline, messages, tools=tools)) == ["request", "tools[1]"]
    first = [says("user", "another"), messages[1]]
    assert "tools[0]" in judged(turn(pipeline, first, tools=tools))


@pytest.mark.spec("PIPE-16")
def test_a_settled_call_is_held_against_the_schema_of_today_once_it_is_edited(tmp_path: Path) -> None:
    cap = """\
rewrite contains {"code": "test.cap", "reason": "r", "pointer": "/arguments/amount", "value": 100} if {
\tinput.arguments.amount > 100
}
"""
    for reuse in (True, False):
        write_rules(tmp_path, {"cap": cap}, kinds="tool_call")
        pipeline = Pipeline(policies=tmp_path, config=Config(reuse=reuse))
        messages = [says("user", "a"), calls("pay", {"amount": 500}, "1"), returns("x", "1")]
        loose = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        strict = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 50}}}
        for _ in range(2):
            outcome = turn(pipeline, messages, tools=[ToolDefinition(name="pay", input_schema=FrozenDict(loose))])
            assert outcome.decision.action is Action.FORWARD_MODIFIED
        outcome = turn(pipeline, messages, tools=[ToolDefinition(name="pay", input_schema=FrozenDict(strict))])
        assert outcome.decision.action is Action.REFUSE
        assert "effect.tool-input-invalid" in [hit.code for hit in outcome.decision.hits]


@pytest.mark.spec("PIPE-16")
def test_a_call_whose_origins_are_others_now_is_judged_again(made: Made) -> None:
    pipeline = made(profiles=PROFILES)
    messages = [says("user", "send it to ann@x.com"), calls("send", {"to": "ann@x.com"}, "1")]
    turn(pipeline, messages)
    assert judged(turn(pipeline, messages)) == ["request"]
    (kept,) = pipeline._histories._kept.values()
    kept.trails.clear()  # forgotten: they are found anew, and are the same
    assert judged(turn(pipeline, messages)) == ["request"]


@pytest.mark.spec("PIPE-16")
def test_settled_calls_are_judged_again_when_other_data_came_into_the_session_under_the_same_label(made: Made) -> None:
    told = {"apply_labels": ["mail"]}
    profiles = Profiles.load(
        {
            "profiles": {
                "open_box": {"data_policy": told},
                "closed_box": {"data_policy": {**told, "denied_actions": ["send"]}},
                "send": {"actions": ["send"]},
            }
        }
    )
    pipeline = made(profiles=profiles)
    messages = [says("user", "a"), calls("open_box", {}, "1"), returns("x", "1"), calls("send", {"to": "who?"}, "2")]
    for _ in range(3):
        assert turn(pipeline, messages).decision.action is Action.FORWARD
    assert judged(turn(pipeline, messages)) == ["request"]
    labels = pipeline._sessions.read(HERE).labels
    pipeline.run(returns("y", tool_name="closed_box"), HERE)
    assert pipeline._sessions.read(HERE).labels == labels
    outcome = turn(pipeline, messages)
    assert [hit.code for hit in outcome.decision.hits] == ["data_policy.denied"]
    assert "messages[3].content[0]" in judged(outcome)


@pytest.mark.spec("PIPE-7")
def test_a_kept_message_that_was_tampered_with_does_not_go_out(made: Made) -> None:
    pipeline, messages = made(), talk("a", "b")
    turn(pipeline, messages)
    outcome = turn(pipeline, [*messages, says("user", "c")])
    assert outcome.request is not None
    object.__setattr__(outcome.request.messages[0].content[0], "text", "something else")
    with pytest.raises(EmissionError) as caught:
        emit(outcome, "canonical")
    assert caught.value.code == "emit.other-value"


PARTS = st.builds(lambda text: TextPart(text=text), st.sampled_from("ab")) | st.builds(
    lambda arguments: ToolCallPart(name="t", arguments=FrozenDict(arguments)),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from([1, 1.0, True, "1", None]), max_size=2),
)
MESSAGES = st.builds(lambda parts: Message(role="user", content=parts), st.lists(PARTS, max_size=2))


@pytest.mark.spec("PIPE-16")
@given(st.lists(MESSAGES, max_size=5), st.lists(MESSAGES, max_size=5))
def test_messages_are_unchanged_exactly_where_everybody_reads_the_same(
    held: list[Message], given_now: list[Message]
) -> None:
    given_now = [Message.model_validate_json(to_bytes(message)) for message in held[: len(given_now) // 2]] + given_now
    count = unchanged(tuple(held), tuple(given_now))
    assert all(to_bytes(old) == to_bytes(new) for old, new in zip(held[:count], given_now[:count], strict=True))
    after = list(zip(held, given_now, strict=False))[count:]
    assert not after or to_bytes(after[0][0]) != to_bytes(after[0][1])
    assert unchanged(tuple(held), tuple(held)) == len(held)


@pytest.mark.spec("PIPE-16")
def test_a_result_that_is_made_of_parts_is_not_the_json_value_that_looks_like_it() -> None:
    inner = TextPart(text="hello")
    of_parts, of_json = ToolResultPart(content=(inner,)), ToolResultPart(content="x")
    of_json = replace(of_json, content=FrozenList([{"content_type": "text", "text": "hello"}]))
    assert to_bytes(of_parts) == to_bytes(of_json)
    for around in (lambda part: part, lambda part: ToolResultPart(content=(part,)), _in_prompt):
        held, now = (Message(role="tool", content=[around(part)]) for part in (of_parts, of_json))
        assert unchanged((held,), (now,)) == 0
        assert unchanged((held,), (Message.model_validate_json(to_bytes(held)),)) == 1


def _in_prompt(part: ToolResultPart) -> PromptResultPart:
    return PromptResultPart(prompt_name="p", messages=[Message(role="tool", content=[part])])


@pytest.mark.spec("PIPE-16")
def test_a_message_that_its_wire_spelled_otherwise_is_another_one() -> None:
    message, other = says("user", "a"), says("user", "a")
    assert unchanged((message,), (other,)) == 1
    object.__setattr__(other, "provider_raw", Layout(format="openai_chat", group=7))
    assert unchanged((message,), (other,)) == 0


@pytest.mark.spec("PIPE-7")
@given(
    st.lists(st.lists(MESSAGES, max_size=4), min_size=1, max_size=4),
    st.sampled_from([{}, {"model": "m"}, {"model": "m", "stream": True}, {"tools": [ToolDefinition(name="t")]}]),
    st.booleans(),
)
def test_a_digest_that_goes_on_from_an_earlier_one_is_that_of_the_whole(
    turns: list[list[Message]], fields: Mapping[str, Any], begins_anew: bool
) -> None:
    digests, messages = Digests(), []
    for new in turns:
        messages = [*(says("user", "x") for _ in range(begins_anew)), *messages, *new]
        value = Request(messages=messages, **fields)
        assert digests.of(value) == digest_of(value)
        other = replace(value, model="other")
        assert Digests(digests.written).of(other) == digest_of(other)
    assert digests.of(says("user", "a")) == digest_of(says("user", "a"))


def nested() -> Any:
    """A value that holds another, and so on: deeper than anybody compares."""
    return functools.reduce(lambda held, _: (ToolResultPart(content=held),), range(80), "x")


@pytest.mark.spec("PIPE-16")
@pytest.mark.parametrize(
    ("held", "now", "alike"),
    [
        (FrozenDict({"a": 1, "b": 2}), FrozenDict({"b": 2, "a": 1}), False),
        (FrozenDict({"a": 1}), FrozenDict({"a": 1, "b": 2}), False),
        (FrozenDict({"a": 0.0}), FrozenDict({"a": -0.0}), False),
        (FrozenDict({"a": 1e300}), FrozenDict({"a": float("1e300")}), True),
        (FrozenDict({"a": 2**70}), FrozenDict({"a": int("1180591620717411303424")}), True),
        (FrozenDict({"a": [1]}), FrozenDict({"a": [1, 2]}), False),
        (FrozenDict({"a": True}), FrozenDict({"a": 1}), False),
        (b"bytes", bytes(bytearray(b"bytes")), True),
        (datetime(2026, 1, 2, tzinfo=UTC), datetime.fromisoformat("2026-01-02T00:00:00+00:00"), True),
        (frozenset({"a", "b"}), frozenset(["b", "a"]), True),
        (frozenset({"a", "b"}), frozenset({"a"}), False),
        (Decimal("1.0"), Decimal("1.00"), False),  # equal, and spelled otherwise
        (object(), object(), False),
        (nested(), nested(), False),
    ],
)
def test_values_that_are_not_provably_equal_are_not_unchanged(held: Any, now: Any, alike: bool) -> None:
    assert unchanged((held,), (now,)) == alike
    assert unchanged((held,), (held,)) == 1


@pytest.mark.spec("PIPE-16")
@given(st.lists(MESSAGES, max_size=5), st.lists(MESSAGES, max_size=5), st.integers(0, 5))
def test_fingerprints_tell_what_came_again_without_what_was_held(
    before: list[Message], now: list[Message], kept: int
) -> None:
    held, given_now = tuple(before), (*before[:kept], *now)
    known = equal_start((), b"", held)[1]
    count, prints = equal_start((), known, given_now)  # nothing of it is at hand any more
    assert (
        (count, prints)
        == equal_start(held, known, given_now)
        == (unchanged(held, given_now), equal_start((), b"", given_now)[1])
    )
    assert len(prints) == 16 * len(given_now)
    assert equal_start(held, known, held) == (len(held), known)


@pytest.mark.spec("VIEW-7", "PIPE-16")
def test_a_call_that_is_made_now_takes_nothing_over_from_one_in_a_history(made: Made, tmp_path: Path) -> None:
    write_rules(tmp_path, {"unrun": UNRUN}, kinds="tool_call")
    asked = Message(role="assistant", content=[ToolCallPart(tool_call_id="c1", name="pay")])
    history = Request(messages=[asked])
    call = Request(messages=[asked], extra={"mcp": {"envelope": {"method": "tools/call"}}})
    pipeline = made()

    verdicts = [pipeline.run(one, HERE).decision.verdict for one in (history, call, history, call, call)]

    assert verdicts == ["allow", "deny", "allow", "deny", "deny"]
