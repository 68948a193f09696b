"""Bodies of the type that an SDK says a request, reply or event has: each field, and each choice of a union, once."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import count
from typing import Any, Final, get_args, get_origin, get_type_hints

from pydantic.alias_generators import to_camel

CANARY: Final = "canary 7391"  # with a space: it is no base64, which is shown by its digest
DEEP: Final = 7


def choices(of: Any) -> list[Any]:
    """The members of a union, however it is written; the type itself where it is none."""
    if get_origin(of) is typing.Annotated or "Required" in str(get_origin(of)):
        return choices(get_args(of)[0])
    if get_origin(of) is typing.Union or type(of).__name__ == "UnionType":
        return [inner for member in get_args(of) if member is not type(None) for inner in choices(member)]
    return [of]


def is_object(of: Any) -> bool:
    """Whether it is a TypedDict, which requests have, or a model, which replies and Google's requests have."""
    return is_asked(of) or hasattr(of, "model_fields")


def is_asked(of: Any) -> bool:
    """Whether it is a TypedDict."""
    return hasattr(of, "__required_keys__")


@cache
def fields(of: Any) -> dict[str, Any]:
    """The fields of an object with their types, as they are spelled on the wire."""
    if is_google(of):
        return {to_camel(name): field.annotation for name, field in of.model_fields.items()}
    if not is_asked(of):
        return {field.alias or name: field.annotation for name, field in of.model_fields.items()}
    return get_type_hints(of, include_extras=True)


def is_google(of: Any) -> bool:
    """Whether it is one of Google's models."""
    return hasattr(of, "model_fields") and of.__module__.startswith("google.")


def least(of: Any, depth: int = 0) -> Any:
    """A value with nothing in it but what must be there; free texts are the canary."""
    of = choices(of)[0]
    if get_origin(of) is typing.Literal:
        return get_args(of)[0]
    if is_object(of):
        required = {name: one for name, one in fields(of).items() if _is_required(of, name, one)}
        return {name: least(one, depth + 1) for name, one in required.items()} if depth < DEEP else {}
    if of in (bool, int, float):
        return of(1)
    if of is str:
        return CANARY
    if of is bytes:
        return "AAAA"
    if isinstance(of, type) and issubclass(of, Enum):
        return next((one.value for one in of), CANARY)
    if get_origin(of) is not None and issubclass(get_origin(of), dict | typing.Mapping):
        held = get_args(of)[-1]
        return {CANARY: least(held, depth + 1) if is_object(choices(held)[0]) else CANARY}
    return [least(get_args(of)[0], depth + 1)] if get_args(of) else {}


def _is_required(of: Any, name: str, field: Any) -> bool:
    """Google's models demand nothing, its service the names of functions; other models at least say what they are."""
    if is_google(of):
        return name == "name"
    if is_asked(of):
        return "Required" in str(get_origin(field))
    said = next(info for own, info in of.model_fields.items() if (info.alias or own) == name)
    return said.is_required() or get_origin(field) is typing.Literal


def variants(of: Any, depth: int = 0) -> Iterator[Any]:
    """The least value of each choice; and of each that is an object, one more for each choice of each field."""
    every = choices(of)
    for one in every:
        if any(map(is_asked, every)) and not is_asked(one) and is_object(one):
            continue  # what the SDK gave may be sent again
        yield (base := least(one, depth))
        if depth >= DEEP:
            continue
        if is_object(one):
            for name, field in fields(one).items():
                yield from ({**base, name: inner} for inner in variants(field, depth + 1))
        elif isinstance(base, list) and get_args(one):
            yield from ([inner] for inner in variants(get_args(one)[0], depth + 1))


def marked(body: Any) -> tuple[Any, list[str]]:
    """The body with each free text in it made different from all others, and these texts."""
    marks: list[str] = []
    at = count()

    def mark(_found: re.Match[str]) -> str:
        marks.append(f"{CANARY} no {next(at)}.")
        return marks[-1]

    return json.loads(re.sub(CANARY, mark, json.dumps(body))), marks
