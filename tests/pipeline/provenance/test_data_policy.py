"""What data may be used for is enforced where it goes, whatever the policies say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf import (
    Choice,
    DataPolicy,
    Message,
    PromptRequestPart,
    Request,
    ResourcePart,
    Response,
    SubjectExtension,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    iter_views,
)
from cmf.json.value import replace
from pipeline import Config, Context, Mode, Pipeline, Stage, as_stage
from pipeline.decisions.decision import Action, Verdict
from pipeline.decisions.policy_input import SessionFacts
from pipeline.provenance.data_policy import DataRule, forbidden
from pipeline.provenance.profile import DATA_ACTIONS
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.registry import Registry, look_up
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes, Grant

PROFILES = Profiles.load(
    {
        "profiles": {
            "hr/payroll": {
                "actions": ["read"],
                "data_policy": {"apply_labels": ["pay"], "denied_actions": ["export"]},
            },
            "notes": {"actions": ["read"], "data_policy": {"allowed_actions": ["read", "write", "display"]}},
            "db://people": {"data_policy": {"apply_labels": ["people"], "denied_actions": ["export"]}},
            "search": {"actions": ["read"], "data_policy": {"apply_labels": ["web"]}},
            "mail": {"actions": ["send", "export"]},
            "save": {"actions": ["write"]},
        }
    }
)
ANN = Context(subject=SubjectExtension(id="ann"), session="s")
Make = Callable[..., Pipeline]


def says(text: str, role: str = "user") -> Message:
    return Message(role=role, content=[TextPart(text=text)])


def used(name: str, content: Any, call_id: str = "1", namespace: str | None = None) -> list[Message]:
    call = ToolCallPart(name=name, namespace=namespace, arguments={}, tool_call_id=call_id)
    result = ToolResultPart(tool_call_id=call_id, tool_name=name, content=content)
    return [Message(role="assistant", content=[call]), Message(role="tool", content=[result])]


def calls(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", content=[ToolCallPart(name=name, arguments=arguments, tool_call_id="last")])


READ = [
    says("Read the payroll, please. Then write to bob@corp.example."),
    *used("payroll", {"iban": "DE1234567", "n": "x"}, "p", "hr"),
]


@pytest.fixture
def governed(pipe: Make) -> Make:
    def make(*stages: Stage, **options: Any) -> Pipeline:
        return pipe(*stages, **{"profiles": PROFILES, "config": Config(history="trusted"), **options})

    return make


def hits(pipeline: Pipeline, value: Any, context: Context | None = None) -> list[tuple[str, str, str, str]]:
    decision = pipeline.run(value, context).decision
    return [
        (hit.code, hit.detail["policy"], hit.detail["action"], hit.detail["by"])
        for hit in decision.hits
        if hit.rule == "data_policy"
    ]


# -- by origin ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-6")
def test_a_copy_of_bound_data_goes_nowhere_that_its_policy_denies(governed: Make) -> None:
    request = Request(messages=[*READ, calls("mail", body="DE1234567")])

    outcome = governed().run(request)

    assert (outcome.decision.verdict, outcome.decision.action, outcome.value) == (Verdict.DENY, Action.REFUSE, None)
    (hit,) = outcome.decision.hits
    assert (hit.rule, hit.code, hit.severity) == ("data_policy", "data_policy.denied", "critical")
    assert hit.detail == {"policy": "tool://hr/payroll", "action": "export", "by": "origin"}
    assert "DE1234567" not in str(hit)
    assert [view.path for view in outcome.decision.views if view.hits] == ["messages[3].content[0]"]


@pytest.mark.spec("DATA-6")
def test_what_the_policy_does_not_deny_goes_on(governed: Make) -> None:
    assert governed().run(Request(messages=[*READ, calls("save", body="DE1234567")])).value is not None


@pytest.mark.spec("DATA-6")
def test_a_recipient_that_the_user_named_is_allowed(governed: Make) -> None:
    assert governed().run(Request(messages=[*READ, calls("mail", to="bob@corp.example")])).value is not None


@pytest.mark.spec("DATA-6")
def test_a_value_that_the_user_also_wrote_counts_as_the_user_s(governed: Make) -> None:
    messages = [says("Read the payroll. Then write to DE1234567."), *READ[1:], calls("mail", body="DE1234567")]

    assert hits(governed(), Request(messages=messages)) == []


@pytest.mark.spec("DATA-6")
def test_what_another_tool_returned_is_not_bound(governed: Make) -> None:
    messages = [*READ, *used("search", "the weather is fine", "w"), calls("mail", body="weather")]

    assert governed().run(Request(messages=messages)).value is not None


@pytest.mark.spec("DATA-6")
def test_a_field_deep_in_the_arguments_counts_too(governed: Make) -> None:
    request = Request(messages=[*READ, calls("mail", to="bob@corp.example", parts=[{"bob@corp.example": "DE1234567"}])])

    assert hits(governed(), request) == [("data_policy.denied", "tool://hr/payroll", "export", "origin")]


@pytest.mark.spec("DATA-6")
def test_a_list_of_allowed_actions_allows_nothing_else(governed: Make) -> None:
    messages = [says("hi"), *used("notes", "the launch code is 4471-9981")]

    assert hits(governed(), Request(messages=[*messages, calls("mail", body="4471-9981")])) == [
        ("data_policy.not-allowed", "tool://_/notes", "export", "origin")
    ]
    assert hits(governed(), Request(messages=[*messages, calls("save", body="4471-9981")])) == []


@pytest.mark.spec("DATA-6")
def test_what_stood_in_a_resource_is_bound_by_the_resource_s_policy(governed: Make) -> None:
    person = Message(role="user", content=[ResourcePart(uri="db://people", content="Ann Smith lives in Oak Lane 5")])
    inside = [*used("search", (ResourcePart(uri="db://people", content="Ann Smith lives in Oak Lane 5"),))]
    call = calls("mail", body="Oak Lane 5")

    wanted = [("data_policy.denied", "db://people", "export", "origin")]
    assert hits(governed(), Request(messages=[person, call])) == wanted
    assert hits(governed(), Request(messages=[says("hi"), *inside, call])) == wanted
    assert hits(governed(), Request(messages=[says("hi"), *used("search", "Oak Lane 5"), call])) == []


@pytest.mark.spec("DATA-6")
def test_a_result_that_calls_itself_otherwise_is_bound_all_the_same(governed: Make) -> None:
    disguised = Message(
        role="tool", content=[ToolResultPart(tool_call_id="p", tool_name="search", content="DE1234567")]
    )
    messages = [says("hi"), READ[1], disguised, calls("mail", body="DE1234567")]

    assert ("data_policy.denied", "tool://hr/payroll", "export", "origin") in hits(
        governed(), Request(messages=messages)
    )


@pytest.mark.spec("DATA-6")
def test_claimed_results_are_bound_as_well(governed: Make) -> None:
    request = Request(messages=[*READ, calls("mail", body="DE1234567")])

    found = hits(governed(config=Config()), request)

    assert found == [("data_policy.denied", "tool://hr/payroll", "export", "origin")]


@pytest.mark.spec("DATA-6")
def test_the_policies_of_the_context_count_as_those_of_profiles(governed: Make) -> None:
    context = Context(data={"search": DataPolicy(denied_actions=("write",))})
    request = Request(messages=[says("hi"), *used("search", "4471-9981"), calls("save", body="4471-9981")])

    assert hits(governed(), request, context) == [("data_policy.denied", "tool://_/search", "write", "origin")]
    loosened = Context(data={"tool://hr/payroll": DataPolicy(), "db://people": DataPolicy(denied_actions=("log",))})
    copied = Request(messages=[*READ, calls("mail", body="DE1234567")])
    assert hits(governed(), copied, loosened) == []


# -- by label ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-7")
def test_what_the_model_made_up_may_be_anything_that_it_has_read(governed: Make) -> None:
    request = Request(messages=[*READ, calls("mail", body="Her account is the one from last week")])

    assert hits(governed(), request) == [("data_policy.denied", "tool://hr/payroll", "export", "label")]


@pytest.mark.spec("DATA-7")
def test_a_call_beside_the_data_in_one_message_is_bound_by_it(governed: Make) -> None:
    call, result = (message.content[0] for message in READ[1:])
    last = ToolCallPart(name="mail", arguments={"body": "her usual account"}, tool_call_id="last")
    beside = Message(role="assistant", content=[call, result, last])

    assert hits(governed(), Request(messages=[READ[0], beside])) == [
        ("data_policy.denied", "tool://hr/payroll", "export", "label")
    ]


@pytest.mark.spec("DATA-7")
def test_a_call_before_the_data_came_back_is_not_bound_by_it(governed: Make) -> None:
    early = [calls("mail", body="hello there"), Message(role="tool", content=[ToolResultPart(tool_call_id="last")])]

    assert hits(governed(), Request(messages=[says("hi"), *early, *READ[1:]])) == []


@pytest.mark.spec("DATA-7")
def test_resent_history_is_bound_from_the_place_where_it_stood(governed: Make) -> None:
    pipeline = governed()
    early = [calls("mail", body="hello there"), Message(role="tool", content=[ToolResultPart(tool_call_id="last")])]
    request = Request(messages=[says("hi"), *early, *READ[1:]])

    assert pipeline.run(request, ANN).value is not None
    assert pipeline.run(Request(messages=[*request.messages, says("thanks", "assistant")]), ANN).value is not None


@pytest.mark.spec("DATA-7")
def test_the_session_remembers_data_that_the_history_no_longer_shows(governed: Make) -> None:
    sessions = MemorySessions()
    sessions.add_labels(ANN, frozenset({"of a rule"}))
    pipeline = governed(sessions=sessions)
    assert pipeline.run(Request(messages=READ), ANN).value is not None

    later = Request(messages=[says("And now?"), calls("mail", body="Her account is the usual one")])

    assert hits(pipeline, later, ANN) == [("data_policy.denied", "tool://hr/payroll", "export", "label")]
    assert hits(pipeline, later, ANN.model_copy(update={"session": "other"})) == []


@pytest.mark.spec("DATA-7")
def test_the_session_remembers_which_function_s_data_it_was(governed: Make) -> None:
    def answer(uri: str) -> dict[str, Any] | None:
        bound = {"data_policy": {"apply_labels": ["x"], "denied_actions": ["execute"]}}
        return bound if uri == "tool://far/read" else None

    pipeline = governed(profiles=Profiles.load(answer))
    assert pipeline.run(Request(messages=[says("hi"), *used("read", "4471-9981", "1", "far")]), ANN).value is not None

    later = Request(messages=[says("And now?"), calls("mail", body="as before")])

    assert hits(pipeline, later, ANN) == [("data_policy.denied", "tool://far/read", "execute", "label")]


@pytest.mark.spec("DATA-7")
@pytest.mark.spec("DATA-5")
def test_after_a_declassification_only_copies_are_bound(governed: Make) -> None:
    sessions = MemorySessions()
    pipeline = governed(sessions=sessions)
    pipeline.run(Request(messages=READ), ANN)
    sources = sessions.read(ANN).label_sources["pay"]
    grant = Grant(id="g", label="pay", sources=sources, actor="boss", reason="x", scope="session", expires_at=2**62)
    sessions.commit(ANN, None, Changes(grants=(grant,)))

    asked = Request(messages=[*READ, calls("mail", body="Her account is the usual one")])
    copied = Request(messages=[*READ, calls("mail", body="DE1234567")])

    outcome = pipeline.run(asked, ANN)
    assert outcome.value is not None
    assert "pay" not in outcome.value.messages[-1].extensions.security.labels
    assert "pay" not in sessions.read(ANN).labels
    assert hits(pipeline, copied, ANN) == [("data_policy.denied", "tool://hr/payroll", "export", "origin")]


@pytest.mark.spec("DATA-7")
def test_a_policy_without_labels_is_active_while_its_data_is_in_sight(governed: Make) -> None:
    messages = [says("hi"), *used("notes", "4471-9981"), calls("mail", body="what the note says")]

    assert hits(governed(), Request(messages=messages)) == [
        ("data_policy.not-allowed", "tool://_/notes", "export", "label")
    ]


@pytest.mark.spec("DATA-7")
def test_a_prompt_request_has_no_origins_and_is_judged_by_labels(governed: Make) -> None:
    asks = Message(role="assistant", content=[PromptRequestPart(name="any", arguments={"x": "bob@corp.example"})])

    assert hits(governed(), Request(messages=[*READ, asks])) == [
        ("data_policy.denied", "tool://hr/payroll", "export", "label")
    ]
    assert hits(governed(), Request(messages=[READ[0], asks])) == []


@pytest.mark.spec("DATA-8")
def test_a_prompt_may_do_other_things_than_the_tool_of_its_name(governed: Make) -> None:
    asks = Message(role="assistant", content=[PromptRequestPart(name="save", arguments={"x": "her account"})])

    assert hits(governed(), Request(messages=[*READ, asks])) == [
        ("data_policy.denied", "tool://hr/payroll", "export", "label")
    ]
    assert hits(governed(), Request(messages=[*READ, calls("save", x="her account")])) == []


@pytest.mark.spec("DATA-7")
def test_a_reply_is_judged_after_the_conversation_that_it_answers(governed: Make) -> None:
    context = Context(history=Request(messages=READ))
    reply = Response(choices=[Choice(message=calls("mail", body="her usual account"))])
    copy = Response(choices=[Choice(message=calls("mail", body="DE1234567"))])

    assert hits(governed(), reply, context) == [("data_policy.denied", "tool://hr/payroll", "export", "label")]
    assert hits(governed(), copy, context) == [("data_policy.denied", "tool://hr/payroll", "export", "origin")]
    outcome = governed().run(Response(choices=[Choice(message=says("ok", "assistant"))]), context)
    assert outcome.response is not None
    assert outcome.response.message.extensions.security.labels == {"pay"}  # type: ignore[union-attr]


@pytest.mark.spec("DATA-7")
@pytest.mark.parametrize(("cut_short", "by"), [({}, []), ({"complete": False}, ["label"]), ({"more": 3}, ["label"])])
def test_a_value_may_be_anything_unless_every_place_was_searched(cut_short: dict[str, Any], by: list[str]) -> None:
    request = Request(messages=[*READ, calls("mail", body="x")])
    registry = Registry(PROFILES, Context())
    rule = DataRule(registry, look_up(request, registry, frozenset()).returned, SessionFacts(), reply=False)
    view = next(view for view in iter_views(request) if view.path == "messages[3].content[0]")
    entry = {"type": "string", "sources": [{"kind": "tool_result", "tool": "search"}], **cut_short}

    assert [hit.detail["by"] for hit in rule(view, [entry])] == by


# -- actions -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-8")
@pytest.mark.parametrize(
    ("policy", "acts", "act"),
    [
        (DataPolicy(), None, None),
        (DataPolicy(denied_actions=("export",)), {"read"}, None),
        (DataPolicy(denied_actions=("export",)), {"read", "export"}, "export"),
        (DataPolicy(denied_actions=("export",)), None, "export"),
        (DataPolicy(denied_actions=("execute",)), {"read"}, "execute"),
        (DataPolicy(denied_actions=("fly",)), {"read"}, "fly"),
        (DataPolicy(allowed_actions=()), {"read"}, "read"),
        (DataPolicy(allowed_actions=()), set(), "execute"),
        (DataPolicy(allowed_actions=("read",)), {"read"}, None),
        (DataPolicy(allowed_actions=("read",)), {"read", "send"}, "send"),
        (DataPolicy(allowed_actions=("read",)), None, "display"),
        (DataPolicy(allowed_actions=tuple(DATA_ACTIONS)), None, None),
        (DataPolicy(allowed_actions=("read",), denied_actions=("read",)), {"read"}, "read"),
    ],
)
def test_what_a_policy_forbids(policy: DataPolicy, acts: set[str] | None, act: str | None) -> None:
    assert forbidden(policy, None if acts is None else frozenset(acts), "execute") == act


_WORDS = st.frozensets(st.sampled_from(sorted(DATA_ACTIONS)), max_size=4)


@pytest.mark.spec("DATA-8")
@given(_WORDS, st.none() | _WORDS, _WORDS)
def test_what_is_forbidden_is_denied_or_not_allowed(denied: Any, allowed: Any, acts: Any) -> None:
    policy = DataPolicy(denied_actions=tuple(denied), allowed_actions=None if allowed is None else tuple(allowed))

    act = forbidden(policy, acts, "execute")

    done = acts or {"execute"}
    wanted = denied & (acts | {"execute"}) or (set() if allowed is None else done - allowed)
    assert act == min(wanted, default=None)


@pytest.mark.spec("DATA-8")
def test_a_tool_of_which_nothing_is_known_may_do_anything(governed: Make) -> None:
    request = Request(messages=[*READ, calls("unheard_of", body="DE1234567")])

    assert hits(governed(), request) == [("data_policy.denied", "tool://hr/payroll", "export", "origin")]


# -- replies -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-9")
def test_a_reply_shows_no_data_that_may_not_be_displayed(governed: Make) -> None:
    profiles = Profiles.load(
        {"profiles": {"key": {"data_policy": {"apply_labels": ["k"], "denied_actions": ["display"]}}}}
    )
    pipeline = governed(profiles=profiles)
    request = Request(messages=[says("hi"), *used("key", "4471-9981"), says("I have it.", "assistant")])
    reply = Response(choices=[Choice(message=says("It begins with 44.", "assistant"))])

    assert pipeline.run(reply, ANN).value is not None
    assert pipeline.run(request, ANN).value is not None  # what was shown before is no display
    assert hits(pipeline, reply, ANN) == [("data_policy.denied", "tool://_/key", "display", "label")]
    assert hits(pipeline, says("4471", "assistant"), ANN) == [
        ("data_policy.denied", "tool://_/key", "display", "label")
    ]
    assert hits(pipeline, says("Show me!"), ANN) == []


# -- as a rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-10")
def test_in_observe_it_is_recorded_and_forwarded(governed: Make) -> None:
    pipeline = governed(config=Config(mode=Mode.OBSERVE, history="trusted"))

    outcome = pipeline.run(Request(messages=[*READ, calls("mail", body="DE1234567")]))

    assert (outcome.decision.verdict, outcome.decision.action) == (Verdict.DENY, Action.FORWARD)
    assert outcome.value is not None
    assert "pay" in outcome.labels


@pytest.mark.spec("DATA-10")
async def test_awaiting_gives_the_same(governed: Make) -> None:
    request = Request(messages=[*READ, calls("mail", body="DE1234567")])

    outcome = await governed().arun(request)

    assert [hit.code for hit in outcome.decision.hits] == ["data_policy.denied"]


@pytest.mark.spec("DATA-10")
def test_what_cannot_be_worked_out_is_refused() -> None:
    def answer(uri: str) -> dict[str, Any] | None:
        if uri == "tool://_/mail":
            raise OSError
        return {"data_policy": {"denied_actions": ["export"]}} if uri == "tool://_/payroll" else None

    registry = Registry(Profiles.load(answer), Context())
    request = Request(messages=[says("hi"), *used("payroll", "5")])
    returned = look_up(request, registry, frozenset()).returned
    call = Request(messages=[*request.messages, calls("mail", body="5")])
    rule = DataRule(registry, returned, SessionFacts(), reply=False)
    view = next(view for view in iter_views(call) if view.path == "messages[3].content[0]")

    (failed,) = rule(view, None)
    (garbled,) = DataRule(Registry(PROFILES, Context()), returned, SessionFacts(), reply=False)(
        view, [{"type": "string"}]
    )

    assert (failed.code, failed.detail) == ("data_policy.failed", {"problem": "profile.unavailable"})
    assert (garbled.code, garbled.detail) == ("data_policy.failed", {"problem": "data_policy.failed"})


@pytest.mark.spec("DATA-1")
def test_a_registry_that_fails_refuses_the_run(governed: Make) -> None:
    def answer(uri: str) -> None:
        raise OSError

    outcome = governed(profiles=Profiles.load(answer)).run(calls("mail"))

    assert outcome.value is None
    assert [hit.code for hit in outcome.decision.hits] == ["profile.unavailable"]


@as_stage("brings", mode="transform")
def brings_payroll(value: Any, context: Context) -> Any:
    """A stage that puts a tool's data into the conversation itself."""
    first, *others = value.messages
    return replace(value, messages=(replace(first, content=READ[2].content), *others))


