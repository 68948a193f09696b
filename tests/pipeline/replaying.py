"""Entries for the tests of what is put on file and judged again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from cmf.message.message import Message
from cmf.message.request import Request
from pipeline import Context, Guard, PolicySet
from pipeline.decisions.stage import Traffic
from pipeline.policy import policy_set
from pipeline.replay.replay import Replay
from pipeline.run.recorded_input import Entry, entry_of
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.observed import WatchedSessions

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
    with Guard(policies or shipped(), sessions=cast("SessionStore", watched)) as guard, watched.watching() as noted:
        decision = guard.run(traffic, context=known).decision
    return entry_of(traffic, known, noted.session, decision, seen=noted.seen)


@cache
def shipped() -> PolicySet:
    return policy_set.load(policy_set.shipped())


@cache
def all_off() -> PolicySet:
    """The shipped set with every rule off: quick."""
    return policy_set.load(policy_set.shipped(), modes={rule.id: "off" for rule in shipped().rules})


@cache
def replay() -> Replay:
    """Judges under the shipped set."""
    return Replay(shipped())
