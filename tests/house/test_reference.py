"""The reference page says what the types say."""

from __future__ import annotations

import dataclasses

from scripts.reference import PAGE, VALUES, classes, page

from cmf import Message, ToolCallPart


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_field_of_every_value_is_on_the_page() -> None:
    text = page()

    for _, module in VALUES:
        for cls in classes(module):
            section = text.split(f"### {cls.__name__}\n", 1)[1].split("\n#", 1)[0]
            named = {field.name for field in dataclasses.fields(cls) if field.metadata.get("dump", True)}  # type: ignore[arg-type]
            assert {name for name in named if f"| `{name}` |" not in section} == set(), cls.__name__
    assert "### Message\n" in text
    assert "### ToolCallPart\n" in text
    assert Message.__doc__ is not None
    assert ToolCallPart.__doc__ is not None
    assert Message.__doc__ in text
    assert "provider_raw" not in text