@pytest.mark.spec("DATA-3")
@pytest.mark.spec("DATA-7")
def test_what_a_stage_brings_in_brings_its_labels_and_is_bound(governed: Make) -> None:
    pipeline = governed(brings_payroll)

    outcome = pipeline.run(Request(messages=[says("", "tool"), says("thanks")]), ANN)
    call = Request(messages=[says("", "tool"), calls("mail", body="her usual account")])

    assert outcome.request is not None
    labels = [set(message.extensions.security.labels) for message in outcome.request.messages]  # type: ignore[union-attr]
    assert labels == [{"pay"}, {"pay"}]
    assert hits(pipeline, call, Context()) == [("data_policy.denied", "tool://hr/payroll", "export", "label")]


# -- the session -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-3")
def test_the_session_is_tainted_by_the_data_s_own_event_once(governed: Make) -> None:
    sessions = MemorySessions()
    pipeline = governed(sessions=sessions)

    pipeline.run(Request(messages=READ), ANN)
    first = sessions.read(ANN)
    pipeline.run(Request(messages=[*READ, says("and?")]), ANN)
    second = sessions.read(ANN)

    assert list(first.label_sources) == ["pay"]
    (source,) = first.label_sources["pay"]
    assert source.startswith("data:tool://hr/payroll#")
    assert (second.label_sources, second.version) == (first.label_sources, first.version)


