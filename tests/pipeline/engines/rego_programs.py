"""Rego to hold the two forms of the embedded engine against each other: chosen programs, and made-up ones."""

from __future__ import annotations

import random
import re
from typing import Any

DOCUMENT: dict[str, Any] = {
    "a": 1,
    "b": 2,
    "s": "s",
    "nums": [1, 2, 3],
    "rows": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a"}],
    "obj": {"p": 1, "a": 2},
    "key": "a",
    "nul": None,
    "fls": False,
}
DATA: dict[str, Any] = {"d": {"list": [1, 9, "s"], "m": {"a": 1, "k": "x"}}}

CHOSEN = [
    # undefined in an assignment, a comprehension, an argument
    "x := 1 if { y := input.nope }",
    "x := 1 if { y := input.nul.a }",
    "x := 1 if { [y, z] := input.nope }",
    "x := 1 if { y := count(input.nope) }",
    "x := [v.no | some v in input.rows]",
    "x := {v.no | some v in input.rows}",
    "x := {k: v.no | some k, v in input.rows}",
    "x := [input.nope | true]",
    "x contains v.v if some v in input.rows",
    "x := f(input.nope)\nf(_) := 1",
    'x := {"a": input.nope}',
    "x := [1, input.nope]",
    # a head without a value, for one of several ways in which its body holds
    "x contains v.v if some v in input.rows",
    "x contains v.k if { some v in input.rows; v.v }",
    'x contains {"v": v.v, "k": v.k} if some v in input.rows',
    'x contains {\n\t"v": v.v,\n\t"k": v.k,\n} if {\n\tsome v in input.rows # all of them\n}',
    "x contains upper(v.no) if some v in input.rows",
    "x contains upper(input.nums) if { some v in input.rows; v.v == 7 }",
    "x contains upper(v.v) if { some v in input.rows; v.v == 7 }",
    "x contains input.rows[_].v",
    "x contains input.rows[i].v if input.rows[i].k",
    'x := v.v if { some v in input.rows; v.k == "a" }',
    'x := f("a")\nf(k) := v.v if { some v in input.rows; v.k == k }',
    "x[k] := v.v if some k, v in input.rows",
    # two loops in one statement
    "x contains [k, v] if some k, v in input.rows[_]",
    "x contains [k, v] if { input.a == 1; some k, v in input.rows[i]; i > 0 }",
    "x := [v | some v in input.rows[_]; v != 1]",
    "x if { every n in input.nums { n > 0; some _, v in input.rows[_]; v == n } }",
    "x if not f(1)\nf(n) if { some _, v in input.rows[_]; v == n }",
    "x contains v if some v in input.nope[_]",
    "x contains [i, v] if some v in [input.nums[i], i]",
    # keys from a list of distinct constants
    'x := {f: input.obj[f] | some f in ["p", "a"]}',
    'x := {f: input.obj[f] | some f in ["p", "nope"]; input.obj[f]}',
    # a condition directly inside a comprehension, with and without a loop around it
    "x := 1 if { y := [1 | input.nope]; count(y) == 1 }",
    "x := 1 if { y := [1 | input.nope]; count(y) == 0 }",
    "x := 1 if input.nums < [2 | input.nope]",
    "x contains v if { some v in input.nums; count([1 | v > 2]) == 0 }",
    "x contains v if { some v in input.nums; y := [1 | v > 2]; count(y) == 0 }",
    "x := [v | some v in input.nums; count([1 | v > 2]) == 0]",
    "x contains v if { some v in input.nums; count({w | w := v; v > 2}) == 0 }",
    "x contains v if { some v in input.nums; not count([1 | v > 2]) == 1 }",
    "x := [count([1 | v > 2]) | some v in input.nums]",
    "x := [w | some v in [1, 2]; w := [v | v > 1]]",
    "x if every v in input.nums { count([1 | v > 5]) == 0 }",
    "x if every v in input.nums { every w in input.nums { count([1 | v > w]) >= 0 } }",
    "x := [[1 | input.nope], [2 | true]]",
    # input and data first named where nothing runs
    "x contains 1 if { y := {input.b | data.d.nope}; input.a == 1 }",
    "x := 1 if { y := [input.a | false]; input.a }",
    "x := 1 if { y := [v | some v in data.d.nope; v == input.a]; input.a == 1 }",
    "x := 1 if { y := [v | some v in input.nope; v == data.d.m]; data.d.m.a == 1 }",
    # else after a loop that found nothing, and after an undefined value
    "x := h\nh := 1 if { some v in input.nums; v > 5 } else := 2",
    "x := h\nh := input.nope if { input.a == 1 } else := 2",
    "x := h\nh := 1 if { some v in input.nums; v > 5 } else := 2 if { some v in input.nums; v == 2 } else := 3",
    "x := [h(1), h(9)]\nh(q) := 1 if { some v in input.nums; v > q } else := 2",
    "x := h\ndefault h := 7\nh := 1 if { some v in input.nums; v > 5 } else := 2 if input.nope",
    # rules and functions
    "default x := 0\nx := 1 if input.a == 5",
    "x := 1 if input.a == 1\nx := 1 if input.b == 2",
    "x := 1 if input.a == 1\nx := 2 if input.b == 3",
    'x := [f(n) | some n in input.nums]\nf(1) := "one"\nf(2) := "two"\nf(n) := "many" if n > 2',
    "x := f([1, 2])\nf([a, b]) := a + b",
    'x := f({"k": 5})\nf({"k": v}) := v',
    "x := f(false)\nf(b) := b",
    "x if f(false)\nf(b) := b",
    "x if not f(1)\nf(a) if a == 2",
    "x := p\np contains 1\np contains 2",
    "x[k] := v if some k, v in input.obj",
    "x contains [i, j] if { some i, j; input.nums[i] == input.nums[j]; i != j }",
    # loops
    'x contains i if input.rows[i].k == "a"',
    'x := {i | input.rows[i].k == "a"}',
    "x if { some i; input.nums[i] == 2; i == 1 }",
    "x if input.nums[_] > 2",
    "x if input.nums[_] == data.d.list[_]",
    "x if input.nums[i] == data.d.list[i]",
    "x := [k | data.d.m[k] == 1]",
    "x contains k if data.d.m[k]",
    'x := {k: [v | some v in vs] | some k, vs in {"a": [1, 2], "b": [3]}}',
    "x if every v in input.nums { v > 0 }",
    "x if every v in input.nums { v > 1 }",
    "x if every v in [] { v > 0 }",
    "x if every v in input.nope { v > 0 }",
    "x if every i in input.nums { some j in input.nums; i == j }",
    "x if every i in input.nums { some j in []; i == j }",
    # values and order
    "x := input.s > 5",
    'x := input.a < "z"',
    "x := null < 1",
    "x := [1] < [1, 2]",
    "x := 1 == 1.0",
    "x := {1, 1.0}",
    'x := {input.s: 1, "t": 2}',
    "x := input.nums[-1]",
    "x := input.obj[input.key]",
    "x := input.s[0]",
    "x if 1 in input.nums",
    'x if "k" in input.s',
    "x if 0, 1 in input.nums",
    "x := {1, 2} - {2}",
    "x := {1, 2} | {3}",
    "x := {1, 2} & {2}",
    "x := 7 % 3",
    "x := 2 * 3 - 4 / 2",
    "x if input.nul",
    "x if input.fls",
    "x if not input.nul",
    "x if not input.fls",
    "x := y if { [y, 2] = [7, 2] }",
    'x := y if { {"p": y} := {"p": 1} }',
    "x if { 1 = input.a }",
]

