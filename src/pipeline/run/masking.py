"""Replacing secrets in recorded inputs by placeholders of the same shape. Spec: docs/spec/replay.md.

Secrets are what the shipped library finds (`data.cmf.lib.secrets`, `data.cmf.lib.pii`), and nothing else.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.engine import Decided
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.policy_input import of_plain, plain_of
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import policy_set
from pipeline.run.assembly import load_policies
from pipeline.run.effects import MASK
from pipeline.run.recorded_input import Entry, read_entry

_SECRETS: Final = "data.cmf.lib.secrets.in_content"
_PII: Final = "data.cmf.lib.pii.in_content"
_TIMEOUT_SECONDS: Final = 30.0
_MOST_SECRETS: Final = 500  # in one entry: each is looked for in all of it
# Known to be unassigned: test numbers of card networks, a number printed on sample cards, the standard's own example.
_CARDS: Final = {16: "4111111111111111", 15: "378282246310005", 14: "30569309025904"}
_SSN: Final = "078-05-1120"
_IBAN: Final = "GB82WEST12345698765432"
_SHORT: Final = (
    8  # shorter runs of letters and digits are literals of a shape (`BEGIN RSA PRIVATE KEY`), not the secret
)
_RUN: Final = re.compile(r"[0-9A-Za-z]+")
_CLASSES: Final = ("0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ")


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
        self._mask_split(parts)
        stand_ins = self._placeholders(parts)
        if stand_ins:
            line |= {name: _replaced(part, stand_ins) for name, part in parts.items()}
        try:
            return read_entry(dumps(line | {"masked": True}))
        except ReplayError as error:
            raise _unmaskable("the entry is not valid after masking", error.path) from None

    def _mask_split(self, parts: Any) -> None:
        """Mask, in place, the secrets that only several texts of one list show together, as readers join them."""
        runs = list(_runs(parts))
        joined = ["".join(piece["text"] for piece in run) for run in runs]
        own = iter(self._spans([piece["text"] for run in runs for piece in run]))
        for run, spans in zip(runs, self._spans(joined), strict=True):
            _mask_across(run, spans, [next(own) for _ in run])

    def _spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        """Where secrets stand in each of the texts, as it is written or in plain letters."""
        plain = list(map(plain_of, texts))
        found = zip(self._each(texts), self._each(plain), strict=True)
        return [
            [*_places(secrets, text, text), *_places(further, form, text)]
            for text, form, (secrets, further) in zip(texts, plain, found, strict=True)
        ]

    def _placeholders(self, parts: Any) -> dict[str, str]:
        """Secret → placeholder; longest first, so that none is cut by another."""
        texts = list(_texts(parts))
        found = sorted(self._found(texts), key=lambda one: (-len(one[1]), one))
        numbers = count(1)
        made: dict[str, str] = {}
        for kind, secret in found:
            if secret not in made:
                made[secret] = self._placeholder(kind, secret, next(numbers))
        other = [text for text in texts if plain_of(text) != text]  # in other letters, or with characters nobody sees
        spans = zip(other, self._spans(other), strict=True)
        disguised = {text[start:end]: MASK for text, places in spans for start, end in places}
        return dict(sorted((disguised | made).items(), key=lambda one: -len(one[0]))) if disguised else made

    def _found(self, texts: list[str]) -> set[tuple[str, str]]:
        """(kind, secret) for every secret in the texts."""
        return set().union(*self._each(texts))

    def _each(self, texts: list[str]) -> list[set[tuple[str, str]]]:
        """(kind, secret) for every secret in each of the texts."""
        found: list[set[tuple[str, str]]] = [set() for _ in texts]
        for entrypoint, value in ((_SECRETS, "secret"), (_PII, "value")):
            views = [dumps({"kind": "text", "content": text, "properties": {}, "extensions": {}}) for text in texts]
            results = self._engine.evaluate([entrypoint] * len(views), b"{}", views, timeout_seconds=_TIMEOUT_SECONDS)
            for secrets, result in zip(found, results, strict=True):
                if not isinstance(result, Decided):
                    raise _unmaskable("the search for secrets failed")
                secrets |= {(one.get("kind") or one["type"], one[value]) for one in result.value}
        if len(set().union(*found)) > _MOST_SECRETS:
            raise _unmaskable(f"it has more than {_MOST_SECRETS} secrets")
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


def _unmaskable(problem: str, path: str = "") -> ReplayError:
    return ReplayError(problem, path=path, hint="export it unmasked, or not at all", code="replay.unmaskable")


def _runs(item: Any) -> Iterator[list[dict[str, Any]]]:
    """The parts of each list whose texts readers join."""
    if isinstance(item, Mapping):
        for each in item.values():
            yield from _runs(each)
    elif isinstance(item, list | tuple):
        for kind in ("text", "thinking"):
            run = [part for part in item if isinstance(part, dict) and part.get("content_type") == kind]
            if len(run) > 1 and all(isinstance(part.get("text"), str) for part in run):
                yield run
        for each in item:
            yield from _runs(each)


def _places(secrets: Iterable[tuple[str, str]], form: str, text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets, which stand in `form`, stand in `text`, whose form it is."""
    spans = [match.span() for _, secret in secrets for match in re.finditer(re.escape(secret), form)]
    yield from spans if form is text else of_plain(text, spans)


