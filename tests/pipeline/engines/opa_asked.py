"""A real OPA that is given one set after another, and what it says of each."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.opa_server import await_health, free_port


class Said(NamedTuple):
    """What OPA says of a rule: `value`, `undefined` or `error`."""

    kind: str
    value: Any = None


class Opa:
    """OPA's policy and data API, over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def close(self) -> None:
        self._connection.close()

    def load(self, modules: Mapping[str, str]) -> list[tuple[str, int]]:
        """Put these modules in the place of those of the same names; (name, line) of each error if it refuses one."""
        for name, text in modules.items():
            status, answer = self._ask("PUT", f"/v1/policies/{name}", text.encode())
            if status != 200:
                places = [error["location"] for error in answer.get("errors", []) if error.get("location")]
                return [(place["file"], place["row"]) for place in places] or [(name, 0)]
        return []

    def keep(self, name: str, value: object) -> None:
        """Make `value` the data `name`."""
        self._ask("PUT", f"/v1/data/{name}", json.dumps(value).encode())

    def say(self, path: str, document: object, *, strict: bool = True) -> Said:
        """What the rule at `path` (`t/x`) is for an input."""
        query = "?strict-builtin-errors=true" if strict else ""
        status, answer = self._ask("POST", f"/v1/data/{path}{query}", json.dumps({"input": document}).encode())
        if status != 200:
            return Said("error")
        return Said("value", answer["result"]) if "result" in answer else Said("undefined")

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        self._connection.request(method, path, body)
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read() or b"{}")


@contextlib.contextmanager
def asking(binary: Path) -> Iterator[Opa]:
    """An OPA server without policies; it ends with the block."""
    port = free_port()
    arguments = ["run", "--server", "--addr", f"127.0.0.1:{port}", "--log-level", "error", "--disable-telemetry"]
    process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        await_health(f"http://127.0.0.1:{port}", process)
        with contextlib.closing(Opa(port)) as opa:
            yield opa
    finally:
        process.terminate()
        process.communicate(timeout=20)