_FUNCTIONS_OF_ONE = (
    "count is_string is_number upper lower to_number type_name sum max json.marshal array.reverse object.keys sort abs"
)
_FUNCTIONS_OF_TWO = "contains startswith array.concat object.union split concat numbers.range trim format_int f2"
_COMPARISONS = ["==", "!=", "<", ">", "<=", ">="]


class Maker:
    """Programs of rules, functions, loops and comprehensions over `DOCUMENT` and `DATA`, from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def program(self) -> str:
        """Rego with entrypoints `x` (a partial set) and `y` (a complete rule). About a half of them compile."""
        self._names = 0
        lines = [f"{head} := {self._rule()}" for head in ("h1", "h2") for _ in range(self._random.randint(1, 2))]
        lines.append(f"h3 := {self._rule()} else := {self._scalar()} if {{ {self._body([], 1, 1)[0]} }}")
        lines.append(f"hs contains {self._rule()}")
        lines += [f"F2 := {self._rule(['p1', 'p2'])}" for _ in range(self._random.randint(1, 3))]
        lines += ['f1(1) := "one"', "f1([q]) := q", f"f1(p) := {self._scalar()} if {{ {self._body(['p'], 1, 1)[0]} }}"]
        lines = [_without_calls(line).replace("F2", "f2(p1, p2)") for line in lines]
        return "\n".join([*lines, f"x contains {self._rule([], 2)}", f"y := {self._rule([], 2)}"])

    def _rule(self, names: list[str] | None = None, depth: int = 1) -> str:
        body, known = self._body(names or [], depth, self._random.randint(1, depth + 1))
        return f"{self._expression(known, depth)} if {{ {body} }}"

    def _fresh(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _scalar(self) -> str:
        return self._random.choice(["1", "2", "0", "1.5", '"x"', '"a"', "true", "false", "null"])

    def _reference(self, names: list[str]) -> str:
        roots = [f"input.{key}" for key in (*DOCUMENT, "nope")] + ["data.d.list", "data.d.m", "data.d.zz", *names * 3]
        step = self._random.choice(["", "", "", ".k", ".a", "[0]", '["k"]', *(f"[{name}]" for name in names)])
        return self._random.choice(roots) + step

    def _expression(self, names: list[str], depth: int) -> str:
        choose, inner = self._random.choice, lambda: self._expression(names, depth - 1)
        if depth <= 0 or self._random.random() < 0.35:
            return self._reference(names) if self._random.random() < 0.7 else self._scalar()
        match self._random.randrange(11):
            case 0:
                return f"{choose(_FUNCTIONS_OF_ONE.split())}({inner()})"
            case 1:
                return f"{choose(_FUNCTIONS_OF_TWO.split())}({inner()}, {inner()})"
            case 2:
                return f"f1({inner()})"
            case 3:
                return f"({inner()} {choose('+-*/%')} {inner()})"
            case 4:
                return f"[{inner()}, {inner()}]"
            case 5:
                return f'{{"a": {inner()}, "b": {inner()}}}'
            case 6:
                return f"({inner()} {choose(_COMPARISONS)} {inner()})"
            case 7:
                return choose(["h1", "h2", "h3", "hs"])
            case 8:
                key, value = self._fresh(), self._fresh()
                return f"{{{key}: {self._expression([key, value], 0)} | some {key}, {value} in {inner()}}}"
            case _:
                body, known = self._body(names, depth - 1, self._random.randint(1, 3))
                term = self._expression(known, depth - 1)
                return choose([f"[{term} | {body}]", f"{{{term} | {body}}}"])

    def _body(self, names: list[str], depth: int, count: int) -> tuple[str, list[str]]:
        statements = []
        for _ in range(count):
            statement, names = self._statement(names, depth)
            statements.append(statement)
        return "; ".join(statements), names

    def _statement(self, names: list[str], depth: int) -> tuple[str, list[str]]:
        expression = self._expression(names, depth)
        match self._random.randrange(9):
            case 0 | 1:
                name = self._fresh()
                return f"{name} := {expression}", [*names, name]
            case 2 | 3:
                name = self._fresh()
                return f"some {name} in {expression}", [*names, name]
            case 4:
                key, name = self._fresh(), self._fresh()
                return f"some {key}, {name} in {expression}", [*names, key, name]
            case 5:
                return f"not {expression}", names
            case 6:
                name = self._fresh()
                return f"every {name} in {expression} {{ {self._body([*names, name], depth - 1, 1)[0]} }}", names
            case 7:
                return f"{self._expression(names, depth - 1)} in {expression}", names
            case _:
                return f"{expression} {self._random.choice(_COMPARISONS)} {self._expression(names, depth - 1)}", names


def _without_calls(line: str) -> str:
    """Helpers call no helper: that would be recursion as often as not."""
    head, _, rest = line.partition(" ")
    rest = re.sub(r"\b(h1|h2|h3|hs)\b", "input.a", rest)
    return f"{head} {rest.replace('f2(', 'array.concat(').replace('f1(', 'count(')}"
