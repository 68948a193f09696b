"""Texts that are hard for a pattern, made from it: what it begins with, again and again, and what almost fits."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

# Its parser is where the standard library says what a pattern consists of, and it has no public name.
_PARSER: Final[Any] = re._parser  # type: ignore[attr-defined]
_WIDE: Final = re.compile(r"\\x\{([0-9A-Fa-f]+)\}")
_FLAGS: Final = re.compile(r"(?<=\|)\(\?i\)")


def hard_texts(pattern: str, size: int, rng: random.Random) -> Iterator[str]:
    """Texts of `size` characters: parts of what the pattern matches, repeated, drawn out and mixed."""
    plain = _FLAGS.sub("", _WIDE.sub(lambda wide: f"\\U{int(wide[1], 16):08x}", pattern))
    tree = _PARSER.parse(plain)
    samples = [_sample(tree, random.Random(rng.random()), most) for most in (0, 2, 40)]
    for sample, other in zip(samples, [*samples[1:], samples[0]], strict=True):
        yield _repeated(sample, size)
        yield _repeated(sample + " ", size)
        yield _repeated(sample + other, size)
        for cut in {rng.randint(1, max(1, len(sample))) for _ in range(2)}:
            begun = sample[:cut]
            yield _repeated(begun, size)
            yield _repeated(begun + "\n", size)
            yield _repeated(begun + sample, size)
            yield begun + _repeated(begun[-1:], size - cut)
            yield sample + _repeated(begun, size - len(sample))
            yield _repeated(sample[cut - 1 :], size)


def _repeated(text: str, size: int) -> str:
    return (text * (size // max(1, len(text)) + 1))[:size]


def _sample(tree: Any, rng: random.Random, most: int) -> str:
    """A text that the pattern matches, each repetition `most` times more than it has to be."""
    return "".join(_piece(str(kind), value, rng, most) for kind, value in tree)


def _piece(kind: str, value: Any, rng: random.Random, most: int) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return "x"
        case "IN":
            return _member(value, rng)
        case "BRANCH":
            return _sample(rng.choice(value[1]), rng, most)
        case "SUBPATTERN":
            return _sample(value[-1], rng, most)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, limit, body = value
            return "".join(_sample(body, rng, most) for _ in range(min(int(limit), least + rng.randint(0, most))))
        case _:
            return ""  # an assertion


def _member(items: Any, rng: random.Random) -> str:
    """A character of a class; of a negated one, a character that few classes leave out."""
    kind, value = rng.choice(items)
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(rng.choice(value))
        case "NEGATE":
            return next(sign for sign in "x~é\x01" if _is_outside(sign, items))
        case _:
            return "0"


def _is_outside(sign: str, items: Any) -> bool:
    ranges = [(value, value) if str(kind) == "LITERAL" else value for kind, value in items if str(kind) != "NEGATE"]
    return not any(low <= ord(sign) <= high for low, high in ranges)
