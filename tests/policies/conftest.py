"""The shipped policies on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.opa_server import serving, write_bundle

from cmf.enums import ViewKind
from pipeline import policy_set
from pipeline.engines.base import Decided, EngineResult
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.opa_server import OpaServerEngine
from pipeline.policy_set import PolicySet

SECONDS = 20.0

View = Mapping[str, Any]
Judge = Callable[[Sequence[View]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def shipped() -> PolicySet:
    return policy_set.load(policy_set.shipped())


@pytest.fixture(scope="session")
def embedded(shipped: PolicySet) -> EmbeddedEngine:
    return EmbeddedEngine([(module.path, module.text) for module in shipped.modules], shipped.data, shipped.entrypoints)


@pytest.fixture(scope="session")
def interpreted(shipped: PolicySet) -> EmbeddedEngine:
    modules = [(module.path, module.text) for module in shipped.modules]
    return EmbeddedEngine(modules, shipped.data, shipped.entrypoints, use_compiled=False)


@pytest.fixture(scope="session")
def opa(shipped: PolicySet, opa_binary: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServerEngine]:
    with serving(opa_binary, write_bundle(shipped, tmp_path_factory.mktemp("bundle"))) as url:
        engine = OpaServerEngine(url, revision=shipped.revision)
        yield engine
        engine.close()


@pytest.fixture(scope="session")
def judge(shipped: PolicySet, embedded: EmbeddedEngine, interpreted: EmbeddedEngine, opa: OpaServerEngine) -> Judge:
    """The decisions on some views, after a look that all three agree: compiled, interpreted, and OPA."""

    def decide(views: Sequence[View]) -> list[dict[str, Any]]:
        entrypoints = [shipped.entrypoint(ViewKind(view["kind"])) for view in views]
        inputs = [json.dumps(view).encode() for view in views]
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
