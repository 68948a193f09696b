"""What a person is asked, what an approval lets through, and that it lets nothing else through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.session_stores import Clock, at_once

from cmf import Message, Request, Response, SubjectExtension, TextPart, ToolCallPart, ToolResultPart
from cmf.json.value import replace
from cmf.message.request import Choice
from pipeline import ApprovalRequired, Config, Context, Guard, Pipeline
from pipeline.approvals.needs import resolve
from pipeline.approvals.queue import Approvals
from pipeline.decisions.approval import ApprovalStatus, ApprovalUse
from pipeline.decisions.decision import Action, Mode, Verdict
from pipeline.decisions.errors import ApprovalError
from pipeline.decisions.events import ApprovalAsked, ApprovalUsed, Event
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.stage import Ask, Stage
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes

KEY = bytes(32)
BOB = SubjectExtension(id="bob", permissions={"cmf:approve"})
HERE = Context(subject=SubjectExtension(id="ann"), session="s")
RULES = {
    "pay": """\
require_approval contains {"code": "test.pay", "reason": "Paying needs a yes."} if {
\tinput.name == "pay"
\tinput.kind != "tool_result"
}
""",
    "much": """\
require_approval contains {"code": "test.much", "reason": "That is much."} if input.arguments.amount > 100
""",
    "never": """deny contains {"code": "test.never", "reason": "Never."} if input.arguments.amount > 1000 """,
    "card": """\
redact contains {"code": "test.card", "reason": "A card.", "pointer": "/arguments/card"} if {
\tinput.arguments.card
\tinput.arguments.card != "[MASKED]"
}
""",
    "word": """\
require_approval contains {"code": "test.word", "reason": "Ask first."} if contains(input.content, "launch")
""",
    "gone": """\
