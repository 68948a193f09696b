"""What happens to a message: judged by policy, changed by effects, let out or refused. Spec: docs/spec/."""

# ruff: noqa: F403, F405 - `__all__` lists what stands in `exports`; tests/house/test_doors.py compares them
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.exports import *

__all__ = [
    "Action",
    "ApprovalRequired",
    "Approvals",
    "Ask",
    "BudgetExceeded",
    "BudgetScope",
    "Budgets",
    "CallError",
    "Config",
    "ConfigError",
    "Context",
    "Coverage",
    "Decision",
    "Denied",
    "Effect",
    "EmissionError",
    "Events",
    "Guard",
    "Hit",
    "Limit",
    "Mode",
    "OnError",
    "Outcome",
    "Pipeline",
    "PipelineError",
    "PolicyError",
    "PolicySet",
    "PolicyUnavailable",
    "Profiles",
    "Refuse",
    "Stage",
    "StageMode",
    "ToolInputError",
    "Unit",
    "Unjudgeable",
    "Verdict",
    "ViewDecision",
    "as_stage",
    "declassify",
    "emit",
]


def __getattr__(name: str) -> Any:
    """What `exports` has, imported when first asked for: that takes pydantic, which many programs never need.

    So are the modules of the package: after `import pipeline` there is `pipeline.replay`.
    """
    if name not in __all__:
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
    exports = import_module("pipeline.exports")
    globals().update({each: getattr(exports, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    """What the package offers, and nothing that it only uses: editors and notebooks ask for it."""
    return sorted(__all__)
