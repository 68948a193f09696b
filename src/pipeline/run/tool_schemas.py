"""Whether tool calls fit their tools' schemas: as they come, and after every edit [C12]. Spec: tools.md [TOOL-7] ff."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from typing import Final, Literal, TypeAlias

from cmf.enums import Hook
from cmf.json.frozen import FrozenDict, JsonObject, thaw
from cmf.message.digests import canonical_bytes
from cmf.message.message import ToolCallPart
from cmf.message.request import Request, Response
from cmf.message.tools import ToolDefinition, Work, is_usable, schema_problem
from cmf.message.transform import Pairing, messages_of
from cmf.views.uris import tool_uri
from cmf.views.view import MessageView
from pipeline.conversation.history import History, Origins, calls_in
from pipeline.decisions.decision import Effect, Hit
from pipeline.decisions.events import Events, ToolInputInvalid
from pipeline.decisions.paths import message_place, part_at
from pipeline.decisions.stage import Traffic

UnreadableCalls: TypeAlias = Literal["refuse", "warn"]
_UNREADABLE: Final = "The arguments of this call are no strict JSON object."
_NO_ARGUMENTS: Final = FrozenDict()


class SchemaChecks:
    """Holds the tool calls of one run to their schemas.

    A call that came without fitting is left to policy, which sees so in its origins. Where an edit made a call stop
    fitting, `broken` is its path, and the run is refused.

    The schema is that of the tool's profile; without one, that of the tool as the request offers it (for a reply, the
    request in its context). Calls that went out in this session before are not checked again, and those that a result
    in the same request answers not at all: nothing will run them.
    """

    def __init__(
        self, traffic: Traffic, history: History, events: Events, unreadable: UnreadableCalls = "refuse"
    ) -> None:
        own = traffic.tools if isinstance(traffic, Request | Response) else ()
        self._tools = (*own, *history.tools)
        self._offered = _by_name(self._tools)
        self._profiles = history.profiles
        self._history = history
        self._traffic = traffic
        self._events = events
        self._refuses_unreadable = unreadable == "refuse"
        self._answers: tuple[Traffic | None, set[int]] = None, set()
        self._parts: dict[int, ToolCallPart] | None = None
        self._problems: dict[int, str] = {}
        self._looked_at: Traffic | None = None
        self._unlooked: dict[int, ToolCallPart] | None = None
        self._first: int | None = None
        self._work = Work()
        self._definitions: dict[str | None, str] = {}
        self.broken: str | None = None

    def look(self, value: Traffic, origins: Origins) -> Origins:
        """`origins`, with `fits` in the entry of each call that does not fit its schema.

        Calls without an entry in `origins` were settled in an earlier turn, and fit.

        Raises:
            ConfigError: a function of the profiles failed.
        """
        before, parts, problems = self._parts, {}, {}
        first = self.first_new(value) if before is None and origins else 0
        shown = dict(origins)
        for path in origins:
            part = part_at(value, path)
            parts[id(part)] = part
            if before is not None and (id(part) in before or self._stood(part)):
                problem = self._problems.get(id(part))
            else:
                problem = (
                    self._problem(part, path, edited=before is not None)
                    if (message_place(path) or 0) >= first
                    else None
                )
            if problem is not None:
                problems[id(part)] = problem
                call, *values = origins[path]
                shown[path] = [{**call, "fits": False}, *values]
        self._parts, self._problems = parts, problems
        self._looked_at, self._unlooked = value, None
        return shown

    def unreadable(self, value: Traffic, view: MessageView) -> tuple[Hit, ...]:
        """The hit on a call whose arguments are no strict JSON object [TOOL-10]; no hit on any other view.

        It is the pipeline's own, so that no policy set can leave it out, and no exception covers it.
        """
        if view.arguments_raw is None:
            return ()
        if self._answers[0] is not value:
            self._answers = value, _answered(value)
        told = view.hook is Hook.LLM_REQUEST and id(part_at(value, view.path)) in self._answers[1]
        effect = Effect.DENY if self._refuses_unreadable and not told else Effect.WARN
        return (Hit(rule="pipeline", code=ToolInputInvalid.type, effect=effect, reason=_UNREADABLE),)

    def first_new(self, value: Traffic) -> int:
        """The index of the first message of a request that did not go out in this session before; worked out once."""
        if self._first is None:
            new = self._history.new_messages(value) if isinstance(value, Request) else iter(())
            end = len(value.messages) if isinstance(value, Request) else 0
            self._first = next((at for at, _ in new if at is not None), end)
        return self._first

    def _stood(self, part: ToolCallPart) -> bool:
        """Whether a call that was settled, and is therefore not checked, is unchanged since the last pass."""
        if self._unlooked is None:
            messages = messages_of(self._looked_at) if self._looked_at is not None else ()
            self._unlooked = {id(call): call for message in messages for _, call in calls_in(message)}
        return id(part) in self._unlooked

    def _problem(self, part: ToolCallPart, path: str, *, edited: bool) -> str | None:
        """Where the arguments do not fit the schema; None if they do, or if there is no schema."""
        if part.arguments_raw is None and not (self._offered or self._profiles):
            return None
        uri = tool_uri(part.name, part.namespace)
        if part.arguments_raw is not None:
            # Policy sees the text itself.
            self._events.publish(ToolInputInvalid(path=path, tool=uri, problem="$"))
            return None
        if not edited and id(part) in self._answered:
            return None
        arguments = thaw(_NO_ARGUMENTS if part.arguments is None else part.arguments)
        found = (schema_problem(schema, arguments, self._work) for schema in self._schemas(part, uri))
        problem = next((one for one in found if one is not None), None)
        if problem is not None:
            self._events.publish(ToolInputInvalid(path=path, tool=uri, problem=problem))
            self.broken = self.broken or (path if edited else None)
        return problem

    def definition_of(self, uri: str | None) -> str:
        """The digest of all that is known of how a tool is defined, so that another definition is another tool."""
        if uri not in self._definitions:
            known = self._profiles.tool(uri) if self._profiles and uri is not None else None
            named = (*self._named.get(uri, ()), *([] if known is None else [known]))
            tools = sorted(canonical_bytes(tool) for tool in named)
            self._definitions[uri] = hashlib.sha256(b"\n".join(dict.fromkeys(tools))).hexdigest()
        return self._definitions[uri]

    @cached_property
    def _named(self) -> dict[str | None, list[ToolDefinition]]:
        """The definitions of each tool that is offered."""
        named: dict[str | None, list[ToolDefinition]] = {}
        for tool in self._tools:
            named.setdefault(tool_uri(tool.name, tool.namespace), []).append(tool)
        return named

    @cached_property
    def _answered(self) -> set[int]:
        return _answered(self._traffic)

    def _schemas(self, part: ToolCallPart, uri: str) -> Iterable[JsonObject]:
        if part.executed_by == "provider":
            return ()
        known = self._profiles.tool_schema(uri) if self._profiles else None
        if known is not None:
            return (known,)
        # What a client sends as a schema may be none; then the arguments cannot be checked.
        offered = self._offered.get((part.namespace, part.name), ())
        return (schema for schema in offered if is_usable(schema, self._work))


def _answered(traffic: Traffic) -> set[int]:
    """The calls of a request that a result in it answers."""
    pairing = Pairing("={}".format, map("#{}".format, count()).__next__)
    open_calls: dict[str, int] = {}
    answered: set[int] = set()
    for message in traffic.messages if isinstance(traffic, Request) else ():
        for part in message.content:
            name = pairing.name_of(part)
            if name is not None and isinstance(part, ToolCallPart):
                open_calls[name] = id(part)
            elif name in open_calls:
                answered.add(open_calls[name])
    return answered


def _by_name(tools: Iterable[ToolDefinition]) -> Mapping[tuple[str | None, str], list[JsonObject]]:
    found: dict[tuple[str | None, str], list[JsonObject]] = {}
    for tool in tools:
        if tool.input_schema is not None:
            found.setdefault((tool.namespace, tool.name), []).append(tool.input_schema)
    return found
