"""A gateway that is told to end while 64 clients are being answered: each gets all of it, and nobody new is let in."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, Serving, in_flight, said, serving_process
from tests.pipeline.gateway.servers import script, until

from pipeline.audit.verification import verify
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence

CLIENTS = 64
ROUNDS = 10
GRACE_SECONDS = 10
TEXT = " ".join(f"word{number}" for number in range(200))
DENY = 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")'


async def _asked(url: str, *, stream: bool, begun: asyncio.Semaphore) -> str:
    """All that one client got: `whole`, `refused`, or what it was otherwise."""
    where = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
    except OSError:
        begun.release()
        return "refused"
    try:
        body = json.dumps(said("go", stream=stream)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        begun.release()
        answer = await reader.read()
    except OSError as error:
        return type(error).__name__
    finally:
        writer.close()
    if answer.startswith(b"HTTP/1.1 503"):
        return "refused"
    return _kind(answer, stream=stream)


def _kind(answer: bytes, *, stream: bool) -> str:
    if not answer.startswith(b"HTTP/1.1 200"):
        return f"status {answer[9:12].decode()}" if answer else "nothing"
    if stream:
        texts = [json.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
        told = "".join(one["choices"][0]["delta"].get("content") or "" for one in texts if one["choices"])
        return "whole" if told == TEXT and b"data: [DONE]" in answer else "cut off"
    body = answer.partition(b"\r\n\r\n")[2]
    return "whole" if json.loads(body)["choices"][0]["message"]["content"] == TEXT else "cut off"


async def _ended(serving: Serving) -> tuple[Counter[str], Counter[str], float, int]:
    begun = asyncio.Semaphore(0)
    work = [asyncio.create_task(_asked(serving.url, stream=number % 2 == 0, begun=begun)) for number in range(CLIENTS)]
    for _ in range(CLIENTS):
        await begun.acquire()
    await asyncio.to_thread(until, lambda: in_flight(serving) == CLIENTS)
    since = time.monotonic()
    serving.process.terminate()
    for _ in range(500):  # until it has heard it
        if await _asked(serving.url, stream=False, begun=begun) == "refused":
            break
        await asyncio.sleep(0.02)
    late = [await _asked(serving.url, stream=False, begun=begun) for _ in range(5)]
    found = Counter(await asyncio.gather(*work))
    code = await asyncio.to_thread(serving.process.wait, 60)
    return found, Counter(late), time.monotonic() - since, code


@pytest.mark.proof
@pytest.mark.spec("GW-153")
def test_who_is_being_answered_when_it_ends_gets_all_of_it(
    tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    write_rules(tmp_path / "policy", {"deny": DENY}, kinds="text")
    body = {
        "upstreams": {"up": script(tmp_path, {"text": TEXT, "delay_seconds": 2.5})},
        "policies": ["policy"], "watch": False, "grace_seconds": GRACE_SECONDS, "store": "s.db",
    }  # fmt: skip
    rounds, whole, longest = max(1, int(ROUNDS * proof_scale)), 0, 0.0
    for _ in range(rounds):
        with serving_process(tmp_path, body) as serving:
            found, late, seconds, code = asyncio.run(_ended(serving))
        assert found == {"whole": CLIENTS}
        assert late == {"refused": 5}
        assert (code, seconds < GRACE_SECONDS) == (0, True)
        whole, longest = whole + found["whole"], max(longest, seconds)

    engine = open_to_read(tmp_path / "s.db")
    report = verify(StoreEvidence(engine))
    engine.dispose()
    proof_row(
        "told to end with 64 in work", ends=rounds, whole=whole, cut_off=0, longest_seconds=round(longest, 2),
        verifies=report.holds,
    )  # fmt: skip
    assert report.holds
