"""Gemini's answers, errors and streams, both ways. Spec: docs/spec/adapters/gemini.md [GEM-16] to [GEM-23]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from cmf.adapters.gemini.names import RESPONSE, normal, spelt
from cmf.adapters.gemini.parts import CODE, FORMAT, encode_group, is_text
from cmf.adapters.gemini.request import decode_content, http_call, read_request, write_request
from cmf.adapters.wire import loss
from cmf.adapters.wire.base import Adapter, WireEvent
from cmf.adapters.wire.fields import (
    MARK,
    PARTIAL,
    Fields,
    as_text,
    count_in,
    extra_of,
    merge,
    strings_in,
    unmarked,
)
from cmf.adapters.wire.layout import respell_one, shape_of, spelled_one
from cmf.adapters.wire.replies import in_one_text, unrecognized
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import freeze
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, TokenUsage
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.transform import has_client_call

_FILTERED: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION", "MODEL_ARMOR", "LANGUAGE",
)  # fmt: skip
_STOPS: Final[dict[str, StopReason]] = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    **dict.fromkeys(_FILTERED, StopReason.CONTENT_FILTER),
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
    "UNEXPECTED_TOOL_CALL": StopReason.ERROR,
    "TOO_MANY_TOOL_CALLS": StopReason.ERROR,
    "OTHER": StopReason.OTHER,
    "FINISH_REASON_UNSPECIFIED": StopReason.OTHER,
}
_NUMBERED: Final = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}  # where all dialects agree
COUNT: Final = "totalTokens"  # of a reply that counts tokens, and has no candidates
_KNOWN: Final = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "error", COUNT, PARTIAL}
)
"""What replies of this format have; one without any of it is somebody else's."""
_RAW: Final[dict[StopReason, str]] = {
    **dict.fromkeys(StopReason, "STOP"),
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.REFUSAL: "SAFETY",
    StopReason.CONTENT_FILTER: "SAFETY",
    StopReason.ERROR: "OTHER",
    StopReason.OTHER: "OTHER",
}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response of an answer, an error, or an error in an array (a stream's form without `alt=sse`)."""
    raw = freeze(body)
    listed = isinstance(raw, list)
    if listed:
        if len(raw) != 1 or not isinstance(raw[0], dict) or "error" not in raw[0]:
            raise ShapeError("an array is a stream's events", path="$", hint="fold them first")
        raw = raw[0]
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    whole, names = normal(raw, RESPONSE)
    if _KNOWN.isdisjoint(whole):
        return unrecognized(raw, FORMAT)
    response = _decode(whole)
    if listed:
        names["one"] = True
    notes = present(names=names or None)
    return spelled_one(response, _encode(response), unmarked(whole), format_name=FORMAT, notes=notes)


def _decode(whole: dict[str, Any]) -> Response:
    """The canonical response of a body in normal form, without its layout."""
    fields = Fields(whole, "$")
    cut = fields.peek(PARTIAL) is True
    fields.drop(PARTIAL, True)
    error = _error(fields)
    raw = fields.optional("candidates", list)
    candidates = [_candidate(each, index) for index, each in enumerate(raw or ())]
    reason, count = None, fields.peek(COUNT)
    if (feedback := fields.inside("promptFeedback")) is not None:
        reason = feedback.peek("blockReason")
        fields.leave("promptFeedback", feedback)
    if not candidates and error is None:  # of a prompt that was blocked, a stream that was cut, a model that gave none
        empty = trusted(Choice, message=trusted(Message, role=Role.ASSISTANT, content=()))
        if reason is not None:
            candidates = [replace(empty, stop_reason=StopReason.CONTENT_FILTER, raw_stop_reason=as_text(reason))]
        elif count is None:
            candidates = [empty if cut else replace(empty, stop_reason=StopReason.OTHER)]
    if cut:
        partial = MessageStatus.PARTIAL
        candidates = [replace(choice, message=replace(choice.message, status=partial)) for choice in candidates]
    usage = _usage(fields.peek("usageMetadata"))
    if usage is None and type(count) is int and 0 <= count <= SAFE_INTEGER:
        usage = trusted(TokenUsage, input_tokens=count, total_tokens=count)
    return trusted(
        Response,
        choices=tuple(candidates),
        usage=usage,
        model=fields.optional("modelVersion", str),
        error=error,
        extra=fields.rest(FORMAT),
    )


def _candidate(raw: Any, index: int) -> Choice:
    fields = Fields(raw, f"$.candidates[{index}]")
    content = fields.optional("content", dict)
    if content is None:
        message = trusted(Message, role=Role.ASSISTANT, content=())
    else:
        message = decode_content(content, f"{fields.path}.content", reply=True)[0]
    reason, stop = fields.peek("finishReason"), None
    if reason is not None:
        # A number is the place in the provider's enumeration.
        name = _NUMBERED.get(reason) if type(reason) is int else as_text(reason)
        stop = _STOPS.get(name or "", StopReason.OTHER)
        if stop is StopReason.END and has_client_call(message.content):
            stop = StopReason.CALL
        if name == reason and name in _STOPS:
            fields.take("finishReason", str)
    fields.drop("finishReason", None)
    fields.drop("index", index)
    raw_reason, extra = as_text(reason), fields.rest(FORMAT)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=raw_reason, extra=extra)


