"""What visits a store that others have open, and a host: `python -m tests.pipeline.store.visitors MODE …`.

visit FILE CONFIG     makes each visit that standard input names, and says so when it is over
guard FILE POLICIES   decides once per line of standard input, and prints the decision's id
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from typer.testing import CliRunner

from cmf import Message, TextPart
from pipeline import Guard
from pipeline.cli.app import app
from pipeline.review.site import Site
from pipeline.store.database import Store

ROOT = Path(__file__).resolve().parents[3]
EVE = ("--as", "eve", "--reason", "a case")
COMMANDS = {
    "find": ("audit", "find", "FILE", "kind:decision"),
    "verify": ("audit", "verify", "FILE"),
    "erase": ("audit", "erase", "FILE", *EVE, "--before", "2020-01-01"),
    "two-people": ("audit", "two-people", "FILE", "on", *EVE),
    "doctor": ("doctor", "-c", "CONFIG"),
}
VISITS = (*COMMANDS, "backup", "sqlite3", "checkpoint")


def visit(file: str, config: str, name: str) -> None:
    """Make the visit; when it is over, this process has nothing open."""
    if name in COMMANDS:
        known = {"FILE": file, "CONFIG": config}
        done = CliRunner().invoke(app, [known.get(word, word) for word in COMMANDS[name]])
        assert name == "doctor" or done.exit_code == 0, done.output
        return
    with closing(sqlite3.connect(file, timeout=30)) as connection:
        if name == "backup":
            with closing(sqlite3.connect(f"{file}.copy")) as copy:
                connection.backup(copy)
        connection.execute("SELECT count(*) FROM records").fetchall()
        if name == "checkpoint":
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def asked(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A process of this module, which is killed at the end."""
    command = [sys.executable, "-m", "tests.pipeline.store.visitors", *map(str, words)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], line: str) -> str:
    """What the process says to the line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    said = process.stdout.readline().strip()
    assert said, "it ended"
    return said


def route(seed: int, scale: float) -> list[str]:
    """The visits of a proof: all of them at full size, and a few otherwise."""
    return random.Random(seed).sample(VISITS, max(3, round(len(VISITS) * scale)))


def main(mode: str, file: str, other: str) -> None:
    """Do what `mode` says for each line of standard input."""
    if mode == "visit":
        for line in sys.stdin:
            visit(file, other, line.strip())
            print(line.strip(), flush=True)
        return
    with Store.at(file) as store, Guard(Path(other), store=store) as guard, Store.at(file) as second:
        site = Site(second)
        for line in sys.stdin:
            print(guard.decide(Message(role="user", content=[TextPart(text=line)])).id, flush=True)
            site.catalog.catch_up()
            Store.at(file).close()


if __name__ == "__main__":
    main(*sys.argv[1:])
