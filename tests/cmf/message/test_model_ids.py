"""Patterns for names of models."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.message.model_ids import model_matches

NAMES = st.text("ab.:/-*?[]!\n", min_size=1, max_size=8)


@pytest.mark.spec("CAP-3")
@pytest.mark.parametrize(
    ("model", "pattern", "fits"),
    [
        ("gpt-5\n", "gpt-5", False),
        ("GPT-5", "gpt-*", False),
        ("gpt-5", "claude-*", False),
        ("meta/llama:8b", "meta*", True),
        (".hidden", "*", True),
        ("gpt-5", "gpt-[45]", True),
    ],
)
def test_a_pattern_of_models_takes_a_whole_name(model: str, pattern: str, fits: bool) -> None:
    assert model_matches(model, pattern) is fits


@pytest.mark.spec("CAP-3")
@given(NAMES, st.text("ab.:/-*?", max_size=6))
def test_stars_and_question_marks_mean_what_a_shell_means(model: str, pattern: str) -> None:
    assert model_matches(model, pattern) is fnmatch.fnmatchcase(model, pattern)
