"""Turn N of a conversation of N messages, with its session kept: what one more message costs after decoding."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from bench.rounds import Effort, Figure, Ratio, Report
from cmf.json.value import to_bytes
from cmf.message.message import Message
from cmf.message.request import Request
from pipeline import Context, Pipeline
from pipeline.engines.verdict_cache import ReusingEngine

Kind: TypeAlias = Callable[[int], list[dict[str, Any]]]
How: TypeAlias = Literal["the same objects", "decoded anew after others", "decoded anew at once"]

LENGTHS = (10, 100, 1_000)
CACHES = 16 << 20  # bytes, more than a core's own caches hold
SAME: Final = "the same objects"
AFTER_OTHERS: Final = "decoded anew after others"
AT_ONCE: Final = "decoded anew at once"
HELD_TO: Final[tuple[How, ...]] = (SAME, AFTER_OTHERS)
BEFORE = 2  # times that the turn before is sent, until all that can be taken over is


def talk(number: int) -> list[dict[str, Any]]:
    """A question and its answer."""
    return [
        _text("user", f"question {number} about the report of the quarter"),
        _text("assistant", f"answer {number}: the figures are as agreed, see the attached pages"),
    ]


def agent(number: int) -> list[dict[str, Any]]:
    """A call of a tool and its result."""
    call = {"content_type": "tool_call", "name": "search", "arguments": {"q": f"report {number}"}}
    result = {"content_type": "tool_result", "content": [{"id": number, "body": f"the figures of {number} are fine"}]}
    return [
        {"role": "assistant", "content": [{**call, "tool_call_id": f"c{number}"}]},
        {"role": "tool", "content": [{**result, "tool_call_id": f"c{number}"}]},
    ]


def masked(number: int) -> list[dict[str, Any]]:
    """As `talk`, with a card number at the beginning that is masked anew each turn."""
    first = [_text("user", "pay with 4111 1111 1111 1111"), _text("assistant", "which one?")]
    return talk(number) if number else first


def _text(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"content_type": "text", "text": text}]}


class Session:
    """One session, whose turn before the last is sent again and again, and each time another last one after it."""

    def __init__(self, pipeline: Pipeline, kind: Kind, length: int, how: How) -> None:
        self._pipeline = pipeline
        self._how = how
        bodies = [body for number in range(length // 2 + 1) for body in kind(number)][: length - 1]
        self._messages = [Message.model_validate(body) for body in bodies]
        self._context = Context(session=f"{kind.__name__}-{length}-{how}", subject={"id": "ann"})
        self._turns = 0

    def turn(self) -> tuple[float, int]:
        """Seconds of CPU after decoding, and evaluations that the engine made."""
        self._turns += 1
        for _ in range(BEFORE):
            self._sent([])
        return self._sent([Message.model_validate(_text("user", f"turn {self._turns} of {self._context.session}"))])

    def _sent(self, last: list[Message]) -> tuple[float, int]:
        request = Request(model="openai:gpt", messages=[*self._messages, *last])
        body = to_bytes(request)
        if self._how == AFTER_OTHERS:
            _others()
        if self._how != SAME:
            request = Request.model_validate_json(body)
        before = _evaluations(self._pipeline)
        begin = time.thread_time()
        outcome = self._pipeline.run(request, self._context)
        spent = time.thread_time() - begin
        if outcome.value is None:
            raise RuntimeError("a turn was refused")
        return spent, _evaluations(self._pipeline) - before


def _others() -> None:
    """What the processor's caches had of this session is gone, as it is where others were served in between."""
    bytearray(CACHES)[::-1]


def _evaluations(pipeline: Pipeline) -> int:
    engine = pipeline._runner._engine
    if not isinstance(engine, ReusingEngine):
        raise TypeError("evaluations are counted by the engine that reuses verdicts")
    return engine.counts.evaluations


def measure(effort: Effort) -> Report:
    """All sessions in turn within each round."""
    pipeline = Pipeline()
    kinds = (talk, agent, masked)
    sessions = {
        (kind, length, how): Session(pipeline, kind, length, how)
        for kind in kinds
        for length in LENGTHS
        for how in (*HELD_TO, AT_ONCE)
    }
    report = Report(
        "Turn N of a conversation of N messages",
        "The shipped policies, one session a conversation. The turn before is sent, and then turn N: all messages but "
        "the last come again, as the same objects or decoded anew, and the last is new. `talk` is text, `agent` calls "
        "tools, in `masked` the first message is edited each turn. CPU time of `Pipeline.run` after decoding; "
        "evaluations are those of the engine. `after others`: before it is decoded, 16 MB are written, as where other "
        "sessions are served between two turns. `at once`: decoding 1,000 messages leaves nothing else in the "
        "processor's caches and decoding 10 leaves all there is, so these two cannot be compared.",
    )
    samples: dict[tuple[Kind, int, How], list[tuple[float, int]]] = {place: [] for place in sessions}
    for _ in range(effort.rounds * 3):
        for place, session in sessions.items():
            samples[place].append(session.turn())
    figures: dict[tuple[Kind, int, How], Figure] = {}
    for (kind, length, how), each in samples.items():
        figure = Figure(f"{kind.__name__}, turn {length}, {how}", "µs", tuple(spent * 1e6 for spent, _ in each))
        figures[kind, length, how] = figure
        report.figures.append(figure)
    for kind in kinds:
        for length in LENGTHS:
            made = tuple(float(count) for _, count in samples[kind, length, SAME])
            report.figures.append(Figure(f"{kind.__name__}, turn {length}", "evaluations", made))
        for how in HELD_TO:
            ratio = figures[kind, LENGTHS[-1], how].over(figures[kind, LENGTHS[0], how])
            report.ratios.append(Ratio(f"{kind.__name__}, turn 1,000 / turn 10, {how}", ratio, "≤ 1.5"))
        most = max(count for length in LENGTHS for _, count in samples[kind, length, SAME])
        report.ratios.append(Ratio(f"{kind.__name__}, most evaluations of a turn", most, "≤ 4"))
    return report
