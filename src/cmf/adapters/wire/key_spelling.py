"""Refuses keys that only a lenient reader takes for the format's own: `Model` beside `model`, `Method` for `method`.

Readers of JSON in Go, C# and other languages match the names of fields in any letter case, and some ignore control
characters in them. To them such a key is the field itself, and often the last one counts; to policy it would be an
unknown field. Spec: docs/spec/adapters.md [ADP-17].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cmf.adapters.wire.fields import FIELD_NAMES
from cmf.errors import ShapeError
from cmf.message.message import Message, OpaquePart, Part, PromptResultPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.transform import message_paths, messages_of

_NAMES: Final = frozenset(FIELD_NAMES["names"])
"""The names, of whatever format, that adapters read or that rules look for in what adapters keep."""
_HOLDING: Final = frozenset(FIELD_NAMES["holding"])
"""What holds objects whose keys are the format's, too; the keys of all other kept objects are free."""
_FOLDED: Final = {name.casefold(): name for name in _NAMES}
_OF_ERRORS: Final = frozenset({"code", "error", "message", "status", "title", "type"})
"""Names that gateways spell as they like in their errors; a reply without an answer in it may be one."""

_HOLDERS: Final = frozenset({OpaquePart, PromptResultPart, ToolResultPart})


def refuse_other_spellings(value: Request | Response) -> None:
    """Refuse a value that was read from a body with a name of its format in another spelling.

    Raises:
        ShapeError: `shape.ambiguous-key`, with the path of the part, message, tool or choice.
    """
    for name, path in _misspelt_in(value):
        raise ShapeError(
            f"a key is another spelling of `{name}`, which some readers take for it",
            path=path,
            code="shape.ambiguous-key",
            hint=f"write `{name}`, or leave the key out",
        )


def _misspelt_in(value: Request | Response) -> Iterator[tuple[str, str]]:
    """The names that a value keeps in another spelling, each with the path of what keeps it."""
    if value.extra:
        says_something = isinstance(value, Request) or bool(value.choices)
        yield from ((name, "") for name in _misspelt(value.extra) if says_something or name not in _OF_ERRORS)
    for at, tool in enumerate(value.tools):
        if tool.extra:
            yield from ((name, f"tools[{at}]") for name in _misspelt(tool.extra))
    for at, choice in enumerate(value.choices if isinstance(value, Response) else ()):
        if choice.extra:
            yield from ((name, f"choices[{at}]") for name in _misspelt(choice.extra))
    if not _keep_nothing(messages_of(value)):
        yield from _in_messages(message_paths(value))


def _in_messages(messages: Iterable[tuple[str, Message]]) -> Iterator[tuple[str, str]]:
    for path, message in messages:
        if message.extra:
            yield from ((name, path) for name in _misspelt(message.extra))
        for index, part in enumerate(message.content):
            if part.extra or type(part) in _HOLDERS:
                yield from _in_part(part, f"{path}.content[{index}]")


def _keep_nothing(messages: Sequence[Message]) -> bool:
    """Whether no key of these messages can be a name: so it is of nearly all, and told in a third of the time."""
    for message in messages:
        if message.extra:
            return False
        for part in message.content:
            # Its type is asked for first: to find that a value is of no such class takes five times as long.
            if part.extra or (type(part) in _HOLDERS and type(getattr(part, "content", None)) is not str):
                return False
    return True


def _in_part(part: Part, path: str) -> Iterator[tuple[str, str]]:
    if part.extra:
        yield from ((name, path) for name in _misspelt(part.extra))
    if isinstance(part, OpaquePart):
        yield from ((name, path) for name in _in_object(part.value))
    elif isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        for at, inner in enumerate(part.content):
            yield from _in_part(inner, f"{path}.content[{at}]")
    elif isinstance(part, PromptResultPart):
        yield from _in_messages((f"{path}.messages[{at}]", message) for at, message in enumerate(part.messages))


def _misspelt(extra: Mapping[str, Any]) -> Iterator[str]:
    for own in extra.values():  # by the name of the format
        if isinstance(own, dict):
            yield from _in_object(own)


def _in_object(own: Mapping[str, Any]) -> Iterator[str]:
    for key, item in own.items():
        if key not in _NAMES and (name := _FOLDED.get(_folded(key))) is not None:
            yield name
        if key in _HOLDING:
            for inner in item if isinstance(item, list) else (item,):
                if isinstance(inner, dict):
                    yield from _in_object(inner)


def _folded(key: str) -> str:
    """The key as the most lenient readers match it: in no letter case, without what cannot be printed."""
    return key.casefold() if key.isprintable() else "".join(filter(str.isprintable, key)).casefold()
