"""What nobody is shown without the capability: credentials, and the context around messages, wherever it stands."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cmf import (
    AgentExtension,
    AudioPart,
    Capability,
    Choice,
    CompletionExtension,
    ConversationContext,
    DataPolicy,
    DelegationExtension,
    DelegationHop,
    Extensions,
    HttpExtension,
    Message,
    MetaExtension,
    ObjectSecurityProfile,
    PromptResultPart,
    Request,
    ResourcePart,
    Response,
    Role,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
)
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.views.iterate import iter_views
from cmf.views.tiers import SLOTS
from pipeline import Context, Guard, Stage, as_stage
from pipeline.decisions.decision import Verdict
from pipeline.decisions.policy_input import shared_bytes, view_bytes
from pipeline.store.database import Store


@pytest.mark.spec("EXT-9")
def test_the_value_of_a_sensitive_header_is_in_nothing_that_is_made_of_it() -> None:
    headers = {"Authorization": "Bearer canary", "x_api-KEY": "canary", "X-Trace": "t"}
    message = Message(
        role="user", content=[TextPart(text="x")], extensions=Extensions(http=HttpExtension(headers=headers))
    )
    held = message.extensions.http  # type: ignore[union-attr]
    assert held is not None
    context = Context(headers=headers)
    request = Request(messages=[message])

    for value in (held, message, context, request, held.headers, next(message.iter_views()), Guard().run(message)):
        assert "canary" not in f"{value!r} {value!s} {value}"
    for value in (held, message, context, request):
        assert b"canary" not in value.model_dump_json() + pickle.dumps(value)
        assert "canary" not in str([value.model_dump(), dataclasses.asdict(value)])  # type: ignore[call-overload]
    assert "canary" not in str(
        [dict(held.headers), held.headers | {}, list(held.headers.values()), held.headers._values]
    )
    assert b"canary" not in pickle.dumps(held.headers._values)
    assert held.get_header("authorization") == context.get_header("AUTHORIZATION") == "Bearer canary"  # type: ignore[attr-defined]


@pytest.mark.spec("EXT-9")
def test_no_row_of_ledger_or_log_has_a_credential(tmp_path: Path) -> None:
    context = Context(session="s", headers={"Authorization": "Bearer canary-4711"})

    with Store.at(tmp_path / "store.db") as store:
        outcome = Guard(store=store).run(Message(role="user", content=[TextPart(text="hi")]), context=context)
        assert outcome.message is not None
        store.ledger().add("id:ann", "s", [outcome.message])

    assert outcome.message.extensions.http.get_header("authorization") == "Bearer canary-4711"  # type: ignore[union-attr]
    assert [file.name for file in tmp_path.iterdir() if b"canary" in file.read_bytes()] == []


# -- the context of a stage ------------------------------------------------------------------------------------------

INNER = Message(
    role=Role.USER,
    content=[TextPart(text="old")],
    session_id="canary-session",
    extensions=Extensions(
        agent=AgentExtension(input="canary-input"),
        http=HttpExtension(headers={"Authorization": "canary-secret", "X-Trace": "canary-header"}),
        security=SecurityExtension(
            labels={"canary-label"},
            subject=SubjectExtension(id="canary-id", roles={"canary-role"}, claims={"ssn": "canary-claim"}),
            objects={"x": ObjectSecurityProfile(permissions=("canary-permission",))},
            data={"x": DataPolicy(denied_actions=("canary-action",))},
        ),
        delegation=DelegationExtension(chain=(DelegationHop(delegator="canary-delegator", delegate="b"),)),
    ),
)
CONTEXT = Context(
    subject=SubjectExtension(
        id="canary-id", roles={"canary-role"}, permissions={"canary-granted"}, claims={"ssn": "canary-claim"}
    ),
    session="canary-session",
    call_id="canary-call",
    agent=AgentExtension(input="canary-input", conversation=ConversationContext(history=(INNER,))),
    headers={"Authorization": "canary-secret", "X-Trace": "canary-header"},
    labels={"canary-label"},
    classification="canary-class",
    objects={"x": ObjectSecurityProfile(permissions=("canary-permission",))},
    data={"x": DataPolicy(denied_actions=("canary-action",))},
    history=(INNER,),
    recorded={"note": "canary-recorded"},
    spent={"canary-spent"},
)
SHOWN = {
    Capability.READ_SUBJECT: {"id"},
    Capability.READ_ROLES: {"role"},
    Capability.READ_PERMISSIONS: {"granted"},
    Capability.READ_TEAMS: set[str](),
    Capability.READ_CLAIMS: {"claim"},
    Capability.READ_AGENT: {"session", "call", "input", "spent"},
    Capability.READ_HEADERS: {"header"},
    Capability.WRITE_HEADERS: {"header"},
    Capability.READ_LABELS: {"label", "class"},
    Capability.READ_OBJECTS: {"permission"},
    Capability.READ_DATA: {"action"},
    Capability.READ_DELEGATION: {"delegator"},
}


@pytest.mark.spec("STG-1", "STG-16", "VIEW-16")
@pytest.mark.parametrize("grants", [frozenset[Capability](), frozenset({Capability.READ_AGENT})])
def test_the_session_that_a_request_names_is_shown_to_whoever_may_read_the_agent(grants: frozenset[Capability]) -> None:
    seen: list[str | None] = []
    request = Request(model="m", messages=[Message(role=Role.USER, content=[TextPart(text="x")])], session_id="canary")
    stage = Stage(name="s", call=lambda value, _: seen.append(value.session_id), capabilities=grants)
    shown = None if not grants else "canary"

    outcome = Guard(stages=[stage]).run(request)

    assert seen == [shown]
    assert outcome.request is not None
    assert outcome.request.session_id == "canary"
    assert next(iter_views(request, capabilities=grants)).get_property("session_id") == shown
    assert next(iter_views(request)).get_property("session_id") == "canary"


def nested(*messages: Message) -> Message:
    inner = PromptResultPart(prompt_name="p", messages=messages)
    return Message(role=Role.TOOL, content=[ToolResultPart(tool_call_id="c", content=(inner,)), inner])


def canaries(*shown: object) -> set[str]:
    """What is found of the canaries in everything that can be reached from these, through attributes and containers."""
    texts, waiting, known = [], list(shown), list[object]()
    while waiting:
        item = waiting.pop()
        known.append(item)
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict | list | tuple | frozenset):
            waiting += [*item.items()] if isinstance(item, dict) else [*item]
        elif dataclasses.is_dataclass(item):
            waiting += [getattr(item, field.name) for field in dataclasses.fields(item)]
    return {text.removeprefix("canary-") for text in texts if text.startswith("canary-")}


def seen_with(capabilities: Iterable[Capability], value: Message, mode: str = "audit") -> set[str]:
    seen = list[set[str]]()

    def look(value: Message, context: Context) -> None:
        seen.append(canaries(value, context) | canaries(*(view.to_dict() for view in value.iter_views())))

    stage = as_stage("look", capabilities=capabilities, mode=mode)(look)
    outcome = Guard(stages=[stage]).run(value, context=CONTEXT)
    assert outcome.value is not None
    return seen[0]


@pytest.mark.spec("STG-16")
@pytest.mark.parametrize("mode", ["sequential", "transform", "audit", "concurrent", "fire_and_forget"])
def test_a_stage_without_capabilities_is_shown_nothing_of_the_context(mode: str) -> None:
    assert seen_with([], nested(INNER, nested(INNER)), mode) == set()


@pytest.mark.spec("STG-16")
@pytest.mark.parametrize("capability", Capability)
def test_a_stage_is_shown_what_its_capability_reads_and_nothing_else(capability: Capability) -> None:
    assert seen_with([capability], nested(INNER, nested(INNER))) == SHOWN[capability]


@pytest.mark.spec("STG-16")
def test_a_stage_with_all_capabilities_is_shown_all_but_what_is_the_hosts_alone() -> None:
    assert seen_with(Capability, nested(INNER)) == set().union(*SHOWN.values())


@pytest.mark.spec("STG-16")
def test_credentials_are_read_by_name_with_the_capability_alone() -> None:
    seen = list[object]()

    def look(value: Message, context: Context) -> None:
        seen.append([context.get_header("authorization"), next(value.iter_views()).get_header("authorization")])

    for capabilities in (list[Capability](), [Capability.READ_HEADERS]):
        Guard(stages=[as_stage("look", capabilities=capabilities)(look)]).run(nested(), context=CONTEXT)

    assert seen == [[None, None], ["canary-secret", "canary-secret"]]


# -- messages inside messages ----------------------------------------------------------------------------------------


@pytest.mark.spec("VIEW-25")
@pytest.mark.parametrize("capability", [None, *Capability])
def test_views_show_of_inner_messages_what_is_granted(capability: Capability | None) -> None:
    agent = AgentExtension(conversation=ConversationContext(history=(INNER,)))
    message = replace(nested(INNER, nested(INNER)), extensions=Extensions(agent=agent))
    capabilities = [] if capability is None else [capability]

    views = list(message.iter_views(capabilities=capabilities))
    shown = canaries(
        [[view.to_dict(), view.properties] for view in views], [json.loads(shared_bytes(view, None)) for view in views]
    )
    shown |= canaries(*(json.loads(view_bytes(view)) for view in views))
    content = "".join(view.content or "" for view in views)

    allowed = set[str]() if capability is None else SHOWN[capability]
    assert shown <= allowed
    assert {name for name in set().union(*SHOWN.values()) if f"canary-{name}" in content} <= allowed
    assert "Authorization" not in content + str([view.to_dict() for view in views])


@pytest.mark.spec("PIPE-4")
def test_labels_of_inner_messages_are_the_outer_ones_too() -> None:
    agent = AgentExtension(conversation=ConversationContext(history=(nested(INNER),)))
    plain = Message(role=Role.USER, content=[TextPart(text="hi")])
    runs = [
        Guard().run(nested(nested(INNER))),
        Guard().run(replace(plain, extensions=Extensions(agent=agent))),
        Guard().run(plain, context=Context(agent=agent)),
        Guard().run(Request(messages=[plain]), context=Context(agent=agent, session="s")),
        Guard().run(plain, context=Context(history=(nested(INNER),))),
    ]

    assert [outcome.labels for outcome in runs] == [{"canary-label"}] * len(runs)


@pytest.mark.spec("STG-16")
def test_what_a_stage_was_not_shown_of_inner_messages_stays() -> None:
    def mask(value: Message, _: Context) -> Message:
        def masked(part: Any) -> Any:
            if isinstance(part, ToolResultPart):
                return replace(part, content=tuple(map(masked, part.content)))
            inner = tuple(replace(each, content=(TextPart(text="new"),)) for each in part.messages)
            return replace(part, messages=inner)

        return replace(value, content=tuple(map(masked, value.content)))

    outcome = Guard(stages=[as_stage("mask")(mask)]).run(nested(INNER))

    assert outcome.message is not None
    result, prompt = outcome.message.content
    for (kept,) in (result.content[0].messages, prompt.messages):
        assert kept == replace(INNER, content=(TextPart(text="new"),))


@pytest.mark.spec("STG-16")
def test_an_equal_copy_of_a_part_is_the_original() -> None:
    def change(value: Message, _: Context) -> Message:
        return replace(value, content=(value.content[0], replace(value.content[1]), TextPart(text="new")))

    outcome = Guard(stages=[as_stage("change")(change)]).run(nested(INNER))

    assert outcome.message is not None
    assert outcome.message.content[1].messages == (INNER,)


@pytest.mark.spec("STG-16")
def test_a_stage_may_remove_inner_messages_and_add_bare_ones() -> None:
    bare = Message(role=Role.USER, content=[TextPart(text="new")])

    def change(value: Message, _: Context) -> Message:
        prompt = value.content[1]
        changed = replace(prompt, messages=(prompt.messages[1], bare, nested(bare)))
        new = PromptResultPart(prompt_name="q", messages=[bare])
        return replace(value, content=(new, changed, value.content[0]))

    outcome = Guard(stages=[as_stage("change")(change)]).run(nested(bare, INNER))

    assert outcome.message is not None
    new, changed, kept = outcome.message.content
    assert (new.messages, changed.messages) == ((bare,), (INNER, bare, nested(bare)))
    assert kept.content[0].messages == (bare, INNER)


@pytest.mark.spec("STG-16")
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("new", [False, True])
def test_a_stage_cannot_put_in_messages_with_a_context(deep: bool, new: bool) -> None:
    forged = nested(INNER) if deep else INNER

    def change(value: Message, _: Context) -> Message:
        if new:
            return replace(value, content=(*value.content, PromptResultPart(prompt_name="q", messages=[forged])))
        prompt = replace(value.content[1], messages=(*value.content[1].messages, forged))
        return replace(value, content=(value.content[0], prompt))

    decision = Guard(stages=[as_stage("change")(change)]).run(nested(INNER)).decision

    assert decision.stages[-1].hit is not None
    assert (decision.verdict, decision.stages[-1].hit.detail["slot"]) == (Verdict.DENY, "extensions")


@pytest.mark.spec("STG-16")
def test_a_stage_cannot_change_the_context_of_inner_messages() -> None:
    def change(value: Message, _: Context) -> Message:
        prompt = value.content[1]
        forged = replace(INNER, extensions=replace(prompt.messages[0].extensions, meta=MetaExtension(scope="x")))
        return replace(value, content=(value.content[0], replace(prompt, messages=(forged,))))

    decision = Guard(stages=[as_stage("change", capabilities=Capability)(change)]).run(nested(INNER)).decision

    assert decision.stages[-1].hit is not None
    assert (decision.verdict, decision.stages[-1].hit.detail["slot"]) == (Verdict.DENY, "meta")


# -- changes in place ------------------------------------------------------------------------------------------------

FULL = Message(
    role=Role.ASSISTANT,
    content=[
        ToolCallPart(tool_call_id="c1", name="pay", arguments={"amount": 1, "to": ["ann"]}),
        ResourcePart(uri="file:///x", blob=b"bytes", annotations={}),
        PromptResultPart(prompt_name="p", messages=[Message(role=Role.USER, content=[TextPart(text="old")])]),
        VideoPart(type="url", data="https://example.com/v"),
    ],
    extensions=Extensions(custom={"k": 1}, completion=CompletionExtension(cost_usd=Decimal("0.1"))),
)


def reordered(held: Any) -> None:
    dict.update(held, amount=dict.pop(held, "amount"))


IN_PLACE: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "arguments": (lambda m, _: dict.__setitem__(m.content[0].arguments, "amount", 999), "content"),
    "a list": (lambda m, _: list.append(m.content[0].arguments["to"], "bob"), "content"),
    "an order": (lambda m, _: reordered(m.content[0].arguments), "content"),
    "an empty object": (lambda m, _: dict.__setitem__(m.content[1].annotations, "x", 1), "content"),
    "bytes": (lambda m, _: object.__setattr__(m.content[1], "blob", bytearray(b"bytes")), "content"),
    "a class": (lambda m, _: object.__setattr__(m.content[3], "__class__", AudioPart), "content"),
    "a field": (lambda m, _: object.__delattr__(m.content[0], "name"), "content"),
    "parts": (lambda m, _: object.__setattr__(m, "content", ()), "content"),
    "a part": (lambda m, _: object.__setattr__(m, "content", (*m.content[:2], TextPart(text="x"))), "content"),
    "an inner message": (lambda m, _: object.__setattr__(m.content[2].messages[0].content[0], "text", "x"), "content"),
    "a role": (lambda m, _: object.__setattr__(m, "role", Role.USER), "role"),
    "labels": (lambda m, _: object.__setattr__(m.extensions.security, "labels", frozenset()), "security.labels"),
    "subject": (lambda m, _: object.__setattr__(m.extensions.security.subject, "id", "root"), "security.subject"),
    "security": (lambda m, _: object.__setattr__(m.extensions, "security", None), "security"),
    "extensions": (lambda m, _: object.__setattr__(m, "extensions", None), "extensions"),
    "custom": (lambda m, _: dict.update(m.extensions.custom, k=2), "custom"),
    "a cost": (lambda m, _: object.__setattr__(m.extensions.completion, "cost_usd", Decimal(9)), "completion"),
    "the context": (lambda _, c: object.__setattr__(c, "session", "other"), "context.session"),
    "the context's subject": (lambda _, c: object.__setattr__(c.subject, "id", "root"), "context.subject"),
    "the history": (
        lambda _, c: object.__setattr__(c.agent.conversation.history[0].content[0], "text", "x"),
        "context.agent",
    ),
}  # fmt: skip


def changing(change: Callable[[Any, Any], object], mode: str, *, returned: bool = False) -> Stage:
    def call(value: Message, context: Context) -> Message | None:
        change(value, context)
        return value if returned else None

    return as_stage("evil", capabilities=Capability, mode=mode)(call)


@pytest.mark.spec("STG-17")
@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize(("mode", "returned"), [("transform", True), ("audit", False), ("concurrent", True)])
def test_a_change_in_place_ends_the_run(name: str, mode: str, returned: bool) -> None:
    change, slot = IN_PLACE[name]

    outcome = Guard(stages=[changing(change, mode, returned=returned)]).run(FULL, context=CONTEXT)

    (record,) = outcome.decision.stages
    assert record.hit is not None
    assert (outcome.value, record.stage, record.hit.code) == (None, "evil", "stage.tier-violation")
    tier = SLOTS[slot].tier if slot in SLOTS else "immutable"
    assert (record.hit.detail["slot"], record.hit.detail["tier"]) == (slot, tier)


@pytest.mark.spec("STG-17")
@pytest.mark.parametrize(
    ("value", "change", "path"),
    [
        (
            Request(messages=[FULL], tools=[ToolDefinition(name="pay", input_schema={"type": "object"})]),
            lambda v: dict.__setitem__(v.tools[0].input_schema, "type", "array"),
            "$.tools[0].input_schema.type",
        ),
        (
            Response(choices=[Choice(message=FULL)]),
            lambda v: dict.__setitem__(v.choices[0].message.content[0].arguments, "amount", 9),
            "$.choices[0].message.content[0].arguments.amount",
        ),
        (FULL, lambda v: object.__setattr__(v, "content", 7), "$.content"),
    ],
)
async def test_requests_and_responses_are_copies_too_also_for_coroutines(value: Any, change: Any, path: str) -> None:
    async def evil(value: Any, _: Context) -> None:
        await asyncio.sleep(0)
        change(value)

    def fails(value: Any, _: Context) -> None:
        change(value)
        raise RuntimeError

    for stages in (
        [as_stage(name, mode="concurrent")(evil) for name in "ab"],
        [as_stage("a", mode="audit", on_error="allow")(fails)],
    ):
        outcome = await Guard(stages=stages).arun(value)

        assert outcome.value is None
        assert outcome.decision.stages[0].hit is not None
        assert outcome.decision.stages[0].hit.detail["path"] == path


@pytest.mark.spec("STG-17")
def test_what_a_stage_keeps_and_changes_later_is_not_what_goes_out(caplog: pytest.LogCaptureFixture) -> None:
    kept = list[Any]()

    def keep(value: Message, context: Context) -> Message:
        new = replace(
            value,
            extensions=replace(
                value.extensions, custom=FrozenDict(k=["fine"]), http=HttpExtension(headers={"X-A": "1"})
            ),
        )
        new = replace(
            new,
            extensions=replace(
                new.extensions, delegation=DelegationExtension(chain=(DelegationHop(delegator="a", delegate="b"),))
            ),
        )
        kept.extend([value, context, new])
        return new

    def spoil(*given: Any) -> None:
        for item in (*kept, *given):
            if isinstance(item, Message):
                dict.__setitem__(item.content[0].arguments, "amount", 999)
                object.__setattr__(item.extensions.security, "subject", None)
                dict.clear(item.extensions.custom)
        if kept:
            list.append(kept[2].extensions.custom.get("k", []), "evil")
            dict.__setitem__(kept[2].extensions.http.headers, "X-A", "2")
            object.__setattr__(kept[2].extensions.delegation.chain[0], "delegate", "evil")

    stages = [as_stage("keep", capabilities=Capability)(keep), changing(spoil, "fire_and_forget")]
    outcome = Guard(stages=stages).run(FULL, context=CONTEXT)

    assert outcome.message is not None
    sent = outcome.message
    assert sent.content[0].arguments == {"amount": 1, "to": ["ann"]}
    assert sent.extensions.custom == {"k": ["fine"]}  # type: ignore[union-attr]
    assert sent.extensions.http.headers == {"X-A": "1"}  # type: ignore[union-attr]
    assert sent.extensions.delegation.chain[0].delegate == "b"  # type: ignore[union-attr]
    assert sent.extensions.security.subject == CONTEXT.subject  # type: ignore[union-attr]
    assert "stage evil failed afterwards: stage.tier-violation" in caplog.text


@pytest.mark.spec("STG-17")
def test_no_default_of_the_format_is_in_a_stages_hands() -> None:
    def poison(value: Message, _: Context) -> None:
        dict.__setitem__(value.content[0].annotations, "x", 1)

    Guard(stages=[as_stage("evil")(poison)]).run(Message(role=Role.TOOL, content=[ResourcePart(uri="file:///x")]))

    assert ResourcePart(uri="file:///y").annotations == {}
