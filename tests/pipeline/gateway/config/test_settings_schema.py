"""The JSON Schema of the settings: each has a description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.gateway.config.settings import settings_schema


def described(schema: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    for name, section in {"": schema, **schema["$defs"]}.items():
        for field, own in section.get("properties", {}).items():
            yield f"{name}.{field}", own.get("description")


@pytest.mark.spec("GW-9")
def test_each_setting_has_a_description_that_is_a_sentence() -> None:
    found = dict(described(settings_schema()))

    assert len(found) > 100
    assert [name for name, text in found.items() if not text or not text.endswith(".") or "\n" in text] == []


@pytest.mark.spec("GW-9")
def test_a_section_has_the_descriptions_of_the_one_that_it_extends() -> None:
    route = settings_schema()["$defs"]["Route"]["properties"]

    assert route["upstream"]["description"] == "The name of the upstream to ask."
    assert route["models"]["description"] == "Patterns of the model names that it takes, with `*` and `?`."
