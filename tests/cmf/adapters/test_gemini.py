"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.errors import CmfError, ShapeError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.request import Request, build_request
from tests.cmf.adapters.gemini_bodies import GEMINI, asked, kept
from tests.cmf.adapters.harness import Proof


class TestWire(Proof):
    format_name = "gemini"


class TestAddress:
    @pytest.mark.spec("GEM-1")
    def test_a_request_without_a_model_has_no_address(self) -> None:
        with pytest.raises(UnsupportedError):
            GEMINI.to_http(build_request([{"role": "user", "content": []}]))

    @pytest.mark.spec("GEM-1")
    @pytest.mark.parametrize(
        ("model", "stream", "path"),
        [
            ("gemini-2.5-flash", None, "/v1beta/models/gemini-2.5-flash:generateContent"),
            ("gemini-2.5-flash", True, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
            ("models/gemini-2.5-pro", False, "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("a/../b?c", None, "/v1beta/models/a%2F..%2Fb%3Fc:generateContent"),
        ],
    )
    def test_the_model_stands_in_the_path(self, model: str, stream: bool | None, path: str) -> None:
        assert GEMINI.to_http(Request(model=model, stream=stream)).path == path

    @pytest.mark.spec("GEM-1")
    def test_a_body_that_names_another_model_than_its_path_is_refused(self) -> None:
        with pytest.raises(ShapeError) as refusal:
            GEMINI.from_wire_request(asked({"text": "hi"}, model="models/other"), model="gemini-2.5-flash")
        assert refusal.value.path == "$.model"

    @pytest.mark.spec("GEM-1")
    def test_a_body_that_has_a_model_is_written_with_the_one_that_is_asked(self) -> None:
        request = GEMINI.from_wire_request(asked({"text": "hi"}, model="models/a"), model="a")
        assert GEMINI.to_wire(request)["model"] == "models/a"
        assert GEMINI.to_wire(replace(request, model="b"))["model"] == "b"

    @pytest.mark.spec("GEM-1")
    def test_a_layout_survives_the_streaming_flag(self) -> None:
        body = asked({"text": "hi"}, generationConfig={}, tools=None)
        assert same_spelling(GEMINI.to_wire(replace(kept(body), stream=True)), body)


@pytest.mark.spec("GEM-1")
def test_what_a_model_can_do_is_declared() -> None:
    assert GEMINI.capabilities("gemini-2.5-flash").supports_tools
    assert not GEMINI.capabilities("unheard-of").supports_tools
    assert GEMINI.estimate_input_tokens(GEMINI.from_wire_request(asked({"text": "a" * 400}))) >= 100


KEYS = st.sampled_from([
    "contents", "parts", "role", "text", "tools", "candidates", "content", "functionCall", "functionResponse", "name",
    "args", "response", "thought", "error", "generation_config", "system_instruction", "inline_data",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "model", "STOP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.spec("GEM-20")
@given(JSON)
def test_any_json_is_refused_or_comes_back(body: Any) -> None:
    for read, write in (
        (GEMINI.from_wire_request, GEMINI.to_wire),
        (GEMINI.from_wire_response, GEMINI.to_wire_response),
    ):
        try:
            value: Any = read(body)
        except CmfError:
            continue
        assert same_spelling(write(value), body)
