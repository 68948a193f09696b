"""Replacing secrets in recorded inputs by placeholders of the same shape. Spec: docs/spec/replay.md.

Secrets are what the shipped library finds (`data.cmf.lib.secrets`, `data.cmf.lib.pii`), and nothing else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from cmf.codec import dumps
from pipeline import policy_set
from pipeline.assembly import load_policies
from pipeline.effects import MASK
from pipeline.engines.base import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.errors import ReplayError
from pipeline.replay.file import Entry, read_entry

_SECRETS: Final = "data.cmf.lib.secrets.in_content"
_PII: Final = "data.cmf.lib.pii.in_content"
_TIMEOUT_SECONDS: Final = 30.0
# Known to be unassigned: test numbers of card networks, a number printed on sample cards, the standard's own example.
_CARDS: Final = {16: "4111111111111111", 15: "378282246310005", 14: "30569309025904"}
_SSN: Final = "078-05-1120"
_IBAN: Final = "GB82WEST12345698765432"
_SHORT: Final = (
    8  # shorter runs of letters and digits are literals of a shape (`BEGIN RSA PRIVATE KEY`), not the secret
)
_RUN: Final = re.compile(r"[0-9A-Za-z]+")


class Masking:
    """Replaces the secrets that the shipped library finds by placeholders.

    Raises:
        PolicyError: the shipped policies are missing.
    """

    def __init__(self) -> None:
        shipped = load_policies(policy_set.shipped())
        self._engine = EmbeddedEngine(shipped.modules, shipped.data, [_SECRETS, _PII])
        settings = shipped.data["cmf"]["defaults"]["data"]["secrets"]
        self._literals: dict[str, tuple[str, ...]] = {
            kind: tuple(shape["literals"]) for kind, shape in settings["patterns"].items()
        }

    def masked(self, entry: Entry) -> Entry:
        """The entry with secrets replaced in all values and keys; equal secrets get equal placeholders.

        Raises:
            ReplayError: the result is not a valid entry (`replay.unmaskable`).
        """
        line = entry.to_json()
        parts = {name: line[name] for name in ("traffic", "context", "session")}
        stand_ins = self._placeholders(parts)
        if stand_ins:
            line |= {name: _replaced(part, stand_ins) for name, part in parts.items()}
        try:
            return read_entry(dumps(line | {"masked": True}))
        except ReplayError as error:
            hint = "export it unmasked, or not at all"
            raise ReplayError(
                "the entry is not valid after masking", path=error.path, hint=hint, code="replay.unmaskable"
            ) from None

    def _placeholders(self, parts: Any) -> dict[str, str]:
        """Secret → placeholder; longest first, so that none is cut by another."""
        found = sorted(self._found(list(_texts(parts))), key=lambda one: (-len(one[1]), one))
        numbers = count(1)
        made: dict[str, str] = {}
        for kind, secret in found:
            if secret not in made:
                made[secret] = self._placeholder(kind, secret, next(numbers))
        return made

    def _found(self, texts: list[str]) -> set[tuple[str, str]]:
        """(kind, secret) for every secret in the texts."""
        found: set[tuple[str, str]] = set()
        for entrypoint, value in ((_SECRETS, "secret"), (_PII, "value")):
            views = [dumps({"kind": "text", "content": text, "properties": {}, "extensions": {}}) for text in texts]
            results = self._engine.evaluate([entrypoint] * len(views), b"{}", views, timeout_seconds=_TIMEOUT_SECONDS)
            for result in results:
                if not isinstance(result, Decided):
                    hint = "export it unmasked, or not at all"
                    raise ReplayError("the search for secrets failed", hint=hint, code="replay.unmaskable")
                found |= {(one.get("kind") or one["type"], one[value]) for one in result.value}
        return found

    def _placeholder(self, kind: str, secret: str, number: int) -> str:
        """A text of the same shape that the library recognises as the same kind; a mask if there is none."""
        literals = self._literals.get(kind, ())
        tries: list[Callable[[], str]] = [lambda: _pii_placeholder(kind, secret)]
        if kind not in ("payment_card", "us_ssn", "iban"):
            tries = [lambda: _same_shape(secret, literals, number, shortest=1)]
            # Keep the literals of a known shape; of a value found only by the name it is assigned to, keep nothing.
            tries += [lambda: _same_shape(secret, literals, number, shortest=_SHORT)] if literals else []
        for attempt in tries:
            made = attempt()
            # With a name before it, because some kinds are recognised only by that.
            if made != secret and any(kind == one for one, _ in self._found([f'"secret": "{made}"', made])):
                return made
        return MASK


def _texts(item: Any, key: str = "") -> Iterator[str]:
    """Every string in it, including keys; values also with their key in front, since `password` identifies a secret."""
    if isinstance(item, Mapping):
        for name, each in item.items():
            yield name
            yield from _texts(each, name)
    elif isinstance(item, list | tuple):
        for each in item:
            yield from _texts(each, key)
    elif isinstance(item, str) and item:
        yield item
        if key:
            yield f'"{key}": "{item}"'
    elif isinstance(item, int) and not isinstance(item, bool) and abs(item) > 10**12:
        yield str(item)


def _replaced(item: Any, stand_ins: Mapping[str, str]) -> Any:
    if isinstance(item, Mapping):
        return {_in_text(name, stand_ins): _replaced(each, stand_ins) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return [_replaced(each, stand_ins) for each in item]
    if isinstance(item, str):
        return _in_text(item, stand_ins)
    if isinstance(item, int) and str(item) in stand_ins:
        stand_in = stand_ins[str(item)]
        return int(stand_in) if stand_in.isdecimal() else 0
    return item


def _in_text(text: str, stand_ins: Mapping[str, str]) -> str:
    for secret, stand_in in stand_ins.items():
        text = text.replace(secret, stand_in)
    return text


def _pii_placeholder(kind: str, value: str) -> str:
    """A well-known sample in the layout of `value`."""
    compact = re.sub(r"[ -]", "", value)
    if kind == "us_ssn":
        return _SSN
    if kind == "iban":
        return _IBAN
    sample = iter(_CARDS.get(len(compact), ""))
    return "".join(next(sample, "") if character.isdecimal() else character for character in value)


def _same_shape(secret: str, literals: Iterable[str], number: int, *, shortest: int) -> str:
    """`secret` with its runs of letters and digits redrawn, each character from its own class."""
    kept = {
        place
        for literal in literals
        for match in re.finditer(re.escape(literal), secret)
        for place in range(match.start(), match.end())
    }
    drawn = _draw(number)
    made = list(secret)
    for run in _RUN.finditer(secret):
        if len(run[0]) >= shortest:
            for place in range(run.start(), run.end()):
                if place not in kept:
                    made[place] = _of_class(secret[place], next(drawn))
    return "".join(made)


def _draw(number: int) -> Iterator[int]:
    """Bytes derived from the number only."""
    for block in count():
        yield from hashlib.sha256(f"stand-in {number} {block}".encode()).digest()


_CLASSES: Final = ("0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ")


def _of_class(character: str, drawn: int) -> str:
    own = next(letters for letters in _CLASSES if character in letters)
    return own[drawn % len(own)]


__all__ = ["Masking"]