def _mask_across(
    run: list[dict[str, Any]], spans: Iterable[tuple[int, int]], own: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """Mask the spans of the joined texts, but for those `own` ones that each text shows by itself."""
    ends = list(accumulate(len(piece["text"]) for piece in run))
    cuts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    until = 0  # where the last span ended: they may overlap
    for start, end in sorted(spans):
        first, last = bisect_right(ends, start), bisect_right(ends, end - 1)
        begin = ends[first] - len(run[first]["text"])
        if first == last and any(one[0] <= start - begin and end - begin <= one[1] for one in own[first]):
            continue
        for at in range(first, last + 1):
            begin = ends[at] - len(run[at]["text"])
            cut = (max(start, until, begin) - begin, min(end, ends[at]) - begin)
            cuts[at] += [cut] if cut[0] < cut[1] else []
        until = max(until, end)
    for at, places in cuts.items():
        text = run[at]["text"]
        for start, end in reversed(places):
            text = f"{text[:start]}{MASK}{text[end:]}"
        run[at]["text"] = text


def _texts(item: Any, key: str = "", *, told: bool = False) -> Iterator[str]:
    """Every string in it, including keys; values also with their key in front, since `password` identifies a secret.

    JSON is given whole, as rules see it, because a name beside a number may identify that; of what is `told` so, only
    strings that are spelled otherwise there are given by themselves.
    """
    if (
        key in _JSON
        and not told
        and isinstance(item, Mapping | list)
        and not (isinstance(item, list) and any(isinstance(each, Mapping) and "content_type" in each for each in item))
    ):
        told = True
        yield dumps(item).decode()
    if isinstance(item, Mapping):
        for name, each in item.items():
            yield from _texts(name, told=told)
            yield from _texts(each, name, told=told)
    elif isinstance(item, list | tuple):
        for each in item:
            yield from _texts(each, key, told=told)
    elif isinstance(item, str) and item and not (told and _is_literal(item)):
        yield item
        if key:
            yield f'"{key}": "{item}"'
    elif isinstance(item, int | float) and not told and not -_SMALL <= item <= _SMALL:
        yield f'"{key}": {item}'


def _is_literal(text: str) -> bool:
    """Whether JSON spells it as it is."""
    return text.isprintable() and '"' not in text and "\\" not in text


_JSON: Final = frozenset({"arguments", "content", "custom", "extra", "input_schema"})
_SMALL: Final = 10**8  # the numbers that secrets are have nine digits or more


def _replaced(item: Any, stand_ins: Mapping[str, str]) -> Any:
    if isinstance(item, Mapping):
        return {_in_text(name, stand_ins): _replaced(each, stand_ins) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return [_replaced(each, stand_ins) for each in item]
    if isinstance(item, str):
        return _in_text(item, stand_ins)
    if isinstance(item, int | float) and not -_SMALL <= item <= _SMALL:
        stand_in = stand_ins.get(str(int(abs(item))))
        return item if stand_in is None else int(stand_in) if stand_in.isdecimal() else 0
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
    blocks = (hashlib.sha256(f"stand-in {number} {block}".encode()).digest() for block in count())
    drawn = chain.from_iterable(blocks)  # bytes derived from the number only
    made = list(secret)
    for run in _RUN.finditer(secret):
        if len(run[0]) >= shortest:
            for place in range(run.start(), run.end()):
                if place not in kept:
                    own = next(letters for letters in _CLASSES if secret[place] in letters)
                    made[place] = own[next(drawn) % len(own)]
    return "".join(made)
