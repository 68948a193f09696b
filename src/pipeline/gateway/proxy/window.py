"""A streamed answer, released piece by piece as it is judged [D7, E1]. Spec: docs/spec/gateway.md [GW-70] ff.

Whenever enough text has arrived, the answer so far is judged as if it ended there. What policy leaves of it goes out,
except for as many characters at its end as the rules look ahead: these may be the beginning of something that a rule
matches. The texts of an answer are one text for this, whatever stands between them, and so is its thinking. Whatever is
neither is held until the end, when the whole answer is judged once more.

The events of the answer so far and those of the whole answer come from the same writer, so they are equal up to the
texts that are still growing. What is new in these is sent as further events; all other events follow in order. Where a
text may still go on, what would close it waits for the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import StreamEvent, TextDelta, ThinkingDelta
from cmf.enums import MessageStatus, StopReason, ViewKind
from cmf.errors import CmfError
from cmf.json.value import replace
from cmf.message.message import Message, Part, TextPart, ThinkingPart
from cmf.message.request import Response
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import Denied, EmissionError
from pipeline.gateway.http.client_response import Reply
from pipeline.gateway.http.dialects import Dialect
from pipeline.gateway.http.refusal import Refusal
from pipeline.guard import Guard
from pipeline.policy.lookahead import Lookaheads, held_at_end, least_held, open_word
from pipeline.run.emit import emit_events
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised


class Diverged(Exception):
    """The events that were sent are not how the events of this answer begin."""


class _TextEvents:
    """How a dialect's events hold text that a further event can continue. Most have no blocks, and nothing to add.

    Each has `place(at, data)`: what tells the event, the one at `at`, from the others of the answer, also from those
    yet to come; `read(data)`: its text, None if it has none; `write(data, text)`: the event with `text` instead of its
    own; `is_thinking(data)`: whether its text is thinking.
    """

    place: Callable[..., Hashable]
    is_thinking: Callable[..., bool]
    read: Callable[..., str | None]
    write: Callable[..., Any]
    block_key = ""

    def block(self, data: Any) -> Hashable:
        """The block in which the event's text stands, and which a later event closes; None if there are no blocks."""
        number: Hashable = data.get(self.block_key) if self.block_key else None
        return number

    def unended(self, data: Any) -> Any:
        """The event without anything that ends the answer."""
        return data

    def late(self, data: Any, _first: Any) -> Any:
        """The event with what changed in the stream's first event after that was sent."""
        return data


