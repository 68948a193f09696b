"""Further look-ups for a control value that no trusted text has as it is: its other forms, and its pieces.

Without a source, a person would have to approve the call; so only such calls pay for these look-ups.
Spec: docs/spec/provenance.md [PROV-14], [PROV-15].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Protocol

from pipeline.provenance.arithmetic import DerivedValues
from pipeline.provenance.matching import addresses, cuts, host_words, pieces, word_spans
from pipeline.provenance.normalize_values import near_days
from pipeline.provenance.occurrences import Answer, Match, Occurrences
from pipeline.provenance.sources import TRUSTED, Origin, has_source, is_trusted
from pipeline.provenance.words import names_of, words

MAX_CHARACTERS: Final = 128  # of a value that has other forms
MIN_DIGITS: Final = 4  # of a code that is told by its figures alone
MIN_NATIONAL: Final = 7  # digits of a telephone number that is said without its country
_PHONE: Final = re.compile(r"\+?[0-9()][0-9 ().-]{5,28}[0-9]")
_DOTTED: Final = re.compile(r"[0-9.]+\.[0-9]{1,3}")
"""A decimal number, a version or an IP address, so no telephone number."""
_AMERICAN: Final = re.compile(r"1?([2-9][0-9]{2})([2-9][0-9]{2})([0-9]{4})")
_VERSION: Final = re.compile(r"(v?)([0-9]+(?:\.[0-9]+)*(?:[-+.][0-9A-Za-z.-]+)?)", re.I)
_AMOUNT: Final = re.compile(r"[$\u20ac\u00a3]? ?([0-9]+(?:,[0-9]{3})*\.[0-9]{2})")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CAMEL: Final = re.compile(r"[A-Za-z]+[a-z0-9][A-Z][A-Za-z0-9]*")
_WORDS: Final = re.compile(r"[^\W\d_]+(?:[_ -][^\W\d_]+)+")
_NAME: Final = re.compile(r"([^\W\d_][\w'\u2019.-]*(?: [^\W\d_][\w'\u2019.-]*){0,2}) ([^\W\d_][\w'\u2019-]*)")
_CODE: Final = re.compile(r"([A-Za-z]{1,5})[ -]?([0-9]{1,8}[A-Za-z]?)")
_TITLE: Final = re.compile(r"(?:dr|prof|mr|mrs|ms|mx|miss|sir)(?:\. ?| )(?=\S)", re.I)
_ONE_HOST: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}/32")
_NOUN: Final = re.compile(r"[^\W\d_]{3,30}(?: [^\W\d_]{3,30})?")
_DONE: Final = re.compile(r"([a-z]{3,20})ed", re.I)
_SAID_AS: Final = {name: said for names, said in words("states") for name in names}
"""Words of a tool for states, roles and places, each with the words in which people say them."""
_WEEK: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAIL: Final = re.compile(r"[^\s@]+@[^\s@]+")
_SHORT: Final[dict[str, str]] = words("streets")
_LONG: Final = {short: name for name, short in _SHORT.items()}
_STREET: Final = re.compile(rf"(?:(?<!\w)|(?<=\w)(?=str))({'|'.join((*_SHORT, *_LONG))})(?!\w)\.?", re.I)
_CALLED: Final = re.compile(r"(?:mailto|tel|sms):(?=[^/])", re.I)
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(%|[^\W\d_]+)")
_UNIT: Final = {name: names for names in words("measures") for name in names}


def readings(value: str) -> list[str | float]:
    """Other forms of a short value, all with the same meaning."""
    text = value.strip()
    if not text or len(text) > MAX_CHARACTERS:
        return []
    found = dict.fromkeys(_forms(text))
    found.pop(value, None)
    return list(found)


def _forms(text: str) -> Iterator[str | float]:
    called = _CALLED.match(text)
    if called is not None:
        text = text[called.end() :]
        yield text
    yield from _phones(text)
    amount = _AMOUNT.fullmatch(text)
    if amount is not None:
        yield float(amount[1].replace(",", ""))
    version = _VERSION.fullmatch(text)
    if version is not None and (version[1] or "." in text):
        yield f"version {version[2]}"
        if "." in text:
            yield version[2] if version[1] else f"v{text}"
    quantity = _QUANTITY.fullmatch(text)
    if quantity is not None:
        names = _UNIT.get(quantity[2].lower(), ())
        yield from (f"{quantity[1]} {name}" for name in names)
    code = _CODE.fullmatch(text)
    if code is not None:
        yield from (f"{code[1]}{between}{code[2]}" for between in ("", " ", "-"))
        if len(code[2]) >= MIN_DIGITS:
            yield code[2]
    if _MAIL.fullmatch(text):
        yield text.replace("@", " at ")
    if _ONE_HOST.fullmatch(text):
        yield text.removesuffix("/32")  # a network of one address
    if _NOUN.fullmatch(text):
        yield from (text[:-1],) if text[-1] in "sS" else (f"{text}s", f"{text}es", f"{text[:-1]}ies")
    yield from names_of("countries" if text.isupper() else "languages").get(text, ())
    yield from _states(text)
    yield from _streets(text)
    yield from _names(text)


def _phones(text: str) -> Iterator[str]:
    """A telephone number with and without its country code, as E.123 and North America write it."""
    if not _PHONE.fullmatch(text) or (_DOTTED.fullmatch(text) and text.count(".") != 2):
        return
    digits = re.sub("[^0-9]", "", text)
    abroad = digits if text[0] == "+" else digits[2:] if digits.startswith("00") else None
    if abroad is not None:
        yield from (f"+{abroad}", f"00{abroad}", *(f"+{abroad[:at]}0{abroad[at:]}" for at in (1, 2, 3)))
        yield from (f"0{abroad[at:]}" for at in (1, 2, 3) if len(abroad) - at >= MIN_NATIONAL)
    american = _AMERICAN.fullmatch(digits)
    if american is not None and (text[0] == "+" or len(digits) == 10):
        yield from ("".join(american.groups()), "1" + "".join(american.groups()), ".".join(american.groups()))


def _states(text: str) -> Iterator[str]:
    """What people say for a word of a tool: `decline` for `declined`, "weekdays" for `mon`."""
    yield from _SAID_AS.get(text.lower(), ())
    day = next((day for day in _WEEK if len(text) > 1 and text.lower() in (day, day[: len(text)][:3])), None)
    if day is not None:
        part = "weekend" if day[0] == "s" else "weekday"
        yield from (day, f"{day}s", day[:3], part, f"{part}s", "every day", "daily")
    done = _DONE.fullmatch(text)
    if done is not None:
        stem = done[1]
        yield from (stem, f"{stem}e")
        if stem[-1] == stem[-2]:
            yield stem[:-1]
        if stem[-1] == "i":
            yield f"{stem[:-1]}y"


def _streets(text: str) -> Iterator[str]:
    """A postal address with its words abbreviated, and in full."""
    if _STREET.search(text):
        yield _STREET.sub(lambda found: _LONG.get(found[1].lower(), found[1]), text)
        yield (short := _STREET.sub(lambda found: _SHORT.get(found[1].lower(), found[1]) + ".", text))
        yield short.replace(".", "")


def _names(text: str) -> Iterator[str]:
    """Names of people and of states: without a title, with the family name first, in camel case."""
    title = _TITLE.match(text)
    if title is not None:
        text = text[title.end() :]
        yield text
    if _CAMEL.fullmatch(text):
        yield _HUMP.sub(" ", text)
    elif _WORDS.fullmatch(text):
        yield re.sub("[_ -]", " - ", text)
    name = _NAME.fullmatch(text)
    if name is not None:
        yield f"{name[2]}, {name[1]}"


MAX_ADDRESSES: Final = 32  # addresses of one content argument that are looked up by themselves


def address_entries(entry: Entries, path: str, text: str) -> Iterator[Origin]:
    """The entry of each address in a text, with its `span`."""
    for start, end in islice(addresses(text), MAX_ADDRESSES):
        yield _described(entry, path, text[start:end]) | {"span": [start, end]}


def _described(entry: Entries, path: str, address: str) -> Origin:
    """The entry of an address. If no text has it whole, texts that have its host count as sources."""
    found = entry(path, "address", "content", address)
    if has_source(found):
        return found
    names = [entry(path, "address", "content", name) for name in host_words(address)]
    strange = [name for name in names if not is_trusted(name)]
    return strange[0] if strange and all(map(has_source, names)) else found


MAX_PIECES: Final = 64  # pieces of one value; one of more is looked up as a whole only
MAX_WORDS: Final = 6  # words of a value that are looked up as fields
_ONES: Final = frozenset({"1", "1.0"})
_QUANTITY_PATH: Final = re.compile(r"/(?:\w+_)?(?:quantity|qty|count|copies|pieces|units)\Z", re.I)
"""Names of arguments that are a number of things."""


class Entries(Protocol):
    """Makes the entry of a value; `others` are further look-ups whose sources count as its own."""

    def __call__(self, path: str, kind: str, use: str, content: object, /, *others: Answer) -> Origin:
        """The entry."""


class ControlValues:
    """Looks control values up in `texts`, in other forms, in pieces, and as values derived from them."""

    def __init__(self, texts: Occurrences, entry: Entries, derived: DerivedValues) -> None:
        self._texts = texts
        self._entry = entry
        self._derived = derived

    def entries(self, path: str, content: str | float, whole: Origin) -> list[Origin]:
        """The entries of a value: one that is trusted in another form; else `whole` and the entries of its pieces."""
        other = self._in_other_form(path, whole["type"], content)
        if other is not None:
            return [other]
        spans = pieces(content) if isinstance(content, str) else []
        if len(spans) > MAX_PIECES or not isinstance(content, str):
            return [whole]
        found = [entry for span in spans or [(0, len(content))] for entry in self._piece(path, content, span)]
        return [whole, *found] if spans or len(found) > 1 else [whole]

    def _in_other_form(self, path: str, kind: str, content: str | float, *, folder: bool = False) -> Origin | None:
        """The entry of a value that trusted text has in another form, or as a piece of a link; None if none has."""
        part = self._texts.find_part(str(content), folder=folder)
        forms = map(self._texts.find, readings(content)) if isinstance(content, str) else ()
        entry = self._entry(path, kind, "control", content, part, *forms)
        return entry if is_trusted(entry) else self._following(path, kind, content, from_untrusted=has_source(entry))

    def _following(self, path: str, kind: str, content: str | float, *, from_untrusted: bool) -> Origin | None:
        """The entry of the user's words by which a value follows from a known one: "tomorrow", "20 % off".

        A value that stands in untrusted text (`from_untrusted`) was not computed. Only a day near a known one may be
        both.
        """
        is_one = not from_untrusted and str(content) in _ONES and _QUANTITY_PATH.search(path)
        one = self._derived.one() if is_one else None
        if one is not None:
            return self._entry(path, kind, "control", one)
        near = near_days(content, from_untrusted=from_untrusted) if isinstance(content, str) else []
        for said, bases in chain(near, () if from_untrusted else self._derived.bases(content)):
            entry = self._entry(path, kind, "control", said)
            if is_trusted(entry) and any(is_trusted(self._entry(path, kind, "control", base)) for base in bases):
                return entry
        return None

    def _piece(self, path: str, text: str, span: tuple[int, int]) -> list[Origin]:
        """The entry of one piece of a value; if only its own pieces have a source, the entries of those."""
        piece = text[slice(*span)]
        entry = self._entry(path, "piece", "control", piece) | {"span": list(span)}
        if is_trusted(entry):
            return [entry]
        other = self._in_other_form(path, "piece", piece, folder=text[span[1] :][:1] == "/")
        if other is not None:
            return [other | {"span": list(span)}]
        for cut in cuts(text, span):
            found = [self._step(path, text, end) for end in cut]
            if all(map(is_trusted, found)):
                return found
        return self._fields(path, text, span) or [entry]

    def _step(self, path: str, text: str, span: tuple[int, int]) -> Origin:
        """The entry of steps of a path."""
        step = text[slice(*span)]
        return self._entry(path, "piece", "control", step, self._texts.find_part(step, folder=True)) | {
            "span": list(span)
        }

    def _fields(self, path: str, text: str, span: tuple[int, int]) -> list[Origin]:
        """The entries of words that are whole trusted fields of one result: a first and a last name, say."""
        words = word_spans(text, span)
        found: list[Origin] = []
        messages: set[int] | None = None
        at = 0 if 1 < len(words) <= MAX_WORDS else len(words)
        while at < len(words):
            for end in range(len(words), at, -1):
                start, stop = words[at][0], words[end - 1][1]
                entry = self._entry(path, "piece", "control", text[start:stop])
                shared = set(_fields_of(entry)) & (messages or set(_fields_of(entry)))
                if shared:
                    break
            else:
                return []
            messages, at = shared, end
            found.append(entry | {"span": [start, stop]})
        return found


def _fields_of(entry: Origin) -> Iterable[int]:
    """The messages in which a value is the whole of a trusted field."""
    for source in entry["sources"]:
        if source["trust"] == TRUSTED and source["match"] == Match.EXACT.value and "tool" in source:
            yield source["message"]
