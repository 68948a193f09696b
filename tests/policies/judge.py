"""The shipped secret rule as the judge of planted tokens: a hit has to be on the view that shows the token [F5]."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from cmf.enums import ViewKind
from cmf.json.codec import dumps
from pipeline.decisions.engine import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import policy_set

RULE: Final = "data/secrets"


class SecretsJudge:
    """Plants an access key, and says which views the rule hits."""

    token = "AKIA" + "Q7ZX2MNB4KLP9WTR"

    @cached_property
    def _policies(self) -> policy_set.PolicySet:
        return policy_set.load(policy_set.shipped())

    @cached_property
    def _engine(self) -> EmbeddedEngine:
        modules = [(module.path, module.text) for module in self._policies.modules]
        return EmbeddedEngine(modules, self._policies.data, self._policies.entrypoints)

    def __call__(self, inputs: list[dict[str, Any]], /) -> set[str]:
        """The paths of the inputs in which the rule redacts or denies."""
        views = [each["input"] for each in inputs]
        entrypoints = [self._policies.entrypoint(ViewKind(view["kind"])) for view in views]
        answers = self._engine.evaluate(entrypoints, b"{}", [dumps(view) for view in views], timeout_seconds=5)
        return {view["path"] for view, answer in zip(views, answers, strict=True) if _hits(answer)}


def _hits(answer: object) -> bool:
    if not isinstance(answer, Decided):
        return False
    return any(hit["rule"] == RULE for effect in ("deny", "redact") for hit in answer.value[effect])


SECRETS: Final = SecretsJudge()