strip_tool contains {"code": "test.gone", "reason": "No such tool."} if {
\tinput.kind == "tool_definition"
\tinput.name == "gone"
}
""",
}

Make = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), RULES)


@pytest.fixture
def make(policies: Path) -> Iterator[Make]:
    made: list[Pipeline] = []

    def pipeline(store: SessionStore, *stages: Stage, **settings: Any) -> Pipeline:
        chosen = settings.pop("policies", policies)
        config = Config(**{"seal_key": KEY, "timeout_seconds": 30.0, **settings})
        made.append(Pipeline(stages, policies=chosen, config=config, sessions=store))
        return made[-1]

    yield pipeline
    for one in made:
        one.close()


def call(amount: float = 7, name: str = "pay", id: str | None = "tu_1", **more: Any) -> ToolCallPart:
    return ToolCallPart(name=name, tool_call_id=id, arguments={"amount": amount, **more})


def pay(amount: float = 7, **more: Any) -> Message:
    return Message(role="assistant", content=[call(amount, **more)])


def says(role: Any, text: str) -> Message:
    return Message(role=role, content=[TextPart(text=text)])


def suspended(outcome: Outcome) -> tuple[str, ...]:
    decision = outcome.decision
    assert (decision.verdict, decision.action) == (Verdict.REQUIRE_APPROVAL, Action.SUSPEND)
    assert (outcome.value, outcome.certificate) == (None, None)
    return decision.approval_ids


def asked_once(outcome: Outcome) -> str:
    (one,) = suspended(outcome)
    return one


def goes(outcome: Outcome) -> Outcome:
    assert outcome.decision.action in (Action.FORWARD, Action.FORWARD_MODIFIED), outcome.decision.to_json()
    assert outcome.value is not None
    return outcome


# -- refused, and asked ------------------------------------------------------------------------------------------------


@pytest.mark.spec("APR-1")
async def test_a_call_that_needs_approval_waits_and_asking_again_asks_nothing_new(
    make: Make, store: SessionStore
) -> None:
    pipeline = make(store)
    told: list[Event] = []
    pipeline.events.subscribe(told.append)

    first = asked_once(pipeline.run(pay(), HERE))
    again = asked_once(await pipeline.arun(pay(id="tu_other"), HERE))

    assert again == first
    (waiting,) = store.pending_approvals()
    assert (waiting.asked.target, waiting.asked.rules) == ("tool://_/pay", ("test/pay",))
    assert (waiting.key.subject, waiting.key.session) == ("id:ann", "s")
    assert told == [ApprovalAsked(id=first, session="s", target="tool://_/pay", rules=("test/pay",))]
    about = Approvals(store, seal_key=KEY).shown(first)
    assert about == {"uri": "tool://_/pay", "arguments": {"amount": 7}, "executed_by": "client"}


@pytest.mark.spec("APR-1")
def test_64_that_ask_for_the_same_at_once_ask_once(make: Make, store: SessionStore) -> None:
    pipeline = make(store)

    assert at_once(lambda _: len(suspended(pipeline.run(pay(), HERE))) == 1) == 64
    assert len(store.pending_approvals()) == 1


@pytest.mark.spec("APR-2")
def test_an_approval_never_overrides_a_deny_and_a_refused_run_asks_for_nothing(make: Make, store: SessionStore) -> None:
    pipeline = make(store)

    both = Message(role="assistant", content=[call(), call(2_000, "other")])

    assert pipeline.run(both, HERE).decision.action is Action.REFUSE
    assert store.pending_approvals() == ()
    Approvals(store).approve(asked_once(pipeline.run(pay(), HERE)), BOB)
    refused = pipeline.run(both, HERE)
    assert (refused.decision.action, refused.decision.approvals) == (Action.REFUSE, ())
    goes(pipeline.run(pay(), HERE))


@pytest.mark.spec("APR-3")
@pytest.mark.parametrize(
    "other",
    [
        pay(8),
        pay(7.0),
        pay(to="eve"),
        Message(role="assistant", content=[ToolCallPart(name="pay", namespace="bank", arguments={"amount": 7})]),
        Message(role="assistant", content=[ToolCallPart(name="pay", arguments_raw='{"amount": 7,}')]),
        Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"amount": 7}, executed_by="provider")]),
        Message(role="assistant", content=[call(), call(id="tu_2")]),
    ],
    ids=["amount", "kind of number", "more", "namespace", "raw", "provider", "twice"],
)
def test_another_call_than_the_approved_is_asked_about(make: Make, other: Message) -> None:
    store = MemorySessions()
    pipeline = make(store, unreadable_calls="warn")
    approved = asked_once(pipeline.run(pay(), HERE))
    Approvals(store).approve(approved, BOB)

    waiting = suspended(pipeline.run(other, HERE))

    assert approved not in waiting
    assert len(waiting) == 1
    goes(pipeline.run(pay(), HERE))


@pytest.mark.spec("APR-3")
def test_an_unreadable_call_is_approved_as_it_was_written(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store, unreadable_calls="warn")
    small, large = (
        Message(role="assistant", content=[ToolCallPart(name="pay", arguments_raw=raw)])
        for raw in ('{"amount": 7,}', '{"amount": 70,}')
    )
    approved = asked_once(pipeline.run(small, HERE))
    Approvals(store).approve(approved, BOB)

    assert asked_once(pipeline.run(large, HERE)) != approved
    goes(pipeline.run(small, HERE))


@pytest.mark.spec("APR-1")
def test_no_yes_is_asked_for_a_rule_that_is_only_observed(make: Make, tmp_path: Path) -> None:
    store = MemorySessions()
    write_rules(tmp_path, {"pay": RULES["pay"]})
    both = write_rules(tmp_path, {"word": RULES["pay"].replace("test.pay", "test.word")}, mode="observe")

    first = store.approval(asked_once(make(store, policies=both).run(pay(), HERE)))

    assert first is not None
    assert first.asked.rules == ("test/pay",)


@pytest.mark.spec("APR-3")
@pytest.mark.parametrize(
    "context",
    [
        Context(subject=SubjectExtension(id="eve"), session="s"),
        Context(subject=SubjectExtension(id="ann"), session="s2"),
        Context(session="s"),
    ],
)
def test_another_subject_or_session_is_asked_anew(make: Make, context: Context) -> None:
    store = MemorySessions()
    pipeline = make(store)
    first = asked_once(pipeline.run(pay(), HERE))
    Approvals(store).approve(first, BOB)

    assert asked_once(pipeline.run(pay(), context)) != first


@pytest.mark.spec("APR-3")
def test_under_another_policy_it_is_asked_anew(make: Make, tmp_path: Path) -> None:
    store = MemorySessions()
    first = asked_once(make(store).run(pay(), HERE))
    Approvals(store).approve(first, BOB)
    changed = write_rules(tmp_path, {**RULES, "pay": RULES["pay"] + "# and a word more\n"})

    assert asked_once(make(store, policies=changed).run(pay(), HERE)) != first
    goes(make(store).run(pay(), HERE))


@pytest.mark.spec("APR-3")
def test_an_approval_of_fewer_rules_leaves_the_others_to_ask(make: Make, tmp_path: Path) -> None:
    store = MemorySessions()
    rules = {
        **RULES,
        "team": """\
