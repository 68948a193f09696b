"""The stock regorus binding: set the input and evaluate, once a view, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regorus


def operations(exchange: str) -> dict[str, Callable[..., Any]]:
    """`decide`: a set-input and an eval call for each view; the inputs are ready as JSON text."""
    given = json.loads(Path(exchange).read_text())
    engine = regorus.Engine()
    for path, text in given["modules"]:
        engine.add_policy(path, text)
    engine.add_data_json(json.dumps(given["data"]))

    def decide() -> list[str]:
        answers = []
        for entrypoint, text in given["calls"]:
            engine.set_input_json(text)
            answers.append(engine.eval_rule_as_json(entrypoint))
        return answers

    def verdicts() -> list[list[Any]]:
        decisions = [json.loads(answer) for answer in decide()]
        return [["deny" if one["deny"] else "allow", sum(map(len, one.values()))] for one in decisions]

    return {"decide": decide, "verdicts": verdicts}