def _usage(raw: Any) -> TokenUsage | None:
    """Tokens; the prompt's without what was cached [A10], the answer's with the thoughts."""
    if not isinstance(raw, dict):
        return None
    cached = count_in(raw, "cachedContentTokenCount")
    given = max(0, count_in(raw, "promptTokenCount") - cached) + count_in(raw, "toolUsePromptTokenCount")
    output = count_in(raw, "candidatesTokenCount") + count_in(raw, "thoughtsTokenCount")
    total = count_in(raw, "totalTokenCount") or given + cached + output
    return trusted(TokenUsage, input_tokens=given, output_tokens=output, total_tokens=total, cached_input_tokens=cached)


def _error(fields: Fields) -> ErrorInfo | None:
    raw = fields.peek("error")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        return ErrorInfo(message=as_text(raw))
    error = Fields(fields.need("error", dict), "$.error")
    info = ErrorInfo(
        message=error.take("message", str),
        type=error.take("status", str),
        code=error.take("code", str),
        status=error.take("code", int),
    )
    fields.leave("error", error)
    return info


# -- writing -----------------------------------------------------------------------------------------------------------


def join_texts(response: Response, streamed: bool) -> Response:
    """The response, if streamed with neighbouring texts as one: whoever reads the stream joins them [GEM-22]."""
    if not streamed:
        return response
    return in_one_text(response, FORMAT, is_own=lambda part: FORMAT in (part.extra or ()), neighbours=True)


def write_response(response: Response) -> Any:
    """The body of a response, as it came where that still has the same content."""
    body = respell_one(_encode(response), response, format_name=FORMAT, decode=_decode)
    names = dict(shape_of(response, FORMAT).get("names") or {})
    alone = names.pop("one", False)
    body = spelt(body, names, RESPONSE)
    return [body] if alone else body


def _encode(response: Response) -> dict[str, Any]:
    """The response in normal form."""
    own, error, usage = unmarked(extra_of(response, FORMAT)), response.error, response.usage
    body: dict[str, Any] = {}
    if error is not None and isinstance(own.get("error", {}), dict):
        code = error.status if error.status is not None else error.code
        body["error"] = present(code=code, message=error.message, status=error.type)
    says_nothing = not response.choices and error is None
    if says_nothing and usage is not None and usage.total_tokens == usage.input_tokens:
        return merge({COUNT: usage.total_tokens, **present(modelVersion=response.model)}, own)
    if response.choices or says_nothing:
        body["candidates"] = [_encode_candidate(choice, index) for index, choice in enumerate(response.choices)]
    body |= present(modelVersion=response.model)
    if usage is not None and _usage(own.get("usageMetadata")) != usage:
        own.pop("usageMetadata", None)
        body["usageMetadata"] = {
            "promptTokenCount": usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": usage.total_tokens,
            **present(cachedContentTokenCount=usage.cached_input_tokens or None),
        }
    loss.drop_foreign_extra(FORMAT, response, "response")
    return merge(body, own)


def _encode_candidate(choice: Choice, index: int) -> dict[str, Any]:
    own, raw, stop = extra_of(choice, FORMAT), choice.raw_stop_reason, choice.stop_reason
    candidate: dict[str, Any] = {"content": encode_group([choice.message])}
    if "finishReason" not in own:
        word = None if stop is None else _RAW[stop]
        fits = raw is not None and raw in _STOPS and _STOPS[raw] in (stop, None if word is None else _STOPS[word])
        candidate |= present(finishReason=raw if fits else word)
    loss.drop_foreign_extra(FORMAT, choice, "choice", message=choice.message)
    if "index" not in own:
        candidate["index"] = index
    return merge(candidate, own)