require_approval contains {"code": "test.team", "reason": "Ask."} if "junior" in input.extensions.security.subject.roles
""",
    }
    pipeline = make(store, policies=write_rules(tmp_path, rules))
    junior = HERE.model_copy(update={"subject": SubjectExtension(id="ann", roles={"junior"})})
    Approvals(store).approve(asked_once(pipeline.run(pay(), HERE)), BOB)

    more = asked_once(pipeline.run(pay(), junior))
    approval = store.approval(more)
    assert approval is not None
    assert approval.asked.rules == ("test/team",)
    Approvals(store).approve(more, BOB)
    done = goes(pipeline.run(pay(), junior))

    assert {ref.status for ref in done.decision.approvals} == {ApprovalStatus.APPROVED}
    assert len(done.decision.approvals) == 2


@pytest.mark.spec("APR-4")
def test_what_was_denied_is_refused_with_its_own_code_until_that_expires(
    make: Make, store: SessionStore, clock: Clock
) -> None:
    pipeline = make(store)
    first = asked_once(pipeline.run(pay(), HERE))
    Approvals(store).deny(first, BOB)

    for value in (pay(), Message(role="assistant", content=[call(), call(9)])):
        refused = pipeline.run(value, HERE)
        assert (refused.decision.verdict, refused.decision.action) == (Verdict.DENY, Action.REFUSE)
        assert [hit.code for hit in refused.decision.reasons] == ["approval.denied"]
        assert [ref.to_json() for ref in refused.decision.approvals] == [
            {"id": first, "path": "content[0]", "status": "denied"}
        ]
    assert store.pending_approvals() == ()
    clock.now += timedelta(hours=1)
    assert asked_once(pipeline.run(pay(), HERE)) != first


@pytest.mark.spec("APR-4")
def test_an_approval_that_expired_is_asked_for_again(make: Make, store: SessionStore, clock: Clock) -> None:
    pipeline = make(store, approval_seconds=60)
    first = asked_once(pipeline.run(pay(), HERE))
    Approvals(store).approve(first, BOB)
    clock.now += timedelta(seconds=60)

    assert asked_once(pipeline.run(pay(), HERE)) != first


@pytest.mark.spec("APR-4")
def test_an_approval_that_expires_while_it_is_judged_is_not_used(make: Make, clock: Clock) -> None:
    class Slow(MemorySessions):
        def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
            if changes.used:
                clock.now += timedelta(hours=1)
            return super().commit(context, expected_version, changes)

    store = Slow(clock)
    pipeline = make(store)
    first = asked_once(pipeline.run(pay(), HERE))
    Approvals(store).approve(first, BOB)

    assert asked_once(pipeline.run(pay(), HERE)) != first


@pytest.mark.spec("APR-1")
def test_a_call_without_a_session_is_suspended_without_an_approval(make: Make) -> None:
    outcome = make(MemorySessions()).run(pay(), Context(subject=SubjectExtension(id="ann")))

    assert suspended(outcome) == ()
    assert [ref.to_json() for ref in outcome.decision.approvals] == [{"path": "content[0]", "status": "pending"}]


def test_nothing_that_was_asked_is_never_an_approval() -> None:
    facts = SessionFacts()

    assert resolve((), facts, revision="r", expires_at=1, keep=True).action is Action.SUSPEND


# -- approved ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("APR-5")
async def test_an_approval_lets_one_run_through_and_the_next_asks_again(make: Make, store: SessionStore) -> None:
    for awaited in (False, True):
        pipeline = make(store)
        told: list[Event] = []
        first = asked_once(pipeline.run(pay(), HERE))
        Approvals(store).approve(first, BOB)
        pipeline.events.subscribe(told.append)

        done = goes(await pipeline.arun(pay(), HERE) if awaited else pipeline.run(pay(), HERE))

        assert done.decision.verdict is Verdict.REQUIRE_APPROVAL
        assert done.decision.to_json()["approvals"] == [{"id": first, "path": "content[0]", "status": "approved"}]
        assert emit(done, "canonical")
        assert told == [ApprovalUsed(id=first, session="s", target="tool://_/pay")]
        used = store.approval(first)
        assert used is not None
        assert (used.status, store.sealed(first)) == (ApprovalStatus.USED, None)
        assert asked_once(pipeline.run(pay(), HERE)) != first
        store.decide_approval(store.pending_approvals()[0].asked.id, approver="bob", approve=True)
        goes(pipeline.run(pay(), HERE))


@pytest.mark.spec("APR-5")
def test_of_64_runs_at_once_one_uses_the_approval(make: Make, store: SessionStore) -> None:
    pipeline = make(store)
    Approvals(store).approve(asked_once(pipeline.run(pay(), HERE)), BOB)

    assert at_once(lambda _: pipeline.run(pay(), HERE).value is not None) == 1
    assert len(store.pending_approvals()) == 1


@pytest.mark.spec("APR-5")
def test_two_equal_calls_need_two_approvals(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    twice = Message(role="assistant", content=[call(), call(id="tu_2")])

    first, second = suspended(pipeline.run(twice, HERE))
    Approvals(store).approve(first, BOB)
    assert suspended(pipeline.run(twice, HERE)) == (second,)
    Approvals(store).approve(second, BOB)

    goes(pipeline.run(twice, HERE))
    assert {ref.status for ref in map(store.approval, (first, second)) if ref} == {ApprovalStatus.USED}


@pytest.mark.spec("APR-3")
def test_what_is_approved_is_what_goes_out_after_redaction(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)

    first = asked_once(pipeline.run(pay(card="4111-1"), HERE))
    about = Approvals(store, seal_key=KEY).shown(first)
    assert about is not None
    assert about["arguments"] == {"amount": 7, "card": "[MASKED]"}
    assert Approvals(store).get(first).asked.rules == ("test/pay",)  # and not the one that masks
    Approvals(store).approve(first, BOB)
    done = goes(pipeline.run(pay(card="4222-2"), HERE))

    assert done.message is not None
    assert done.message.content[0].arguments == {"amount": 7, "card": "[MASKED]"}


@pytest.mark.spec("APR-3")
def test_a_wish_about_a_part_that_an_edit_moved_is_one_wish(make: Make) -> None:
    from cmf.message.tools import ToolDefinition

    store = MemorySessions()
    pipeline = make(store)
    tools = [ToolDefinition(name="gone"), ToolDefinition(name="pay")]
    request = Request(messages=[says("user", "x")], tools=tools)

    first = asked_once(pipeline.run(request, HERE))
    Approvals(store).approve(first, BOB)
    done = goes(pipeline.run(request, HERE))

    assert done.request is not None
    assert [tool.name for tool in done.request.tools] == ["pay"]
    other = replace(request, tools=(ToolDefinition(name="pay", input_schema={"title": "other"}),))
    Approvals(store).approve(asked_once(pipeline.run(request, HERE)), BOB)
    assert suspended(pipeline.run(other, HERE))


@pytest.mark.spec("APR-6")
def test_the_result_of_an_approved_call_may_be_sent_to_the_model_again(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    answered = Message(role="tool", content=[ToolResultPart(tool_call_id="tu_1", tool_name="pay", content="ok")])
    begun = [says("user", "pay 7"), pay()]
    first = asked_once(pipeline.run(pay(), HERE))

    assert suspended(pipeline.run(Request(messages=[*begun, answered]), HERE)) == (first,)
    Approvals(store).approve(first, BOB)
    goes(pipeline.run(pay(), HERE))

    told = goes(pipeline.run(Request(messages=[*begun, answered]), HERE))
    assert [ref.to_json() for ref in told.decision.approvals] == [
        {"id": first, "path": "messages[1].content[0]", "status": "used"}
    ]
    another = Message(role="tool", content=[ToolResultPart(tool_call_id="tu_9", tool_name="look", content="ok")])
    for unanswered in (begun, [*begun, says("user", "go on")], [*begun, another], [*begun, answered, pay()]):
        assert first not in suspended(pipeline.run(Request(messages=unanswered), HERE))
    eve = Context(subject=SubjectExtension(id="eve"), session="s")
    assert asked_once(pipeline.run(Request(messages=[*begun, answered]), eve)) != first


@pytest.mark.spec("APR-6")
def test_words_that_were_approved_are_not_asked_about_on_every_later_turn(make: Make) -> None:
    store = MemorySessions()
    pipeline = make(store)
    turn = [says("user", "launch it")]

    Approvals(store).approve(asked_once(pipeline.run(Request(messages=turn), HERE)), BOB)
    goes(pipeline.run(Request(messages=turn), HERE))
    assert asked_once(pipeline.run(Request(messages=turn), HERE))
    reply = [*turn, says("assistant", "done"), says("user", "thanks")]
    goes(pipeline.run(Request(messages=reply), HERE))
    twice = [*reply, says("assistant", "now I launch"), says("user", "no")]

    Approvals(store).approve(asked_once(pipeline.run(Request(messages=twice), HERE)), BOB)
    for _ in range(2):
        goes(pipeline.run(Request(messages=twice), HERE))


# -- stages, modes, the guard ------------------------------------------------------------------------------------------


@pytest.mark.spec("APR-1")
def test_a_stage_s_wish_is_about_the_whole_and_can_be_approved(make: Make) -> None:
    store = MemorySessions()
    stage = Stage(name="look", call=lambda value, context: Ask(code="stage.ask", reason="Look at it."))
    pipeline = make(store, stage)
    hello = Request(messages=[says("user", "hello")])

    first = asked_once(pipeline.run(hello, HERE))
    approval = store.approval(first)
    assert approval is not None
    assert (approval.asked.target, approval.asked.rules) == ("request:whole", ("stage/look",))
    Approvals(store).approve(first, BOB)

    assert asked_once(pipeline.run(Request(messages=[says("user", "hello!")]), HERE)) != first
    assert goes(pipeline.run(hello, HERE)).decision.verdict is Verdict.REQUIRE_APPROVAL
    assert asked_once(pipeline.run(hello, HERE)) != first


@pytest.mark.spec("APR-1")
def test_no_approval_is_requested_in_mode_observe(make: Make) -> None:
    store = MemorySessions()
    stage = Stage(name="look", call=lambda value, context: Ask(code="stage.ask", reason="Look at it."))

    done = goes(make(store, stage, mode=Mode.OBSERVE).run(pay(), HERE))

    assert (done.decision.verdict, done.decision.approvals) == (Verdict.REQUIRE_APPROVAL, ())
    assert store.pending_approvals() == ()


@pytest.mark.spec("APR-1")
def test_the_guard_names_the_approval_that_it_waits_for(policies: Path) -> None:
    store = MemorySessions()
    guard = Guard(policies, sessions=store)

    with pytest.raises(ApprovalRequired) as waits:
        guard.check(pay(), subject={"id": "ann"}, session="s")
    Approvals(store).approve(waits.value.approval_ids[0], BOB)

    assert waits.value.user_message == "Paying needs a yes."
    assert guard.check(pay(), subject={"id": "ann"}, session="s").value is not None


@pytest.mark.spec("APR-3")
@pytest.mark.parametrize("namespace", ["_", ""])
def test_an_approval_of_a_tool_without_a_namespace_is_none_of_one_whose_namespace_reads_so(
    make: Make, store: SessionStore, namespace: str
) -> None:
    """The address of both is `tool://_/pay`."""
    pipeline = make(store)
    Approvals(store).approve(asked_once(pipeline.run(pay(), HERE)), BOB)
    other = ToolCallPart(name="pay", namespace=namespace, tool_call_id="tu_1", arguments={"amount": 7})

    asked_once(pipeline.run(Message(role="assistant", content=[other]), HERE))

    goes(pipeline.run(pay(), HERE))


# -- a reply of a model ------------------------------------------------------------------------------------------------

REPLY = Response(choices=[Choice(message=Message(role="assistant", content=[TextPart(text="I pay."), call()]))])


@pytest.mark.spec("APR-10")
def test_a_suspended_reply_is_released_once_by_its_approval(make: Make, store: SessionStore) -> None:
    first = asked_once(make(store).run(REPLY, HERE))
    other = make(store)
    with pytest.raises(ApprovalError) as early:
        other.release(first, HERE)
    assert early.value.code == "approval.unusable"
    Approvals(store).approve(first, BOB)

    done = goes(other.release(first, HERE))

    assert done.response is not None
    assert [part.content_type for part in done.response.choices[0].message.content] == ["text", "tool_call"]
    assert done.response.choices[0].message.content[1].arguments == {"amount": 7}
    with pytest.raises(ApprovalError) as spent:
        other.release(first, HERE)
    assert spent.value.code == "approval.unusable"
    assert store.pending_approvals() == ()


@pytest.mark.spec("APR-10", "PIPE-19")
def test_a_reply_is_kept_once_however_many_of_its_calls_wait(make: Make, store: SessionStore) -> None:
    words = TextPart(text="I pay all of them. " * 2_000)
    calls = [call(amount, id=f"tu_{amount}") for amount in range(40)]
    reply = Response(choices=[Choice(message=Message(role="assistant", content=[words, *calls]))])

    asked = suspended(make(store).run(reply, HERE))

    kept = [store.sealed(one) or b"" for one in asked]
    assert len(kept) == 40
    assert sum(map(len, kept)) < 2 * len(words.text)
    for one in asked:
        Approvals(store).approve(one, BOB)
    done = goes(make(store).release(asked[-1], HERE))
    assert done.response is not None
    assert len(done.response.message.content) == 41


@pytest.mark.spec("APR-10")
def test_a_reply_with_a_call_that_was_denied_is_released_by_no_other(make: Make, store: SessionStore) -> None:
    reply = Response(choices=[Choice(message=Message(role="assistant", content=[call(1, id="a"), call(2, id="b")]))])
    first, second = suspended(make(store).run(reply, HERE))
    Approvals(store).deny(first, BOB)
    Approvals(store).approve(second, BOB)

    with pytest.raises(ApprovalError) as refused:
        make(store).release(second, HERE)

    assert refused.value.code == "approval.unusable"


@pytest.mark.spec("APR-10")
def test_of_64_releases_at_once_one_gets_the_reply(make: Make, store: SessionStore) -> None:
    pipeline = make(store)
    first = asked_once(pipeline.run(REPLY, HERE))
    Approvals(store).approve(first, BOB)

    def release(number: int) -> bool:
        try:
            return pipeline.release(first, HERE).value is not None
        except ApprovalError:
            return False

    assert at_once(release) == 1
    assert store.pending_approvals() == ()


@pytest.mark.spec("APR-10")
async def test_a_release_is_refused_to_everybody_else_and_under_another_key(make: Make, store: SessionStore) -> None:
    pipeline = make(store)
    first = asked_once(await pipeline.arun(REPLY, HERE))
    plain = asked_once(pipeline.run(pay(9), HERE))
    for each in (first, plain):
        Approvals(store).approve(each, BOB)

    refusals = []
    for one, context, where in (
        (first, Context(subject=SubjectExtension(id="bob"), session="s"), pipeline),
        (first, None, pipeline),
        ("apr_none", HERE, pipeline),
        (first, HERE, make(store, seal_key=None)),
        (plain, HERE, pipeline),
    ):
        with pytest.raises(ApprovalError) as refused:
            await where.arelease(one, context)
        refusals.append(refused.value.code)

    assert refusals == [*["approval.unknown"] * 3, "approval.unreadable", "approval.nothing-sealed"]
    goes(await pipeline.arelease(first, HERE))


@pytest.mark.spec("APR-10")
def test_a_reply_is_judged_again_when_it_is_released(make: Make, tmp_path: Path) -> None:
    store = MemorySessions()
    first = asked_once(make(store).run(REPLY, HERE))
    Approvals(store).approve(first, BOB)
    stricter = write_rules(
        tmp_path,
        {**RULES, "i": 'deny contains {"code": "test.i", "reason": "No."} if contains(input.content, "I pay")'},
    )

    refused = make(store, policies=stricter).release(first, HERE)

    assert [hit.code for hit in refused.decision.reasons] == ["test.i"]
    goes(make(store).release(first, HERE))


@pytest.mark.spec("APR-10")
async def test_policies_that_ask_for_no_approval_release_no_reply(make: Make, tmp_path: Path) -> None:
    store = MemorySessions()
    reply = Response(choices=[Choice(message=Message(role="assistant", content=[call(card="4111111111111111")]))])
    first = asked_once(make(store).run(reply, HERE))
    Approvals(store).approve(first, BOB)
    lenient = make(store, policies=write_rules(tmp_path, {"gone": RULES["gone"]}))

    with pytest.raises(ApprovalError) as refused:
        lenient.release(first, HERE)
    with pytest.raises(ApprovalError) as again:
        await lenient.arelease(first, HERE)

    assert (refused.value.code, again.value.code) == ("approval.unusable", "approval.unusable")
    done = goes(make(store).release(first, HERE))
    assert done.response is not None
    assert done.response.message.content[0].arguments == {"amount": 7, "card": "[MASKED]"}


def test_an_approval_for_something_else_is_still_refused_by_the_store(make: Make) -> None:
    """The store is the last to look: what a pipeline claims to use, it compares itself."""
    store = MemorySessions()
    first = asked_once(make(store).run(pay(), HERE))
    Approvals(store).approve(first, BOB)
    other = ApprovalUse(id=first, digest="0" * 64, target="tool://_/pay", revision="r")

    with pytest.raises(ApprovalError):
        store.commit(HERE, None, Changes(used=(other,)))
