"""Judge every view, carry out effects, judge again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.pipeline.conftest import Rules, write_rules

from cmf import (
    Choice,
    Extensions,
    Message,
    PromptResultPart,
    Request,
    Response,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
)
from pipeline import Config, Context, Guard, Mode
from pipeline.conversation.history import Histories, History
from pipeline.decisions.cancellation import Deadline
from pipeline.decisions.decision import Action, Effect, Verdict
from pipeline.decisions.engine import Decided, EngineResult, Failed
from pipeline.decisions.errors import PipelineError
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Traffic
from pipeline.policy.policy_set import load
from pipeline.provenance.profiles import Profiles
from pipeline.run.offload import BLOCKING, completed
from pipeline.run.outcome import Ran
from pipeline.run.runner import MAX_PASSES, Runner
from pipeline.sessions.base import MemorySessions

DENY_WORD = """\
deny contains {"code": "test.word", "reason": "No."} if contains(input.content, "forbidden")
"""
MASK_WORD = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[at, at + 6]]} if {
\tsome at in indexof_n(input.content, "secret")
}
"""
LABEL_RESULT = """\
label contains {"code": "test.label", "reason": "From outside.", "label": "untrusted"} if input.kind == "tool_result"
"""
DENY_LABELLED_CALL = """\
deny contains {"code": "test.tainted", "reason": "Not after that."} if {
\tinput.kind == "tool_call"
\t"untrusted" in input.extensions.security.labels
}
"""


def unknown() -> History:
    """A history that nothing is known of."""
    return Histories(Profiles(), MemorySessions()).open(Context())


def says(*texts: str, role: str = "user") -> Message:
    return Message(role=role, content=[TextPart(text=text) for text in texts])


@pytest.mark.spec("PIPE-1")
def test_every_view_of_a_nested_value_is_judged(guarded: Rules) -> None:
    guard = guarded({"word": DENY_WORD})
    request = Request(
        messages=[
            says("fine"),
            Message(role="tool", content=[ToolResultPart(content=(TextPart(text="ok"), TextPart(text="forbidden")))]),
        ],
        tools=[ToolDefinition(name="t", description="forbidden")],
    )

    decision = guard.decide(request)

    assert decision.coverage.full
    assert decision.coverage.produced == len(decision.views) == 7
    assert {view.path for view in decision.views if view.verdict is Verdict.DENY} == {
        "tools[0]",
        "messages[1].content[0]",
        "messages[1].content[0].content[1]",
    }
    assert decision.action is Action.REFUSE


class Answering:
    """An engine with fixed answers: for what a real one cannot be made to do."""

    name = "scripted"
    revision = "r"

    def __init__(self, answers: Sequence[EngineResult]) -> None:
        self.answers = answers
        self.asked = 0

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        self.asked += 1
        return list(self.answers)

    def close(self) -> None:
        self.asked = -1

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        return self.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)


Scripted = Callable[[Sequence[EngineResult]], Runner]
ALLOW = Decided({effect.value: [] for effect in Effect})


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """A function that makes a runner whose engine gives these answers."""
    policies = load(write_rules(tmp_path, {"word": DENY_WORD}))

    def make(answers: Sequence[EngineResult]) -> Runner:
        return Runner(policies, Answering(answers), mode=Mode.ENFORCE, timeout_seconds=1, replacer_key=b"k" * 16)

    return make


def ran(runner: Runner, traffic: Traffic) -> Ran:
    """The result of one run, without a session."""
    return completed(runner.run(traffic, Context(), SessionFacts(), unknown(), Deadline(1), BLOCKING))


@pytest.mark.spec("PIPE-1")
@pytest.mark.parametrize("answers", [[], [ALLOW]])
def test_a_view_without_an_answer_is_not_covered_and_nothing_is_forwarded(
    scripted: Scripted, answers: list[EngineResult]
) -> None:
    outcome = ran(scripted(answers), says("a", "b")).outcome

    assert outcome.decision.coverage.evaluated == len(answers)
    assert [one.reason for one in outcome.decision.coverage.skipped] == ["engine.no-answer"] * (3 - len(answers))
    assert (outcome.decision.verdict, outcome.decision.action, outcome.value) == (Verdict.DENY, Action.REFUSE, None)