class Sent:
    """The events that were sent to one client; `number` of them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._text_events = _TEXT_EVENTS[dialect.name]
        self._out: dict[Hashable, tuple[str | None, Any]] = {}  # by place: the text, if any, and the event without it
        self.number = 0

    def partly(self, events: Sequence[WireEvent], shown: Mapping[str, str]) -> list[WireEvent]:
        """What is new in the events of an unfinished answer up to its last text.

        `shown` is how each text in them begins, as far as it may be sent.

        Raises:
            Diverged: what was sent is not how it begins, or one of its texts is not in `shown`.
        """
        texts = [self._read(event) for event in events]
        last = max((at for at, text in enumerate(texts) if text is not None), default=-1)
        growing = {self._text_events.is_thinking(events[at].get("data")): at for at in range(last + 1) if texts[at]}
        open_blocks: set[Hashable] = set()
        stopped: set[bool] = set()  # where a text of a kind stops, no later one of that kind may begin
        partial: dict[int, WireEvent] = {}
        for at, event in enumerate(events[: last + 1]):
            data, text = event.get("data"), texts[at]
            block = self._text_events.block(data)
            if text is None:
                if block is None or block not in open_blocks:
                    partial[at] = event
                continue
            if text not in shown:
                raise Diverged
            kind = self._text_events.is_thinking(data)
            begin = "" if kind in stopped else shown[text]
            if begin:
                partial[at] = _with(event, self._text_events.write(self._text_events.unended(data), begin))
            if begin != text:
                stopped.add(kind)
            if at in growing.values() or begin != text:
                open_blocks.add(block)
        return self._grown(events, partial)

    def rest(self, events: Sequence[WireEvent]) -> list[WireEvent]:
        """The events of the whole answer that are still to be sent; Diverged as for `partly`."""
        if self._out:
            first = events[0].get("data")
            later = (_with(event, self._text_events.late(event.get("data"), first)) for event in events[1:])
            events = [*events[:1], *later]
        return self._grown(events, dict(enumerate(events)), whole=True)

    def error(self, refusal: Refusal, request_id: str) -> WireEvent:
        """The event that ends the stream in place of the rest of the answer."""
        fields = self._dialect.error(refusal, request_id)
        if self._dialect.name == "openai_responses":
            defaults = {"type": "error", "code": refusal.code, "message": refusal.message, "param": None}
            return {"event": "error", "data": {**defaults, **fields, "sequence_number": self.number}}
        if self._dialect.name == "anthropic_messages":
            return {"event": "error", "data": fields}
        return {"data": fields}

    def _grown(
        self, events: Sequence[WireEvent], ready: Mapping[int, WireEvent], *, whole: bool = False
    ) -> list[WireEvent]:
        """What is new in the events that are ready; Diverged if one that was sent is not among `events`."""
        places = [self._text_events.place(at, event.get("data")) for at, event in enumerate(events)]
        if not self._out.keys() <= set(places):
            raise Diverged
        new: list[WireEvent] = []
        for at, event in ready.items():
            text, data = self._read(event), event.get("data")
            frame = None if text is None else self._text_events.write(data, "")
            if places[at] not in self._out:
                new.append(event)
            else:
                sent, sent_frame = self._out[places[at]]
                more = self._more(sent, text, whole=whole)
                if more is None:
                    continue
                if text is not None and (more or frame != sent_frame):
                    new.append(_with(event, self._text_events.write(data, more)))
            self._out[places[at]] = text, frame
        return [self._numbered(event) for event in new]

    @staticmethod
    def _more(sent: str | None, text: str | None, *, whole: bool) -> str | None:
        """The text beyond what was sent; None where an unfinished answer shows less for now."""
        if sent is None or text is None:
            if sent is not text:
                raise Diverged
            return ""
        if text.startswith(sent):
            return text[len(sent) :]
        if whole or not sent.startswith(text):
            raise Diverged
        return None

    def _read(self, event: WireEvent) -> str | None:
        return self._text_events.read(event.get("data"))

    def _numbered(self, event: WireEvent) -> WireEvent:
        number, self.number = self.number, self.number + 1
        data = event.get("data")
        if not isinstance(data, dict) or "sequence_number" not in data:
            return event
        return _with(event, {**data, "sequence_number": number})


def _with(event: WireEvent, data: Any) -> WireEvent:
    changed = event.copy()
    changed["data"] = data
    return changed


# -- where each dialect holds text -------------------------------------------------------------------------------------


class _Chat(_TextEvents):
    _KEYS: Final = ("content", "reasoning_content", "reasoning", "reasoning_text", "refusal")

    def place(self, at: int, data: Any) -> Hashable:
        """The field: the writer puts them in an order of its own, whichever began first."""
        choices = data.get("choices") if isinstance(data, dict) else None
        if not choices:
            return at
        field = next(iter(choices[0]["delta"]), None)
        return (choices[0]["index"], field) if field in (*self._KEYS, "role") else at

    def is_thinking(self, data: Any) -> bool:
        return self._key(data) not in ("content", "refusal")

    def read(self, data: Any) -> str | None:
        key = self._key(data)
        return None if key is None else str(data["choices"][0]["delta"][key])

    def write(self, data: Any, text: str) -> Any:
        (choice,) = data["choices"]
        delta = {**choice["delta"], self._key(data): text}
        return {**data, "choices": [{**choice, "delta": delta}]}

    @staticmethod
    def _key(data: Any) -> str | None:
        choices = data.get("choices") if isinstance(data, dict) else None
        delta = choices[0]["delta"] if choices else {}
        return next((key for key in _Chat._KEYS if _is_text(delta, key)), None)


class _Responses(_TextEvents):
    block_key = "output_index"
    _DELTAS: Final = frozenset(
        {"response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta"}
    )

    def place(self, at: int, data: Any) -> Hashable:
        return at, data["type"]

    def is_thinking(self, data: Any) -> bool:
        return str(data["type"]).startswith("response.reasoning")

    def read(self, data: Any) -> str | None:
        return str(data["delta"]) if data["type"] in self._DELTAS else None

    def write(self, data: Any, text: str) -> Any:
        return {**data, "delta": text}


class _Messages(_TextEvents):
    block_key = "index"
    _KEYS: Final = {"text_delta": "text", "thinking_delta": "thinking"}

    def place(self, at: int, data: Any) -> Hashable:
        return at, data["type"], (data.get("content_block") or data.get("delta") or {}).get("type")

    def is_thinking(self, data: Any) -> bool:
        return bool(data["delta"]["type"] == "thinking_delta")

    def read(self, data: Any) -> str | None:
        delta = data["delta"] if data["type"] == "content_block_delta" else {}
        key = self._KEYS.get(str(delta.get("type")))
        return None if key is None else str(delta[key])

    def write(self, data: Any, text: str) -> Any:
        delta = data["delta"]
        return {**data, "delta": {**delta, self._KEYS[delta["type"]]: text}}

    def late(self, data: Any, first: Any) -> Any:
        """The event with the usage in `first`, which some upstreams send only at the end."""
        if data["type"] != "message_delta":
            return data
        return {**data, "usage": {**first["message"].get("usage", {}), **data.get("usage", {})}}


class _Gemini(_TextEvents):
    def place(self, at: int, data: Any) -> Hashable:
        return at, self.is_thinking(data)

    def is_thinking(self, data: Any) -> bool:
        return any(part.get("thought") for part in self._parts(data))

    def read(self, data: Any) -> str | None:
        parts = self._parts(data)
        texts = [part["text"] for part in parts if _is_text(part, "text")]
        return "".join(texts) if texts and len(texts) == len(parts) else None

    def write(self, data: Any, text: str) -> Any:
        (candidate,) = data["candidates"]
        content = candidate["content"]
        (*_, last) = content["parts"]
        return {**data, "candidates": [{**candidate, "content": {**content, "parts": [{**last, "text": text}]}}]}

    def unended(self, data: Any) -> Any:
        (candidate,) = data["candidates"]
        content = candidate["content"]
        parts = [{key: part[key] for key in ("text", "thought") if key in part} for part in content["parts"]]
        kept = {
            "content": {**content, "parts": parts},
            **{key: candidate[key] for key in ("index",) if key in candidate},
        }
        return {**{key: data[key] for key in ("modelVersion", "responseId") if key in data}, "candidates": [kept]}

    @staticmethod
    def _parts(data: Any) -> list[Any]:
        candidates = data.get("candidates") or [{}]
        parts = candidates[0].get("content", {}).get("parts") if len(candidates) == 1 else None
        return parts if isinstance(parts, list) else []


class _Ollama(_TextEvents):
    def place(self, at: int, data: Any) -> Hashable:
        """The field, as for chat completions; the last line has neither."""
        return self._key(data.get("message", {})) or at

    def is_thinking(self, data: Any) -> bool:
        return self._key(data["message"]) == "thinking"

    def read(self, data: Any) -> str | None:
        message = data.get("message", {})
        key = self._key(message)
        return None if key is None else str(message[key])

    def write(self, data: Any, text: str) -> Any:
        message = data["message"]
        return {**data, "message": {**message, self._key(message): text}}

    @staticmethod
    def _key(message: Any) -> str | None:
        return next((key for key in ("thinking", "content") if _is_text(message, key)), None)


def _is_text(holder: Any, key: str) -> bool:
    return isinstance(holder.get(key), str) and bool(holder[key])


_TEXT_EVENTS: Final[dict[str, _TextEvents]] = {
    "openai_chat": _Chat(),
    "openai_responses": _Responses(),
    "anthropic_messages": _Messages(),
    "gemini": _Gemini(),
    "ollama": _Ollama(),
}


_SHARE: Final = 8  # judge again after an eighth more: then all judgements cost about eight times one of the whole
_KINDS: Final[Mapping[type, ViewKind]] = {TextPart: ViewKind.TEXT, ThinkingPart: ViewKind.THINKING}


@dataclass
class Window:
    """Follows one streamed answer, and releases what has been judged.

    Attributes:
        context: the facts of the run; its history is the request that went out.
        as_judged: adds the id and whatever else the client's dialect requires.
        step: after how many more characters, at least, it is judged again.
    """

    guard: Guard
    context: Context
    dialect: Dialect
    reply: Reply
    as_judged: Callable[[Response], Response]
    step: int

    def __post_init__(self) -> None:
        self._kind: ViewKind | None = None  # of the text that is arriving
        self._sizes: dict[ViewKind, int] = {}  # characters so far
        self._words: dict[ViewKind, int] = {}  # characters of the unfinished word at the end
        self._judged_at: int | None = None  # the total when the answer was last judged
        self._holds_rest = False  # whether everything from here on is held until the end
        self._policies = self.guard.policies
        self._needs: dict[ViewKind, Lookaheads | None] = {}
        self._refused_at: dict[ViewKind, int] = {}  # the sizes when policy first refused the answer so far
        self.sent = Sent(self.dialect)  # the events that were sent
        self.released = 0  # characters of the answer that were sent

    def observe(self, event: StreamEvent) -> None:
        """Take note of an event that arrived."""
        if not isinstance(event, TextDelta | ThinkingDelta):
            return
        kind = self._kind = ViewKind.TEXT if isinstance(event, TextDelta) else ViewKind.THINKING
        word = open_word(event.text)
        self._words[kind] = word + (self._words.get(kind, 0) if word == len(event.text) else 0)
        self._sizes[kind] = self._sizes.get(kind, 0) + len(event.text)

    async def pause(self, so_far: Callable[[], Response]) -> None:
        """Judge the answer so far if enough has arrived, and release what may go.

        Raises:
            DecisionError: policy refuses the answer as it is so far, or cannot be asked. ClientDisconnected.
        """
        if self._holds_rest or not self._is_due():
            return
        self._judged_at = self._total
        answer = await apart(lambda: self._judgeable(self.as_arrived(so_far())))
        if answer is None:
            return
        held = await apart(self._held, answer.message.content)
        try:
            outcome = raised(await _judged_to_the_end(self.guard, answer, self.facts))
        except Denied as error:
            if self._is_settled(error, answer.message.content, held):
                raise
            return
        self._refused_at = {}
        shown = await apart(self._shown, answer, outcome, held)
        if not any(shown):
            return
        try:
            new = await apart(self._new, outcome, shown)
        except (Diverged, CmfError, EmissionError):  # judging the whole answer will show what is wrong
            self._holds_rest = True
            return
        self.released = max(self.released, sum(map(len, shown)))
        await self._write(new, outcome)

    def _new(self, outcome: Outcome, shown: Sequence[str]) -> list[WireEvent]:
        """The events that the client has not got yet, of those that show the texts this far."""
        texts: dict[str, str] = {}  # what is shown of each; of equal ones, the least
        response = outcome.response
        for part, begin in zip(() if response is None else response.message.content, shown, strict=True):
            texts[_text(part)] = min(begin, texts.get(_text(part), begin), key=len)
        return self.sent.partly(emit_events(outcome, self.dialect.name), texts)

    def as_arrived(self, response: Response) -> Response:
        """The response, written plainly, with its first text before its thinking if it arrived before that.

        How a body was written depends on the whole of it, and some formats have both in fields that have no order.
        """
        choices = [replace(choice, message=self._in_order(choice.message)) for choice in response.choices]
        return replace(response, choices=tuple(choices), provider_raw=None)

    def _in_order(self, message: Message) -> Message:
        parts = message.content
        first = next((at for at, part in enumerate(parts) if not isinstance(part, ThinkingPart)), 0)
        if next(iter(self._sizes), None) is ViewKind.TEXT and first and isinstance(parts[first], TextPart):
            parts = (parts[first], *parts[:first], *parts[first + 1 :])
        return replace(message, content=parts, provider_raw=None)

    async def end(self, outcome: Outcome, events: list[WireEvent]) -> None:
        """Send the rest. `events` are the whole answer's; Diverged if what was sent is not how they begin."""
        await self._write(await apart(self.sent.rest, events), outcome)

    @property
    def facts(self) -> Context:
        """The context to judge in now, with how much of the answer was sent already."""
        return replace(self.context, released=self.released) if self.released else self.context

    @property
    def _total(self) -> int:
        return sum(self._sizes.values())

    def _is_due(self) -> bool:
        fresh = self._total - (self._judged_at or 0)
        if self._kind is None or fresh < (1 if self._judged_at is None else max(self.step, self._total // _SHARE)):
            return False
        ahead = self._needed(self._kind)
        return ahead is not None and self._sizes[self._kind] > least_held(self._words[self._kind], ahead)

    def _is_settled(self, error: Denied, parts: Sequence[Part], held: Sequence[int]) -> bool:
        """Whether a refusal is final: no text to come can change what was there when policy first refused."""
        sizes, fixed = dict.fromkeys(_KINDS.values(), 0), dict.fromkeys(_KINDS.values(), 0)
        for part, size in zip(parts, held, strict=True):
            sizes[_KINDS[type(part)]] += len(_text(part))
            fixed[_KINDS[type(part)]] += len(_text(part)) - size
        self._refused_at = self._refused_at or sizes
        refused = {line.kind for line in error.decision.views if line.outcome is Action.REFUSE}
        kinds = [kind for kind in fixed if kind in refused] or fixed
        return all(fixed[kind] >= self._refused_at[kind] for kind in kinds)

    def _needed(self, kind: ViewKind) -> Lookaheads | None:
        """How far the current rules look ahead; None if one of them has to see the whole text."""
        policies = self.guard.policies
        if policies is not self._policies:
            self._policies, self._needs = policies, {}
        if kind not in self._needs:
            self._needs[kind] = policies.lookaheads(kind)
        return self._needs[kind]

    def _judgeable(self, response: Response) -> Response | None:
        """The answer so far as if it ended here; None to wait for more.

        It ends before the first part that is no text, and before text whose rules must see the whole of it.
        """
        response = self._in_one_text(response)
        if response.error is not None or len(response.choices) != 1 or self._needed(ViewKind.RESPONSE) is None:
            self._holds_rest = True
            return None
        (choice,) = response.choices
        parts = choice.message.content
        count = next((at for at, part in enumerate(parts) if type(part) not in _KINDS), len(parts))
        self._holds_rest = count < len(parts)  # what follows another part is held with it
        waits = (at for at, part in enumerate(parts[:count]) if self._needed(_KINDS[type(part)]) is None)
        count = next(waits, count)
        if not count:
            return None
        message = replace(choice.message, content=parts[:count], status=MessageStatus.COMPLETE)
        ended = replace(choice, message=message, stop_reason=StopReason.END, raw_stop_reason=None)
        return self.as_judged(replace(response, choices=(ended,)))

    def _held(self, parts: Sequence[Part]) -> list[int]:
        """How many characters at the end of each part are held: of the parts of a kind, the end of their joined text.

        More text may go on with that end, whatever stands in between.
        """
        left = {}
        for kind in dict.fromkeys(_KINDS[type(part)] for part in parts):
            joined = "".join(_text(part) for part in parts if _KINDS[type(part)] is kind)
            needed = self._needed(kind)  # None if other rules came into force since `_judgeable` looked
            left[kind] = len(joined) if needed is None else held_at_end(joined, needed)
        held = []
        for part in reversed(parts):
            held.append(min(left[_KINDS[type(part)]], len(_text(part))))
            left[_KINDS[type(part)]] -= held[-1]
        return held[::-1]

    def _shown(self, answer: Response, outcome: Outcome, held: Sequence[int]) -> list[str]:
        """How the texts that policy left begin, as far as they may be sent; [] if nothing is sent now."""
        judged = outcome.response
        if (
            judged is None
            or self._in_one_text(judged) is not judged
            or outcome.decision.revision != self._policies.revision
        ):
            return []
        before, after = answer.message.content, judged.message.content
        if list(map(type, before)) != list(map(type, after)):
            return []
        # Changed thinking is removed whole, once its signature arrives.
        if any(
            isinstance(was, ThinkingPart) and _text(was) != _text(part) for was, part in zip(before, after, strict=True)
        ):
            return []
        return [_settled(_text(was), _text(part), size) for was, part, size in zip(before, after, held, strict=True)]

    def _in_one_text(self, response: Response) -> Response:
        return adapters.get(self.dialect.name).in_one_text(response, streamed=True)

    async def _write(self, events: list[WireEvent], outcome: Outcome) -> None:
        if events:
            data = await apart(lambda: b"".join(map(self.dialect.frame, events)))
            await self.reply.piece(data, self.dialect.stream_type, outcome.decision)


def _text(part: Part) -> str:
    return part.text or "" if isinstance(part, TextPart | ThinkingPart) else ""


def _settled(before: str, after: str, held: int) -> str:
    """The beginning of `after`, which policy made of `before`, that text behind the last `held` characters leaves.

    A redaction is final only if it begins before these characters; after any other, text is held back.
    """
    if not held or after[-held:] == before[-held:]:
        return after[: len(after) - held]
    settled = len(before) - held
    pairs = zip(before[:settled], after, strict=False)
    return after[: next((at for at, (one, other) in enumerate(pairs) if one != other), min(settled, len(after)))]


_judging: Final[set[asyncio.Task[Outcome]]] = set()


async def _judged_to_the_end(guard: Guard, answer: Response, context: Context) -> Outcome:
    """The outcome of judging `answer`. If the client leaves meanwhile, the run still ends and goes on record."""
    task = asyncio.ensure_future(guard.arun(answer, context=context))
    _judging.add(task)
    task.add_done_callback(_judging.discard)
    return await asyncio.shield(task)
