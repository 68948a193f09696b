"""A reply that is none of its format's is an error that is kept whole."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import FORMATS, get
from cmf.json.value import replace
from cmf.message.request import ErrorInfo
from cmf.views.iterate import iter_views

PAGE = "<html>502 Bad Gateway</html>"


def _shown(response: Any) -> str:
    return str([view.to_opa_input() for view in iter_views(response)])


@pytest.mark.spec("ADP-15")
@pytest.mark.parametrize("body", [PAGE, "", None, 7, True])
@pytest.mark.parametrize("name", FORMATS)
def test_a_reply_that_is_no_object_is_an_error_and_never_an_answer(name: str, body: Any) -> None:
    adapter = get(name)

    response = adapter.from_wire_response(body)

    assert response.error is not None
    assert response.choices == ()
    assert adapter.to_wire_response(response) == body
    assert not body or str(body) in _shown(response)


@pytest.mark.spec("ADP-15")
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("gemini", "mcp")])
def test_a_list_is_an_error_that_is_shown_and_written_again(name: str) -> None:
    body = [{"error": {"code": 404, "message": "Publisher model not found"}}]
    adapter = get(name)

    response = adapter.from_wire_response(body)

    assert response.error is not None
    assert "Publisher model not found" in _shown(response)
    assert adapter.to_wire_response(response) == body


@pytest.mark.spec("ADP-15")
def test_an_object_that_is_no_ui_message_is_an_error() -> None:
    body = {"code": "unauthorized:chat", "message": "Sign in first"}
    adapter = get("aisdk")

    response = adapter.from_wire_response(body)

    assert response.error is not None
    assert "Sign in first" in _shown(response)
    assert adapter.to_wire_response(response) == body


@pytest.mark.spec("ADP-15")
@pytest.mark.parametrize(
    "name", [name for name in FORMATS if name not in ("anthropic_messages", "openai_chat", "openrouter")]
)
def test_the_text_of_such_a_reply_is_what_its_error_says(name: str) -> None:
    adapter = get(name)
    response = adapter.from_wire_response("token sk-123 expired")

    redacted = replace(response, error=ErrorInfo(message="token *** expired"))

    assert adapter.to_wire_response(redacted) == "token *** expired"
    assert "sk-123" not in _shown(redacted)


@pytest.mark.spec("ADP-15")
@pytest.mark.parametrize("body", [PAGE, None])
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("openai_chat", "openrouter")])
def test_streamed_again_such_a_reply_is_the_formats_own_error(name: str, body: Any) -> None:
    adapter = get(name)

    again = adapter.from_wire_response(adapter.fold_events(adapter.to_wire_events(adapter.from_wire_response(body))))

    assert again.error is not None
    assert again.error.message