# -- streams: chunks that each are a small answer, folded to one [GEM-21] ff. ------------------------------------------
# There is no closing event: a stream is whole if each candidate came to a `finishReason` after its last part.

_SUPERSEDED: Final = f"{MARK}superseded"  # values that a later chunk replaced
_UNRECOGNIZED: Final = f"{MARK}unrecognized"  # events that are no chunk
_UNSET: Final = (None, 0, "FINISH_REASON_UNSPECIFIED")  # a client's dump has these in every chunk but the last
_PIECES: Final = {  # lists of which each chunk brings its own
    "citationMetadata": ("citations", "citationSources"),
    "logprobsResult": ("chosenCandidates", "topCandidates"),
}
_MAX_STEPS: Final = 32  # of a path inside streamed arguments
_STEP: Final = re.compile(r"""\.([A-Za-z_]\w*)|\[(\d{1,6})\]|\['([^'\\]*)'\]|\["([^"\\]*)"\]""")
_VALUES: Final[dict[str, tuple[type, ...]]] = {
    "stringValue": (str,),
    "numberValue": (int, float),
    "boolValue": (bool,),
    "nullValue": (type(None), str),
}


def fold_events(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The whole answer that the chunks add up to, in normal form; marked with `cmf_partial` where it was cut."""
    fold = _Fold()
    for event in events:
        if isinstance(event, dict) and "data" in event:
            fold.add(event["data"])
    return fold.body()


class _Fold:
    """The answer so far. Nothing is lost: values that a later chunk replaces are kept beside it."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._candidates: dict[Any, _Candidate] = {}
        self._any_candidates = False
        self._superseded: list[Any] = []
        self._unread: list[Any] = []

    def add(self, data: Any) -> None:
        if isinstance(data, list):
            for each in data:
                self.add(each)
            return
        if not isinstance(data, dict):
            if data != "[DONE]":
                self._unread.append(data)
            return
        for key, value in normal(data, RESPONSE)[0].items():
            if key != "candidates" or not isinstance(value, list):
                _set(self._top, key, value, self._superseded)
                continue
            self._any_candidates = True
            seen: set[Any] = set()
            for position, raw in enumerate(value):
                if not isinstance(raw, dict):
                    self._unread.append(raw)
                    continue
                index: Any = _index(raw, position)
                index = ("again", position) if index in seen else index
                seen.add(index)
                self._candidates.setdefault(index, _Candidate(self._superseded)).add(raw)

    def body(self) -> dict[str, Any]:
        body = dict(self._top)
        candidates = list(self._candidates.values())
        if self._any_candidates:
            _settle(body, "candidates", [candidate.body() for candidate in candidates], self._superseded)
        if self._superseded:
            body[_SUPERSEDED] = self._superseded
        if self._unread:
            body[_UNRECOGNIZED] = self._unread
        feedback = self._top.get("promptFeedback")
        blocked = isinstance(feedback, dict) and feedback.get("blockReason") is not None
        ended = all(candidate.ended for candidate in candidates) if candidates else blocked or "error" in self._top
        if not ended:
            body[PARTIAL] = True
        return body


def _index(raw: dict[str, Any], position: int) -> int:
    index = raw.get("index")
    return index if type(index) is int else position


class _Candidate:
    """One candidate so far."""

    def __init__(self, superseded: list[Any]) -> None:
        self._fields: dict[str, Any] = {}
        self._content: dict[str, Any] | None = None
        self._parts: list[Any] | None = None
        self._superseded = superseded
        self._text: list[str] = []  # the pieces of the last part, if it is a text that went on
        self._arguments = _Arguments()  # of the last part, if it is a call
        self._own: dict[tuple[str, str], list[Any]] = {}  # lists of pieces that no chunk holds

    def add(self, raw: dict[str, Any]) -> None:
        for key, value in raw.items():
            if key == "content" and isinstance(value, dict):
                self._add_content(value, ends=raw.get("finishReason") not in _UNSET)
            elif key in _PIECES and isinstance(value, dict):
                self._add_pieces(key, value)
            else:
                _set(self._fields, key, value, self._superseded)

    def _add_pieces(self, key: str, value: dict[str, Any]) -> None:
        """Set `key`, with the lists that come in pieces after those before, unless it repeats them itself."""
        before = self._fields.get(key)
        if not isinstance(before, dict):
            _set(self._fields, key, dict(value), self._superseded)
            return
        lists = {name: (before.get(name), value.get(name)) for name in _PIECES[key]}
        more = {
            name: new
            for name, (old, new) in lists.items()
            if isinstance(old, list) and isinstance(new, list) and new[: len(old)] != old  # it does not repeat them
        }
        kept = len(self._superseded)
        if more.keys() < value.keys():
            rest = {name: item for name, item in value.items() if name not in more}
            _set(self._fields, key, rest, self._superseded)
        if len(self._superseded) > kept:
            self._own = {}  # what is kept there goes on no more
        for name, new in more.items():
            self._extend(self._fields[key], (key, name), new)

    def _extend(self, holder: dict[str, Any], name: tuple[str, str], items: list[Any]) -> None:
        """Put items behind those under the name's key, in a list that no chunk holds: copied once, not each time."""
        if self._own.get(name) is not holder[name[1]]:
            holder[name[1]] = self._own[name] = list(holder[name[1]])
        holder[name[1]] += items

    def _add_content(self, raw: dict[str, Any], *, ends: bool) -> None:
        if self._content is None:
            self._content = {}
        for key, value in raw.items():
            if key != "parts" or not isinstance(value, list):
                _set(self._content, key, value, self._superseded)
                continue
            if self._parts is None:
                self._parts = []
            if value and not ends and "finishReason" in self._fields:
                # It went on: that was the end of a step, such as a run of code, and not of the answer.
                self._superseded.append({"finishReason": self._fields.pop("finishReason")})
            for index, part in enumerate(value):
                self._add_part(part, first=index == 0)

    def _add_part(self, part: Any, *, first: bool) -> None:
        parts = self._parts if self._parts is not None else []
        last: Any = parts[-1] if parts else None
        if first and _is_joined(last, part):
            self._text = self._text or [last["text"]]
            self._text.append(part["text"])
            return
        if _goes_on(last, part):
            parts[-1] = self._continued(last, part)
            return
        self._settle()
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            self._arguments = _Arguments()
            parts.append(self._continued({"functionCall": {}}, part))
        else:
            parts.append(part)

    def _settle(self) -> None:
        """Join what came in pieces of the last part: once, so that a fold is linear in its bytes."""
        last: Any = self._parts[-1] if self._parts else None
        if self._parts and self._text:
            self._parts[-1] = {**last, "text": "".join(self._text)}
        elif isinstance(last, dict) and isinstance(call := last.get("functionCall"), dict):
            self._arguments.settle(call)
        self._text = []

    def _continued(self, last: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
        continued = dict(last)
        call = dict(last["functionCall"])
        begins = not call
        call.pop("willContinue", None)
        for key, value in part.items():
            if key != "functionCall":
                _set(continued, key, value, self._superseded)
        new_call = part["functionCall"]
        if "args" in new_call:
            self._arguments.settle(call)
        is_whole = begins and bool(new_call.get("args")) and new_call.get("willContinue") is not True
        grows = isinstance(new_call.get("partialArgs"), list) and not is_whole
        for key, value in new_call.items():
            # A call that is whole as it begins stays as it is, with the pieces that had no place in it once.
            if not (key == "partialArgs" and grows) and (key != "willContinue" or value is not False or begins):
                _set(call, key, value, self._superseded)
        unread = [piece for piece in new_call["partialArgs"] if not self._arguments.grow(call, piece)] if grows else []
        if unread and isinstance(call.get("partialArgs"), list):
            self._extend(call, ("functionCall", "partialArgs"), unread)
        elif unread:
            _set(call, "partialArgs", unread, self._superseded)
        continued["functionCall"] = call
        return continued

    @property
    def ended(self) -> bool:
        """Whether it came to its end: code that was to run, or a call that was to go on, leaves it open."""
        last = self._parts[-1] if self._parts else None
        waiting = isinstance(last, dict) and (CODE in last or _goes_on(last, {"functionCall": {}}))
        return self._fields.get("finishReason") not in _UNSET and not waiting

    def body(self) -> dict[str, Any]:
        body = dict(self._fields)
        if self._content is not None:
            content = dict(self._content)
            if self._parts is not None:
                self._settle()
                content["parts"] = self._parts
            _settle(body, "content", content, self._superseded)
        return body


def _goes_on(last: Any, part: Any) -> bool:
    """Whether `part` continues the call that `last` began."""
    before, now = [item.get("functionCall") if isinstance(item, dict) else None for item in (last, part)]
    if not isinstance(before, dict) or not isinstance(now, dict):
        return False
    return before.get("willContinue") is True and "name" not in now


def _is_joined(last: Any, part: Any) -> bool:
    """Whether two neighbours are pieces of one text: unsigned, and both thoughts or neither."""
    if not any(is_text(last, thought=thought) and is_text(part, thought=thought) for thought in (False, True)):
        return False
    same = last.keys() == part.keys() and last.get("thought") is part.get("thought")
    return same and last.keys() <= {"text", "thought"}


def _set(holder: dict[str, Any], key: str, value: Any, superseded: list[Any]) -> None:
    """Set `key`; objects are united. Text that is thereby lost is kept in `superseded`.

    Null takes nothing back: a client's dump says so of all that a chunk does not have.
    """
    if key not in holder:
        holder[key] = value
        return
    old = holder[key]
    if value is None or old == value:
        return
    replaced = old
    if isinstance(old, dict) and isinstance(value, dict):
        holder[key] = {**old, **value}
        replaced = {name: old[name] for name in value if name in old and old[name] != value[name]}
    else:
        holder[key] = value
    lost = set(strings_in(replaced)).difference(strings_in(value))
    if lost and not lost <= set(strings_in(holder[key])):
        superseded.append({key: old})


def _settle(holder: dict[str, Any], key: str, gathered: Any, superseded: list[Any]) -> None:
    """Set `key` to what was gathered; what some chunk had there in another shape is kept in `superseded`."""
    if holder.get(key):
        superseded.append({key: holder[key]})
    holder[key] = gathered


# -- arguments that come in pieces, each with the path where it belongs [GEM-23] ---------------------------------------


class _Arguments:
    """The arguments of one call so far, in a tree of our own. Texts are kept in pieces until they are settled."""

    def __init__(self) -> None:
        self._growing: set[str] = set()  # paths of texts that go on
        self._tree: Any = None

    def grow(self, call: dict[str, Any], piece: Any) -> bool:
        """Put one piece in its place in the arguments of `call`, if it has one: whether it has."""
        placed = _piece(piece)
        arguments = call.get("args", {})
        if placed is None or not isinstance(arguments, dict):
            return False
        path, steps, value = placed
        if arguments is not self._tree:
            self._tree = _joined(arguments)
        before = _at(self._tree, steps) if isinstance(value, str) and path in self._growing else None
        if isinstance(before, _Run):
            before.pieces.append(value)
        elif not _placed(self._tree, steps, _Run([before, value]) if isinstance(before, str) else value):
            return False
        call["args"] = self._tree
        goes_on = isinstance(value, str) and piece.get("willContinue") is True
        (self._growing.add if goes_on else self._growing.discard)(path)
        return True

    def settle(self, call: dict[str, Any]) -> None:
        """Join what came in pieces of the arguments of `call`."""
        if self._tree is not None and call.get("args") is self._tree:
            call["args"] = self._tree = _joined(self._tree)


class _Run(NamedTuple):
    """A text in pieces."""

    pieces: list[str]


def _joined(value: Any) -> Any:
    """A copy in which each text is one."""
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_joined(item) for item in value]
    return "".join(value.pieces) if isinstance(value, _Run) else value


def _piece(piece: Any) -> tuple[str, list[str | int], Any] | None:
    """Path, its steps, and the value of one piece; None if it has anything else."""
    if not isinstance(piece, dict) or not isinstance(path := piece.get("jsonPath"), str):
        return None
    kinds = [key for key in piece if key in _VALUES]
    if len(kinds) != 1 or not piece.keys() <= {"jsonPath", "willContinue", kinds[0]}:
        return None
    value = piece[kinds[0]]
    if not isinstance(value, _VALUES[kinds[0]]) or (kinds[0] == "numberValue" and isinstance(value, bool)):
        return None
    if kinds[0] == "nullValue":
        if value not in (None, "NULL_VALUE"):
            return None
        value = None
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) <= _MAX_STEPS:
        if (step := _STEP.match(path, at)) is None:
            return None
        name, index, quoted, double = step.groups()
        steps.append(int(index) if index is not None else name or quoted or double or "")
        at = step.end()
    is_path = path.startswith("$") and 0 < len(steps) <= _MAX_STEPS and isinstance(steps[0], str)
    return (path, steps, value) if is_path else None


