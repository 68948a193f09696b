"""A real OPA server on a loopback port, and a scripted one that answers what it is told to."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.policy.policy_set import PolicySet

START_SECONDS = 20.0
HEAD = "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"


def write_bundle(policies: PolicySet, directory: Path) -> Path:
    """The bundle of `policies`, as files."""
    for name, content in policies.bundle().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


@contextlib.contextmanager
def serving(binary: Path, bundle: Path) -> Iterator[str]:
    """The URL of an OPA server that has `bundle`; it ends with the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["run", "--server", "--bundle", str(bundle), "--addr", f"127.0.0.1:{port}", "--log-level", "error"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(bundle)}
    process = subprocess.Popen(
        [binary, *arguments, "--disable-telemetry"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        await_health(url, process)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=START_SECONDS)


def await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once the server answers; the test fails if it ends or never does."""
    for _ in range(int(START_SECONDS * 20)):
        if process.poll() is not None:
            pytest.fail(f"OPA ended: {process.communicate()[0].decode()}")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"{url}/health?bundles") as reply,
        ):
            if reply.status == 200:
                return
        time.sleep(0.05)
    process.kill()
    pytest.fail("OPA did not become healthy")


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ScriptedServer:
    """An HTTP server that answers each request with the next of `replies`, the last one again and again.

    A reply is the raw bytes to send, `HANG` to send nothing and keep the connection, or `CLOSE`. With `closing` the
    connection ends after a reply.
    """

    HANG = b"<hang>"
    CLOSE = b"<close>"

    def __init__(self, *replies: bytes, closing: bool = False) -> None:
        self._closing = closing
        self.requests: list[bytes] = []
        self._replies = list(replies)
        self._done = threading.Event()
        scripted = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                scripted._serve(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: socketserver.StreamRequestHandler) -> None:
        while request := _read_request(handler):
            self.requests.append(request)
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            if reply == self.HANG:
                self._done.wait()
                return
            if reply == self.CLOSE:
                return
            with contextlib.suppress(OSError):
                handler.wfile.write(reply)
            if self._closing:
                return


def _read_request(handler: socketserver.StreamRequestHandler) -> bytes:
    head = b""
    while line := handler.rfile.readline():
        head += line
        if line == b"\r\n":
            length = next(
                (
                    int(field.split(b":")[1])
                    for field in head.split(b"\r\n")
                    if field.lower().startswith(b"content-length")
                ),
                0,
            )
            return head + handler.rfile.read(length)
    return b""


def reply(body: bytes, status: int = 200) -> bytes:
    """`body` as a whole HTTP response."""
    return HEAD.format(status=status, length=len(body)).encode() + body
