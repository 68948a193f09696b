"""Arguments held to schemas: in bounded time, and as another implementation says."""

from __future__ import annotations

from time import process_time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmf import ToolDefinition
from cmf.json.frozen import FrozenDict
from cmf.message.tools import MAX_LOOKED_AROUND, MAX_STEPS, Work, input_problem, is_usable, schema_problem

SECONDS = 10  # of CPU: far beyond what anything here takes, and far below what backtracking would take


def problem(schema: Any, arguments: Any) -> str | None:
    return input_problem(ToolDefinition(name="t", input_schema=schema), arguments)


def doubling(depth: int) -> dict[str, Any]:
    """A schema of a few hundred bytes that is held to the same value 2**depth times."""
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**parts, f"d{depth}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@pytest.mark.spec("TOOL-6")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 100_000 + "b"}),
        ({"properties": {"a": {"pattern": "(?=a)(a+)+$"}}}, {"a": "a" * (MAX_LOOKED_AROUND - 2) + "b"}),
        ({"properties": {"a": {"pattern": "(?=a)(a+)+$"}}}, {"a": "a" * 1_000_000}),
        ({"patternProperties": {"^(a|a)*$": False}, "additionalProperties": False}, {"a" * 100_000 + "b": 1}),
        ({"propertyNames": {"pattern": "(?=a)(a+)+$"}}, {"a" * 1_000_000: 1}),
        ({"patternProperties": {"(?=a)a": True}}, {"a" * 1_000_000: 1}),
        ({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}, {"a": "a"}),
        (doubling(40), {}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}}, {}),
        ({"properties": {"a": {"items": {"anyOf": [{"type": "null"}] * 200}}}}, {"a": [1] * MAX_STEPS}),
        ({"allOf": [{"$ref": "#"}] * 1_000}, {}),
        ({"properties": {"a": {"items": {"enum": [n + 0.5 for n in range(4_000)]}}}}, {"a": [3_999.5] * 4_000}),
        ({"properties": {"a": {"items": {"enum": [[n] for n in range(15_000)]}}}}, {"a": [[14_999]] * 15_000}),
        (
            {"allOf": [{"properties": {f"k{n}": True}} for n in range(30_000)], "unevaluatedProperties": False},
            {f"k{n}": 1 for n in range(30_000)},
        ),
        ({"properties": {"a": {"items": {"required": [f"k{n}" for n in range(3_000)]}}}}, {"a": [{}] * 3_000}),
        ({"properties": {"a": {"items": {"const": [0] * 5_000}}}}, {"a": [[0] * 5_000] * 200}),
        ({"allOf": [{"uniqueItems": True}] * 50_000, "contains": False}, list(range(50_000))),
        ({"properties": {f"k{n}": {"pattern": r"(?i)[\w\pL\s]{20}" + str(n)} for n in range(3_000)}}, {"k1": "x"}),
        ({"patternProperties": {rf"(?i)[\w\pL\s]{{20}}{n}": True for n in range(3_000)}}, {"k1": "x"}),
    ],
)
def test_what_would_take_long_is_refused_soon(schema: Any, arguments: Any) -> None:
    begin = process_time()

    assert problem(schema, arguments) is not None
    assert process_time() - begin < SECONDS


@pytest.mark.spec("TOOL-6")
def test_long_lists_of_values_and_tracked_properties_of_honest_schemas_are_validated() -> None:
    codes = {"items": {"properties": {"code": {"enum": [f"c{n}" for n in range(5_000)]}, "rate": {"enum": [0.5, 1.5]}}}}
    closed = {"allOf": [{"properties": {f"k{n}": True}} for n in range(100)], "unevaluatedProperties": False}

    assert problem({"properties": {"rows": codes}}, {"rows": [{"code": "c4999", "rate": 1.5}] * 5_000}) is None
    assert problem({"properties": {"rows": codes}}, {"rows": [{"code": "c5000"}]}) == "$.rows[0].code"
    assert problem(closed, {f"k{n}": 1 for n in range(100)}) is None
    assert problem(closed, {"other": 1}) == "$"


@pytest.mark.spec("TOOL-6")
def test_the_validations_of_a_run_share_what_they_may_take() -> None:
    work, schema = Work(), FrozenDict(doubling(12))
    patterns = FrozenDict({"properties": {f"k{n}": {"pattern": f"^{n}$"} for n in range(60)}})

    taken = [schema_problem(schema, {}, work) for _ in range(20)]

    assert (taken[0], taken[-1]) == (None, "$")
    assert work.steps < MAX_STEPS + 100
    assert is_usable(FrozenDict({"type": 7}), work)  # whether it is takes more
    assert schema_problem(FrozenDict({"type": "object"}), {}, work) == "$"
    work = Work()
    assert [schema_problem(patterns, {"k7": "7"}, work) for _ in range(3)] == [None] * 3
    assert schema_problem(FrozenDict(patterns), {"k7": "7"}, work) == "$"


