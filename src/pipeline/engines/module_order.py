"""The order in which the modules of a set are uploaded to a running OPA server. Spec: docs/spec/policies.md [POL-34].

OPA compiles everything it has after each upload, and refuses a module that calls a function it does not have yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.engines.survey import Survey
from pipeline.errors import EngineError


def in_dependency_order(modules: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The modules as (path, Rego text), each after those whose rules it uses.

    Raises:
        EngineError: some modules use each other in a circle. OPA takes such a set only as a bundle.
    """
    waiting = {path: needs - {path} for path, needs in _needs(Survey(modules)).items()}
    texts = dict(modules)
    ordered: list[tuple[str, str]] = []
    for path in sorted(set(texts) - waiting.keys()):
        waiting[path] = set()  # a module without rules
    while waiting:
        ready = sorted(path for path, needs in waiting.items() if not needs & waiting.keys())
        if not ready:
            raise EngineError(
                "modules use each other in a circle",
                path=min(waiting),
                code="engine.push-refused",
                hint="give the server the set as a bundle",
            )
        for path in ready:
            del waiting[path]
            ordered.append((path, texts[path]))
    return ordered


def _needs(survey: Survey) -> Mapping[str, set[str]]:
    """By the path of a module with rules: the paths of the modules whose rules its own use, itself among them."""
    homes = [{definition.place.module for definition in rule.definitions} for rule in survey.rules]
    needs: dict[str, set[str]] = {}
    for rule, own in zip(survey.rules, homes, strict=True):
        for module in own:
            needs.setdefault(module, set()).update(*(homes[number] for number in rule.uses))
    return needs
