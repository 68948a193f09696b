"""A streamed answer, released piece by piece as it is judged [D7, E1]. Spec: docs/spec/gateway.md [GW-70] ff.

Whenever enough text has arrived, the answer so far is judged as if it ended there. What policy leaves of it goes out,
except for as many characters at its end as the rules look ahead: these may be the beginning of something that a rule
matches. Whatever is not text is held until the end, when the whole answer is judged once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from cmf import adapters
from cmf.adapters.base import WireEvent
from cmf.adapters.stream import StreamEvent, TextDelta, ThinkingDelta, ToolUseStart
from cmf.content import TextPart, ThinkingPart
from cmf.enums import MessageStatus, StopReason, ViewKind
from cmf.errors import CmfError
from cmf.request import Response
from cmf.value import replace
from pipeline.context import Context
from pipeline.emission import emit_events
from pipeline.errors import Denied, EmissionError
from pipeline.gateway.dialects import Dialect
from pipeline.gateway.reply import Reply
from pipeline.gateway.window_events import Diverged, Sent
from pipeline.guard import Guard
from pipeline.outcome import Outcome, raised
from pipeline.policies.lookahead import Lookaheads, held_at_end, least_held, open_word

_SHARE: Final = 8  # judge again after an eighth more: then all judgements cost about eight times one of the whole
_KINDS: Final[Mapping[type, ViewKind]] = {TextPart: ViewKind.TEXT, ThinkingPart: ViewKind.THINKING}


class Window:
    """Follows one streamed answer, and releases what has been judged.

    Args:
        guard: judges it.
        context: the facts of the run; its history is the request that went out.
        dialect: the client's.
        reply: where it is sent.
        as_judged: adds the id and whatever else the client's dialect requires.
        step: after how many more characters, at least, it is judged again.
    """

    def __init__(
        self,
        guard: Guard,
        context: Context,
        dialect: Dialect,
        reply: Reply,
        as_judged: Callable[[Response], Response],
        step: int,
    ) -> None:
        self._guard = guard
        self._context = context
        self._dialect = dialect
        self._reply = reply
        self._as_judged = as_judged
        self._step = step
        self._kind: ViewKind | None = None  # of the part that is arriving
        self._part_size = 0  # its characters so far
        self._word = 0  # characters of the unfinished word at its end
        self._total = 0
        self._judged_at: int | None = None  # the total when the answer was last judged
        self._next_part_begun = False  # whether a part was completed since then
        self._holds_rest = False  # whether everything from here on is held until the end
        self._policies = guard.policies
        self._needs: dict[ViewKind, Lookaheads | None] = {}
        self._refused_at: int | None = None  # the total when policy first refused the answer so far
        self._sent = Sent(dialect)
        self.released = 0  # characters of the answer that were sent

    def observe(self, event: StreamEvent) -> None:
        """Take note of an event that arrived."""
        match event:
            case TextDelta() | ThinkingDelta():
                kind = ViewKind.TEXT if isinstance(event, TextDelta) else ViewKind.THINKING
                if kind is not self._kind:
                    self._next_part_begun = self._kind is not None
                    self._kind, self._part_size, self._word = kind, 0, 0
                word = open_word(event.text)
                self._word = word + (self._word if word == len(event.text) else 0)
                self._part_size += len(event.text)
                self._total += len(event.text)
            case ToolUseStart():
                self._next_part_begun = True

    async def pause(self, so_far: Callable[[], Response]) -> None:
        """Judge the answer so far if enough has arrived, and release what may go.

        Raises:
            DecisionError: policy refuses the answer as it is so far, or cannot be asked. ClientDisconnected.
        """
        if self._holds_rest or not self._is_due():
            return
        self._judged_at, self._next_part_begun = self._total, False
        found = self._judgeable(so_far())
        if found is None:
            return
        answer, held = found
        try:
            outcome = raised(await _judged_to_the_end(self._guard, answer, self.facts))
        except Denied:
            if self._is_settled(held):
                raise
            return
        self._refused_at = None
        hidden = self._hidden(answer, outcome, held)
        if hidden is None:
            return
        try:
            new = self._sent.partly(emit_events(outcome, self._dialect.name), hidden)
        except (Diverged, CmfError, EmissionError):  # judging the whole answer will show what is wrong
            self._holds_rest = True
            return
        self.released = max(self.released, _characters(outcome.response) - len(hidden))
        await self._write(new, outcome)

    async def end(self, outcome: Outcome, events: list[WireEvent]) -> None:
        """Send the rest. `events` are the whole answer's; Diverged if what was sent is not how they begin."""
        await self._write(self._sent.rest(events), outcome)

    @property
    def facts(self) -> Context:
        """The context to judge in now, with how much of the answer was sent already."""
        return replace(self._context, released=self.released) if self.released else self._context

    @property
    def sent(self) -> Sent:
        """The events that were sent."""
        return self._sent

    def _is_due(self) -> bool:
        fresh = self._total - (self._judged_at or 0)
        if fresh < (1 if self._judged_at is None else max(self._step, self._total // _SHARE)):
            return False
        if self._next_part_begun:
            return True
        ahead = None if self._kind is None else self._needed(self._kind)
        return ahead is not None and self._part_size > least_held(self._word, ahead)

    def _is_settled(self, held: int) -> bool:
        """Whether a refusal is final: no text to come can change what was there when policy first refused."""
        if self._refused_at is None:
            self._refused_at = self._total
        return self._total - held >= self._refused_at

    def _needed(self, kind: ViewKind) -> Lookaheads | None:
        """How far the current rules look ahead; None if one of them has to see the whole text."""
        policies = self._guard.policies
        if policies is not self._policies:
            self._policies, self._needs = policies, {}
        if kind not in self._needs:
            self._needs[kind] = policies.lookaheads(kind)
        return self._needs[kind]

    def _judgeable(self, response: Response) -> tuple[Response, int] | None:
        """The answer so far as if it ended here, and how many characters at its end are held; None to wait for more.

        It ends before the first part that is not text, and before text whose rules must see the whole of it.
        """
        response = self._in_one_text(response)
        if response.error is not None or len(response.choices) != 1 or self._needed(ViewKind.RESPONSE) is None:
            self._holds_rest = True
            return None
        (choice,) = response.choices
        parts = choice.message.content
        count = next((at for at, part in enumerate(parts) if type(part) not in _KINDS), len(parts))
        held = 0
        if count < len(parts):
            self._holds_rest = True  # what follows another part is held with it
        elif count:
            last = parts[-1]
            ahead = self._needed(_KINDS[type(last)])
            held = len(_text(last)) if ahead is None else held_at_end(_text(last), ahead)
            if held >= len(_text(last)):
                count, held = count - 1, 0
        if not count:
            return None
        message = replace(choice.message, content=parts[:count], status=MessageStatus.COMPLETE)
        ended = replace(choice, message=message, stop_reason=StopReason.END, raw_stop_reason=None)
        return self._as_judged(replace(response, choices=(ended,))), held

    def _hidden(self, answer: Response, outcome: Outcome, held: int) -> str | None:
        """The end of the last text, as policy left it, that is not sent yet; None if nothing is sent now.

        A redaction is final only if it begins before the last `held` characters; after any other, text is held back.
        """
        judged = outcome.response
        if (
            judged is None
            or self._in_one_text(judged) is not judged
            or outcome.decision.revision != self._policies.revision
        ):
            return None
        if not held:
            return ""
        last, left = answer.message.content[-1], (judged.message.content or (None,))[-1]
        if type(left) is not type(last):
            return None
        before, after = _text(last), _text(left)
        if before == after:
            return after[-held:]
        if isinstance(last, ThinkingPart):
            return None  # once its signature arrives, changed thinking is removed whole
        if after[-held:] == before[-held:]:
            return after[-held:]
        settled = len(before) - held
        pairs = zip(before[:settled], after, strict=False)
        shown = next((at for at, (one, other) in enumerate(pairs) if one != other), min(settled, len(after)))
        return after[shown:] if shown else None

    def _in_one_text(self, response: Response) -> Response:
        return adapters.get(self._dialect.name).in_one_text(response, streamed=True)

    async def _write(self, events: list[WireEvent], outcome: Outcome) -> None:
        if events:
            await self._reply.piece(
                b"".join(map(self._dialect.frame, events)), self._dialect.stream_type, outcome.decision
            )


def _text(part: object) -> str:
    return part.text or "" if isinstance(part, TextPart | ThinkingPart) else ""


def _characters(response: Response | None) -> int:
    return 0 if response is None else sum(len(_text(part)) for part in response.message.content)


_judging: Final[set[asyncio.Task[Outcome]]] = set()


async def _judged_to_the_end(guard: Guard, answer: Response, context: Context) -> Outcome:
    """The outcome of judging `answer`. If the client leaves meanwhile, the run still ends and goes on record."""
    task = asyncio.ensure_future(guard.arun(answer, context=context))
    _judging.add(task)
    task.add_done_callback(_judging.discard)
    return await asyncio.shield(task)


__all__ = ["Window"]
