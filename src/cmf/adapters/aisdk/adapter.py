"""The adapter of the AI SDK's UI messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from cmf.adapters.aisdk.fold import STREAM, fold
from cmf.adapters.aisdk.parts_in import FORMAT, read_message
from cmf.adapters.aisdk.parts_out import names_in, older, write_group, write_messages, write_plain
from cmf.adapters.aisdk.stream import LiveDecoder, chunks
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.driver import drive
from cmf.adapters.wire.fields import PARTIAL, Fields, extra_of, object_in
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.layout import envelope_layout, respell_envelope, shape_of, with_layout
from cmf.adapters.wire.loss import drop, drop_foreign_extras, locating_errors, respecting_critical
from cmf.adapters.wire.non_json_reply import error_text, is_unrecognized, unrecognized, write_unrecognized
from cmf.adapters.wire.stream import StreamEvent
from cmf.enums import MessageStatus, StopReason
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import Layout, Message
from cmf.message.pairing import has_call
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.models.capabilities import ModelCapabilities

STOP_REASONS: Final = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "content-filter": StopReason.CONTENT_FILTER,
    "tool-calls": StopReason.CALL,
    "error": StopReason.ERROR,
    "other": StopReason.OTHER,
    "unknown": StopReason.OTHER,
}
_STOP_WORDS: Final = {
    StopReason.END: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTENT_FILTER: "content-filter",
    StopReason.REFUSAL: "content-filter",
    StopReason.CALL: "tool-calls",
    StopReason.ERROR: "error",
}
HTTP: Final = HttpCall(path="/api/chat", headers={"Content-Type": "application/json"})


class AiSdkAdapter(Adapter):
    """What `useChat` sends to its server, and what it gets back."""

    name = FORMAT

    # -- requests -----------------------------------------------------------------------------------------------------

    @reading_exact_names
    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request: of an object with `messages` (or the last `message` alone), or a list of messages.

        Raises:
            ShapeError: no messages, or one that is none.
        """
        del headers  # this format has nothing in them
        raw = freeze(body)
        request, shape = _request(raw, model)
        layout = envelope_layout(_plain_request(request, shape), raw, format_name=FORMAT)
        if layout is not None:
            shape = {**shape, **layout.shape}
        return with_layout(request, Layout(format=FORMAT, shape=FrozenDict(shape))) if shape else request

    @respecting_critical
    def to_wire(self, request: Request) -> Any:
        """The request in this format.

        Raises:
            UnsupportedError: tools, a response schema, or content that no UI part can carry: they live on the server.
        """
        drop_foreign_extras(FORMAT, request)
        return respell_envelope(
            _plain_request(request, shape_of(request, FORMAT)),
            request,
            format_name=FORMAT,
            decode=lambda spelt: _request(freeze(spelt), request.model)[0],
        )

    def to_http(self, request: Request) -> HttpCall:
        """The POST to the application's chat route."""
        del request
        return HTTP

    # -- responses ----------------------------------------------------------------------------------------------------

    @reading_exact_names
    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response of a UI message, or of what a stream folded to.

        `context` names the tools of results whose call is in an earlier message.

        Raises:
            ShapeError: a UI message that does not fit.
        """
        return _response(freeze(body), names_in(context.messages) if context is not None else {})

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The UI message; `{"error": …}` for a response that is nothing but an error."""
        if response.error is not None and response.choices:
            drop(FORMAT, "error", "a UI message cannot say that it failed", message=response.choices[0].message)
        body = _body(response)
        return older(body, (response.choices[0].message,)) if response.choices else body

    # -- streams ------------------------------------------------------------------------------------------------------

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The UI message that a client of the SDK would hold at the end; see `cmf.adapters.aisdk.fold`."""
        return fold(events)

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The chunks that stream the response."""
        if is_unrecognized(response, FORMAT):
            return [{"data": {"type": "error", "errorText": error_text(response)}}]
        choice = response.choices[0] if response.choices else None
        whole = choice is None or choice.message.status in (MessageStatus.COMPLETE, MessageStatus.ERROR)
        return chunks(
            _body(response),
            error=response.error.message or "" if response.error is not None and choice is not None else None,
            aborted=choice is not None and choice.message.status is MessageStatus.CANCELLED,
            finish_reason=_stop_word(choice),
            whole=whole and extra_of(response, FORMAT).get("partial") is not True,
        )

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, LiveDecoder())

    # -- what a model's adapter is asked ------------------------------------------------------------------------------

    def capabilities(self, model: str) -> ModelCapabilities:
        """Nothing is promised: which model the server asks is not known here [F7]."""
        del model
        return ModelCapabilities()


ADAPTER: Final = AiSdkAdapter()


def _request(raw: Any, model: str | None) -> tuple[Request, dict[str, Any]]:
    """The request, and how its messages were arranged in the body."""
    if isinstance(raw, list):
        return trusted(Request, model=model, messages=_conversation(raw, "$")), {"form": "list"}
    fields = Fields(raw, "$")
    listed = fields.take("messages", list)
    shape: dict[str, Any] = {}
    if listed is None:
        listed, shape = [fields.need("message", dict)], {"form": "one"}
        messages = _conversation(listed, "$.message")
    else:
        messages = _conversation(listed, "$.messages")
    named = fields.take("model", str)
    return trusted(
        Request, model=named if named is not None else model, messages=messages, extra=fields.rest(FORMAT)
    ), shape


