"""Rego modules made up from the whole grammar, from one seed, to hold the embedded engine against OPA.

`rego_programs.Maker` makes what both forms compile; this makes what authors may write: rules in several definitions and
modules, `else`, `default`, patterns as arguments, references in heads, `with`, `walk`, unification in both directions.
"""

from __future__ import annotations

import random
from typing import Any

CONSTANTS: dict[str, Any] = {"n0": 0, "n1": 1, "n2": 2, "f": 1.5, "sa": "a", "sb": "b", "sx": "x", "e": "", "t": True}
CONSTANTS |= {
    "u": False,
    "nul": None,
    "big": 2**70,
    "neg": -1,
    "uni": "ß😀",
    "num": "10",
    "arr": [1, "a"],
    "obj": {"a": 1},
}
INPUTS: list[dict[str, Any]] = [
    {
        "a": 1,
        "b": 2,
        "s": "s",
        "t": "a/b",
        "nums": [1, 2, 3],
        "words": ["a", "b", "a"],
        "rows": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a"}],
        "obj": {"p": 1, "a": 2, "k": "x"},
        "deep": {"x": {"y": [{"z": 1}, {"z": [2]}]}},
        "nul": None,
        "fls": False,
        "empty": [],
        "c": CONSTANTS,
    },
    {"a": 2, "s": 3, "nums": "123", "rows": {"r": {"k": "b", "v": 2}}, "obj": [1, 2], "words": ["b"], "t": "", "b": 2}
    | {"c": CONSTANTS},
    {"nums": [], "rows": [], "obj": {}, "a": "7", "deep": {"x": {"y": {}}}, "fls": True, "words": "a", "nul": 0}
    | {"c": CONSTANTS},
]
DATA: dict[str, Any] = {"d": {"list": [1, 9, "s"], "m": {"a": 1, "k": "x"}, "n": {"p": {"q": 1}, "a": {"q": 2}}}}

SCALARS = ["0", "1", "2", "3", "1.5", "10", '"a"', '"b"', '"s"', '"x"', '""', "true", "false", "null", "`a/b`"]
ROOTS = [f"input.{name}" for name in (*INPUTS[0], "nope")]
ROOTS += [
    "data.d.list",
    "data.d.m",
    "data.d.n",
    "data.d.n.p.q",
    "data.d.zz",
    "data.other.q",
    "data.other.many",
    "other.q",
]
STEPS = [".k", ".a", ".v", ".x", "[0]", "[1]", '["k"]', "[-1]", "[1.0]", "[input.a]", "[input.s]"]
ONE = ["count", "is_string", "is_number", "is_set", "is_array", "is_object", "is_boolean", "is_null", "upper", "lower"]
ONE += ["type_name", "sum", "sort", "abs", "array.reverse", "object.keys", "trim_space"]
ONE += ["strings.reverse", "floor", "ceil", "round", "json.marshal", "max", "min", "product", "to_number"]
ONE += ["union", "intersection", "object.union_n", "json.unmarshal", "urlquery.encode", "base64.encode", "hex.encode"]
TWO = ["contains", "startswith", "endswith", "array.concat", "object.union", "split", "concat", "trim", "trim_prefix"]
TWO += ["object.remove", "object.filter", "union2", "f2", "g2", "format_int10", "indexof", "object_get"]
TWO += ["indexof_n", "strings.count", "trim_left", "trim_right", "trim_suffix", "numbers.range", "object.subset"]
TWO += ["strings.any_prefix_match", "bits.and", "bits.xor", "regex_match", "regex_split", "regex_replace", "glob_match"]
TWO += ["json.filter", "json.remove", "substring", "slice", "replace_n"]
WRITTEN = {
    "union2": "union({{{0}, {1}}})",
    "format_int10": "format_int({0}, 10)",
    "object_get": "object.get({0}, {1}, 7)",
    "regex_match": "regex.match({0}, {1})",
    "regex_split": "regex.split(`[ab1]`, {0})",
    "regex_replace": "regex.replace({0}, `(a)|s`, {1})",
    "glob_match": "glob.match({0}, [], {1})",
    "substring": "substring({0}, 0, {1})",
    "slice": "array.slice({0}, 0, {1})",
    "replace_n": "strings.replace_n({{`a`: {1}, `b`: `c`}}, {0})",
}
"""Calls of two values that are not written `name(one, two)`."""
FORMATS = ["`%v-%s`", "`%v %v`", "`%d|%q`", "`%5s|%-4v`", "`%x %t`", "`%03d%%%v`", "`%.1f %s`"]
COMPARISONS = ["==", "!="]
ORDERS = ["<", ">", "<=", ">="]  # of a set and an object they are a known difference
OPERATORS = ["+", "-", "*", "/", "%", "|", "&"]


