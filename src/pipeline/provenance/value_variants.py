"""Other forms of a value (a telephone number without its country, a date in words): each is looked up like the value.

They are for control values that no text has as they are; the common case never comes here. Spec: [PROV-15].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

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
