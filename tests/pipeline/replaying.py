"""Entries for the tests of what is put on file and judged again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from cmf.message import Message
from cmf.request import Request
from pipeline import Config, Context, Pipeline, PolicySet, policy_set
from pipeline.assembly import embedded_engine
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.reuse import ReusingEngine
from pipeline.replay_file import Entry, entry_of
from pipeline.sessions import MemorySessions, SessionStore
from pipeline.stage import Traffic
from pipeline.watched_sessions import WatchedSessions

KEY = "sk-ant-" + "a1B2c3D4e5" * 3


def asks(text: str) -> Request:
    return Request(messages=(Message.model_validate(said(text)),))


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"content_type": "text", "text": text}]}


def judged(
    traffic: Traffic,
    policies: PolicySet | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    sessions: SessionStore | None = None,
) -> Entry:
    """The entry of a real run."""
    watched = WatchedSessions(sessions or MemorySessions())
    known = Context.model_validate(dict(context or {}))
    rules = policies or _shipped()
    engine = ReusingEngine(_compiled(rules), rules.parts, rules.capabilities, max_verdicts=Config().max_verdicts)
    pipeline = Pipeline(policies=rules, engine=engine, sessions=cast("SessionStore", watched))
    with watched.watching() as noted:
        decision = pipeline.run(traffic, known).decision
    return entry_of(traffic, known, noted.session, decision, seen=noted.seen)


@cache
def _shipped() -> PolicySet:
    return policy_set.load(policy_set.shipped())


_COMPILED: dict[str, EmbeddedEngine] = {}  # by revision: a set is compiled once, however many entries are wanted


def _compiled(policies: PolicySet) -> EmbeddedEngine:
    if policies.revision not in _COMPILED:
        _COMPILED[policies.revision] = embedded_engine(policies)
    return _COMPILED[policies.revision]
