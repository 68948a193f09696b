"""Two processes that write records to one database, one of them killed: `python -m tests.pipeline.store.writers …`.

    URL KEY SECONDS    what was acknowledged, what of it is there, whether all logs hold

It is a process of its own because a process with threads cannot be forked safely.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.pipeline.run_records import made_record

from pipeline.audit.verification import verify
from pipeline.decisions.errors import StoreError
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_records

THREADS = 8


def _writer(url: str, key: Path) -> tuple[int, int]:
    """A child that records without an end, and tells each id once it is durable."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    recorder = Recorder(Store(url, key=key))

    def work() -> None:
        while True:
            record = made_record()
            try:
                recorder.record(record)
            except StoreError:
                continue
            os.write(writing, f"{record.id}\n".encode())

    for _ in range(THREADS):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(600)
    os._exit(0)


def main(url: str, key: Path, seconds: float) -> dict[str, object]:
    """What came of it."""
    writers = [_writer(url, key) for _ in range(2)]
    heard: list[list[str]] = [[], []]

    def listen(number: int) -> None:
        with os.fdopen(writers[number][1]) as lines:
            for line in lines:
                heard[number].append(line.strip())

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    while not all(heard):
        time.sleep(0.05)
    time.sleep(seconds)
    os.kill(writers[0][0], signal.SIGKILL)
    before = len(heard[1])
    time.sleep(seconds)
    os.kill(writers[1][0], signal.SIGKILL)
    for child, _ in writers:
        os.waitpid(child, 0)
    for thread in threads:
        thread.join()
    engine = open_to_read(url)
    stored = list(stored_records(engine, kind="decision"))
    report = verify(StoreEvidence(engine))
    engine.dispose()
    there = {one.id for one in stored}
    return {
        "acknowledged": sum(map(len, heard)),
        "after_the_kill": len(heard[1]) - before,
        "records": len(stored),
        "lost": len({one for each in heard for one in each} - there),
        "numbers_twice": len(stored) - len({one.seq for one in stored}),
        "logs": len(report.logs),
        "problems": [problem.code for problem in report.problems],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
