"""Two gateways on shared state: what one let through is on record, and its labels hold in the other, whoever dies."""

from __future__ import annotations

import http.client
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, Serving, said, serving_process
from tests.pipeline.gateway.proxy.test_response_sessions import DENY, LABEL
from tests.pipeline.gateway.servers import script
from tests.pipeline.redis_server import running_redis

THREADS = 4
SECONDS = 4.0


@contextmanager
def sharing(home: Path, sessions: str) -> Iterator[tuple[Serving, Serving]]:
    """Two gateways, each in a directory of its own, with one store."""
    policies = write_rules(home / "policy", {"taint": LABEL, "leak": DENY}, kinds="text", capabilities="read_labels")
    own = {"policies": [str(policies)], "store": str(home / "shared.db"), "watch": False}
    more = {} if sessions == "sqlite" else {"sessions": {"store": sessions}}
    (home / "a").mkdir()
    (home / "b").mkdir()
    body = own | more | {"upstreams": {"up": script(home, {"text": "ok"})}}
    with serving_process(home / "a", body, "--quiet") as one, serving_process(home / "b", body, "--quiet") as other:
        yield one, other


def ask(url: str, text: str, session: str) -> tuple[int, str, str]:
    """Status, code and decision; 0 where nobody answers."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        headers = {"content-type": "application/json", "x-cmf-session-id": session}
        connection.request("POST", CHAT, json.dumps(said(text)), headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status, reply.headers.get("x-cmf-code", ""), reply.headers.get("x-cmf-decision-id", "")
    except (OSError, http.client.HTTPException):
        return 0, "", ""
    finally:
        connection.close()


@pytest.mark.spec("GW-156")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_when_one_of_two_is_killed_nothing_is_lost_and_no_label_missed(tmp_path: Path, kind: str) -> None:
    if kind == "redis":
        (tmp_path / "redis").mkdir()
        with running_redis(tmp_path / "redis") as url:
            found = under_load(tmp_path, url)
    else:
        found = under_load(tmp_path, "sqlite")
    told, missed, answers = found

    assert missed == []
    assert answers["tainted here, refused there"] >= 5, answers
    assert answers["after the kill"] >= 5, answers
    with sqlite3.connect(tmp_path / "shared.db") as store:
        kept = {row[0] for row in store.execute("SELECT id FROM records")}
    assert told - kept == set()
    assert len(told) >= 20


def under_load(home: Path, sessions: str) -> tuple[set[str], list[Any], Counter[str]]:
    """Decisions that were told, labels that were missed, and what happened how often."""
    told: set[str] = set()
    missed: list[Any] = []
    happened: Counter[str] = Counter()
    over, killed = threading.Event(), threading.Event()
    with sharing(home, sessions) as (one, other):

        def load(number: int) -> None:
            turn = 0
            while not over.is_set():
                turn += 1
                session = f"s{number}-{turn}"
                first, second = (one, other) if turn % 2 else (other, one)
                read = ask(first.url, "what is the salary?", session)
                sent = ask(second.url, "send it", session)
                told.update(decision for _, _, decision in (read, sent) if decision)
                # Whoever was told that he may go on has put the label there; whoever was not may have.
                if read[0] == 200 and sent[0] == 200:
                    missed.append((session, read, sent))
                if read[0] == 200 and sent[1] == "test.tainted":
                    happened["tainted here, refused there"] += 1
                if killed.is_set():
                    survivor = ask(other.url, "send it", session)
                    happened["after the kill"] += survivor[0] in (200, 403)
                    if read[0] == 200 and survivor[1] != "test.tainted":
                        missed.append((session, read, survivor))

        threads = [threading.Thread(target=load, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS / 2)
        one.process.kill()
        one.process.wait()
        killed.set()
        time.sleep(SECONDS / 2)
        over.set()
        for thread in threads:
            thread.join()
    return told, missed, happened
