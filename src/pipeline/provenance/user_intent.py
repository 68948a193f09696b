"""Which of the user's messages ask for an act, by their words. Spec: docs/spec/provenance.md [PROV-3]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipeline.provenance.negation import agrees, asked_in
from pipeline.provenance.occurrences import Occurrences
from pipeline.provenance.profile import AskedFor
from pipeline.provenance.sources import MAX_SOURCES, TRUSTED, Origin

DELEGATION: Final = AskedFor(
    patterns=(
        r"(?<!\w)(?:do|perform|follow|complete|execute|carry out|handle|process|finish|take care of|work through)"
        r"(?!\w)(?! (?:the )?(?:following|these))[^.?!]{0,60}?"
        r"(?<!\w)(?:actions?|tasks?|instructions?|steps?|to-?dos?|to-?do list|check ?list)(?!\w)",
    )
)
"""The words by which a user delegates to a text: "do the tasks on my list at …". Spec: [PROV-3]."""


class RequestedActs:
    """The user's messages, each with the model's question to which it agrees."""

    def __init__(self, texts: Occurrences) -> None:
        self.user_texts: list[tuple[int, str]] = []
        self._texts = texts
        self._found: dict[str, tuple[int, list[int]]] = {}
        self._question: str | None = None

    def read_user(self, number: int, text: str) -> None:
        """Read a text of the user. One that agrees to the model's question also asks for what the question names."""
        self.user_texts.append((number, text))
        if self._question is not None and agrees(text):
            self.user_texts.append((number, self._question))
        self._question = None

    def read_model(self, text: str | None) -> None:
        """Read a text of the model; None for one that is only claimed to be the model's."""
        self._question = asked_in(text) if text is not None else None

    def messages_with(self, words: AskedFor) -> list[int]:
        """The numbers of the user's messages that say `words`. Each message is searched once."""
        key = repr(words)
        read, found = self._found.get(key, (0, []))
        for number, text in self.user_texts[read:]:
            self._texts.work += 1
            if words.is_said_in(text):
                found.append(number)
        self._found[key] = (len(self.user_texts), found)
        return found

    def sources(self, acts: AskedFor) -> list[Origin]:
        """The sources of a call: the user's messages that ask for it by `acts`, or that delegate to a text."""
        asked = set(self.messages_with(acts))
        delegated = set(self.messages_with(DELEGATION)) - asked
        return as_sources([*((number, "asked") for number in asked), *((number, "delegated") for number in delegated)])


def as_sources(found: Iterable[tuple[int, str]]) -> list[Origin]:
    """Sources of a call as a whole, made of (message number, how it asks for the call)."""
    return [
        {"kind": "user", "trust": TRUSTED, "message": number, "match": match, "labels": []}
        for number, match in sorted(found)[-MAX_SOURCES:]
    ]
