"""A process that runs one approved call many times: `python -m tests.pipeline.asking_process KIND PLACE POLICIES`.

KIND and PLACE are `sqlite FILE` or `redis URL|PREFIX`. It prints how many runs went through.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.pipeline.session_stores import at_once

from cmf import Message, SubjectExtension, ToolCallPart
from pipeline import Config, Context, Pipeline
from pipeline.sessions.base import SessionStore
from pipeline.sessions.redis import RedisSessions
from pipeline.store.database import Store

HERE = Context(subject=SubjectExtension(id="ann"), session="s")
PAY = Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"amount": 7})])
RUNS = 32
PATIENCE_SECONDS = 120.0


def sessions(kind: str, place: str) -> SessionStore:
    if kind == "redis":
        url, prefix = place.split("|")
        return RedisSessions(url, prefix=prefix)
    return Store.at(Path(place)).sessions(timeout_seconds=PATIENCE_SECONDS)


def main(kind: str, place: str, policies: str) -> None:
    """Let go of all runs together and count those that went through."""
    config = Config(seal_key=bytes(32), timeout_seconds=PATIENCE_SECONDS)
    pipeline = Pipeline(policies=policies, sessions=sessions(kind, place), config=config)
    print(json.dumps({"went": at_once(lambda _: pipeline.run(PAY, HERE).value is not None, RUNS)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
