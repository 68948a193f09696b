"""Whether a text says a word, in one of its forms and not to forbid it. Spec: docs/spec/profiles.md [PRF-5], [PRF-11].

English: endings, the irregular verbs that acts are asked for with, words that stand apart ("call it off", "set a
reminder"), things that have the name of an act ("my mail"). For other languages a profile lists each form, or an
expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pipeline.provenance.words import words

_PARTICLES: Final = frozenset(["away", "back", "down", "in", "off", "on", "out", "over", "up"])
_BETWEEN: Final = r"(?:\s+(?!and\b|or\b|but\b|then\b)[^\s,;:!?]*[^\s.,;:!?]){0,5}?"
"""What may stand between a verb and what goes with it: "call the meeting off", "let #ops know", "set a reminder"."""
_TO_USER: Final = re.compile(r"(?:tell|let|inform|show)\s+(?:me|us)(?!\w)", re.IGNORECASE)
"""What is told to the user is the model's answer, and no act: "tell me what they wrote"."""

_ARTICLES: Final = (
    r"all|of|the|my|our|your|his|her|their|this|that|these|those|new|unread|recent|latest|last|first|\w+['\u2019]s"
)
_TOLD: Final = re.compile(
    r"(?<!\w)(?:(?:(?:check|read|see|view|show|list|find|search|open|any|summari[sz]e|summary\s+of|go(?:ing)?\s+(?:over|through)"
    r"|look(?:ing)?\s+(?:at|through|into|in|over))(?:\s+(?:an?|me|us|some|any|every|each))?"
    rf"|what(?:['\u2019]s|\s+is)\s+(?:new\s+)?(?:on|in))(?:\s+(?:{_ARTICLES})){{0,4}}"
    r"|(?:from|according\s+to|(?:(?:what|which|who|when|where|why|how)\s+)?(?:does|did|is|are|was|were|has)"
    rf"|(?:what|how)\s+do|whether|if)(?:\s+(?:{_ARTICLES})){{1,4}})\s+\Z",
    re.IGNORECASE,
)
"""Before a word that can be an act and a thing, it says that the thing is meant: "read my mail", "if the mail says"."""

_FORBIDDING: Final = re.compile(
    r"(?<!\w)(?:(?:do|does|should|must|shall|may)(?:\s+not|n['\u2019]?t)|never|without|avoid|refrain\s+from"
    r"|rather\s+than|instead\s+of|no\s+need\s+to|not\s+to|not\s+allowed\s+to)(?P<between>(?:\s+[\w'\u2019-]+){0,2})\s+\Z",
    re.IGNORECASE,
)
_NOT_FORBIDDING: Final = re.compile(
    r"(?<!\w)(?:forget|hesitate|fail|only|just|miss|neglect|worry|mind|wait|but|then|you|we)(?!\w)", re.IGNORECASE
)
MAX_ASKING: Final = 1_000  # characters at the end of a text that are read for its question
MAX_AGREEING: Final = 80  # characters of a text that says yes
_AGREEING: Final = re.compile(
    r"\s*(?:yes|yep|yeah|yup|sure|ok|okay|alright|all right|go ahead|please do|do (?:it|that|so)|sounds good|correct"
    r"|confirmed?|agreed|exactly|of course|absolutely|definitely)(?!\w)"
    r"(?!.*(?<!\w)(?:no|not|but|don['\u2019]?t|wait|first|instead|except|only)(?!\w))",
    re.IGNORECASE | re.DOTALL,
)
_QUESTION: Final = re.compile(r"[^.!?\n]{1,400}\?")
_REACH: Final = 60  # characters before a word that are read for what forbids it


def says_any(wanted: tuple[str, ...], text: str, *, acts: bool = False) -> bool:
    """Whether `text` says one of the words or phrases, in any form, at a place where it is not forbidden.

    If they are `acts`, a word that tells of a thing does not count, and what goes with a verb may stand apart from it.
    """
    if not acts:
        return any(matches(inflected(word), text) for word in wanted)
    return any(_requests(inflected(word, apart=True), text, named=" " not in word) for word in with_alike(wanted))


@lru_cache(maxsize=1024)
def with_alike(named: tuple[str, ...]) -> tuple[str, ...]:
    """The words, and the other names of the acts that they name."""
    known = {word.lower() for word in named}
    more = (word for alike in words("acts") if known.intersection(alike) for word in alike)
    return tuple(dict.fromkeys((*named, *more)))


def asked_in(text: str) -> str | None:
    """The last question of a text; None if it asks nothing."""
    questions = _QUESTION.findall(text[-MAX_ASKING:])
    return questions[-1] if questions else None


def agrees(text: str) -> bool:
    """Whether a text says yes to what was asked before it, and little else."""
    return len(text) <= MAX_AGREEING and _AGREEING.match(text) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether the expression, case ignored, is found in `text` at a place that nothing before it forbids."""
    return any(True for _ in _places(pattern, text))


def _requests(pattern: str, text: str, *, named: bool) -> bool:
    """Whether it is found where it asks for an act; if it can be `named`, not where a thing of this name is meant."""
    return any(
        _TO_USER.match(text, at) is None and not (named and (_TOLD.search(text, max(0, at - _REACH), at) is not None))
        for at in _places(pattern, text)
    )


def _places(pattern: str, text: str) -> Iterator[int]:
    starts = (found.start() for found in _compiled(pattern).finditer(text))
    return (at for at in starts if not is_forbidden(text, at))


def is_forbidden(text: str, at: int) -> bool:
    """Whether what starts at `at` is told not to be done: "do not send", "without paying"."""
    found = _FORBIDDING.search(text, max(0, at - _REACH), at)
    return found is not None and _NOT_FORBIDDING.search(found["between"]) is None


@lru_cache(maxsize=4096)
def inflected(phrase: str, *, apart: bool = False) -> str:
    """An expression for a phrase: its first word in any English form, its last in the plural too.

    With `apart` three words may stand behind the first ("set a reminder"); with a particle they always may.
    """
    first, *rest = phrase.split() or [phrase]
    stem = re.escape(first)
    forms = [f"{stem}(?:s|es|d|ed|ing)?", *map(re.escape, words("irregular_verbs").get(first.lower(), ()))]
    if len(first) > 2 and first[-1] in "bdgklmnprt":
        forms.append(f"{stem}{re.escape(first[-1])}(?:ed|ing)")
    if first[-1] == "e":
        forms.append(f"{re.escape(first[:-1])}ing")
    if first[-1] == "y":
        forms.append(f"{re.escape(first[:-1])}(?:ies|ied)")
    particle = len(rest) == 1 and rest[0].lower() in _PARTICLES
    between = _BETWEEN if rest and (apart or particle) else ""
    plural = "(?:s|es)?" if rest and rest[-1][-1].isalpha() and not particle else ""
    joined = "".join(rf"(?:\s+|-){re.escape(word)}" for word in rest)
    return rf"(?<!\w)(?:{'|'.join(forms)}){between}{joined}{plural}(?!\w)"


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
