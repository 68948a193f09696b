"""Answers in the shape of a format that has one text, and one place for thinking, where others have several.

Its writers join them. A rule that saw the pieces did not see the whole, so the whole is made before it is judged.
Spec: docs/spec/adapters.md [ADP-19].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cmf.adapters.wire import loss
from cmf.json.value import replace
from cmf.message.message import Message, Part, TextPart, ThinkingPart
from cmf.message.request import Response


def in_one_text(
    response: Response,
    format_name: str,
    *,
    is_own: Callable[[Part], bool],
    neighbours: bool = False,
) -> Response:
    """The response with the texts of each message as one, and its thinking as one; itself where they are that.

    With `neighbours`, only those that follow each other. What is the format's own (`is_own`) has a place of its own and
    stays as it is.
    """
    join = _Join(format_name, is_own, neighbours)
    messages = [join(choice.message) for choice in response.choices]
    if all(new is choice.message for new, choice in zip(messages, response.choices, strict=True)):
        return response
    choices = [replace(choice, message=new) for new, choice in zip(messages, response.choices, strict=True)]
    return replace(response, choices=tuple(choices))


class _Join(NamedTuple):
    format_name: str
    is_own: Callable[[Part], bool]
    neighbours: bool

    def __call__(self, message: Message) -> Message:
        parts: list[Part] = []
        texts: dict[int, list[str]] = {}  # by the place of a part, those that it is to hold
        places: dict[type[Part], int] = {}  # where a part is that the next one of its kind joins
        for part in message.content:
            joins = isinstance(part, TextPart | ThinkingPart) and not self.is_own(part)
            place = places.get(type(part)) if joins else None
            if place is None:
                place = len(parts)
                parts.append(part)
                places = {} if self.neighbours else places
            if isinstance(part, TextPart | ThinkingPart) and joins:
                places[type(part)] = place
                texts.setdefault(place, []).append(part.text)
        if len(parts) == len(message.content):
            return message
        for place, several in texts.items():
            if len(several) > 1:
                kind = parts[place].content_type.value
                text = loss.joined(self.format_name, kind, several, message=message)
                parts[place] = TextPart(text=text) if isinstance(parts[place], TextPart) else ThinkingPart(text=text)
        return replace(message, content=tuple(parts))


__all__ = ["in_one_text"]
