"""What is asked of a model, and what it answered."""

from __future__ import annotations

from typing import Any

import pytest

from cmf import Choice, ErrorInfo, ImagePart, Message, Request, Response, Sampling, TextPart, ToolChoice, ToolDefinition
from cmf.errors import ShapeError
from cmf.message.request import SAMPLING_FIELDS, build_request

HELLO = Message(role="user", content=[TextPart(text="hi")])


@pytest.mark.spec("MSG-13")
@pytest.mark.parametrize(
    "options",
    [
        {"temprature": 1},
        {"temperature": "hot"},
        {"temperature": True},
        {"top_p": float("nan")},
        {"max_output_tokens": 1.0},
        {"stream": "yes"},
        {"tool_choice": {"mode": "maybe"}},
        {"messages": "hi"},
        {"provider_raw": None},
        {"model": 5},
    ],
)
def test_an_option_that_is_unknown_or_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ShapeError):
        Request(messages=[HELLO]).with_options(**options)


@pytest.mark.spec("MSG-13")
def test_options_go_to_a_copy() -> None:
    tool = ToolDefinition(name="f")
    request = Request(model="a:b", messages=[HELLO], sampling={"temperature": 1.0, "seed": 7})
    before = request.model_dump_json()

    changed = request.with_options(model="c:d", temperature=0.5, stop="END", tools=[tool], reasoning_effort="low")

    assert request.model_dump_json() == before
    assert changed == Request(
        model="c:d",
        messages=[HELLO],
        sampling=Sampling(temperature=0.5, seed=7, stop=("END",)),
        tools=[tool],
        reasoning_effort="low",
    )
    assert changed.messages[0] is request.messages[0]
    assert request.with_options() == request
    assert request.with_options(sampling={"top_p": 1}, seed=3).sampling == Sampling(top_p=1, seed=3)
    assert request.with_options(temperature=None).sampling.temperature is None


@pytest.mark.spec("MSG-13")
@pytest.mark.parametrize("field", SAMPLING_FIELDS)
def test_each_sampling_field_is_an_option(field: str) -> None:
    given = ["END"] if field == "stop" else 1

    assert getattr(Request().with_options(**{field: given}).sampling, field) == (("END",) if field == "stop" else 1)


@pytest.mark.spec("MSG-13")
def test_system_is_a_first_message_and_a_reading_of_all_of_them() -> None:
    request = build_request(
        [HELLO, {"role": "developer", "content": [{"content_type": "text", "text": "b"}]}], system="a"
    )

    assert [message.role.value for message in request.messages] == ["system", "user", "developer"]
    assert request.system == "a\n\nb"
    assert request.model_dump()["messages"][0] == {
        "role": "system",
        "content": [{"content_type": "text", "text": "a"}],
    }
    assert "system" not in request.model_dump()
    with pytest.raises((AttributeError, TypeError)):
        request.system = "c"  # type: ignore[misc]
    assert Request(system="a", messages=request.messages[1:]) == request
    assert Request(system=None, messages=[HELLO]) == Request(messages=[HELLO])
    for wrong in ({"system": 3}, {"system": "c", "messages": 3}):
        with pytest.raises(ShapeError):
            Request(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="no such field"):
        Request.model_validate({"system": "c"})  # in JSON it is a message
    assert build_request([HELLO]).system is None
    assert build_request([], system="").system == ""
    picture = Message(role="system", content=[ImagePart(type="url", data="u")])
    assert Request(messages=[picture]).system is None


def test_numbers_keep_their_spelling() -> None:
    sampling = Sampling(temperature=1, top_p=1.0)

    assert (type(sampling.temperature), type(sampling.top_p)) == (int, float)
    assert (
        Sampling.model_validate_json(sampling.model_dump_json()).model_dump_json() == b'{"temperature":1,"top_p":1.0}'
    )


@pytest.mark.spec("MSG-14")
@pytest.mark.parametrize("count", [0, 2, 3])
def test_there_is_no_single_message_where_there_is_not_one_choice(count: int) -> None:
    response = Response(choices=[Choice(message=HELLO)] * count)

    with pytest.raises(ShapeError, match=f"{count} choices") as caught:
        _ = response.message
    assert (caught.value.code, caught.value.path) == ("response.not-single", "$.choices")
    assert len(response.choices) == count


@pytest.mark.spec("MSG-14")
def test_the_message_of_the_only_choice() -> None:
    response = Response(choices=[Choice(message=HELLO, stop_reason="end", raw_stop_reason="stop")], model="gpt-5")

    assert response.message is response.choices[0].message
    assert response.model_dump() == {
        "choices": [{"message": HELLO.model_dump(), "stop_reason": "end", "raw_stop_reason": "stop"}],
        "model": "gpt-5",
    }
    with pytest.raises(ShapeError):
        Choice(message=HELLO, stop_reason="stop")
    with pytest.raises(ShapeError):
        ErrorInfo(status="400")
    assert ToolChoice(mode="tool", name="f").name == "f"