@pytest.mark.spec("RET-4")
def test_a_conversation_is_kept_in_memory_only_as_its_data_may_be(governed: Make, clock: Any) -> None:
    def kept(retention: dict[str, Any] | None, later: int = 0) -> bool:
        policy = {} if retention is None else {"data_policy": {"retention": retention}}
        sessions = MemorySessions(clock)
        pipeline = governed(profiles=Profiles.load({"profiles": {"hr/payroll": policy}}), sessions=sessions)
        pipeline.run(Request(messages=READ), ANN)
        now = sessions.read(ANN).moment + later
        due = list(pipeline.conversations.due(now, 10))
        pipeline.conversations.erase(due)
        return pipeline._histories.open(ANN, 0).before is not None

    assert kept(None)
    assert kept({"policy": "session"})
    assert not kept({"policy": "transient"})
    assert not kept({"policy": "none"})
    assert kept({"policy": "session", "max_age_seconds": 5}, later=4_999_999)
    assert not kept({"policy": "session", "max_age_seconds": 5}, later=5_000_000)


@pytest.mark.spec("RET-4")
def test_what_is_too_old_is_forgotten_at_the_next_run_too(governed: Make, clock: Any) -> None:
    policy = {"data_policy": {"retention": {"max_age_seconds": 5}}}
    sessions = MemorySessions(clock)
    pipeline = governed(profiles=Profiles.load({"profiles": {"hr/payroll": policy}}), sessions=sessions)
    pipeline.run(Request(messages=READ), ANN)
    now = sessions.read(ANN).moment

    assert pipeline._histories.open(ANN, now).before is not None
    assert pipeline._histories.open(ANN, now + 5_000_000).before is None
