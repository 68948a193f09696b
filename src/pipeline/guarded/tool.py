"""A Python function guarded as a tool: its arguments and result are judged. Spec: guard.md [GRD-7] ff."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Final

from pydantic import ConfigDict, Field, create_model

from cmf.enums import Role
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping, thaw
from cmf.json.value import to_json
from cmf.message.ids import TOOL_PREFIX
from cmf.message.message import Message, OpaquePart, Part, ToolCallPart, ToolResultPart
from cmf.message.tools import ToolDefinition, input_problem
from cmf.views.uris import tool_uri
from pipeline.decisions.context import Context
from pipeline.decisions.errors import CallError, ConfigError, DecisionError, PipelineError, ToolInputError
from pipeline.decisions.events import CallFailed, Events, ToolInputInvalid
from pipeline.decisions.timestamps import new_ulid
from pipeline.guarded.python_values import UNKNOWN, Spelled, adapter_of, hints_of, item_of, list_of, spelled
from pipeline.guarded.wrapping import Given, Yielded
from pipeline.run.outcome import Outcome

_SEARCHED: Final = 1 << 20
"""Characters that are searched for what was said already; what is left is said again."""


class ToolFailure:
    """An exception of a tool, judged by what it says.

    Args:
        error: the exception.
        result: makes the tool's result of a text.
    """

    def __init__(self, error: Exception, result: Callable[[str], Message]) -> None:
        self._error = error
        self._result = result
        self._words = ""

    def said(self) -> Message:
        """All that it says, as the tool's result. Raises what it raises when asked for its text."""
        self._words = words_of(self._error)
        return self._result(self._words)

    def told(self, outcome: Outcome | Exception) -> BaseException:
        """The exception if policy changed nothing of what it says; else one of its type that says what is left."""
        kind = type(self._error)
        if isinstance(outcome, DecisionError):
            return retold(kind, f"The tool failed; what it said is withheld: {outcome}")
        parts = outcome.message.content if isinstance(outcome, Outcome) and outcome.message is not None else ()
        left = parts[0].content if len(parts) == 1 and isinstance(parts[0], ToolResultPart) else None
        if not isinstance(left, str):
            return retold(kind, "The tool failed; what it said could not be judged.")
        return self._error if left == self._words else retold(kind, left)


def words_of(error: BaseException) -> str:
    """All that an exception says, and those that it came from: texts, notes, arguments, attributes; each text once."""
    texts: dict[str, None] = {}
    room = _SEARCHED
    for one in _with_causes(error, set()):
        whole = str(one)
        texts[whole] = None
        attributes = [item for name, item in vars(one).items() if name != "__notes__"]
        told = (item for item in attributes if isinstance(item, str | bytes | list | tuple | dict))
        further = [item if isinstance(item, str) else repr(item) for item in (*one.args, *told)]
        for text in (*map(str, getattr(one, "__notes__", ())), *further):
            room -= len(whole)
            if room < 0 or text not in whole:
                texts[text] = None
    return "\n".join(texts)


def _with_causes(error: BaseException, known: set[int]) -> Iterator[BaseException]:
    """The exception, what it came from, and those that it groups; each once."""
    known.add(id(error))
    yield error
    context = None if error.__suppress_context__ else error.__context__
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for one in (error.__cause__, context, *group):
        if one is not None and id(one) not in known:
            yield from _with_causes(one, known)


def retold(kind: type[BaseException], text: str) -> BaseException:
    """An exception of a class made from `kind`, so that handlers of that type catch it, that says `text` alone.

    A CallError that names the type, where no class can be made from it.
    """

    def says(_: BaseException) -> str:
        return text

    def shows(_: BaseException) -> str:
        return f"{kind.__name__}({text!r})"

    def reduced(_: BaseException) -> Any:  # a class made here has no place from which it could be imported
        return retold, (kind, text)

    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    methods = {"__str__": says, "__repr__": shows, "__reduce__": reduced}
    try:
        made: Any = type(kind.__name__, (kind,), own | methods)
        error: BaseException
        try:
            error = made(text)
        except Exception:  # noqa: BLE001 - it takes other arguments
            error = made.__new__(made, text)
            error.args = (text,)
    except Exception:  # noqa: BLE001 - a class that cannot be inherited from, or takes no text
        return CallError(f"{text.removesuffix('.')} ({kind.__name__})", code="guard.tool-failed", hint="see the log")
    return error