@pytest.mark.spec("PIPE-5")
def test_an_engine_that_fails_is_a_decision(scripted: Scripted) -> None:
    decision = ran(scripted([ALLOW, Failed("engine.panic")]), says("a", "b")).outcome.decision

    assert (decision.verdict, decision.action) == (Verdict.DENY, Action.REFUSE)
    assert [hit.code for hit in decision.hits] == ["engine.panic"]


@pytest.mark.spec("PIPE-5")
def test_a_value_that_cannot_be_decomposed_is_a_decision(guarded: Rules) -> None:
    deep = says("a")
    for _ in range(10):
        deep = Message(role="user", content=[PromptResultPart(prompt_name="p", messages=[deep])])

    decision = guarded({"word": DENY_WORD}).decide(deep)

    assert (decision.action, decision.coverage.full) == (Action.REFUSE, False)
    assert decision.coverage.skipped[0].reason == "view.too-deep"


@pytest.mark.spec("PIPE-5")
def test_an_effect_that_cannot_be_carried_out_is_a_deny_at_its_view(guarded: Rules) -> None:
    guard = guarded({"mask": 'redact contains {"code": "m", "reason": "x", "spans": [[0, 99]]}'}, kinds="text")

    decision = guard.decide(says("short"))

    assert (decision.verdict, decision.action) == (Verdict.DENY, Action.REFUSE)
    assert [(view.path, view.hits[-1].code) for view in decision.views] == [("content[0]", "effect.span-outside")]


@pytest.mark.spec("PIPE-2")
def test_the_subject_of_the_traffic_is_replaced(guarded: Rules) -> None:
    guard = guarded(
        {"admin": 'deny contains {"code": "a", "reason": "x"} if "admin" in input.extensions.security.subject.roles'}
    )
    forged = SecurityExtension(subject=SubjectExtension(id="eve", roles={"admin"}))
    message = Message(role="user", content=[TextPart(text="hi")], extensions=Extensions(security=forged))

    assert guard.decide(message).action is Action.FORWARD
    assert guard.decide(message, subject={"id": "ann", "roles": ["admin"]}).action is Action.REFUSE
    outcome = guard.check(message, subject={"id": "bob"})
    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.security is not None
    assert outcome.message.extensions.security.subject == SubjectExtension(id="bob")


@pytest.mark.spec("PIPE-3")
def test_an_edit_is_judged_again_and_cannot_create_what_policy_forbids(guarded: Rules) -> None:
    guard = guarded(
        {
            "mask": 'redact contains {"code": "m", "reason": "x", "spans": [[3, 9]], "replacement": "drop"} if '
            'contains(input.content, "secret")',
            "word": DENY_WORD,
        },
        kinds="text",
    )

    decision = guard.decide(says("forsecretbidden"))

    assert decision.action is Action.REFUSE
    assert [hit.code for hit in decision.hits] == ["m", "test.word"]


@pytest.mark.spec("PIPE-3")
def test_edits_that_never_come_to_rest_are_refused(guarded: Rules) -> None:
    guard = guarded({"mask": 'redact contains {"code": "m", "reason": "x", "spans": [[0, 1]]}'}, kinds="text")

    decision = guard.decide(says("abc"))

    assert decision.action is Action.REFUSE
    assert decision.hits[-1].code == "pipeline.no-fixed-point"
    assert MAX_PASSES == 4


@pytest.mark.spec("PIPE-3")
def test_a_redaction_is_in_the_decision_and_the_value_is_the_edited_one(guarded: Rules) -> None:
    request = Request(messages=[says("a secret", "b")])

    outcome = guarded({"mask": MASK_WORD}, kinds="text").check(request)

    assert outcome.request is not None
    assert [part.text for part in outcome.request.messages[0].content] == ["a [MASKED]", "b"]
    assert (outcome.decision.verdict, outcome.decision.action) == (Verdict.ALLOW, Action.FORWARD_MODIFIED)
    assert [hit.code for hit in outcome.decision.hits] == ["test.mask"]
    assert outcome.response is None
    assert outcome.message is None


@pytest.mark.spec("PIPE-3")
def test_hits_that_a_removal_moved_are_not_lost(guarded: Rules) -> None:
    """Removing the signed part moves the text to its place, where it is found under another path."""
    guard = guarded(
        {
            "mask": 'redact contains {"code": "m", "reason": "x", "spans": [[0, 1]]} if input.kind == "thinking"',
            "late": 'warn contains {"code": "w", "reason": "x"} if [input.kind, input.path] == ["text", "content[0]"]',
        }
    )
    message = Message(role="assistant", content=[ThinkingPart(text="x", signature="s"), TextPart(text="t")])

    outcome = guard.check(message)

    assert [hit.code for hit in outcome.decision.hits] == ["m", "w"]
    assert outcome.decision.verdict is Verdict.WARN


