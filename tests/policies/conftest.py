"""The shipped policies on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.opa_server import serving, write_bundle

from cmf.enums import ViewKind
from pipeline.decisions.engine import Decided, EngineResult
from pipeline.decisions.policy_input import Facts, with_facts
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.opa import OpaServerEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

SECONDS = 60.0  # whose machine is busy gets an answer all the same: nothing here is about time
AT_ONCE: Final = 200
# What only an operator can say: without it some rules do nothing, which is tested on its own.
OPERATOR: Final = Path(__file__).parent / "operator"

View = Mapping[str, Any]
Judge = Callable[[Sequence[View]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def shipped() -> PolicySet:
    return policy_set.load(policy_set.shipped())


@pytest.fixture(scope="session")
def operated() -> PolicySet:
    """The shipped rules with an operator's settings on top."""
    return policy_set.load(policy_set.shipped(), OPERATOR)


@pytest.fixture(scope="session")
def embedded(operated: PolicySet) -> EmbeddedEngine:
    return embed(operated)


def embed(policies: PolicySet) -> EmbeddedEngine:
    modules = [(module.path, module.text) for module in policies.modules]
    return EmbeddedEngine(modules, policies.data, policies.entrypoints)


@pytest.fixture(scope="session")
def interpreted(operated: PolicySet) -> EmbeddedEngine:
    modules = [(module.path, module.text) for module in operated.modules]
    return EmbeddedEngine(modules, operated.data, operated.entrypoints, use_compiled=False)


@pytest.fixture(scope="session")
def opa(operated: PolicySet, opa_binary: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServerEngine]:
    with serving(opa_binary, write_bundle(operated, tmp_path_factory.mktemp("bundle"))) as url:
        engine = OpaServerEngine(url, revision=operated.revision)
        yield engine
        engine.close()


@pytest.fixture(scope="session")
def judge(operated: PolicySet, embedded: EmbeddedEngine, interpreted: EmbeddedEngine, opa: OpaServerEngine) -> Judge:
    """The decisions on some views, after a look that all three agree: compiled, interpreted, and OPA."""

    def decide(views: Sequence[View]) -> list[dict[str, Any]]:
        return [decision for at in range(0, len(views), AT_ONCE) for decision in some(views[at : at + AT_ONCE])]

    def some(views: Sequence[View]) -> list[dict[str, Any]]:
        entrypoints = [operated.entrypoint(ViewKind(view["kind"])) for view in views]
        inputs = [with_facts(json.dumps(view).encode(), Facts(addresses=True)) for view in views]
        answers: list[list[EngineResult]] = [
            engine.evaluate(entrypoints, b"{}", inputs, timeout_seconds=SECONDS)
            for engine in (embedded, interpreted, opa)
        ]
        ours, slow, theirs = answers
        for view, compiled, plain, remote in zip(views, ours, slow, theirs, strict=True):
            assert compiled == plain == remote, json.dumps(view)[:600]
        decisions = [result.value for result in ours if isinstance(result, Decided)]
        assert len(decisions) == len(views), [result for result in ours if not isinstance(result, Decided)][:1]
        return decisions

    return decide
