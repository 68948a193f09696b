"""`cmf serve` in processes of its own, as it is run by hand."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from tests.pipeline.gateway.servers import until

BEGIN_SECONDS = 90  # a process loads and compiles; the machine may have other things to do
CHAT = "/v1/chat/completions"


@dataclass(slots=True)
class Serving:
    """A running command: its addresses, and all that it wrote."""

    process: subprocess.Popen[str]
    url: str
    operations: str
    log: list[str]

    def stop(self, which: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit code."""
        self.process.send_signal(which)
        return self.process.wait(60)


@contextmanager
def serving_process(home: Path, body: Mapping[str, Any], *words: str) -> Iterator[Serving]:
    """The command with these settings, once it answers; ended at the end of the block, if it was not before."""
    file = home / "cmf.yaml"
    whole = {"anonymous": "keys" not in body, "routes": [{"name": "all", "upstream": "up"}], **body}
    whole = {"listen": {"port": 0}, "admin": {"port": 0}, **whole}
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    known = {name: value for name, value in os.environ.items() if not name.startswith("CMF_")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from pipeline.cli import main; main()", "serve", "-c", str(file), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known,
    )  # fmt: skip
    log: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reading = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    reading.start()
    try:
        lines = [process.stdout.readline() for _ in range(2)]
        urls = [line.partition(": ")[2].strip() for line in lines]
        assert all(urls), log
        serving = Serving(process, urls[0], urls[1], log)
        until(lambda: _is_ready(serving), BEGIN_SECONDS)
        yield serving
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()
        reading.join(10)
        process.stderr.close()


def in_flight(serving: Serving) -> int:
    """How many requests it is working on."""
    text = asked(serving.operations, "GET", "/metrics")[1]
    figures: list[str] = re.findall(r"^cmf_gateway_in_flight(?:\{.*\})? (\d+)$", text, re.MULTILINE)
    return sum(map(int, figures))


def _is_ready(serving: Serving) -> bool:
    assert serving.process.poll() is None, serving.log
    try:
        status, said = asked(serving.operations, "GET", "/readyz")
    except OSError:
        return False
    workers = said.get("workers")
    return status == 200 and (workers is None or len(workers) == said["wanted"])


def asked(url: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
    """Status and body (as JSON where it is)."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        raw = None if body is None else json.dumps(body)
        connection.request(method, path, raw, {"content-type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        text = reply.read().decode()
        return reply.status, json.loads(text) if reply.headers.get_content_type() == "application/json" else text
    finally:
        connection.close()


def said(text: str, **more: Any) -> dict[str, Any]:
    """A chat request that says something."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}