@pytest.mark.spec("PIPE-4")
def test_a_label_holds_for_every_later_message(guarded: Rules) -> None:
    guard = guarded({"label": LABEL_RESULT, "tainted": DENY_LABELLED_CALL})
    call = Message(role="assistant", content=[ToolCallPart(name="send")])
    result = Message(role="tool", content=[ToolResultPart(content="x")])

    assert guard.decide(Request(messages=[call, result])).action is Action.FORWARD
    refused = guard.decide(Request(messages=[result, says("then"), call]))
    assert refused.action is Action.REFUSE
    assert [view.path for view in refused.views if view.verdict is Verdict.DENY] == ["messages[2].content[0]"]


@pytest.mark.spec("PIPE-4")
def test_a_label_of_the_request_itself_holds_for_all_messages(guarded: Rules) -> None:
    label = 'label contains {"code": "l", "reason": "x", "label": "untrusted"} if input.kind == "tool_definition"'
    guard = guarded({"label": label, "tainted": DENY_LABELLED_CALL})
    call = Message(role="assistant", content=[ToolCallPart(name="send")])

    decision = guard.decide(Request(messages=[call], tools=[ToolDefinition(name="t")]))

    assert decision.action is Action.REFUSE


@pytest.mark.spec("PIPE-4")
def test_labels_are_stamped_in_mode_observe_and_nothing_else_is_changed(guarded: Rules) -> None:
    guard = guarded({"label": LABEL_RESULT, "mask": MASK_WORD, "word": DENY_WORD}, config=Config(mode=Mode.OBSERVE))
    message = Message(role="tool", content=[ToolResultPart(content="a forbidden secret")])

    outcome = guard.check(message)

    assert outcome.labels == {"untrusted"}
    assert outcome.message is not None
    assert outcome.message.content == message.content
    assert (outcome.decision.verdict, outcome.decision.action) == (Verdict.DENY, Action.FORWARD)
    assert outcome.decision.mode is Mode.OBSERVE


@pytest.mark.spec("PIPE-4")
def test_a_label_on_one_choice_of_a_response_is_on_all(guarded: Rules) -> None:
    guard = guarded({"label": 'label contains {"code": "l", "reason": "x", "label": "l"} if input.content == "b"'})
    response = Response(choices=[Choice(message=says(text, role="assistant")) for text in ("a", "b")])

    outcome = guard.check(response)

    assert outcome.response is not None
    for choice in outcome.response.choices:
        assert choice.message.extensions is not None
        assert choice.message.extensions.security is not None
        assert choice.message.extensions.security.labels == {"l"}


@pytest.mark.spec("DEC-1")
def test_a_rule_in_mode_observe_is_recorded_and_not_enforced(guarded: Rules) -> None:
    outcome = guarded({"word": DENY_WORD}, mode="observe").check(says("forbidden"))

    assert outcome.decision.verdict is Verdict.DENY
    assert outcome.decision.action is Action.FORWARD
    assert outcome.decision.hits[0].mode is Mode.OBSERVE


@pytest.mark.spec("PIPE-9")
async def test_awaiting_gives_the_same_decision(guarded: Rules) -> None:
    guard = guarded({"mask": MASK_WORD, "word": DENY_WORD}, kinds="text")
    for message in (says("a secret"), says("forbidden"), says("plain")):
        awaited, called = await guard.adecide(message), guard.decide(message)
        assert {**awaited.to_json(), "decision_id": ""} == {**called.to_json(), "decision_id": ""}


def test_engines_are_asked_once_for_views_that_share_their_context(scripted: Scripted) -> None:
    runner = scripted([ALLOW] * 5)
    request = Request(messages=[says("a"), says("b"), says("c", "d")])
    ran(runner, request)

    assert isinstance(runner._engine, Answering)
    assert runner._engine.asked == 1


def test_guard_refuses_an_unknown_engine() -> None:
    with pytest.raises(PipelineError, match="use embedded or opa"):
        Guard(engine="wasm")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="--opa-url"):
        Guard(engine="opa")
