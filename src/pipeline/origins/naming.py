"""Whether others name what a call acts on, where the user does not, though the service knows it too. Spec: [PROV-16].

Whoever wants the model to act on one thing out of many has to say which. That a trusted field has this thing too does
not make it the one that the user meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from pipeline.origins.equivalents import keys_of
from pipeline.origins.occurrences import Occurrences, Text, spelled
from pipeline.origins.sources import TRUSTED, UNTRUSTED, Group, Origin
from pipeline.profile import AskedFor

MAX_TEXTS: Final = 256  # texts that are read for one value; one that stands in more is named
_SPEAKERS: Final = frozenset({"user", "system"})
_DISTINCT: Final = re.compile(r"[^\W\d_][\W_]*\d|\d[\W_]*[^\W\d_]|\w[@./:]\w|(?:\d[^\w]*){7}")
"""A letter by a figure, names that a sign joins, or more figures than two values have in common by chance."""
_CONTACT: Final = re.compile(r"[^\s@]+@[^\s@]+|\+?[0-9()][0-9 ().-]{5,28}[0-9]")
_FIGURES: Final = re.compile(r"[-+\d.,' ]{1,12}")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_NUMBERING: Final = frozenset({"id", "ids", "no", "nr", "num", "number"})


class Naming:
    """Asks it, of the texts that were read, for the argument at `path` of a call that is asked for by `acts`."""

    def __init__(
        self, texts: Occurrences, groups: Sequence[Group], path: Sequence[str | int], acts: AskedFor | None
    ) -> None:
        self._texts = texts
        self._theirs = {at for at, group in enumerate(groups) if group.trust == UNTRUSTED and group.kind in _RETURNED}
        self._known = {at for at, group in enumerate(groups) if group.trust == TRUSTED}
        self._argument = next((step for step in reversed(path) if isinstance(step, str)), "")
        self._acts = acts

    def names(self, entry: Origin, content: str | float) -> bool:
        """Whether others name a value that someone trusted has, and neither the user nor the system said."""
        if not self._theirs:
            return False
        if isinstance(content, bool):
            return self._turns()
        trusted = {source["kind"] for source in entry["sources"] if source["trust"] == TRUSTED}
        if not trusted or not trusted.isdisjoint(_SPEAKERS):
            return False
        text = (content if isinstance(content, str) else spelled(content)).strip()
        if text.isdecimal():
            return any(self._texts.has_beside(cue, text, self._theirs) for cue in self._cues())
        if _FIGURES.fullmatch(text) or keys_of(text):  # texts tell figures and dates again without asking for anything
            return False
        own = {found.record for found in self._with(text, self._known)} if _CONTACT.fullmatch(text) else set()
        if _DISTINCT.search(text):
            return self._any(text, lambda found: found.record is None or found.record not in own)
        acts = self._acts
        return acts is not None and self._any(text, lambda found: acts.is_said_in(found.raw))

    def _turns(self) -> bool:
        """Whether others name a switch of the call, and nobody trusted does."""
        argument, name = self._argument, " ".join(_words(self._argument))
        if any(True for spelling in (argument, name) for _ in self._with(spelling, self._known)):
            return False
        if " " in name:
            return self._any(argument, _always) or self._any(name, _always)
        to = re.compile(rf"(?<!\w){re.escape(name)}(?:\W+\w+){{0,3}}?\W+(?:true|false|yes|no|on|off)(?!\w)", re.I)
        return self._any(argument, lambda found: to.search(found.raw) is not None)

    def _any(self, text: str, holds: Callable[[Text], bool]) -> bool:
        """Whether it holds for one of their texts with `text` in it; it does if there are too many to read."""
        found = self._with(text, self._theirs)
        return any(map(holds, islice(found, MAX_TEXTS))) or next(found, None) is not None

    def _with(self, text: str, groups: set[int]) -> Iterator[Text]:
        return self._texts.texts_with(text, groups)

    def _cues(self) -> Iterator[str]:
        """The words behind which a number is the one that the argument asks for."""
        yield from (verb for verb in (self._acts.verbs if self._acts is not None else ()) if " " not in verb)
        words = _words(self._argument)
        if words and words[-1] in _NUMBERING:
            yield from {*words, *_NUMBERING}


def _always(_found: Text) -> bool:
    return True


def _words(argument: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(argument)]


_RETURNED: Final = frozenset({"tool_result", "resource"})

__all__ = ["MAX_TEXTS", "Naming"]
