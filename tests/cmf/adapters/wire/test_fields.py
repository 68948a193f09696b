"""What a field that is read leaves behind: a value of another kind stays, and is refused or kept as it is."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters.wire.fields import MARK, Fields, unmarked
from cmf.errors import ShapeError


@pytest.mark.parametrize("value", ["END", ["END", 7], {"0": "END"}, None])
def test_what_is_no_list_of_texts_stays(value: Any) -> None:
    fields = Fields({"stop": value}, "$")

    assert fields.take_texts("stop") is None
    assert fields.left() == {"stop": value}


def test_a_list_of_texts_is_taken() -> None:
    fields = Fields({"stop": ["a", "b"]}, "$")

    assert fields.take_texts("stop") == ("a", "b")
    assert not fields.left()


@pytest.mark.parametrize(("body", "found"), [({}, "missing"), ({"id": 7}, "not a string")])
def test_a_field_that_is_needed_is_said_to_be_missing_or_of_another_kind(body: dict[str, Any], found: str) -> None:
    with pytest.raises(ShapeError, match=f"`id` is {found}") as caught:
        Fields(body, "$.messages[0]").need("id", str)

    assert caught.value.path == "$.messages[0].id"


def test_only_keys_of_adapters_are_left_out() -> None:
    assert unmarked({f"{MARK}x": 1, "user": "u"}) == {"user": "u"}
    assert unmarked({"user": "u"}) == {"user": "u"}
