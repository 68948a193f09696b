"""`cmf playground`, before it serves; what it serves is tests/pipeline/playground's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli.app import app


@pytest.mark.spec("CLI-11")
def test_a_port_or_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for options in (["--port", port], ["--policies", str(tmp_path / "none")], ["--policies", str(tmp_path)]):
            result = CliRunner().invoke(app, ["playground", *options])

            assert (result.exit_code, result.stdout) == (2, ""), options
            assert len(result.stderr.splitlines()) == 1
