"""The page of settings is what the code says."""

from __future__ import annotations

import pytest
from scripts.settings_reference import PAGE, page


@pytest.mark.spec("GW-9")
def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"
