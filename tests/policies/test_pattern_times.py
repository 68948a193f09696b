"""No shipped pattern takes more than linear time, whatever the text [ENG-8]."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

import pytest
from tests.policies.pattern_texts import hard_texts

from cmf import Message, TextPart
from cmf.json.codec import dumps
from pipeline import Guard
from pipeline.decisions.decision import Action
from pipeline.decisions.engine import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import Survey
from pipeline.policy.policy_set import PolicySet
from pipeline.policy.portability import PATTERN_AT

SIZE: Final = 1_000_000
SECONDS: Final = 0.5
# Patterns that rules put together from data or parameters, by the module that asks for them.
MADE: Final = {
    "cmf/lib/lib.rego": 'pattern := data.cmf.lib._expression("tool://**/a*/b")',
    "cmf/lib/pii/pii.rego": """some shape in data.cmf.lib.pii._card_shapes | {
		`[0-9]{3}-[0-9]{2}-[0-9]{4}`,
		`[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?`,
	}
	pattern := concat("", [data.cmf.lib.pii._before, "(", shape, ")", data.cmf.lib.pii._after])""",
    "cmf/lib/secrets/secrets.rego": """every_shape := data.cmf.lib.secrets._every_shape
	shaped := {concat("", [data.cmf.lib.secrets._lead(shape), "(", shape[part], ")"]) |
		some shape in every_shape
		some part in ["pattern", "unended"]
	}
	weak := {shape[part] |
		some shape in data.cmf.defaults.data.secrets.weak_patterns
		some part in ["hint", "pattern"]
	}
	some pattern in shaped | weak""",
    "cmf/rules/content/encoded_payload/encoded_payload.rego": """settings := data.cmf.defaults.content.encoded_payload
	runs := data.cmf.rules.content.encoded_payload._patterns
	some pattern in {order | some order in settings.orders} | {run | some run in runs}""",
    "cmf/rules/content/invisible_unicode/invisible_unicode.rego": """
	some pattern in data.cmf.rules.content.invisible_unicode._hidden""",
    "cmf/rules/content/markdown_exfiltration/markdown_exfiltration.rego": """
	some pattern in {data.cmf.rules.content.markdown_exfiltration._long_value, `[0-9A-Za-z%_+=]{64,}`}""",
    "cmf/rules/data/path_traversal/path_traversal.rego": "pattern := data.cmf.rules.data.path_traversal._climbing",
    "cmf/rules/data/ssrf/ssrf.rego": "pattern := data.cmf.rules.data.ssrf._metadata_hosts",
    "cmf/rules/tools/argument_bounds/argument_bounds.rego": "some pattern in set()",  # they are the operator's
    "cmf/rules/tools/definition_poisoned/definition_poisoned.rego": """
	settings := data.cmf.defaults.tools.definition_poisoned
	some pattern in {one | some one in settings.patterns} | {one | some one in settings.other_tools}""",
    "cmf/rules/tools/tool_name/tool_name.rego": "some pattern in data.cmf.defaults.tools.tool_name.patterns",
}

OF_OPERATORS: Final = {"cmf/rules/tools/argument_bounds/argument_bounds.rego"}  # has no pattern as shipped


@pytest.fixture(scope="module")
def patterns(shipped: PolicySet) -> list[str]:
    """Every pattern that a shipped rule may search with."""
    modules = [(module.path, module.text) for module in shipped.modules]
    survey = Survey(modules)
    found, made = set(), set()
    for call in (call for definition in survey.definitions() for call in definition.calls if call.name in PATTERN_AT):
        pattern = survey.text_of(call.arguments[PATTERN_AT[call.name]], shipped.data)
        if pattern is None:
            made.add(call.place.module)
        else:
            found.add(pattern)
    assert made <= set(MADE)
    names = [f"data.made.of_{at}" for at in range(len(MADE))]
    rules = (f"of_{at} contains pattern if {{\n\t{body.strip()}\n}}" for at, body in enumerate(MADE.values()))
    module = ("made.rego", "\n\n".join(["package made", *rules]))
    engine = EmbeddedEngine([*modules, module], shipped.data, names)
    answers = engine.evaluate(names, b"{}", [b"{}"] * len(names), timeout_seconds=5)
    of = {path: set(answer.value) for path, answer in zip(MADE, answers, strict=True) if isinstance(answer, Decided)}
    assert {path for path in MADE if not of.get(path)} == OF_OPERATORS, "these name nothing: what they named has moved"
    return sorted(found.union(*of.values()))


@pytest.mark.spec("ENG-8")
@pytest.mark.proof
def test_no_shipped_pattern_takes_long_on_any_text(
    patterns: list[str], proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    rng = random.Random(proof_seed)
    size = int(SIZE * proof_scale)
    engine = EmbeddedEngine(
        [("t.rego", "package t\n\nx := count(regex.find_all_string_submatch_n(input.pattern, input.text, -1))\n")],
        {},
        ["data.t.x"],
    )

    def seconds(pattern: str, text: str) -> float:
        """The least of three, if the first is too much: the clock counts what other threads do at the time."""
        view = dumps({"pattern": pattern, "text": text})
        times = list[float]()
        while not times or (min(times) > SECONDS * proof_scale and len(times) < 3):
            started = time.process_time()
            engine.evaluate(["data.t.x"], b"{}", [view], timeout_seconds=5)
            times.append(time.process_time() - started)
        return min(times)

    worst = {
        pattern: max((seconds(pattern, text), text[:60]) for text in hard_texts(pattern, size, rng))
        for pattern in patterns
    }
    slow = {each: took for each, took in worst.items() if took[0] > SECONDS * proof_scale}
    proof_row(
        "shipped patterns on hard texts",
        patterns=len(worst),
        size=size,
        worst=max(took for took, _ in worst.values()),
    )
    assert not slow


@pytest.mark.spec("ENG-8")
def test_a_megabyte_of_beginnings_of_keys_is_judged_by_the_shipped_rules() -> None:
    beginning = "-----BEGIN PRIVATE KEY-----" + "A" * 32
    message = Message(role="user", content=[TextPart(text=beginning * 20_000)])
    guard = Guard()

    started = time.process_time()
    decision = guard.decide(message)

    assert [hit.code for hit in decision.reasons] == []
    assert decision.action is Action.FORWARD_MODIFIED
    assert time.process_time() - started < 4  # 0.15 s, where it was 9 s
