"""Both engines and a plain model of the combination rules, over generated requests: no difference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.opa_server import serving, write_bundle
from tests.pipeline import combination_model as model

from cmf.message.request import Request
from pipeline.decisions.decision import Mode
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import Config
from pipeline.run.outcome import Outcome
from pipeline.run.pipeline import Pipeline

INPUTS = 20_000  # views, at full size
AT_LEAST = 50  # times that each rule has to hit, and just miss


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    folder = tmp_path_factory.mktemp("model")
    for name, text in model.rules().items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return policy_set.load(folder)


@pytest.fixture(scope="module")
def opa_url(policies: PolicySet, opa_binary: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(opa_binary, write_bundle(policies, tmp_path_factory.mktemp("bundle"))) as url:
        yield url


@pytest.fixture
def pipelines(mode: Mode, policies: PolicySet, opa_url: str) -> Iterator[tuple[Pipeline, Pipeline]]:
    config = Config(mode=mode, opa_url=opa_url, timeout_seconds=20.0)
    both = Pipeline(policies=policies, config=config), Pipeline(policies=policies, engine="opa", config=config)
    yield both
    for pipeline in both:
        pipeline.close()


def request_of(items: list[model.Item]) -> Request:
    tools = [
        {"name": f"t{place}", "description": item.text}
        for place, item in enumerate(items)
        if item.kind == "tool_definition"
    ]
    messages = [
        {"role": "user", "content": [{"content_type": "text", "text": item.text}]}
        if item.kind == "text"
        else {
            "role": "assistant",
            "content": [{"content_type": "tool_call", "name": "f", "arguments": {"x": item.text}}],
        }
        for item in items
        if item.kind != "tool_definition"
    ]
    return Request.model_validate({"messages": messages, "tools": tools})


def texts_of(request: Request) -> list[str]:
    """What is left of each item, in order."""
    texts = [str(tool.description) for tool in request.tools]
    for message in request.messages:
        (part,) = message.content
        texts.append(part.text if part.content_type == "text" else part.arguments["x"])
    return texts


def shown(outcome: Outcome) -> model.Expected:
    decision = outcome.decision
    return model.Expected(
        verdict=decision.verdict.value,
        action=decision.action.value,
        hits=[
            (view.kind, {hit.rule.removeprefix("model/") for hit in view.hits})
            for view in decision.views
            if view.kind in model.KINDS
        ],
        texts=None if outcome.request is None else texts_of(outcome.request),
    )


@pytest.mark.opa
@pytest.mark.proof
@pytest.mark.spec("DEC-7")
@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE])
def test_both_engines_decide_as_the_plain_model_does(
    mode: Mode,
    pipelines: tuple[Pipeline, Pipeline],
    proof_seed: int,
    proof_scale: float,
    proof_row: Callable[..., None],
) -> None:
    chance = random.Random(f"{proof_seed} {mode}")
    embedded, server = pipelines
    hit: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    views = 0
    wanted_views = max(INPUTS / 2 * proof_scale, 4_000)
    while views < wanted_views or (min(hit.values()) < AT_LEAST and views < 4 * wanted_views):
        items = model.generated(chance)
        request = request_of(items)
        wanted = model.expected(items, observed=mode is Mode.OBSERVE)

        ours, theirs = embedded.run(request), server.run(request)

        assert shown(ours) == wanted, items
        assert shown(theirs) == wanted, items
        views += ours.decision.coverage.produced
        hit.update(name for _, hits in wanted.hits for name in hits)
        missed.update(name for name in RULE_OF for item in items if any(near in item.words for near in RULE_OF[name]))
    proof_row(f"engines and model agree, {mode.value}", views=views, fewest_hits=min(hit.values()), differences=0)
    assert set(hit) == RULE_OF.keys() - ({"silent"})
    assert min(hit.values()) >= AT_LEAST
    assert min(missed.values()) >= AT_LEAST


RULE_OF = {
    name: (word.lower(), f"{word[:-1]}_{word[-1]}")
    for name, word in zip(
        ("deny", "ask", "cut", "clean", "strip", "mark", "after", "warn", "watch", "silent"), model.WORDS, strict=True
    )
}


def test_the_model_is_not_empty_handed() -> None:
    """The model itself, on two cases that were worked out by hand."""
    taint, send = model.Item("text", ["TAINT"]), model.Item("tool_call", ["SEND", "WARN"])

    refused = model.expected([taint, send], observed=False)

    assert (refused.verdict, refused.action, refused.texts) == ("deny", "refuse", None)
    assert refused.hits == [("text", {"mark"}), ("tool_call", {"warn", "after"})]
    cut = model.expected([model.Item("text", ["CUT", "OFF"])], observed=False)
    assert (cut.verdict, cut.action, cut.texts) == ("allow", "forward_modified", ["[MASKED] OFF"])
