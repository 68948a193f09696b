"""This project: one decision, by how much there is of one thing at a time."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from bench import medium
from cmf import Message
from pipeline import Config, Context, Guard
from pipeline.decisions.engine import Engine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import build_engine

VIEWS = (1, 2, 4, 8, 16, 32, 64, 128)
BYTES = tuple(1024 * 4**power for power in range(6))
RULES = (10, 30, 100, 200, 300, 1_000)
ASKED = 10  # of those that stand beside rules for other kinds
ENTRIES = (10, 100, 1_000, 10_000, 100_000)
SECONDS = 10.0
WORDS = "The figures of the quarter are as agreed, and the pages that explain them are attached. "

_RULE = """# METADATA
# title: A rule among many
# custom:
#   code: many.rule-{number}
#   severity: high
#   kinds: [{kind}]
package cmf.rules.many.rule_{number}

deny contains {{"code": "many.rule-{number}", "reason": "It says so."}} if {{
	{condition}
}}
"""
_WORDS = 'some word in {{"never{0}", "nowhere{0}"}}\n\tcontains(input.content, word)'
_LOOKUP = "data.cmf.known[input.content].banned"


def operations() -> dict[str, Callable[..., Any]]:
    """`<axis> <size>`: one decision each, on a message that is new each time."""
    counted = medium.policies()
    guard = Guard(counted, config=Config(max_verdicts=0, timeout_seconds=SECONDS))
    idle_set = _set(["input.kind == `never`"], ["text"])
    idle = Guard(idle_set, config=Config(max_verdicts=0, timeout_seconds=SECONDS))
    made: dict[str, Callable[..., Any]] = {}
    for views in VIEWS:
        made[f"views {views}"] = _decides(guard, [WORDS] * views)
    engine = _engine(idle_set)
    for size in BYTES:
        text = (WORDS * (size // len(WORDS) + 1))[:size]
        made[f"content {size}"] = _decides(guard, [text])
        made[f"content, nothing read {size}"] = _decides(idle, [text])
        made[f"content, engine alone {size}"] = _asks(engine, text)
    for count in RULES:
        words = [_WORDS.format(number) for number in range(count)]
        made[f"rules for its kind {count}"] = _asks(_engine(_set(words, ["text"] * count)), WORDS)
        kinds = [
            "text" if number < ASKED else ("tool_call", "resource", "image")[number % 3] for number in range(count)
        ]
        made[f"rules for other kinds {count}"] = _asks(_engine(_set(words, kinds)), WORDS)
    for count in ENTRIES:
        known = {f"team-{number}": {"banned": False, "name": f"Team {number}"} for number in range(count)}
        policies = _set([_LOOKUP], ["text"], {"cmf": {"known": known}})
        made[f"data {count}"] = _asks(_engine(policies), "team-7")
    return made


def _decides(guard: Guard, texts: list[str]) -> Callable[[], object]:
    """A whole decision, from JSON; the number in the first words makes each message another one."""
    numbers = itertools.count()
    parts = [{"content_type": "text", "text": f"{at}-12345678 {text}"} for at, text in enumerate(texts)]
    body = orjson.dumps({"role": "user", "content": parts})
    context = Context.model_validate({"subject": {"id": "ann"}})

    def decide() -> object:
        new = body.replace(b"12345678", b"%08d" % next(numbers))
        outcome = guard.run(Message.model_validate_json(new), context=context)
        if not outcome.decision.coverage.full or outcome.value is None:
            raise RuntimeError(f"it was not judged in full, or refused: {outcome.decision.hits}")
        return outcome

    decide()
    return decide


def _asks(engine: Engine, text: str) -> Callable[[], object]:
    view = orjson.dumps({"kind": "text", "properties": {}, "content": text})
    shared = orjson.dumps({"extensions": {"security": {"subject": {"id": "ann"}}}})
    return lambda: engine.evaluate(["data.cmf.main.text.decision"], shared, [view], timeout_seconds=SECONDS)


def _engine(policies: PolicySet) -> Engine:
    return build_engine(policies, "embedded", Config(max_verdicts=0))


def _set(conditions: list[str], kinds: list[str], data: dict[str, Any] | None = None) -> PolicySet:
    with tempfile.TemporaryDirectory() as folder:
        for number, (condition, kind) in enumerate(zip(conditions, kinds, strict=True)):
            place = Path(folder) / f"cmf/rules/many/rule_{number}/rule_{number}.rego"
            place.parent.mkdir(parents=True)
            place.write_text(_RULE.format(number=number, kind=kind, condition=condition))
        if data is not None:
            (Path(folder) / "data.json").write_bytes(orjson.dumps(data))
        return policy_set.load(folder)
