"""The labels of fields: on exactly what the patterns name, in origins and on messages alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conversations import calls, index_of, says, used

from cmf import Message, PromptResultPart, ResourcePart, TextPart, ToolResultPart
from pipeline.decisions.field_paths import compiled, leaves, names
from pipeline.provenance.index import EVERYTHING, Index
from pipeline.provenance.profile import ResultProfile
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.result_fields import result_labels

_KEYS = st.sampled_from(["a", "b", "c"])
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=10,
).filter(lambda document: isinstance(document, list | dict))
_PATTERNS = st.sampled_from(["a", "**.b", "[*].c", "*~", "a.b", "[1]", "**.c.a", "[0].a", "c.**.b~"])
_RULES = st.dictionaries(_PATTERNS, st.lists(st.sampled_from(["x", "y", "z"]), max_size=2), max_size=3)


@pytest.mark.spec("PRF-9")
@given(_DOCUMENTS, _RULES, _RULES, st.lists(st.just("all"), max_size=1))
def test_labels_cover_exactly_the_fields_that_are_named(
    document: Any, labelled: dict[str, Any], ruled: dict[str, Any], whole: list[str]
) -> None:
    fields = {pattern: {"trust": "untrusted", "labels": found} for pattern, found in ruled.items()}
    rules = ResultProfile.model_validate({"labels": whole, "field_labels": labelled, "fields": fields})
    part = ToolResultPart.model_validate({"content_type": "tool_result", "content": document})

    found = result_labels(part, rules)

    named = {
        label
        for pattern, labels in (*labelled.items(), *ruled.items())
        if any(names(compiled(pattern), path) for path, _ in leaves(document))
        for label in labels
    }
    assert found == named | set(whole)
    assert result_labels(part.model_copy(update={"is_error": True}), rules) == rules.every_label


@pytest.mark.spec("PRF-9")
@pytest.mark.parametrize(
    "content", [(ResourcePart(uri="db://x", content="{}"),), (TextPart(text="so"),), "so", 5, None]
)
def test_what_has_no_fields_has_the_labels_of_all(content: Any) -> None:
    rules = ResultProfile.model_validate({"field_labels": {"a": ["x"]}})

    assert result_labels(ToolResultPart(content=content), rules) == {"x"}
    assert result_labels(ToolResultPart(content=()), rules) == frozenset()


def labels_of(index: Index, value: str) -> set[str]:
    (entry,) = [one for one in index.origins(calls("send", {"body": value}).content[0]) if one["path"]]  # type: ignore[arg-type]
    return {label for source in entry["sources"] for label in source["labels"]}


@pytest.mark.spec("PRF-9")
def test_origins_have_the_labels_of_the_field_and_no_others() -> None:
    profiles = Profiles.load(
        {
            "profiles": {
                "pay": {
                    "data_policy": {"apply_labels": ["all"]},
                    "result": {"field_labels": {"**.iban": ["bank"], "[1]": ["second"]}},
                }
            }
        }
    )
    rows = [{"iban": "DE-first", "name": "Ann"}, {"iban": "DE-second", "name": "Bob"}]
    index = index_of(says("user", "x"), *used("pay", {}, rows, "1"), known=EVERYTHING, profiles=profiles)

    found = {value: labels_of(index, value) for value in ("DE-first", "Ann", "DE-second", "Bob")}

    assert found == {
        "DE-first": {"all", "bank"},
        "Ann": {"all"},
        "DE-second": {"all", "bank", "second"},
        "Bob": {"all", "second"},
    }
    text = index_of(*used("pay", {}, "Ann has DE-first", "1"), known=EVERYTHING, profiles=profiles)
    assert labels_of(text, "DE-first") == {"all", "bank", "second"}


@pytest.mark.spec("PRF-9")
def test_what_a_prompt_or_resource_holds_has_all_labels_of_its_profile() -> None:
    rules = {"data_policy": {"apply_labels": ["all"]}, "result": {"field_labels": {"a": ["field"]}}}
    profiles = Profiles.load({"profiles": {"prompt://s/ask": rules, "db://x": rules}})
    asked = PromptResultPart(prompt_name="ask", messages=[says("assistant", "first words")])
    message = Message(role="user", content=[asked, ResourcePart(uri="db://x", content="other words")])

    index = index_of(message, profiles=profiles)

    assert labels_of(index, "first words") == labels_of(index, "other words") == {"all", "field"}
