"""When two spellings are the same value, and where a value ends in running text. Spec: provenance.md [PROV-4].

Everything here is a pure function of text. `normal` folds what readers do not tell apart; `tokens` cuts into words to
look up; `stands_at` decides whether what was found is a whole value there and not a piece of a longer one; `keys` gives
the canonical forms under which URLs, account numbers and other long numbers are found however they are grouped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Final

from cmf.views.uris import normalise
from pipeline.provenance import normalize_values

_IDEOGRAPHS: Final = "\u0e00-\u0e7f\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts that do not put spaces between words: each character is a token."""
_TOKEN: Final = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")
_LONE: Final = re.compile(rf"[{_IDEOGRAPHS}]")
_GLUE: Final = frozenset("@._-/\\%+~=&'\u2019")
_GLUE_AFTER: Final = _GLUE | frozenset("?#")
MAX_GLUE: Final = 8  # characters of a run of joiners that are looked past; a longer run counts as joining

_STOPS: Final = "\\s<>\"'`(){}\\[\\],;|*\u00ab\u00bb\u2018-\u201f\u2026\u2039\u203a"
_CHUNK: Final = re.compile(rf"[^{_STOPS}]+")
_DOMAIN: Final = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]+(?::\d{1,5})?(?=[/?#]|\Z)", re.I)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.I)
_LETTER: Final = rf"(?-i:[^\W_{_IDEOGRAPHS}])"  # ignoring the case of so many characters takes long to compile
_LABEL: Final = rf"{_LETTER}(?:{_LETTER}|-){{0,62}}"
_ADDRESS: Final = re.compile(
    rf"(?:[a-z][a-z0-9+.-]{{0,15}}://|https?:[/\\]+)[^{_STOPS}]+"
    rf"|(?<![\w.%+-])[\w.%+-]{{1,64}}@{_LABEL}(?:\.{_LABEL})+"
    rf"|(?<!{_LETTER})(?<!\w_)(?<![.@%+\\/-])(?://)?(?P<host>(?:{_LABEL}\.)+[a-z][a-z0-9-]+(?::[0-9]{{1,5}})?)"
    rf"(?!_*{_LETTER}|@|\.[\w-])(?:[/?#][^{_STOPS}]*)?"
    rf"|(?<![\w.-])[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}(?:(?=:)|/(?![0-9]{{1,2}}(?!\w)))[^{_STOPS}]+"
    r"|(?<!\w)(?:0x[0-9a-f]{40}|bc1[0-9a-z]{25,62})(?!\w)",
    re.I,
)
"""A link, an address of mail, a host with or without a path, one of the network with a port or path, a wallet."""
_PHONE: Final = re.compile(
    r"(?:(?<![\w.@/+])(?=\+)"
    r"|(?<!\w)(?:call|phone|telephone|tel|dial|ring|text|sms|whatsapp|mobile|hotline)(?:\W{1,4}[a-z]+){0,3}[^\w+(]{1,4})"
    r"(?P<number>\+?\(?[0-9][0-9 ()/.-]{4,26}[0-9])(?![0-9])",
    re.I,
)
"""A telephone number with the code of its country, or behind a word that says what to do with one."""
_FILE_ENDING: Final = re.compile(
    r"\.(?:7z|bak|bmp|cfg|conf|css|csv|db|dll|docx?|exe|gif|gz|html?|ini|ipynb|jar|jpe?g|js|jsonl?|jsx|log|mp[34]|od[st]"
    r"|pdf|png|pptx?|rtf|sql|svg|tar|tex|toml|tsv?|tsx|txt|wav|webp|xls[mx]?|xml|ya?ml)\Z",
    re.I,
)
"""What file names end in and no name of a host does."""
_PORTS: Final = {"http": ":80", "https": ":443"}
_DIGIT: Final = re.compile(r"[0-9]")
_SPACED: Final = re.compile(r"\S+")
MAX_CUTS: Final = 8  # slashes at which one path is cut
_BETWEEN: Final = re.compile(r"[,;\n]|(?<=\s)(?:and|&)(?=\s)")
_NAMED: Final = re.compile(r'"?([^<>"]*[^<>"\s])"?\s*<([^<>\s]+)>')
MAX_ALTERED: Final = 128  # characters of a value that is looked up in other spellings too
MAX_NAME: Final = 64  # characters of a name whose words may be joined in another way
_MARK: Final = re.compile("[\u0300-\u036f]+")
_STROKED: Final = str.maketrans(
    {"\u00f8": "o", "\u0142": "l", "\u0111": "d", "\u0131": "i", "\u00e6": "ae", "\u0153": "oe"}
)
_TURNED: Final = str.maketrans("\u2018\u2019\u02bc\u2010\u2011", "'''--")
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_SIGILS: Final = "#@$\u20ac\u00a3"
_ENDS: Final = ".,;:!?\"'"
_JOINED_WORDS: Final = re.compile(r"[^\W\d_][^\W_]*(?:[ _-][^\W_]+)+")
_QUANTITY: Final = re.compile(r"([0-9]+(?:[.,][0-9]+)*)( ?)([^\W\d_]{1,8}|%|\u00b0[^\W\d_]?)")
_NUMBER: Final = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?")
_PLAIN_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)|-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_GROUPED: Final = re.compile(r"(?:\+ ?)?\(?[0-9]+(?:[ ()-]{1,2}[0-9]+)*")
_HOST: Final = re.compile(rf"(?:\A|@|//)({_LABEL}(?:\.{_LABEL})+)(?=[:/?#]|\Z)")
_IBAN: Final = re.compile(r"[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{1,4}){3,10}")
MIN_GROUPED_DIGITS: Final = 7  # shorter numbers are too often the same by chance
MAX_DIGITS: Final = 60  # digits of one number; longer ones are found as they are spelled


def normal(text: str) -> str:
    """`text` in NFKC with straight quotes and hyphens, without case, white space as one space, none at the ends.

    Characters that nobody sees are left out.
    """
    if text.isascii():
        return " ".join(_UNSEEN.sub("", text).lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold())
    return " ".join(folded.translate(_TURNED).split())


def unmarked(folded: str) -> str:
    """Normal text without the accents of its letters: as one types what one has no keys for."""
    if folded.isascii():
        return folded
    return unicodedata.normalize("NFC", _MARK.sub("", unicodedata.normalize("NFD", folded))).translate(_STROKED)


def is_address(text: str) -> bool:
    """Whether `text` is an address, in which every character counts: of mail, or of the web."""
    return "@" in text[1:] or "://" in text or _url(text.strip()) is not None


def alternates(folded: str) -> list[str]:
    """Other ways to spell a short value that is no address: without the sign before or the stop after it, and so on."""
    if len(folded) > MAX_ALTERED or folded.isalpha() or folded.isdigit():
        return []
    found: dict[str, None] = {}
    bare = folded.rstrip(_ENDS).strip("\"'")
    for sign in (*_SIGILS, "./"):
        if bare.startswith(sign):
            bare = bare[len(sign) :]
    bare = bare.rstrip("/")
    if bare and _is_word(bare[0]):
        found[bare] = None
    quantity = _QUANTITY.fullmatch(bare)
    if quantity is not None:
        found[f"{quantity[1]}{'' if quantity[2] else ' '}{quantity[3]}"] = None
    if len(bare) <= MAX_NAME and _JOINED_WORDS.fullmatch(bare):
        found |= dict.fromkeys(re.sub("[ _-]", mark, bare) for mark in " _-")
    found.pop(folded, None)
    return list(found)


def pieces(text: str) -> list[tuple[int, int]]:
    """Where the pieces of a value stand that is made of them, with nothing between them that says anything itself.

    A list with commas or semicolons, a name with its address (`Ann <ann@x.example>`), a date with a time, a file in a
    directory. Empty where it is not.
    """
    found = normalize_values.moment(text)
    if found:
        return found
    if "://" not in text:
        for start, end in _listed(text):
            named = _NAMED.fullmatch(text, start, end)
            found += [named.span(1), named.span(2)] if named is not None else [(start, end)]
        if len(found) > 1:
            return found
    return list(next(cuts(text, (0, len(text))), []))


def cuts(text: str, span: tuple[int, int]) -> Iterator[list[tuple[int, int]]]:
    """Into which folder and file, or folder and path in it, a path that stands at `span` may be cut: the last first."""
    path = text[slice(*span)]
    if is_address(path) or ".." in path or "//" in path or any(map(str.isspace, path)):
        return
    slashes = [at for at in range(1, len(path) - 1) if path[at] == "/"]
    for at in reversed(slashes[-MAX_CUTS:]):
        yield [(span[0], span[0] + at), (span[0] + at + 1, span[1])]


def word_spans(text: str, span: tuple[int, int]) -> list[tuple[int, int]]:
    """Where the words between white space stand."""
    return [match.span() for match in _SPACED.finditer(text, *span)]


def _listed(text: str) -> Iterator[tuple[int, int]]:
    begin = 0
    for end, after in [*(match.span() for match in _BETWEEN.finditer(text)), (len(text), 0)]:
        item = text[begin:end].strip()
        if item:
            start = text.index(item, begin)
            yield start, start + len(item)
        begin = after


def tokens(text: str) -> Iterator[tuple[str, int]]:
    """The words of normal text, with the place where each starts."""
    for match in _TOKEN.finditer(text):
        yield match[0], match.start()


def stands_at(text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]` is a whole value there: neither letters nor joiners tie it to a longer one."""
    return not (_joined(text, start, -1) or _joined(text, end - 1, 1))


def stands_in(text: str, value: str) -> bool:
    """Whether `value` stands in `text`, character for character, as a whole value."""
    at = text.find(value)
    while at >= 0:
        if stands_at(text, at, at + len(value)):
            return True
        at = text.find(value, at + 1)
    return False


def _joined(text: str, edge: int, step: int) -> bool:
    """Whether the character at `edge` is tied to what comes next in the direction of `step`."""
    inner = text[edge]
    at = edge + step
    if not 0 <= at < len(text):
        return False
    outer = text[at]
    if _is_word(outer):
        return (_is_word(inner) or inner in _GLUE_AFTER) and not (_LONE.match(outer) or _LONE.match(inner))
    if outer == "-" and step < 0 and inner.isdigit():
        return True  # 5 does not stand in -5
    glue = _GLUE_AFTER if step > 0 else _GLUE
    for _ in range(MAX_GLUE):
        if not 0 <= at < len(text):
            return False
        outer = text[at]
        if _is_word(outer):
            return not _is_possessive(text, edge, at, step)
        numeric = outer in ",:" and text[at - step].isdigit() and 0 <= at + step < len(text)
        if (
            outer not in glue
            and not (numeric and text[at + step].isdigit())
            and not (step < 0 and text.startswith("://", at))
        ):
            return False
        at += step
    return True


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum() or unicodedata.category(character)[0] == "M"


def _is_possessive(text: str, edge: int, at: int, step: int) -> bool:
    """`Bistro's`: the value ends before the apostrophe."""
    if step < 0 or at != edge + 2 or text[edge + 1] not in "'\u2019" or text[at] not in "sS":
        return False
    return at + 1 >= len(text) or not _is_word(text[at + 1])


def number_key(number: float | str) -> str | None:
    """The key under which a JSON number is found however it is spelled; None where its spelling is all there is."""
    try:
        exact = Decimal(str(number))
    except (InvalidOperation, ValueError):  # no number, or one of more digits than Python writes
        return None
    if not exact.is_finite() or abs(exact.adjusted()) > MAX_DIGITS or len(exact.as_tuple().digits) > MAX_DIGITS:
        return None
    spelled = format(exact, "f")
    if "." in spelled:
        spelled = spelled.rstrip("0").rstrip(".")
    return f"number:{'0' if spelled in ('-0', '') else spelled}"


def value_keys(text: str) -> frozenset[str]:
    """The keys of a whole value: what to look up when asking where it came from."""
    stripped = text.strip()
    found = normalize_values.keys_of(stripped)
    url = _url(stripped)
    if url is not None and _CHUNK.fullmatch(stripped):
        scheme, rest = url
        found |= {f"url:{scheme}:{rest}", f"url::{rest}"} if scheme else {f"url:*:{rest}"}
    account = _account(stripped)
    if account is not None:
        found.add(account)
    if _GROUPED.fullmatch(stripped) and (digits := _digits(stripped)) is not None:
        found.add(digits)
    if _PLAIN_NUMBER.fullmatch(stripped) and (key := number_key(stripped.replace(",", ""))) is not None:
        found.add(key)
    return frozenset(found)


def is_case_bound(text: str) -> bool:
    """Whether `text` is an address with a path or query, in which case and spelling count."""
    url = _url(text.strip())
    return url is not None and any(mark in url[1] for mark in "/?#")


def addresses(text: str) -> Iterator[tuple[int, int]]:
    """Where URLs, mail addresses, account and telephone numbers stand in running text, in order, without overlaps."""
    end = 0
    for start, stop in sorted((*_written_addresses(text), *_account_places(text), *_phone_places(text))):
        if start >= end:
            yield start, stop
            end = stop


def _written_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Where addresses stand whatever is set around them: quotes, stars, `see:`, `href=`."""
    for match in _ADDRESS.finditer(text):
        start = match.start("host") if match["host"] else match.start()
        bare = text[start : match.end()].rstrip(".,:!?_~")
        if not match["host"] or not _is_file(bare):
            yield start, start + len(bare)


def host_words(address: str) -> list[str]:
    """The names that the host of an address is made of; none for an account number.

    Without the last, which says little, but of what may be no address at all (`self.items`).
    """
    found = _HOST.search(address)
    names = [] if found is None else [name for name in found[1].split(".") if name.lower() != "www"]
    return names if found is None or found[1] == address else names[:-1]


def _phone_places(text: str) -> Iterator[tuple[int, int]]:
    for match in _PHONE.finditer(text):
        start, end = match.span("number")
        enough = sum(map(str.isdigit, text[start:end])) >= MIN_GROUPED_DIGITS
        if enough and stands_at(text, start, end) and normalize_values.day_of(text[start:end]) is None:
            yield start, end


def _account_places(text: str) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        end = _account_end(text, match)
        if end is not None:
            yield match.start(), end


def text_keys(text: str) -> frozenset[str]:
    """The keys of every value that stands in `text`: what to remember of it."""
    found: set[str] = set()
    for piece in text.split():
        if "." in piece or "://" in piece:
            found |= _urls_in(piece)
    if _DIGIT.search(text) is None:
        return frozenset(found)
    for match in _IBAN.finditer(text):
        found |= _accounts_in(text, match)
    for match in _GROUPED.finditer(text):
        if stands_at(text, match.start(), match.end()) and (digits := _digits(match[0])) is not None:
            found.add(digits)
    for match in _NUMBER.finditer(text):
        if (key := _number_at(text, match)) is not None:
            found.add(key)
    return frozenset(found)


def _urls_in(piece: str) -> set[str]:
    """The keys of the addresses in a text without white space."""
    found: set[str] = set()
    for start, end in _written_addresses(piece):
        url = _url(piece[start:end])
        if url is not None:
            found |= {f"url:{url[0]}:{url[1]}", f"url:*:{url[1]}"}
    return found


def _number_at(text: str, match: re.Match[str]) -> str | None:
    spelled = match[0].replace(",", "")
    if len(spelled) > MAX_DIGITS or (spelled[0] == "0" and spelled[1:2].isdigit()):
        return None  # 007 is an id, not seven
    start = match.start()
    if start and text[start - 1] == "-" and not _joined(text, start - 1, -1) and text[start - 2 : start - 1] != "-":
        start, spelled = start - 1, f"-{spelled}"
    return number_key(spelled) if stands_at(text, start, match.end()) else None


def _url(text: str) -> tuple[str, str] | None:
    """Scheme (or nothing) and the rest of an address, in one spelling."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        if not _DOMAIN.match(text) or "@" in text or _is_file(text):
            return None
        whole = normalise(f"https://{text}")
        return "", _bare(whole, "https")
    whole = normalise(text)
    return scheme[1].lower(), _bare(whole, scheme[1].lower())


def _is_file(text: str) -> bool:
    """Whether what looks like a host is the name of a file."""
    return _FILE_ENDING.search(text) is not None and "/" not in text


def _bare(uri: str, scheme: str) -> str:
    """What follows `scheme://`, without the scheme's own port and without the slash of an empty path."""
    rest = uri.partition("://")[2]
    ends = [at for at in map(rest.find, "/?#") if at >= 0]
    cut = min(ends, default=len(rest))
    authority, tail = rest[:cut], rest[cut:]
    authority = authority.removesuffix(_PORTS.get(scheme, "\0"))
    return authority + ("" if tail == "/" else tail)


def _digits(text: str) -> str | None:
    """The digits of a number that is written in groups, such as a telephone or card number."""
    digits = "".join(character for character in text if character in "0123456789")
    return f"digits:{digits}" if MIN_GROUPED_DIGITS <= len(digits) <= MAX_DIGITS else None


def _account(text: str) -> str | None:
    """An international bank account number (ISO 13616) whose check digits hold."""
    compact = re.sub(r"[ -]", "", text).upper()
    if not 15 <= len(compact) <= 34 or not re.fullmatch(r"[A-Z]{2}[0-9]{2}[A-Z0-9]+", compact):
        return None
    moved = compact[4:] + compact[:4]
    return f"account:{compact}" if int("".join(str(int(digit, 36)) for digit in moved)) % 97 == 1 else None


def _accounts_in(text: str, match: re.Match[str]) -> set[str]:
    end = _account_end(text, match)
    account = _account(text[match.start() : end]) if end is not None else None
    return {account} if account is not None else set()


def _account_end(text: str, match: re.Match[str]) -> int | None:
    """Where the account number at a match ends; words in capitals that follow it are no part of it."""
    for end in range(match.end(), match.start() + 14, -1):
        if _account(text[match.start() : end]) is not None and stands_at(text, match.start(), end):
            return end
    return None
