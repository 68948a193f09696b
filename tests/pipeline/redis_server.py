"""A real Redis server on a free port, for the length of a test run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

START_SECONDS = 10.0


@contextmanager
def running_redis(directory: Path) -> Iterator[str]:
    """The URL of a server that keeps its files in `directory`, each write on disk before its answer.

    Where no server is installed, tests that need one are skipped with the reason; under CI that is a failure.
    """
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        reason = "no redis-server here: apt-get install redis-server"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    port = _free_port()
    options = {"port": port, "bind": "127.0.0.1", "dir": directory, "save": "", "appendonly": "yes"}
    options["appendfsync"] = "always"
    arguments = [word for name, setting in options.items() for word in (f"--{name}", str(setting))]
    server = subprocess.Popen([binary, *arguments], stdout=subprocess.DEVNULL)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        _wait_for(url)
        yield url
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str) -> None:
    client = redis.Redis.from_url(url)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    client.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
