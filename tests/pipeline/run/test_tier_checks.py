"""What a stage may see and change, and what becomes of one that changes more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cmf.strategies import messages
from tests.pipeline.staging import (
    CONTEXT,
    EXTENSIONS,
    HOP,
    Make,
    calling,
    says,
    stopped,
    with_security,
    with_slot,
)

from cmf import (
    AgentExtension,
    Capability,
    Channel,
    Choice,
    CompletionExtension,
    DataPolicy,
    DelegationExtension,
    DelegationHop,
    Extensions,
    FrameworkExtension,
    HttpExtension,
    LLMExtension,
    MCPExtension,
    Message,
    MessageStatus,
    MetaExtension,
    ObjectSecurityProfile,
    PromptResultPart,
    ProvenanceExtension,
    Request,
    RequestExtension,
    Response,
    RoutingExtension,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
)
from cmf.adapters import get
from cmf.json.value import replace, trusted
from cmf.message.message import Layout
from pipeline import Config, Context, Mode, Refuse, emit
from pipeline.decisions.decision import Action
from pipeline.decisions.traffic import drafted
from pipeline.run.tier_checks import TierViolationError, merged

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
    (
        "adds what rides along in audit mode",
        lambda m, _: replace(m, extra={"x": 1}),
        {"mode": "audit"},
        "extra",
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
    assert record.to_json()["hit"] == record.hit.to_json()
    assert record.hit.detail["path"].startswith("$")


@pytest.mark.spec("STG-3")
@pytest.mark.parametrize(
    "forged",
    [
        {"session_id": "other"},
        {"parent_id": "m0"},
        {"status": MessageStatus.PARTIAL},
        {"created_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"schema_version": 1},
    ],
    ids=str,
)
def test_a_message_keeps_its_identity(pipe: Make, forged: dict[str, Any]) -> None:
    record = stopped(pipe(calling(lambda m, _: replace(m, **forged), capabilities=ALL)).run(says("hi")))

    assert record.hit is not None
    assert (record.hit.detail["slot"], record.hit.detail["tier"]) == (*forged, "immutable")


@pytest.mark.spec("STG-3")
@pytest.mark.parametrize(
    ("change", "slot", "forged"),
    [
        (with_slot, "request", RequestExtension(environment="test")),
        (with_slot, "mcp", MCPExtension()),
        (with_slot, "completion", CompletionExtension(model="m")),
        (with_slot, "provenance", ProvenanceExtension(source="us")),
        (with_slot, "llm", LLMExtension(provider="other")),
        (with_slot, "framework", FrameworkExtension(framework="f")),
        (with_slot, "meta", MetaExtension(scope="s")),
        (with_slot, "routing", RoutingExtension(mode="manual", chosen_model="m", reason="so")),
        (with_security, "classification", "public"),
        (with_security, "objects", {"tool://_/rm": ObjectSecurityProfile()}),
        (with_security, "data", {"tool://_/rm": DataPolicy()}),
    ],
)
def test_what_is_immutable_stays_whoever_may_see_it(pipe: Make, change: Any, slot: str, forged: Any) -> None:
    stage = calling(lambda m, _: change(m, **{slot: forged}), capabilities=ALL)

    record = stopped(pipe(stage).run(says("hi"), CONTEXT))

    assert record.hit is not None
    assert record.hit.detail["slot"].removeprefix("security.") == slot
    assert record.hit.detail["tier"] == "immutable"


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
        assert (record.hit.code, record.hit.detail["tier"]) == ("stage.tier-violation", "immutable")
    looking = stopped(pipe(calling(lambda r, _: replace(r, messages=()), mode="audit")).run(request))
    assert looking.hit is not None
    assert looking.hit.detail["tier"] == "mode audit"


@pytest.mark.spec("STG-14")
def test_a_value_that_cannot_be_cut_is_still_refused_by_its_stage(pipe: Make) -> None:
    deep = says("hi")
    for _ in range(10):
        deep = Message(role="user", content=[PromptResultPart(prompt_name="p", messages=[deep])])

    outcome = pipe(calling(lambda *_: Refuse(code="my.no", reason="x"))).run(deep)

    assert [hit.code for hit in outcome.decision.hits] == ["my.no"]
    assert stopped(outcome).changed is False
    assert outcome.decision.coverage.produced == 1


@pytest.mark.spec("STG-5")
def test_a_header_that_stays_is_not_on_record(pipe: Make) -> None:
    def add(message: Message, _: Context) -> Message:
        assert message.extensions is not None
        assert message.extensions.http is not None
        return with_slot(message, http=HttpExtension(headers={**message.extensions.http.headers, "X-New": "1"}))

    outcome = pipe(calling(add, capabilities=["write_headers"])).run(says("hi"))

    assert [change.name for change in outcome.decision.stages[0].headers] == ["X-New"]


@pytest.mark.spec("STG-7")
def test_a_response_may_be_changed_besides_its_choices(pipe: Make) -> None:
    response = Response(choices=[Choice(message=says(text)) for text in "ab"], model="m")

    outcome = pipe(calling(lambda r, _: replace(r, model="n"))).run(response)

    assert outcome.response is not None
    assert outcome.response.model == "n"


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


class _Says(str):
    """A text that holds one thing and says another."""

    def __str__(self) -> str:
        return "forbidden"

    __format__ = __str__  # type: ignore[assignment]


class _Flips(TextPart):
    @property
    def text(self) -> str:  # type: ignore[override]
        return "forbidden"


@pytest.mark.spec("STG-15")
@pytest.mark.parametrize(
    "part",
    [
        trusted(TextPart, text=_Says("hi there")),
        trusted(TextPart, text=7),
        trusted(TextPart, text=["forbidden"]),
        trusted(ToolCallPart, name=_Says("f"), arguments={}),
        object.__new__(_Flips),
    ],
)
def test_a_part_that_is_no_value_of_the_format_is_nonsense(pipe: Make, part: Any) -> None:
    outcome = pipe(calling(lambda m, _: replace(m, content=(part,)))).run(says("hi"))

    assert stopped(outcome).hit.code == "stage.bad-result"  # type: ignore[union-attr]


@pytest.mark.spec("STG-15")
def test_what_a_stage_keeps_hold_of_is_not_what_goes_out(pipe: Make) -> None:
    kept = {"a": ["fine"]}
    part = trusted(ToolCallPart, name="f", arguments=kept)
    tools = [ToolDefinition(name="t")]

    def call(request: Request, _: Context) -> Request:
        message = replace(request.messages[0], role="assistant", content=[part])
        return replace(request, messages=(message,), tools=tools)

    request = Request(messages=[Message(role="assistant", content=[TextPart(text="hi")])])
    outcome = pipe(calling(call)).run(request)
    kept["a"].append("forbidden")
    tools.append(ToolDefinition(name="forbidden"))

    assert "forbidden" not in str(emit(outcome, "openai_chat"))


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
    assert outcome.request.messages[0].content[0] is request.messages[0].content[0]
    assert outcome.request.messages[1].content is request.messages[1].content
    assert outcome.request.tools is request.tools
    assert given[0].messages[0].content[0] is not request.messages[0].content[0]


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
    stage = calling(lambda *_: None, capabilities=list(granted))
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


@pytest.mark.spec("EXT-9")
@pytest.mark.spec("STG-5")
def test_a_stage_that_reads_its_value_from_json_changes_no_header(pipe: Make) -> None:
    def anew(message: Message, _: Context) -> Message:
        return Message.model_validate(message.model_dump())

    outcome = pipe(calling(anew, capabilities=["read_headers", *READ_MOST])).run(says("hi"))

    assert outcome.decision.stages[0].changed is False
    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.http == EXTENSIONS.http


@pytest.mark.spec("STG-5")
def test_headers_can_be_dropped_as_a_whole(pipe: Make) -> None:
    outcome = pipe(calling(lambda m, _: with_slot(m, http=None), capabilities=["write_headers"])).run(says("hi"))

    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.http is None
    assert [(one.name, one.removed) for one in outcome.decision.stages[0].headers] == [
        ("Authorization", True),
        ("X-Trace", True),
    ]


@pytest.mark.spec("STG-15")
@pytest.mark.parametrize("content", ["new", {"a": 1}, [TextPart(text="new")], None])
def test_a_result_may_become_of_another_form_and_a_channel_may_change_alone(pipe: Make, content: Any) -> None:
    old = Message(role="tool", content=[ToolResultPart(content=[TextPart(text="old")])])

    outcome = pipe(calling(lambda m, _: replace(m, content=(ToolResultPart(content=content),)))).run(old)
    channel = pipe(calling(lambda m, _: replace(m, channel=Channel.ANALYSIS))).run(old)

    assert outcome.message is not None
    assert channel.message is not None
    assert outcome.message.content == (ToolResultPart(content=content),)
    assert (channel.message.content, channel.message.channel) == (old.content, Channel.ANALYSIS)


@pytest.mark.spec("STG-5")
def test_the_first_header_of_a_message_that_had_none_is_on_record(pipe: Make) -> None:
    header = HttpExtension(headers={"X-Id": "7"})
    adding = calling(lambda m, _: with_slot(m, http=header), capabilities=["write_headers"])

    outcome = pipe(adding).run(says("hi", extensions=None))

    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.http == header
    assert outcome.decision.stages[0].to_json()["headers"] == [{"name": "X-Id", "removed": False, "value": "7"}]


@pytest.mark.spec("STG-7")
def test_the_envelope_of_a_request_is_content_too(pipe: Make) -> None:
    request = Request(model="openai:a", messages=[says("hi")])

    changed = pipe(calling(lambda r, _: replace(r, model="openai:b"), mode="transform")).run(request)
    looking = pipe(calling(lambda r, _: replace(r, model="openai:b"), mode="audit")).run(request)

    assert changed.request is not None
    assert changed.request.model == "openai:b"
    assert stopped(looking).hit is not None


@pytest.mark.spec("STG-7")
def test_an_equal_copy_of_a_request_is_no_change_whatever_the_mode(pipe: Make) -> None:
    request = Request(model="m", messages=[says("hi")])

    outcome = pipe(calling(lambda r, _: Request.model_validate(r.model_dump()), mode="audit")).run(request)

    assert outcome.decision.action is Action.FORWARD
    assert not outcome.decision.stages[0].changed


@pytest.mark.spec("STG-4")
@settings(max_examples=60)
@given(
    start=st.sets(st.sampled_from("abcd")),
    steps=st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.booleans()), max_size=5),
)
def test_labels_never_shrink_over_random_runs(start: set[str], steps: list[tuple[set[str], bool]]) -> None:
    message = says("hi", extensions=Extensions(security=SecurityExtension(labels=start)))
    for wanted, reads in steps:
        stage = calling(lambda *_: None, capabilities=["read_labels"] if reads else [])
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
