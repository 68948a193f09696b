"""What a model can do, declared honestly."""

from __future__ import annotations

import dataclasses

import pytest

from cmf import ShapeError, adapters
from cmf.models.capabilities import NONE, ModelCapabilities, lookup, parse_table, shipped_table


@pytest.mark.spec("CAP-1")
def test_there_are_thirteen_declarations() -> None:
    named = [field.name for field in dataclasses.fields(ModelCapabilities)]  # type: ignore[arg-type]

    assert named == [
        *("supports_thinking", "supports_images", "supports_tools", "supports_system_prompt"),
        *("supports_structured_output", "supports_streaming", "supports_streaming_tool_calls"),
        *("supports_parallel_tool_calls", "supports_prompt_caching", "supports_system_messages_in_list"),
        *("max_context_tokens", "max_output_tokens", "accepted_image_media_types"),
    ]
    assert shipped_table().version


@pytest.mark.spec("CAP-2")
@pytest.mark.parametrize(
    ("wire", "model"), [("openai_chat", "nobody-knows-1"), ("no_format", "gpt-5"), ("openai_chat", "")]
)
def test_an_undeclared_model_can_do_nothing(wire: str, model: str) -> None:
    assert lookup(wire, model) is NONE
    assert not any(dataclasses.astuple(NONE))  # type: ignore[call-overload]


@pytest.mark.spec("CAP-3")
def test_a_model_is_known_with_the_key_of_its_provider_and_without() -> None:
    anthropic = adapters.get("anthropic_messages")

    assert not anthropic.capabilities("anthropic:claude-haiku-4-5-text-only").supports_images
    assert anthropic.capabilities("anthropic:claude-sonnet-4-6") == anthropic.capabilities("claude-sonnet-4-6") != NONE


@pytest.mark.spec("CAP-3")
def test_the_longest_pattern_that_fits_wins_and_case_counts() -> None:
    table = parse_table(
        """
        version: 1
        profiles: {base: {supports_tools: true}}
        formats:
          f:
            "m-*": {like: base}
            "m-small*": {like: base, supports_tools: false, supports_images: true}
        """
    )

    assert table.lookup("f", "m-large") == ModelCapabilities(supports_tools=True)
    assert table.lookup("f", "m-small-2") == ModelCapabilities(supports_images=True)
    assert table.lookup("f", "M-large") is NONE


@pytest.mark.spec("CAP-4")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[", "$"),
        ("version: 1", "$"),
        ("formats: {}", "$"),
        ("{version: 1, formats: {f: [m]}}", "$.formats.f"),
        ("{version: 1, formats: {f: {m: 3}}}", "$.formats.f.m"),
        ("{version: 1, formats: {f: {m: {like: nobody}}}}", "$.formats.f.m.like"),
        ("{version: 1, formats: {f: {m: {like: [p]}}}}", "$.formats.f.m.like"),
        ("{version: 1, profiles: 3, formats: {}}", "$.profiles"),
        ("{version: 1, profiles: {p: 3}, formats: {f: {m: {like: p}}}}", "$.profiles.p"),
        ("{version: 1, formats: {f: {m: {supports_magic: true}}}}", "$.formats.f.m.supports_magic"),
        ("{version: 1, formats: {f: {m: {max_context_tokens: -1}}}}", "$.formats.f.m.max_context_tokens"),
    ],
)
def test_a_table_that_is_not_well_formed_is_refused(text: str, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_table(text)

    assert caught.value.path == path


def test_the_shipped_table_declares_only_known_formats() -> None:
    assert set(shipped_table().formats) <= set(adapters.FORMATS)
    for models in shipped_table().formats.values():
        for declared in models.values():
            assert bool(declared.accepted_image_media_types) == declared.supports_images
            assert declared.max_output_tokens <= declared.max_context_tokens
