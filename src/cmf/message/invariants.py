"""The rules that hold for every complete message, each with a code of its own [A6]. Spec: docs/spec/invariants.md.

Two profiles: `ledger` for what this installation produced, where a breach is an error; `wire` for what clients and
providers send, where a breach is a finding that policy may act on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, get_args

from cmf.enums import ContentType, MessageStatus, Role
from cmf.errors import InvariantError, ShapeError, UnknownToolError
from cmf.message.ids import TOOL_PREFIX, is_ulid
from cmf.message.message import Extensions, Message, ToolCallPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.tools import ToolRegistry, input_problem
from cmf.message.transform import messages_of

Profile = Literal["ledger", "wire"]
PROFILES: Final = get_args(Profile)

_TEXTUAL: Final = frozenset({ContentType.TEXT, ContentType.OPAQUE})
_EITHERS: Final = _TEXTUAL | {ContentType.IMAGE, ContentType.AUDIO, ContentType.RESOURCE, ContentType.RESOURCE_REF}
_ALLOWED: Final[dict[Role, frozenset[ContentType]]] = {
    Role.SYSTEM: _TEXTUAL,
    Role.DEVELOPER: _TEXTUAL,
    Role.USER: _EITHERS
    | {ContentType.VIDEO, ContentType.DOCUMENT, ContentType.PROMPT_REQUEST, ContentType.PROMPT_RESULT},
    Role.ASSISTANT: _EITHERS | {ContentType.TOOL_CALL, ContentType.THINKING, ContentType.REDACTED_THINKING},
    Role.TOOL: frozenset({ContentType.TOOL_RESULT, ContentType.OPAQUE}),
}


class Finding(NamedTuple):
    """A rule that does not hold, and where."""

    code: str
    path: str
    problem: str


def validate(
    value: Message | Request | Response | Sequence[Message], profile: Profile, *, tools: ToolRegistry | None = None
) -> tuple[Finding, ...]:
    """What does not hold of a message, or of the messages of a session in order.

    Args:
        value: one message, a session's messages, or a request or response.
        profile: `wire` returns findings; `ledger` also asks for ids, times and records, and raises.
        tools: with it, arguments are held to the tools' schemas.

    Raises:
        InvariantError: in profile `ledger`, for the first finding. ShapeError: there is no such profile.
    """
    if profile not in PROFILES:
        raise ShapeError("there is no such profile", path="profile", hint=f"use {' or '.join(PROFILES)}")
    messages = messages_of(value) if isinstance(value, Message | Request | Response) else value
    findings = tuple(_findings(list(messages), profile, tools))
    if findings and profile == "ledger":
        first = findings[0]
        raise InvariantError(first.problem, path=first.path, code=first.code, hint="see docs/spec/invariants.md")
    return findings


def _findings(messages: list[Message], profile: Profile, tools: ToolRegistry | None) -> Iterator[Finding]:
    for index, message in enumerate(messages):
        path = f"$[{index}]"
        if message.status is not MessageStatus.COMPLETE:
            continue  # a message in the making may break any rule
        yield from _content(message, path)
        yield from _twins(message, path)
        yield from _inputs(message, path, tools)
        if profile == "ledger":
            yield from _ids(message, path)
            yield from _records(message, path)
    yield from _answers(messages)
    if profile == "ledger":
        yield from _order(messages)


def _content(message: Message, path: str) -> Iterator[Finding]:
    if not message.content and message.role not in (Role.SYSTEM, Role.DEVELOPER):
        yield Finding("content.empty", path, "a message needs at least one part")
    for index, part in enumerate(message.content):
        # Results of tools that the provider ran stand in the assistant's own message.
        is_own = message.role is Role.ASSISTANT and isinstance(part, ToolResultPart) and part.executed_by == "provider"
        if part.content_type not in _ALLOWED[message.role] and not is_own:
            kind, role = part.content_type.value, message.role.value
            yield Finding("content.role", f"{path}.content[{index}]", f"{kind} is not for role {role}")
    if message.role is Role.TOOL and len(message.content) > 1:
        yield Finding("content.tool-one-part", path, "a tool message has exactly one part")


def _twins(message: Message, path: str) -> Iterator[Finding]:
    """One fact, one home: a twin in the extensions is absent or equal [A11]."""
    extensions = message.extensions or Extensions()
    provenance, agent = extensions.provenance, extensions.agent
    pairs = (
        ("provenance.message_id", provenance and provenance.message_id, message.id),
        ("provenance.parent_id", provenance and provenance.parent_id, message.parent_id),
        ("agent.session_id", agent and agent.session_id, message.session_id),
    )
    for name, twin, own in pairs:
        if twin is not None and own is not None and twin != own:
            yield Finding("twin.differs", f"{path}.extensions.{name}", "differs from the message's own")


def _inputs(message: Message, path: str, tools: ToolRegistry | None) -> Iterator[Finding]:
    for index, part in enumerate(message.content):
        if not isinstance(part, ToolCallPart):
            continue
        at = f"{path}.content[{index}].arguments"
        if part.arguments_raw is not None:
            yield Finding("tool-input.invalid", at, "the arguments are not a strict JSON object")
        elif tools is not None:
            try:
                tool = tools.find(part.name, part.namespace)
            except UnknownToolError:
                continue  # whether a tool may be called at all is for policy to say
            problem = input_problem(tool, part.arguments if part.arguments is not None else {})
            if problem is not None:
                yield Finding("tool-input.schema", at + problem.removeprefix("$"), "does not fit the tool's schema")


def _ids(message: Message, path: str) -> Iterator[Finding]:
    if not is_ulid(message.id):
        yield Finding("id.not-ulid", f"{path}.id", "a message's id must be a ULID")
    if not message.session_id:
        yield Finding("session.missing", f"{path}.session_id", "a message belongs to a session")
    if message.created_at is None:
        yield Finding("created-at.missing", f"{path}.created_at", "a message has the time it was made")
    for index, part in enumerate(message.content):
        if isinstance(part, ToolCallPart | ToolResultPart):
            tool_id = part.tool_call_id or ""
            if not (tool_id.startswith(TOOL_PREFIX) and is_ulid(tool_id.removeprefix(TOOL_PREFIX))):
                yield Finding(
                    "tool-id.not-canonical", f"{path}.content[{index}].tool_call_id", "a tool id must be tu_<ulid>"
                )


def _records(message: Message, path: str) -> Iterator[Finding]:
    if message.role is Role.TOOL and message.parent_tool_use_id is None:
        yield Finding("tool.no-parent", path, "a tool message names the call that it answers")
    if message.role is not Role.ASSISTANT:
        return
    extensions = message.extensions or Extensions()
    llm, completion = extensions.llm, extensions.completion
    if llm is None or llm.model_id is None or llm.provider is None:
        yield Finding("model.missing", f"{path}.extensions.llm", "an assistant message names model and provider")
    if extensions.routing is None:
        yield Finding("routing.missing", f"{path}.extensions.routing", "an assistant message has its routing record")
    if completion is None or completion.tokens is None or completion.cost_usd is None:
        yield Finding("usage.missing", f"{path}.extensions.completion", "an assistant message has its usage and cost")


def _answers(messages: list[Message]) -> Iterator[Finding]:
    """Results point to calls of the same session, and a call has at most one."""
    called: set[str] = set()
    answered: set[str] = set()
    for at, message in enumerate(messages):
        for index, part in enumerate(message.content):
            if isinstance(part, ToolCallPart) and part.tool_call_id:
                called.add(part.tool_call_id)
            if not isinstance(part, ToolResultPart) or not part.tool_call_id:
                continue
            path = f"$[{at}].content[{index}].tool_call_id"
            if len(messages) > 1 and part.tool_call_id not in called:
                yield Finding("tool-result.unmatched", path, "no call of that id came before")
            if part.tool_call_id in answered:
                yield Finding("tool-result.second", path, "the call was answered already; a retry needs a new id")
            answered.add(part.tool_call_id)


def _order(messages: list[Message]) -> Iterator[Finding]:
    for at in range(1, len(messages)):
        before, message = messages[at - 1], messages[at]
        if before.id is not None and message.id is not None and message.id <= before.id:
            yield Finding("id.not-monotonic", f"$[{at}].id", "ids of a session go up")
        if before.session_id != message.session_id:
            yield Finding("session.mixed", f"$[{at}].session_id", "messages of two sessions")