def _at(value: Any, steps: list[str | int]) -> Any:
    """The value at the end of the steps; None if there is none."""
    for step in steps:
        if not _leads(value, step):
            return None
        value = value[step]
    return value


def _leads(holder: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(holder, dict) and step in holder
    return isinstance(holder, list) and step < len(holder)


def _placed(holder: Any, steps: list[str | int], new: Any) -> bool:
    """Put `new` at the end of the steps, and make what leads there; whether nothing is in the way."""
    depth = 0
    while depth < len(steps) - 1 and _leads(holder, steps[depth]):
        holder, depth = holder[steps[depth]], depth + 1
    step, *rest = steps[depth:]
    for inner in reversed(rest):
        if isinstance(inner, int) and inner > 0:
            return False
        new = {inner: new} if isinstance(inner, str) else [new]
    if isinstance(step, str) and isinstance(holder, dict):
        holder[step] = new
    elif isinstance(step, int) and isinstance(holder, list) and step <= len(holder):
        holder[step : step + 1] = [new]
    else:
        return False
    return True


# -- writing -----------------------------------------------------------------------------------------------------------


def error_event(text: str, reply: Any) -> WireEvent:
    """The chunk for an error with this text."""
    return {"data": {"error": {"message": text}}}


def write_events(response: Response) -> list[WireEvent]:
    """The chunks that fold to the body of the response: a part each, the rest with the last one."""
    body = write_response(response)
    if isinstance(body, list):
        return [{"data": each} for each in body]
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or len(candidates) != 1:
        return [{"data": body}]
    candidate = candidates[0]
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    pieces: list[list[Any]] = []  # in chunks, such that no part joins with the chunk before
    for part in parts if isinstance(parts, list) else ():
        if pieces and _is_joined(pieces[-1][-1], part):
            pieces[-1].append(part)
        else:
            pieces.append([part])
    if len(pieces) < 2:
        return [{"data": body}]
    about = {key: body[key] for key in ("modelVersion", "responseId") if key in body}
    who = {key: content[key] for key in ("role",) if key in content}
    where = {key: candidate[key] for key in ("index",) if key in candidate}
    events: list[WireEvent] = [
        {"data": {"candidates": [{"content": {"parts": piece, **who}, **where}], **about}} for piece in pieces[:-1]
    ]
    last = {**body, "candidates": [{**candidate, "content": {**content, "parts": pieces[-1]}}]}
    return [*events, {"data": last}]


# -- live --------------------------------------------------------------------------------------------------------------


class LiveDecoder:
    """What each chunk adds at once. Never raises: what it cannot read, the decoder of the fold will refuse or show."""

    def __init__(self) -> None:
        self._choices: dict[int, int] = {}  # by the key of the candidate
        self._calls = LiveCalls()  # by choice: one goes on at a time

    def __call__(self, event: WireEvent) -> list[StreamEvent]:
        """The canonical events of one wire event."""
        data = event.get("data")
        chunks = data if isinstance(data, list) else [data]
        return [live for chunk in chunks for live in self._chunk(chunk)]

    def _chunk(self, chunk: Any) -> Iterator[StreamEvent]:
        candidates = normal(chunk, RESPONSE)[0].get("candidates") if isinstance(chunk, dict) else None
        for position, raw in enumerate(candidates if isinstance(candidates, list) else ()):
            if not isinstance(raw, dict):
                continue
            choice = self._choices.setdefault(_index(raw, position), len(self._choices))
            content = raw.get("content")
            parts = content.get("parts") if isinstance(content, dict) else None
            for part in parts if isinstance(parts, list) else ():
                if is_text(part):
                    yield TextDelta(text=part["text"], choice=choice)
                elif is_text(part, thought=True):
                    yield ThinkingDelta(text=part["text"], choice=choice)
                elif isinstance(part, dict) and isinstance(call := part.get("functionCall"), dict):
                    if isinstance(name := call.get("name"), str):
                        yield self._calls.begin(choice, call.get("id"), name, choice)
                    pieces = call.get("partialArgs")
                    if choice in self._calls and isinstance(pieces, list):
                        yield self._calls.grow(choice, sum(map(len, strings_in(pieces))))


ADAPTER: Final = Adapter(
    name=FORMAT,
    read_request=read_request,
    write_request=write_request,
    to_http=http_call,
    read_response=read_response,
    write_response=write_response,
    fold=fold_events,
    write_events=write_events,
    error_event=error_event,
    live_decoder=LiveDecoder,
    join_texts=join_texts,
)
