"""Values made in one go with the values inside them are those that their constructors make."""

from __future__ import annotations

import pytest

from cmf.enums import Role
from cmf.json.frozen import FrozenDict
from cmf.json.making import Shape, shape_maker
from cmf.message.message import Layout, Message, TextPart, ToolCallPart

TEXT = Shape(TextPart, {"text": "text"})
CALL = Shape(ToolCallPart, {"name": "name", "arguments": "given"})


@pytest.mark.spec("MSG-3")
def test_a_shape_makes_what_the_constructors_make() -> None:
    make = shape_maker(Shape(Message, {"role": "role", "content": (TEXT, CALL)}), "role", "text", "name", "given")

    made = make(Role.ASSISTANT, "hi", "f", FrozenDict(a=1))

    call = ToolCallPart(name="f", arguments={"a": 1})
    assert made == Message(role=Role.ASSISTANT, content=(TextPart(text="hi"), call))
    assert (type(made), [type(part) for part in made.content]) == (Message, [TextPart, ToolCallPart])
    assert made.content[1].executed_by == "client"  # a default that is not None
    with pytest.raises(AttributeError):
        made.role = Role.USER  # type: ignore[misc]


def test_a_shape_takes_plain_dataclasses_with_slots_and_tuples_of_arguments() -> None:
    make = shape_maker(Shape(Layout, {"format": "format", "texts": ("text",)}), "format", "text")

    made = make("openai_chat", "{}")

    assert made == Layout(format="openai_chat", texts=("{}",))
    assert type(made) is Layout


def test_shapes_of_one_type_side_by_side_keep_apart() -> None:
    twice = Shape(Message, {"role": "role", "content": (TEXT, Shape(TextPart, {"text": "more"}))})

    made = shape_maker(twice, "role", "text", "more")(Role.USER, "a", "b")

    assert made.content == (TextPart(text="a"), TextPart(text="b"))