@pytest.mark.spec("TOOL-6")
def test_a_recursive_schema_is_followed_as_deep_as_the_arguments_go() -> None:
    filters = {"properties": {word: {"items": {"$ref": "#"}} for word in ("and", "or")}, "required": ["name"]}
    nested: dict[str, Any] = {"name": "leaf"}
    for _ in range(12):
        nested = {"name": "n", "and": [nested], "or": [{"name": "x"}]}

    assert problem(filters, nested) is None
    assert problem(filters, {**nested, "or": [{"name": "x", "and": [{}]}]}) == "$.or[0].and[0]"


@pytest.mark.spec("TOOL-5")
@pytest.mark.parametrize(
    ("pattern", "fits", "misfits"),
    [
        (r"^\d{3}-[a-z]+$", "123-abc", "12-abc"),
        (r"^(?!.*\.\.)[\w./]+$", "a/b.c", "a/../b"),
        (r"^(?=.*[A-Z]).{3,}$", "abC", "abc"),
        (r"^(a+)\1$", "aaaa", "aaa"),
    ],
)
def test_patterns_say_what_they_say_elsewhere(pattern: str, fits: str, misfits: str) -> None:
    schema = {"properties": {"a": {"pattern": pattern}}}

    assert problem(schema, {"a": fits}) is None
    assert problem(schema, {"a": misfits}) == "$.a"


@pytest.mark.spec("TOOL-5")
def test_a_format_is_a_note_and_no_condition() -> None:
    assert problem({"properties": {"a": {"format": "ipv4"}}}, {"a": "not an address"}) is None


@pytest.mark.spec("TOOL-5")
@pytest.mark.parametrize(
    "schema", [{"type": 7}, {"$ref": "https://elsewhere.example/s"}, {"pattern": "("}, {"$ref": "#/nowhere"}]
)
def test_a_schema_that_cannot_be_used_fits_nothing_and_says_so(schema: Any) -> None:
    assert problem(schema, {}) == "$"
    assert not is_usable(FrozenDict(schema), Work())
    assert is_usable(FrozenDict({"type": "object"}), Work())


@pytest.mark.spec("TOOL-6")
@pytest.mark.parametrize(
    "schema",
    [{"$defs": {"a": {"$dynamicAnchor": "x"}}, "$dynamicRef": "#x"}, {"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}],
)
def test_references_whose_steps_cannot_be_counted_fit_nothing(schema: Any) -> None:
    assert problem(schema, {}) == "$"


@pytest.mark.spec("TOOL-6")
def test_parts_of_a_schema_that_are_true_or_false_are_steps_too() -> None:
    schema = {"allOf": [True, {"properties": {"a": False}}], "properties": {"b": True}}

    assert problem(schema, {"b": 1}) is None
    assert problem(schema, {"a": 1}) == "$.a"


def test_keys_that_are_no_names_are_quoted_in_the_path() -> None:
    assert problem({"additionalProperties": {"type": "string"}}, {"a b": 1}) == "$['a b']"


def test_a_schema_compiled_before_is_not_mistaken_for_one_in_its_place() -> None:
    for number in range(2_000):
        wanted = "string" if number % 2 else "integer"
        assert schema_problem(FrozenDict({"properties": {"a": {"type": wanted}}}), {"a": number}, Work()) == (
            "$.a" if number % 2 else None
        )


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    schemas = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(NAMES, inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": named,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=1),
            "propertyNames": inner,
            "dependentSchemas": named,
            "items": inner,
            "prefixItems": schemas,
            "contains": inner,
            "allOf": schemas,
            "anyOf": schemas,
            "oneOf": schemas,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
        },
    )


LEAVES = st.booleans() | st.fixed_dictionaries(
    {},
    optional={"type": TYPES, "enum": st.lists(VALUES, min_size=1, max_size=3), "pattern": st.sampled_from(["a", "^b"])},
)
SCHEMAS = st.recursive(LEAVES, objects, max_leaves=6)


@pytest.mark.spec("TOOL-5")
@settings(max_examples=80)
@given(objects(SCHEMAS), LEAVES, LEAVES, st.dictionaries(NAMES, VALUES, max_size=3))
def test_another_implementation_says_the_same(schema: dict[str, Any], x: Any, y: Any, arguments: Any) -> None:
    whole = {**schema, "$defs": {"x": x, "y": y}}

    fits = jsonschema.Draft202012Validator(whole).is_valid(arguments)

    assert (schema_problem(FrozenDict(whole), arguments, Work()) is None) == fits