class Grammar:
    """Modules with entrypoints `x`, `y` and `z`; all else they may ask for is beside them or in package `other`."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def program(self) -> list[str]:
        """The modules of one set: package `t`, now and then in two files, and package `other`."""
        self._names = 0
        lines = self._helpers()
        entries = [self._entry(name) for name in ("x", "y", "z")]
        head = "package t\n\nimport data.other\n"
        other = "\n\n".join(["package other", f"q := {self._literal()}", f"many contains {self._ruled(2, plain=True)}"])
        return [head + "\n" + "\n\n".join([*lines, *entries]) + "\n", other + "\n"]

    # rules

    def _helpers(self) -> list[str]:
        made = []
        for name in ("h1", "h2"):
            made += [self._complete(name, plain=True)]
        made += [f"hs contains {self._ruled(1, plain=True)}" for _ in range(self._many(1, 2))]
        made += [self._object_rule("ho")]
        made += [f"f2(p, q) := {self._ruled(1, ['p', 'q'], plain=True)}" for _ in range(self._many(1, 2))]
        if self._chance(0.4):
            made += [f"f2(p, q) := {self._ruled(1, ['p', 'q'], plain=True)} else := {self._expression(['p'], 1, True)}"]
        made += self._patterns("g1")
        if self._chance(0.3):
            made += [f"default g1(_) := {self._literal()}"]
        made += [
            f"g2(p, q) if {{ {self._body(['p', 'q'], 1, self._many(1, 2), True)[0]} }}" for _ in range(self._many(1, 2))
        ]
        body, known = self._body([], 1, 2, True)
        made += [
            f"hp[{self._local(known)}][{self._local(known)}] := {self._expression(known, 1, True)} if {{ {body} }}"
        ]
        made += [f"hd.{key}.v := {self._literal()}" for key in self._sample(["a", "b", "k"])]
        if self._chance(0.4):
            made += [f"hk[k].w contains v if {{ some k, v in {self._reference([])} }}"]
        if self._chance(0.4):
            made += [f"hs2[k] contains v if {{ some k, v in {self._reference([])} }}"]
        return made

    def _entry(self, name: str) -> str:
        kind = self._random.randrange(8)
        if kind < 2:
            return "\n\n".join(f"{name} contains {self._ruled(3)}" for _ in range(self._many(1, 2)))
        if kind < 4:
            return self._complete(name)
        if kind == 4:
            return f"{name} if {{ {self._body([], 3, self._many(1, 4))[0]} }}"
        if kind == 5:
            body, known = self._body([], 2, self._many(1, 2))
            return f"{name}[{self._local(known)}] := {self._expression(known, 1)} if {{ {body} }}"
        if kind == 6:
            return f"{name} := {self._expression([], 3)}"
        body, known = self._body([], 2, self._many(1, 2))
        line = f"hn.m[{self._local(known)}].n contains {self._expression(known, 1)} if {{ {body} }}"
        return f"{line}\n\n{name} := [k | some k; hn.m[k]]"

    def _complete(self, name: str, *, plain: bool = False) -> str:
        lines = []
        if self._chance(0.3):
            lines.append(f"default {name} := {self._literal()}")
        for _ in range(self._many(1, 2)):
            line = f"{name} := {self._ruled(2, plain=plain)}"
            if self._chance(0.1):
                line = f"# METADATA\n# title: {name}\n{line}"
            while self._chance(0.35):
                value = self._scalar() if self._chance(0.5) else self._expression([], 1, plain)
                line += f" else := {value}"
                if self._chance(0.7):
                    line += f" if {{ {self._body([], 1, 1, plain)[0]} }}"
                else:
                    break
            lines.append(line)
        return "\n\n".join(lines)

    def _object_rule(self, name: str) -> str:
        body, known = self._body([], 1, self._many(1, 2), True)
        return f"{name}[{self._local(known)}] := {self._expression(known, 1, True)} if {{ {body} }}"

    def _patterns(self, name: str) -> list[str]:
        heads = [
            "1",
            '"a"',
            "[p]",
            "[p, q]",
            '{"k": p}',
            '{"k": p, "v": 1}',
            "p",
            "[1, p]",
            "null",
            "[_, p]",
            "[[p], q]",
        ]
        made = []
        for head in self._sample(heads):
            known = [one for one in ("p", "q") if one in head]
            made.append(f"{name}({head}) := {self._ruled(1, known, plain=True)}")
        return made

    def _ruled(self, depth: int, names: list[str] | None = None, *, plain: bool = False) -> str:
        body, known = self._body(names or [], depth, self._many(1, depth), plain)
        return f"{self._expression(known, depth, plain)} if {{ {body} }}"

    # bodies

    def _body(self, names: list[str], depth: int, count: int, plain: bool = False) -> tuple[str, list[str]]:
        statements = []
        for _ in range(count):
            statement, names = self._statement(names, depth, plain)
            statements.append(statement)
        return "; ".join(statements), names

    def _statement(self, names: list[str], depth: int, plain: bool) -> tuple[str, list[str]]:
        kind = self._random.randrange(20)

        def of(less: int = 0) -> str:
            return self._expression(names, depth - less, plain)

        if kind < 3:
            name = self._fresh()
            return f"{name} := {of()}", [*names, name]
        if kind < 6:
            name = self._fresh()
            return f"some {name} in {of()}", [*names, name]
        if kind == 6:
            key, name = self._fresh(), self._fresh()
            return f"some {key}, {name} in {of()}", [*names, key, name]
        if kind == 7:
            return f"not {self._negated(names, depth, plain)}", names
        if kind == 8:
            name, key = self._fresh(), self._fresh()
            inner = [*names, name, key]
            return (
                f"every {key}, {name} in {of()} {{ {self._body(inner, depth - 1, self._many(1, 2), plain)[0]} }}",
                names,
            )
        if kind == 9:
            return f"{of(1)} in {of()}", names
        if kind == 10:
            name = self._fresh()
            reference = self._reference(names)
            return f"some {name}; {reference}[{name}]", [*names, name]
        if kind == 11:
            name = self._fresh()
            return f"some {name}; {reference_of(self._reference(names), name)} == {of(1)}", [*names, name]
        if kind == 12:
            one, two = self._fresh(), self._fresh()
            pattern = self._random.choice(
                [
                    f"[{one}, {two}]",
                    f'{{"k": {one}, "v": {two}}}',
                    f'{{"a": {one}, "p": {two}, "k": "x"}}',
                    f"[{one}, [{two}]]",
                ]
            )
            if self._chance(0.5):
                return f"{pattern} := {of()}", [*names, one, two]
            return f"some {pattern} in {of()}", [*names, one, two]
        if kind == 13:
            one = self._fresh()
            pattern = self._random.choice([f"[{one}, {of(1)}]", f'{{"k": {one}}}', f"[{one}, _]", one, f"[1, {one}]"])
            left, right = pattern, of()
            if self._chance(0.5):
                left, right = right, pattern
            return f"some {one}; {left} = {right}", [*names, one]
        if kind == 14 and not plain:
            name = self._fresh()
            place = self._random.choice(
                ["input.a", "input", "input.obj", "data.d.list", "data.d", "input.nope.deep", "data.other.q"]
            )
            target = self._random.choice(
                ["h1", "h2", "hs", "ho", "data.other.many", "input.obj", "input", f"f2({of(1)}, 1)"]
            )
            return f"{name} := {target} with {place} as {of(1)}", [*names, name]
        if kind == 15 and not plain:
            path, value = self._fresh(), self._fresh()
            return f"walk({self._reference(names)}, [{path}, {value}])", [*names, path, value]
        if kind == 16 and self._chance(0.3):
            one, two = self._fresh(), self._fresh()
            return f"some {one}, {two}; {self._reference(names)}[{one}][{two}]", [*names, one, two]
        if kind == 16:
            return f"{self._reference(names)}[_] {self._random.choice(COMPARISONS)} {self._reference(names)}[_]", names
        if kind == 17:
            return (f"print({of()}, {of()})" if self._chance(0.2) else of()), names
        if self._chance(0.4):
            return f"{of()} {self._random.choice(ORDERS)} {self._literal()}", names
        return f"{of()} {self._random.choice(COMPARISONS)} {of(1)}", names

    def _negated(self, names: list[str], depth: int, plain: bool) -> str:
        """What OPA asks for before it negates, and what it leaves as it is."""

        def of(less: int = 1) -> str:
            return self._expression(names, depth - less, plain)

        made = self._random.choice(
            [
                lambda: self._reference(names),
                lambda: f"{self._reference(names)}[{of()}]",
                lambda: f"{self._reference(names)} {self._random.choice(['==', '='])} {self._reference(names)}",
                lambda: f"{of()} {self._random.choice(COMPARISONS)} {of()}",
                lambda: f"{of()} {self._random.choice(ORDERS)} {self._literal()}",
                lambda: f"{of()} {self._random.choice(OPERATORS)} {of()}",
                lambda: f"{of()} in {of()}",
                lambda: f"{self._literal()} in {self._comprehension(names, depth - 1, plain)}",
                lambda: f"({self._local(names)}, {of()} in {of()})",
                lambda: f"{self._random.choice(ONE)}({of()})",
                lambda: self._call(self._random.choice(TWO), of(), of(), plain),
                lambda: of(0),
            ]
        )()
        if not plain and self._chance(0.2):
            place = self._random.choice(["input.a", "input.obj", "data.d.list", "input.nope"])
            made += f" with {place} as {of()}"
        return made

    # expressions

    def _expression(self, names: list[str], depth: int, plain: bool = False) -> str:

        def of(less: int = 1) -> str:
            return self._expression(names, depth - less, plain)

        if depth <= 0 or self._chance(0.35):
            return self._reference(names) if self._chance(0.7) else self._scalar()
        kind = self._random.randrange(15)
        if kind == 0:
            return f"{self._random.choice(ONE)}({of()})"
        if kind == 1:
            return self._call(self._random.choice(TWO), of(), of(), plain)
        if kind == 2:
            return f"({of()} {self._random.choice(OPERATORS)} {of()})"
        if kind == 3:
            return f"[{of()}, {of()}]"
        if kind == 4:
            return f'{{"z": {of()}, {self._scalar()}: {of()}}}'
        if kind == 5:
            return f"{{{of()}, {of()}}}"
        if kind == 6:
            return f"({of()} {self._random.choice(COMPARISONS)} {of()})"
        if kind == 7:
            return f"({of()} in {of()})"
        if kind == 8 and not plain:
            return self._random.choice(
                [
                    f"hs[{of()}]",
                    f"ho[{of()}]",
                    f"hp[{of()}]",
                    "hp",
                    "hp.a",
                    "h1",
                    "h2",
                    "hs",
                    "ho",
                    "hd",
                    "hd.a",
                    "hk",
                    "hs2",
                    "hk.k.w",
                    "hs2.a",
                    "hs2[1]",
                    "ho.a",
                    "hs[1]",
                    "data.t.hd",
                ]
            )
        if kind == 9 and not plain:
            return f"g1({of()})"
        if kind == 10:
            key, name = self._fresh(), self._fresh()
            inner = [*names, key, name]
            return f"{{{self._of(inner)}: {self._expression(inner, depth - 1, plain)} | some {key}, {name} in {of()}}}"
        if kind == 11:
            path = self._random.choice([self._scalar(), "[]", "[`k`]", "[`a`, 0]"])
            return f"object.get({of()}, {path}, {self._scalar()})"
        if kind == 12:
            return f"sprintf({self._random.choice(FORMATS)}, [{of()}, {of()}])"
        return self._comprehension(names, depth - 1, plain)

    def _comprehension(self, names: list[str], depth: int, plain: bool) -> str:
        body, known = self._body(names, depth, self._many(1, 2), plain)
        term = self._expression(known, depth, plain)
        if self._chance(0.2):
            return f"{{{self._of(known)}: {term} | {body}}}"
        return self._random.choice([f"[{term} | {body}]", f"{{{term} | {body}}}"])

    def _call(self, name: str, one: str, two: str, plain: bool) -> str:
        if name in WRITTEN:
            return WRITTEN[name].format(one, two)
        if plain and name in {"f2", "g2"}:
            return f"array.concat({one}, {two})"
        return f"{name}({one}, {two})"

    def _reference(self, names: list[str]) -> str:
        steps = STEPS + [f"[{name}]" for name in names]
        reference = self._random.choice(ROOTS + names * 8)
        while self._chance(0.35):
            reference += self._random.choice(steps)
        return reference

    def _of(self, names: list[str]) -> str:
        return self._random.choice(names) if names and self._chance(0.8) else self._scalar()

    def _local(self, names: list[str]) -> str:
        return self._random.choice(names) if names else self._literal()

    def _scalar(self) -> str:
        if self._chance(0.75):
            return f"input.c.{self._random.choice(list(CONSTANTS))}"
        return self._literal()

    def _literal(self) -> str:
        return self._random.choice(SCALARS)

    def _fresh(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _many(self, least: int, most: int) -> int:
        return self._random.randint(least, max(least, most))

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _sample(self, of: list[str]) -> list[str]:
        return self._random.sample(of, self._many(1, 3))


def reference_of(reference: str, index: str) -> str:
    """The reference, asked at every place."""
    return f"{reference}[{index}]"
