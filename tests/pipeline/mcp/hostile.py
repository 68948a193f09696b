"""A server of MCP on standard input and output that misbehaves as its first argument says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any


def say(body: Any) -> None:
    os.write(1, (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n")


def main(how: str, *more: str) -> None:
    if how == "dies":
        sys.exit(3)
    if how == "deaf":  # to the end of its input, and to being told to end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "parent":
        child = subprocess.Popen(["sleep", "600"])
        with open(more[0], "w", encoding="utf-8") as file:
            file.write(str(child.pid))
    if how == "pid":
        with open(more[0], "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
        if how == "cut":
            sys.exit(0)
        elif how == "hangs":
            continue
        elif how == "huge":
            os.write(1, b'{"jsonrpc":"2.0","x":"')
            while True:
                os.write(1, b"x" * 65536)
        elif how == "not-utf8":
            say(json.dumps(answer).encode()[:-1] + b',"a":"\xff"}')
        elif how == "twice":
            say(b'{"jsonrpc":"2.0","id":"x","id":"%s","result":{}}' % asked["id"].encode())
        elif how == "deep":
            say(b"[" * 100_000)
        elif how == "stray":
            say(b"Listening on port 80!")
            say(b"")
            say(answer)
        elif how == "unsolicited":
            say(answer | {"id": "another"})
            say(answer | {"id": 1})
            say(answer)
            say(answer)
        elif how == "early":
            params = {"message": "Is AKIAIOSFODNN7EXAMPLE yours?"}
            say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params})
            say(answer)
        else:
            say(answer)
    while how == "deaf":
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
