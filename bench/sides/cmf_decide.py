"""This project: JSON to decision under the shipped policies."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import documents
from cmf import Message, iter_views
from cmf.adapters import get
from cmf.codec import loads
from cmf.frozen import thaw
from pipeline import Guard
from pipeline.assembly import load_policies
from pipeline.context import ingest
from pipeline.guard import Context
from pipeline.policy_input import SessionFacts, whole


def operations(exchange: str) -> dict[str, Callable[..., Any]]:
    """`decide` and `decide_response`; `exchange` is the file where the raw engine finds the same policies and data."""
    guard = Guard()
    text, response = documents.message_bytes(0), documents.anthropic_response(0)
    anthropic = get("anthropic_messages")
    extensions = documents.extensions(0)
    context = Context(subject=extensions["security"]["subject"])
    sessions = itertools.count()  # one each: otherwise every round would add to one conversation

    def decide() -> dict[str, Any]:
        session = f"s-{next(sessions)}"
        return guard.run(Message.model_validate_json(text), context=context, session=session).decision.to_json()

    def decide_response() -> dict[str, Any]:
        session = f"s-{next(sessions)}"
        value = anthropic.from_wire_response(loads(response))
        return guard.run(value, context=context, session=session).decision.to_json()

    policies = load_policies()
    judged = ingest(Message.model_validate_json(text), context, frozenset())
    calls = [
        (policies.entrypoint(view.kind), whole(view, SessionFacts()).decode())
        for view in iter_views(judged, capabilities=policies.capabilities)
    ]
    modules = [(module.path, module.text) for module in policies.modules]
    Path(exchange).write_text(json.dumps({"modules": modules, "data": thaw(policies.data), "calls": calls}))
    return {
        "decide": decide,
        "decide_response": decide_response,
        "verdicts": lambda: [[view["verdict"], len(view["hits"])] for view in decide()["views"]],
    }