_log: Final = logging.getLogger("pipeline.guard")
_LISTED: Final = inspect.Parameter.VAR_POSITIONAL
_OPEN: Final = inspect.Parameter.VAR_KEYWORD


class ToolFunction:
    """A function as a tool.

    Args:
        name: by default the function's own.
        schema: validates the arguments right before the call; by default generated from the annotations.
        private: parameters that are not inputs of the tool (`self`, a connection): passed on without being judged.

    Raises:
        ConfigError: the function has no name, or no parameter with a name in `private`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        namespace: str | None = None,
        schema: Mapping[str, Any] | None = None,
        private: Collection[str] = (),
    ) -> None:
        found = name or getattr(function, "__name__", None)
        if found is None:
            raise ConfigError("this callable has no name", code="guard.no-name", hint="give `name`")
        self.name: str = found
        self.namespace = namespace
        self.signature = inspect.signature(function)
        self.private = frozenset(private)
        if not self.private <= self.signature.parameters.keys():
            raise ConfigError("unknown private parameter", code="guard.no-parameter", hint="check its spelling")
        self._function = function
        self._schema = schema

    @property
    def uri(self) -> str:
        """The tool's URI, as policy sees it."""
        return tool_uri(self.name, self.namespace)

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """See `hints_of`. Resolved at the first call, when all names are defined."""
        return hints_of(self._function)

    @cached_property
    def definition(self) -> ToolDefinition:
        """The tool's definition for a model."""
        described = inspect.getdoc(self._function)
        return ToolDefinition(
            name=self.name,
            namespace=self.namespace,
            description=described.partition("\n\n")[0] if described else None,
            input_schema=freeze(self._schema if self._schema is not None else self._made_schema()),
        )

    def declared(self, parameter: inspect.Parameter) -> Any:
        """The declared type of a parameter; a default of None adds None to it."""
        hint = self.hints.get(parameter.name, UNKNOWN)
        if hint is UNKNOWN:
            return UNKNOWN
        return hint | None if parameter.default is None and isinstance(hint, type) else hint

    def _made_schema(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        parameters = [one for one in self.signature.parameters.values() if one.name not in self.private]
        for at, parameter in enumerate(one for one in parameters if one.kind is not _OPEN):
            declared = self.declared(parameter)
            kind = Any if adapter_of(declared) is None else declared
            kind = list_of(kind) if parameter.kind is _LISTED else kind
            needed = parameter.default is inspect.Parameter.empty and parameter.kind is not _LISTED
            # An alias, because a parameter may have a name that is not allowed for a model's field.
            fields[f"p{at}"] = (kind, Field(alias=parameter.name) if needed else Field(None, alias=parameter.name))
        config = ConfigDict(extra="allow" if any(one.kind is _OPEN for one in parameters) else "forbid")
        made: Any = create_model("Arguments", __config__=config, **fields)
        schema: dict[str, Any] = made.model_json_schema()
        for shown in schema.get("properties", {}).values():
            shown.pop("default", None)  # the placeholder name, not the function's
        schema.pop("title", None)
        return schema


class ToolCall:
    """One call of it; see `pipeline.guarded.wrapping.Call`."""

    def __init__(
        self, tool: ToolFunction, context: Context, events: Events, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._tool = tool
        self._events = events
        self._id = f"{TOOL_PREFIX}{new_ulid()}"
        self.context = context.model_copy(update={"call_id": self._id})
        self._bound = tool.signature.bind(*args, **kwargs)
        self._bound.apply_defaults()
        self._spelled: dict[str, Spelled] = {}
        self._result: Spelled | None = None
        self._streamed: Yielded | None = None
        self.asked = Message(role=Role.ASSISTANT, content=(self._call_part(),))

    # -- before the call -----------------------------------------------------------------------------------------------

    def _call_part(self) -> ToolCallPart:
        arguments: dict[str, Any] = {}
        for name, value in self._bound.arguments.items():
            if name in self._tool.private:
                continue
            parameter = self._tool.signature.parameters[name]
            if parameter.kind is _OPEN:
                open_ended = {key: self._spell(key, UNKNOWN, item) for key, item in value.items()}
                if open_ended.keys() & arguments.keys():
                    hint = "rename one of them"
                    raise CallError("two arguments have the same name", code="guard.same-name", hint=hint)
                arguments |= open_ended
            elif parameter.kind is _LISTED:
                arguments[name] = self._spell(name, list_of(self._tool.declared(parameter)), list(value))
            else:
                arguments[name] = self._spell(name, self._tool.declared(parameter), value)
        tool, given = self._tool, frozen_mapping(arguments)
        return ToolCallPart(tool_call_id=self._id, name=tool.name, namespace=tool.namespace, arguments=given)

    def _spell(self, name: str, declared: Any, value: Any) -> Any:
        known = self._spelled[name] = spelled(value, declared, f"$.arguments.{name}")
        return known.json

    def admitted(self, outcome: Outcome) -> Given:
        """The arguments after policy, validated against the tool's schema [A8].

        Raises:
            ToolInputError: they do not fit it. CallError: the call was replaced, or its arguments cannot be rebuilt.
        """
        arguments = self._left(outcome)
        problem = input_problem(self._tool.definition, thaw(arguments))
        if problem is not None:
            self._events.publish(ToolInputInvalid(path="content[0]", tool=self._tool.uri, problem=problem))
            path = f"$.arguments{problem[1:]}"
            raise ToolInputError("the arguments do not fit the tool's schema", path=path, hint="fit the tool's schema")
        self.context = self.context.model_copy(update={"labels": self.context.labels | outcome.labels})
        left = dict(arguments)
        bound = self._bound.arguments
        for parameter in self._tool.signature.parameters.values():
            name = parameter.name
            if name in self._tool.private or parameter.kind is _OPEN:
                continue
            if name not in left:
                # Removed by policy: the function's default would be an unjudged value.
                path, hint = f"$.arguments.{name}", "remove only arguments with a default"
                raise CallError("policy removed a required argument", path=path, code="guard.no-argument", hint=hint)
            value = self._made(name, left.pop(name))
            bound[name] = tuple(value) if parameter.kind is _LISTED else value
        name = next((each.name for each in self._tool.signature.parameters.values() if each.kind is _OPEN), "")
        if name and name not in self._tool.private:
            bound[name] = {key: self._made(key, item) for key, item in left.items()}
        elif left:
            path, hint = f"$.arguments.{min(left)}", "rewrite only existing arguments"
            raise CallError("policy added an argument", path=path, code="guard.more-arguments", hint=hint)
        return Given(self._bound.args, self._bound.kwargs)

    def _made(self, name: str, json: Any) -> Any:
        known = self._spelled.get(name)
        return thaw(json) if known is None else known.made(json, f"$.arguments.{name}")

    def _left(self, outcome: Outcome) -> FrozenDict:
        parts = outcome.message.content if outcome.message is not None else ()
        part = parts[0] if len(parts) == 1 else None
        if (
            not isinstance(part, ToolCallPart)
            or (part.name, part.namespace) != (self._tool.name, self._tool.namespace)
            or not isinstance(part.arguments, FrozenDict)
            or part.arguments_raw is not None
        ):
            hint = "check the stages: they may not replace the call"
            raise CallError("a stage replaced the call", code="guard.other-call", hint=hint)
        return part.arguments

    # -- after the call ------------------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """An event and a log line: names and types, no text of the error, which may quote content."""
        kind = type(error).__name__
        _log.warning("tool %s failed: %s", self._tool.uri, kind)
        self._events.publish(CallFailed(called=self._tool.uri, error=kind))

    def failure(self, error: BaseException) -> ToolFailure | None:
        """What the error says, as the result; None for one of this package, which quotes no content."""
        if not isinstance(error, Exception) or isinstance(error, PipelineError | CmfError):
            return None
        return ToolFailure(error, partial(self._message, is_error=True))

    def _message(self, content: Any, *, is_error: bool = False) -> Message:
        part = ToolResultPart(tool_call_id=self._id, tool_name=self._tool.name, content=content, is_error=is_error)
        return Message(role=Role.TOOL, content=(part,))

    def answered(self, result: Any) -> Message:
        """The result as a message with role tool."""
        declared = self._tool.hints.get("return", UNKNOWN)
        content: Any
        if isinstance(result, Yielded):
            content = self._streamed_json(result, item_of(declared))
        elif _are_parts(result):
            content = (result,) if isinstance(result, Part) else tuple(result)
            self._result = Spelled(result, None)
        else:
            self._result = spelled(result, declared, "$.result")
            content = self._result.json
        return self._message(content)

    def _streamed_json(self, result: Yielded, declared: Any) -> Any:
        self._streamed = result
        if result.items and result.returned is None and all(type(item) is str for item in result.items):
            self._result = spelled("".join(result.items), UNKNOWN, "$.result")
            return self._result.json
        self._result = spelled(result.items, list_of(declared), "$.result")
        if result.returned is None:
            return self._result.json
        self._returned = spelled(result.returned, UNKNOWN, "$.returned")
        return {"yielded": self._result.json, "returned": self._returned.json}

    def released(self, outcome: Outcome) -> Any:
        """The result after policy, in its declared type if it has one."""
        parts = outcome.message.content if outcome.message is not None else ()
        part = parts[0] if len(parts) == 1 else None
        if not isinstance(part, ToolResultPart) or self._result is None:
            hint = "check the stages: they may not replace the result"
            raise CallError("a stage replaced the result", code="guard.other-result", hint=hint)
        if self._streamed is not None:
            return self._released_stream(self._streamed, self._result, _as_json(part.content))
        if _are_parts(self._result.json):
            return _released_parts(self._result.json, part.content)
        return self._result.made(_as_json(part.content), "$.result")

    def _released_stream(self, streamed: Yielded, known: Spelled, left: Any) -> Yielded:
        if isinstance(known.json, str):
            # Unchanged: in its original items. Otherwise the items can no longer be told apart.
            return streamed if left == known.json else Yielded([known.made(left, "$.result")])
        if streamed.returned is None:
            return Yielded(known.made(left, "$.result"))
        items, returned = left.get("yielded", FrozenList()), left.get("returned")
        return Yielded(known.made(items, "$.result"), self._returned.made(returned, "$.returned"))


def _are_parts(result: Any) -> bool:
    if isinstance(result, Part):
        return True
    return isinstance(result, list | tuple) and bool(result) and all(isinstance(item, Part) for item in result)


def _released_parts(result: Any, left: Any) -> Any:
    """The parts, as a single one or as the original sequence type."""
    parts = left if isinstance(left, tuple) else ()
    if not isinstance(result, Part):
        return list(parts) if isinstance(result, list) else parts
    if len(parts) != 1:
        hint, code = "edit the result, or deny it", "guard.no-value"
        raise CallError("policy did not leave exactly one part", path="$.result", code=code, hint=hint)
    return parts[0]


def _as_json(content: Any) -> Any:
    """A result's content as JSON; a JSON array that looks like parts stays parts."""
    if not isinstance(content, tuple):
        return content
    return [part.value if isinstance(part, OpaquePart) else to_json(part) for part in content]


__all__ = ["ToolFailure", "retold", "words_of"]
