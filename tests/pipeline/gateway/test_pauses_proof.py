"""While a large request is judged, a gateway goes on serving the small ones beside it."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.pipeline.gateway.servers import script, serving

PATH = "/v1/chat/completions"
CHECK = "/v1/check"
PAUSE = re.compile(r'cmf_loop_pause_seconds_(?:bucket\{le="([^"]+)"\}|(count)) (\d+)')


def asked(url: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        client.request(method, path, body, {"content-type": "application/json"})
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def longest(url: str) -> float:
    """The bound of the bucket that the longest pause so far is in."""
    found = PAUSE.findall(asked(url, "GET", "/metrics")[1].decode())
    count = next(number for _, is_count, number in found if is_count)
    return next(float(bound) for bound, _, number in found if number == count)


@pytest.mark.proof
@pytest.mark.no_cover
@pytest.mark.spec("GW-68")
def test_no_client_waits_for_a_large_request_of_another(
    tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    kinds = {
        "text": [{"role": "user", "content": "the quick brown fox 123-45-6789 " * int(60_000 * proof_scale)}],
        "messages": [{"role": "user", "content": "123-45-6789"}] * int(6_000 * proof_scale),
        "parts": [{"role": "user", "content": [{"type": "text", "text": "123-45-6789"}] * int(3_000 * proof_scale)}],
    }
    requests = [{"model": "m", "messages": messages} for messages in kinds.values()]
    checks = [{"format": "openai_chat", "kind": "request", "body": request} for request in requests[:1]]
    bodies = [(PATH, json.dumps(request).encode()) for request in requests]
    bodies += [(CHECK, json.dumps(check).encode()) for check in checks]
    small = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
    with serving(
        tmp_path, {"upstreams": {"up": script(tmp_path, {"text": "ok"})}, "policy_seconds": 60, "check": {}}
    ) as url:
        asked(url, "POST", PATH, small)
        before = longest(url)
        statuses: list[int] = []
        large = [
            threading.Thread(target=lambda path=path, body=body: statuses.append(asked(url, "POST", path, body)[0]))
            for path, body in bodies
        ]
        for thread in large:
            thread.start()
        beside = [asked(url, "POST", PATH, small)[0]]
        while any(thread.is_alive() for thread in large):
            beside.append(asked(url, "POST", PATH, small)[0])
        pause = longest(url)

    proof_row("no client waits for a large request of another", pause=f"<= {pause} s", small=len(beside))
    assert (set(statuses), set(beside)) == ({200}, {200})
    # A machine that is busy with other things pauses a loop that has nothing to do, too.
    assert pause <= max(0.1 if proof_scale >= 1 else 0.5, before)
