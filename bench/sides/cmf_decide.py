"""This project: JSON to decision."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import documents, medium
from bench.fresh import BATCH
from cmf import Message, iter_views
from cmf.adapters import get
from cmf.json.codec import loads
from cmf.json.frozen import thaw
from pipeline import Config, Guard
from pipeline.decisions.context import Context, ingest
from pipeline.decisions.policy_input import SessionFacts, whole
from pipeline.run.assembly import load_policies


def operations(exchange: str, which: str) -> dict[str, Callable[..., Any]]:
    """`decide` and its kin, under the policies of `bench.medium` or the shipped ones.

    In the file `exchange` the raw engine finds the same policies and data.
    """
    policies = medium.policies() if which == "medium" else load_policies()
    guard, remembering = Guard(policies, config=Config(max_verdicts=0)), Guard(policies)
    texts = [documents.message_bytes(index) for index in range(BATCH)]
    text, response = texts[0], documents.anthropic_response(0)
    anthropic = get("anthropic_messages")
    extensions = documents.extensions(0)
    context = Context(subject=extensions["security"]["subject"])
    numbers = itertools.count()  # one session each: otherwise every round would add to one conversation

    def decide() -> dict[str, Any]:
        value = Message.model_validate_json(texts[next(numbers) % BATCH])
        return guard.run(value, context=context).decision.to_json()

    def decide_in_session() -> dict[str, Any]:
        number = next(numbers)
        value = Message.model_validate_json(texts[number % BATCH])
        return guard.run(value, context=context, session=f"s-{number}").decision.to_json()

    def decide_again() -> dict[str, Any]:
        return remembering.run(Message.model_validate_json(text), context=context).decision.to_json()

    def decide_response() -> dict[str, Any]:
        return guard.run(anthropic.from_wire_response(loads(response)), context=context).decision.to_json()

    judged = ingest(Message.model_validate_json(text), context, frozenset())
    calls = [
        (policies.entrypoint(view.kind), whole(view, SessionFacts()).decode())
        for view in iter_views(judged, capabilities=policies.capabilities)
    ]
    modules = [(module.path, module.text) for module in policies.modules]
    Path(exchange).write_text(json.dumps({"modules": modules, "data": thaw(policies.data), "calls": calls}))
    return {
        "decide": decide,
        "decide_in_session": decide_in_session,
        "decide_again": decide_again,
        "decide_response": decide_response,
        "verdicts": lambda: [[view["verdict"], len(view["hits"])] for view in decide()["views"]],
    }
