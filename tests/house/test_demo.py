"""`make demo`, the first command of the README, does what it says."""

from __future__ import annotations

import re

import pytest
from examples.demo import STEPS, main


def test_the_demo_judges_each_of_its_requests(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    shown = capsys.readouterr().out
    assert all(title in shown for title, *_ in STEPS)
    assert re.findall(r"^verdict +(\w+)", shown, re.MULTILINE) == ["allow", "deny", "allow", "deny"]
    assert "[MASKED]" in shown
    assert shown.count("nothing goes out") == 2
