"""The hits on one view: those of the policies, and those of the pipeline's own rule on data. Spec: [PIPE-1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cmf.views.view import MessageView
from pipeline.decisions.decision import Effect, Hit, RuleFacts, hits_of
from pipeline.decisions.engine import EngineResult
from pipeline.decisions.policy_input import in_content
from pipeline.policy.exceptions import Excuses
from pipeline.provenance.data_policy import DataRule
from pipeline.provenance.index import Origin


@dataclass(frozen=True, slots=True)
class HitFinder:
    """Finds the hits on a view: those in the engine's answer, and those of the pipeline's own rule on data.

    Attributes:
        rules: the severity and mode that each rule's METADATA declares.
        excuses: the exceptions and overrides in force. They apply to hits of the policy set, never to the pipeline's.
        data: the pipeline's own rule on what data may be used for.
    """

    rules: Mapping[str, RuleFacts]
    excuses: Excuses
    data: DataRule

    def hits(self, view: MessageView, result: EngineResult, origins: Sequence[Origin] | None) -> tuple[Hit, ...]:
        """The hits on one view."""
        hits = hits_of(result, self.rules, view.kind)
        if any("of" in hit.fields for hit in hits):
            hits = tuple(_of_content(hit, view) for hit in hits)
        if hits and self.excuses.active:
            hits = self.excuses(hits, view.uri)
        data_hits = self.data(view, origins)
        return (*hits, *data_hits) if data_hits else hits


def _of_content(hit: Hit, view: MessageView) -> Hit:
    """The hit, with spans of the content in place of those of another form of it."""
    form = hit.fields.get("of")
    if hit.effect is not Effect.REDACT or form is None or "spans" not in hit.fields:
        return hit
    return replace(hit, fields={**hit.fields, "of": "content", "spans": in_content(view, form, hit.fields["spans"])})


__all__ = ["HitFinder"]
