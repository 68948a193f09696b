"""The set of policies that most decisions are measured under: 25 of the shipped rules, with data and libraries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

CATEGORIES = ("content", "data", "identity", "tools")
RULES = 25


def policies() -> PolicySet:
    """The shipped rules on content, data, identity and tools.

    Raises:
        RuntimeError: they are no longer 25.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(Path(policy_set.shipped()), Path(folder) / "policies")
        for category in (copy / "cmf" / "rules").iterdir():
            if category.name not in CATEGORIES:
                shutil.rmtree(category)
        loaded = policy_set.load(copy)
    if len(loaded.rules) != RULES:
        raise RuntimeError(f"{len(loaded.rules)} rules instead of {RULES}: choose other categories")
    return loaded
