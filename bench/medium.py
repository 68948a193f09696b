"""The set of policies that most decisions are measured under: 26 of the shipped rules, with data and libraries."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

CATEGORIES = ("content", "data", "identity", "tools")
RULES = 26


def policies() -> PolicySet:
    """The shipped rules on content, data, identity and tools.

    Raises:
        RuntimeError: they are no longer 26.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(Path(policy_set.shipped()), Path(folder) / "policies")
        for category in (copy / "cmf" / "rules").iterdir():
            if category.name not in CATEGORIES:
                shutil.rmtree(category)
        settings = copy / "cmf" / "defaults" / "data.json"  # none of a rule that is not loaded
        kept = {name: rules for name, rules in json.loads(settings.read_bytes()).items() if name in CATEGORIES}
        settings.write_text(json.dumps(kept), encoding="utf-8")
        loaded = policy_set.load(copy)
    if len(loaded.rules) != RULES:
        raise RuntimeError(f"{len(loaded.rules)} rules instead of {RULES}: choose other categories")
    return loaded
