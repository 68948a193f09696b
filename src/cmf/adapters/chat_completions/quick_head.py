"""The rest of the requests that nearly all traffic is made of, read key by key.

As with messages (`quick`): what is read here is read as the general decoder does (a test compares the
two), needs no layout, and everything else is left to the general one by giving None.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

from cmf.adapters.chat_completions.quick import is_text
from cmf.errors import ShapeError
from cmf.json.codec import brackets, loads_plain, plain_bytes, sealed_object
from cmf.json.frozen import MAX_DEPTH, FrozenDict, freeze, frozen_mapping, sealed
from cmf.json.native import plain_copy
from cmf.json.value import maker
from cmf.message.message import Message
from cmf.message.request import NO_SAMPLING, SAMPLING_FIELDS, Request, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition

_NUMBERS: Final = frozenset({"temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty"})
_NO_NUMBERS: Final = dict.fromkeys(SAMPLING_FIELDS)  # nobody writes to it
_CHOICES: Final = {mode: ToolChoice(mode=mode) for mode in ("auto", "none", "required")}
_KEPT: Final = frozenset(
    {"parallel_tool_calls", "logprobs", "metadata", "store", "stream_options", "top_logprobs", "user"}
)
"""Keys that no format of the family reads: they are kept as they are."""
_REMEMBERED_BYTES: Final = 64 * 1024  # 64 lists of that size are 4 MiB of text
_ONE_LOOK: Final = 4096  # a longer list has so many brackets that its schemas have to be looked at one by one
_SCHEMA_DEPTH: Final = MAX_DEPTH - 4  # the body, its tools, the tool and its function are around a schema

_sampling = maker(Sampling, *SAMPLING_FIELDS)
_request = maker(Request, "model", "tools", "tool_choice", "sampling", "stream", "extra", "messages")
_tool = maker(ToolDefinition, "name", "description", "input_schema", "extra")


Head = tuple[str | None, tuple[ToolDefinition, ...], ToolChoice | None, Sampling, bool | None, FrozenDict | None]
"""Model, tools, tool choice, sampling, stream, extra."""


def quick_head(body: dict[str, Any], format_name: str) -> Head | None:
    """The request without its messages, where each key of `body` has its plainest shape; else None."""
    sampling: dict[str, Any] = _NO_NUMBERS.copy()
    left: dict[str, Any] = {}
    model = choice = stream = None
    tools: tuple[ToolDefinition, ...] = ()
    for key, item in body.items():
        kind = type(item)
        if key == "messages":
            continue
        if key == "model" and kind is str and (item.isascii() or is_text(item)):
            model = item
        elif key == "tools" and kind is list and item:
            found = quick_tools(item, format_name)
            if found is None:
                return None
            tools = found
        elif key in _NUMBERS and (kind is int or (kind is float and math.isfinite(item))):
            sampling[key] = item
        elif key == "max_completion_tokens" and kind is int and "max_tokens" not in body:
            sampling["max_output_tokens"] = item
        elif key == "max_tokens" and kind is int and "max_completion_tokens" not in body:
            sampling["max_output_tokens"] = left[key] = item  # stays in `extra`: some services know only that name
        elif key == "seed" and kind is int:
            sampling[key] = item
        elif key == "stream" and kind is bool:
            stream = item
        elif key == "tool_choice" and kind is str and item in _CHOICES and "function_call" not in body:
            choice = _CHOICES[item]
        elif key in _KEPT and item is not None:
            left[key] = freeze(item)
        else:
            return None
    drawn = NO_SAMPLING if sampling == _NO_NUMBERS else _sampling(*sampling.values())
    extra = frozen_mapping({format_name: frozen_mapping(left)}) if left else None
    return model, tools, choice, drawn, stream, extra


def with_messages(head: Head, messages: tuple[Message, ...]) -> Request:
    """The request of which `quick_head` gave all but its messages."""
    return _request(*head, messages)


def quick_tools(listed: list[Any], format_name: str) -> tuple[ToolDefinition, ...] | None:
    """The client's functions, if `listed` has nothing else and each is plain; else None.

    An agent offers the same tools turn after turn, so the last few lists are remembered by their JSON text.
    """
    text = plain_bytes(listed)
    if text is None:
        return None  # not JSON: the general decoder names the place
    try:
        if len(text) <= _REMEMBERED_BYTES:
            known = remembered_tools(text, format_name)
            if not known:
                known.append(_tools_of(text, listed, format_name))
            return known[0]
    except _AmbiguousError:
        pass
    except ShapeError:
        return None  # nested too deeply
    return _tools(freeze(listed), format_name)


class _AmbiguousError(ValueError):
    """NaN and infinities are written as null, so a text with a null in it may be that of several lists."""


@lru_cache(maxsize=64)
def remembered_tools(text: bytes, format_name: str) -> list[tuple[ToolDefinition, ...] | None]:
    """Where the tools that this JSON text lists are kept, once they were made: while it is among the last 64 lists."""
    return []


def _tools_of(text: bytes, listed: list[Any], format_name: str) -> tuple[ToolDefinition, ...] | None:
    """The tools of the text, which is the JSON of `listed`, even if the list is changed meanwhile."""
    copied = plain_copy(listed, text, _SCHEMA_DEPTH + 3)  # schemas are inside the list, the tool and its function
    if copied is not None:
        return _tools(copied, format_name, shallow=True)
    if text.rfind(b"null") >= 0:  # from the end: two and a half times as fast as `in`
        raise _AmbiguousError
    shallow = len(text) <= _ONE_LOOK and brackets(text) <= _SCHEMA_DEPTH
    return _tools(loads_plain(text), format_name, shallow=shallow)


def _tools(listed: list[Any], format_name: str, *, shallow: bool = False) -> tuple[ToolDefinition, ...] | None:
    tools = []
    for raw in listed:
        function = raw.get("function") if isinstance(raw, dict) else None
        if not isinstance(function, dict) or len(raw) != 2 or raw.get("type") != "function":
            return None
        name, description, schema = function.get("name"), function.get("description"), function.get("parameters")
        if shallow and len(function) == 3 and type(name) is type(description) is str and type(schema) is dict:
            tools.append(_tool(name, description, sealed(schema), None))  # nearly all are
            continue
        left = len(function) - 1
        if type(name) is not str:
            return None
        if type(description) is str:
            left -= 1
        elif "description" in function:
            return None
        if isinstance(schema, dict):
            left -= 1
            schema = sealed(schema) if shallow else sealed_object(schema, _SCHEMA_DEPTH)
        elif "parameters" in function:
            return None
        extra = None
        if left:
            if left > 1 or "strict" not in function:
                return None
            strict = freeze(function["strict"], _SCHEMA_DEPTH)
            extra = FrozenDict({format_name: {"function": {"strict": strict}}})
        tools.append(_tool(name, description, schema, extra))
    return tuple(tools)
