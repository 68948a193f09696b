"""Validating a tool's input reaches nothing outside the process, whatever the schema points to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cmf import ToolDefinition
from cmf.message.tools import input_problem


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that would answer with a schema, and the paths it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "object"}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/schema", paths
        server.shutdown()
        thread.join()


def test_a_reference_to_another_place_is_not_fetched_and_fits_nothing(asked: tuple[str, list[str]]) -> None:
    address, paths = asked
    tool = ToolDefinition(name="pay", input_schema={"$ref": address})

    assert input_problem(tool, {"amount": 1}) == "$"
    assert paths == []


def test_a_reference_within_the_schema_is_followed() -> None:
    schema = {"$defs": {"amount": {"type": "integer"}}, "properties": {"amount": {"$ref": "#/$defs/amount"}}}
    tool = ToolDefinition(name="pay", input_schema=schema)

    assert input_problem(tool, {"amount": 1}) is None
    assert input_problem(tool, {"amount": "1"}) == "$.amount"
