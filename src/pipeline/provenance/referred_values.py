"""Values that the user leaves to a text: "invite Dora, her e-mail is on her website". Spec: provenance.md [PROV-22].

The user says what kind of value is meant, and which text has it; and this text has only one of the kind. Whoever adds a
second one (an attacker who can write there) makes the reference ambiguous, and a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

from pipeline.provenance.injected_targets import MAX_TEXTS
from pipeline.provenance.matching import addresses, normal, text_keys
from pipeline.provenance.occurrences import Occurrences
from pipeline.provenance.sources import TRUSTED, UNTRUSTED, Group
from pipeline.provenance.user_references import Designation
from pipeline.provenance.words import inferred_words

MAX_VALUE: Final = 512  # characters of an address
MAX_CHARACTERS: Final = 65_536  # of a text whose addresses are counted; a longer one has no single value
_MAIL: Final = re.compile(r"[^\s@]+@[^\s@]+")
_WEB: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+|[^\s@]+\.[a-z]{2,}(?:[/:?#]\S*)?", re.I)
_MAILTO: Final = re.compile(r"mailto:", re.I)


class Referral:
    """Answers which values the user's messages leave to texts that they name.

    `given` has, for each result of a call whose arguments the user wrote, its texts.
    """

    def __init__(
        self,
        texts: Occurrences,
        groups: Sequence[Group],
        user_texts: Sequence[tuple[int, str]],
        given: Mapping[Hashable, Sequence[str]],
        designation: Designation,
    ) -> None:
        self._texts = texts
        self._groups = groups
        self._said = [text[:MAX_CHARACTERS] for _, text in user_texts]
        self._given = given
        self._designation = designation

    def leaves(self, value: str, *, many: bool) -> bool:
        """Whether the user leaves `value` to the text that has it; with `many`, also one of several ("all links")."""
        kind = _kind(value)
        if kind is None or any(_of_kind(kind, text) for text in self._said):
            return False
        asked, several = _patterns(kind)
        if not any(asked.search(text) for text in self._said):
            return False
        plural = many and any(several.search(text) for text in self._said)
        others = {at for at, group in enumerate(self._groups) if group.trust == UNTRUSTED and group.tool is not None}
        held = self._texts.texts_with(value, others)
        return any(
            plural or len(_values(kind, scope)) == 1
            for text in islice(held, MAX_TEXTS)
            if isinstance(text.record, tuple)
            for scope in self._scopes(text.record)
        )

    def _scopes(self, record: tuple[Any, ...]) -> Iterator[Sequence[str]]:
        """The texts named by the user that a field of `record` is one of: a record with a name he says, or a result."""
        fields = list(self._texts.fields_of(record))
        known = (held.raw for held in fields if self._groups[held.group].trust == TRUSTED)
        if record[2] and any(map(self._designation.names, known)):
            yield [held.raw for held in fields]
        if record[:2] in self._given:
            yield self._given[record[:2]]


def _kind(value: str) -> str | None:
    """The kind of an address: `mail`, `web`, `account`; None for anything else."""
    if len(value) > MAX_VALUE:
        return None
    text = _MAILTO.sub("", value.strip())
    if _MAIL.fullmatch(text):
        return "mail"
    if any(key.startswith("account:") for key in text_keys(text)):
        return "account"
    return "web" if _WEB.fullmatch(text) and not any(map(str.isspace, text)) else None


def _of_kind(kind: str, text: str) -> set[str]:
    found = (text[start:end] for start, end in addresses(text[:MAX_CHARACTERS]))
    return {_plain(address) for address in found if _kind(address) == kind}


def _values(kind: str, texts: Sequence[str]) -> set[str]:
    return set[str]().union(*(_of_kind(kind, text) for text in texts))


def _plain(address: str) -> str:
    return re.sub(r"\A(?:https?://|mailto:)?(?:www\.)?|/\Z", "", normal(address))


@cache
def _patterns(kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Expressions for the kind in what the user says, and for several of it."""
    said = inferred_words()["kinds"][kind]
    one, many = (re.compile(rf"(?<!\w)(?:{'|'.join(said[of])})(?!\w)", re.I) for of in ("one", "many"))
    return one, many
