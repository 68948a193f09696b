"""This project's engine: what threads cost each other, what a long conversation costs, and what many rules cost."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import documents, medium
from bench.wall import wall_seconds
from cmf import Message, Request, Role, TextPart
from pipeline import Config, Guard
from pipeline.decisions.context import Context
from pipeline.decisions.engine import Engine, EngineResult
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.verdict_cache import ReusingEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import build_engine

SECONDS = 5.0
STALLED_VIEWS = 400  # in one call, so that it lasts long enough to be looked at
CALLS = 600
TURNS = (10, 100, 1_000)
RULES = (medium.RULES, 100, 300)


class _Recorded:
    """An engine that keeps its last question."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.revision = engine, engine.revision
        self.question: tuple[list[str], bytes, list[bytes]] = ([], b"{}", [])

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        self.question = (list(entrypoints), shared, list(views))
        return self.engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    async def aevaluate(self, *positional: Any, **named: Any) -> list[EngineResult]:
        return self.evaluate(*positional, **named)

    def close(self) -> None:
        self.engine.close()


def _question(policies: PolicySet) -> tuple[EmbeddedEngine, tuple[list[str], bytes, list[bytes]]]:
    """The bare engine, and what a guard asks it about the message of the measurements."""
    modules = [(module.path, module.text) for module in policies.modules]
    engine = EmbeddedEngine(modules, policies.data, policies.entrypoints)
    recorded = _Recorded(engine)
    subject = documents.extensions(0)["security"]["subject"]
    guard = Guard(policies, engine=recorded)
    guard.run(Message.model_validate_json(documents.message_bytes(0)), context=Context(subject=subject), session="s")
    return engine, recorded.question


def operations() -> dict[str, Callable[..., Any]]:
    """What `bench.decide` asks for: each gives its figures when it is called."""
    policies = medium.policies()
    engine, question = _question(policies)

    def ask(_: int = 0) -> list[EngineResult]:
        return engine.evaluate(*question, timeout_seconds=SECONDS)

    return {
        "stall": lambda: _stall(engine, question),
        "threads": lambda: _in_parallel(ask, threading.Thread),
        **{f"threads_{count}": partial(_in_parallel, ask, threading.Thread, count) for count in (1, 2, 4)},
        "processes": lambda: _in_parallel(ask, multiprocessing.get_context("fork").Process),
        "wall": lambda: _wall_of_decisions(policies, in_session=False),
        "wall_in_session": lambda: _wall_of_decisions(policies, in_session=True),
        "turns": lambda: {turns: _turn(turns) for turns in TURNS},
        "resent": lambda: {turns: _resent(turns, policies) for turns in TURNS},
        "rules": lambda: {count: _rules(count) for count in RULES},
    }


def _wall_of_decisions(policies: PolicySet, *, in_session: bool) -> float:
    """Seconds of a whole decision, on a message that was not seen before; in a session of its own, or none."""
    guard = Guard(policies, config=Config(max_verdicts=0))
    texts = [documents.message_bytes(index) for index in range(50)]
    context = Context(subject=documents.extensions(0)["security"]["subject"])
    sessions = itertools.count()

    def decide(index: int) -> object:
        session = f"s-{next(sessions)}" if in_session else None
        return guard.run(Message.model_validate_json(texts[index % 50]), context=context, session=session)

    wall_seconds(decide, 10)
    return wall_seconds(decide)


def _stall(engine: EmbeddedEngine, question: tuple[list[str], bytes, list[bytes]]) -> float:
    """The longest that another thread stood still while a call ran, as a part of the call."""
    names, shared, views = question
    times = STALLED_VIEWS // len(views)
    parts = []
    for _ in range(9):
        span: list[float] = []

        def call(span: list[float] = span) -> None:
            begin = time.perf_counter()
            engine.evaluate(names * times, shared, views * times, timeout_seconds=SECONDS)
            span.append(time.perf_counter() - begin)

        thread = threading.Thread(target=call)
        longest, before = 0.0, time.perf_counter()
        thread.start()
        while thread.is_alive():
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
        thread.join()
        parts.append(longest / span[0])
    return statistics.median(parts)


def _in_parallel(ask: Callable[[int], object], worker: Callable[..., Any], count: int = 2) -> float:
    """Calls a second of `count` workers at once."""

    def work() -> None:
        for number in range(CALLS):
            ask(number)

    workers = [worker(target=work) for _ in range(count)]
    begin = time.perf_counter()
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    return count * CALLS / (time.perf_counter() - begin)


def _said(number: int) -> Message:
    role = Role.USER if number % 2 == 0 else Role.ASSISTANT
    return Message(role=role, content=[TextPart(text=f"{documents.mark(number, 'turn')} {documents.answer(number)}")])


def _turn(turns: int) -> float:
    """Seconds of judging one message more, after `turns` of the session that is kept."""
    guard = Guard()
    for number in range(turns):
        guard.run(_said(number), session="s", subject={"id": "ann"})
    spent = []
    for number in range(turns, turns + 9):
        message = _said(number)
        begin = time.process_time()
        guard.run(message, session="s", subject={"id": "ann"})
        spent.append(time.process_time() - begin)
    return statistics.median(spent)


def _resent(turns: int, policies: PolicySet) -> dict[str, float]:
    """A conversation that is sent whole each time: what its last turn evaluates, and what it takes."""
    engine = build_engine(policies, "embedded", Config())
    assert isinstance(engine, ReusingEngine)
    guard = Guard(policies, engine=engine)
    messages = [_said(number) for number in range(turns + 3)]
    spent, asked = [], []
    for last in (turns, turns + 1, turns + 2):
        request = Request(model="anthropic:claude-sonnet", messages=messages[: last + 1])
        before, begin = engine.counts, time.process_time()
        guard.run(request, subject={"id": "ann"})
        spent.append(time.process_time() - begin)
        asked.append(engine.counts.views - engine.counts.reused - (before.views - before.reused))
    return {"seconds": statistics.median(spent[1:]), "judged_anew": statistics.median(asked[1:])}


_RULE = """# METADATA
# title: A rule among many
# custom:
#   code: many.rule-{number}
#   severity: high
#   kinds: [{kind}]
package cmf.rules.many.rule_{number}

deny contains {{"code": "many.rule-{number}", "reason": "It says the word."}} if {{
	some word in _words
	contains(input.content, word)
}}

_words := {{"never{number}", "nowhere{number}", "nobody{number}"}}
"""


def _rules(count: int) -> float:
    """Seconds for one text, of which 25 rules are asked, in a set of `count`."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind = "text" if number < RULES[0] else ("tool_call", "resource", "image", "request")[number % 4]
            place = Path(folder) / f"cmf/rules/many/rule_{number}/rule_{number}.rego"
            place.parent.mkdir(parents=True)
            place.write_text(_RULE.format(number=number, kind=kind))
        policies = policy_set.load(folder)
    modules = [(module.path, module.text) for module in policies.modules]
    engine = EmbeddedEngine(modules, policies.data, policies.entrypoints, check_every=0)
    view = b'{"kind": "text", "properties": {}, "extensions": {}, "content": "some words that nobody minds"}'
    spent = []
    for _ in range(9):
        begin = time.thread_time()
        for _ in range(50):
            engine.evaluate(["data.cmf.main.text.decision"], b"{}", [view], timeout_seconds=SECONDS)
        spent.append((time.thread_time() - begin) / 50)
    return statistics.median(spent)