def _conversation(listed: list[Any], path: str) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(listed):
        at = f"{path}[{index}]"
        messages += read_message(raw, at, index=index, split=True, encode=_encoder(index), names={})
    return tuple(messages)


def _encoder(index: int) -> Any:
    return lambda group: write_plain(group, index=index)


def _plain_request(request: Request, shape: Mapping[str, Any]) -> Any:
    for name in ("tools", "tool_choice", "response_schema"):
        if getattr(request, name) not in (None, ()):
            raise UnsupportedError(
                f"a UI message request cannot carry {name}", path=name, hint="set it on the chat's server"
            )
    for name, item in (*request.sampling.model_dump().items(), ("reasoning_effort", request.reasoning_effort)):
        if item is not None:
            drop(FORMAT, name, "set on the chat's server")
    messages = write_messages(request.messages)
    if shape.get("form") == "list":
        return messages
    body: dict[str, Any] = dict(extra_of(request, FORMAT))
    if shape.get("form") == "one" and len(messages) == 1:
        body["message"] = messages[0]
    else:
        body["messages"] = messages
    if request.model is not None:
        body["model"] = request.model
    return body


def _response(raw: Any, names: Mapping[str, str]) -> Response:
    if not isinstance(raw, dict) or not _RESPONSE_KEYS & raw.keys():
        return unrecognized(raw, FORMAT)
    notes = raw.get(STREAM)
    notes = notes if isinstance(notes, FrozenDict) else FrozenDict()
    partial = raw.get(PARTIAL) is True
    own: dict[str, Any] = {}
    if notes:
        own["stream"] = notes
    if partial:
        own["partial"] = True
    body = frozen_mapping({key: item for key, item in raw.items() if key not in (STREAM, PARTIAL)})
    error = _error(notes)
    if "role" not in body and "error" in body:
        return _only_an_error(body, own)
    (message,) = read_message(body, "$", index=0, split=False, encode=write_plain, names=names)
    status = _status(notes, partial=partial, failed=error is not None)
    if status is not MessageStatus.COMPLETE:
        message = replace(message, status=status)
    word = notes.get("finishReason")
    word = word if isinstance(word, str) else None
    stop = _stop_reason(word, message) if word is not None else None
    mark = None if word is None or word in STOP_REASONS else freeze({FORMAT: {}})  # the word is this format's
    choice = trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=word, extra=mark)
    return trusted(Response, choices=(choice,), error=error, extra=freeze({FORMAT: own}) if own else None)


_RESPONSE_KEYS: Final = frozenset({"role", "parts", "error", STREAM, PARTIAL})  # what a message, an error or a fold has


def _status(notes: FrozenDict, *, partial: bool, failed: bool) -> MessageStatus:
    if "abort" in notes:
        return MessageStatus.CANCELLED
    if partial:
        return MessageStatus.PARTIAL
    return MessageStatus.ERROR if failed else MessageStatus.COMPLETE


def _error(notes: FrozenDict) -> ErrorInfo | None:
    errors = notes.get("errors")
    if not isinstance(errors, list) or not errors:
        return None
    text = errors[0].get("errorText") if isinstance(errors[0], dict) else None
    return trusted(ErrorInfo, message=text if isinstance(text, str) else None, type="error")


def _only_an_error(body: FrozenDict, own: dict[str, Any]) -> Response:
    raw_error = body["error"]
    text = raw_error.get("message") if isinstance(raw_error, dict) else raw_error
    kept = {key: item for key, item in body.items() if key != "error" or not isinstance(raw_error, str)}
    error = trusted(ErrorInfo, message=text if isinstance(text, str) else None)
    own = {**own, "body": frozen_mapping(kept)} if kept else own
    return trusted(Response, error=error, extra=freeze({FORMAT: own}) if own else None)


def _body(response: Response) -> Any:
    drop_foreign_extras(FORMAT, response)
    if is_unrecognized(response, FORMAT):
        return write_unrecognized(response, FORMAT)
    if response.error is not None and not response.choices:
        return {"error": response.error.message or "", **object_in(extra_of(response, FORMAT), "body")}
    if len(response.choices) != 1:
        raise UnsupportedError("the AI SDK has one answer at a time", path="choices", hint="choose one")
    return write_group((response.choices[0].message,), index=0, split=False)


def _stop_reason(word: str, message: Message) -> StopReason:
    """The stop reason of a word; `tool-calls` is one only where there is a call."""
    reason = STOP_REASONS.get(word, StopReason.OTHER)
    return StopReason.OTHER if reason is StopReason.CALL and not has_call(message.content) else reason


def _stop_word(choice: Choice | None) -> str | None:
    if choice is None:
        return None
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    own = raw in STOP_REASONS or FORMAT in (choice.extra or {})
    if raw is not None and own and _stop_reason(raw, choice.message) is reason:
        return raw
    if reason is StopReason.CALL and not has_call(choice.message.content):
        return "stop"
    return None if reason is None else _STOP_WORDS.get(reason, "other")
