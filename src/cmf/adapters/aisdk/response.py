"""Answers of the AI SDK, both ways: a UI message, or an error. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.aisdk.fold import STREAM
from cmf.adapters.aisdk.parts_in import FORMAT, read_message
from cmf.adapters.aisdk.parts_out import names_in, older, write_group, write_plain
from cmf.adapters.wire.fields import PARTIAL, as_text, extra_of, object_in
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, StopReason
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import Message
from cmf.message.pairing import has_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

_STOP_REASONS: Final = {
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
_RESPONSE_KEYS: Final = frozenset({"role", "parts", "error", STREAM, PARTIAL})  # what a message, an error or a fold has


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response of a UI message, or of what a stream folded to.

    `context` names the tools of results whose call is in an earlier message.
    """
    raw, names = freeze(body), names_in(context.messages) if context is not None else {}
    if not isinstance(raw, dict) or not _RESPONSE_KEYS & raw.keys():
        return unrecognized(raw, FORMAT)
    notes, partial = object_in(raw, STREAM), raw.get(PARTIAL) is True
    own: dict[str, Any] = {"stream": notes} if notes else {}
    if partial:
        own["partial"] = True
    message_body = frozen_mapping({key: item for key, item in raw.items() if key not in (STREAM, PARTIAL)})
    error = _error(notes)
    if "role" not in message_body and "error" in message_body:
        return _only_an_error(message_body, own)
    (message,) = read_message(message_body, "$", index=0, split=False, encode=write_plain, names=names)
    status = _status(notes, partial=partial, failed=error is not None)
    if status is not MessageStatus.COMPLETE:
        message = replace(message, status=status)
    word = as_text(notes.get("finishReason"))
    stop = _stop_reason(word, message) if word is not None else None
    mark = None if word is None or word in _STOP_REASONS else freeze({FORMAT: {}})  # the word is this format's
    choice = trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=word, extra=mark)
    return trusted(Response, choices=(choice,), error=error, extra=freeze({FORMAT: own}) if own else None)


def _status(notes: Mapping[str, Any], *, partial: bool, failed: bool) -> MessageStatus:
    if "abort" in notes:
        return MessageStatus.CANCELLED
    if partial:
        return MessageStatus.PARTIAL
    return MessageStatus.ERROR if failed else MessageStatus.COMPLETE


def _error(notes: Mapping[str, Any]) -> ErrorInfo | None:
    errors = notes.get("errors")
    if not isinstance(errors, list) or not errors:
        return None
    text = errors[0].get("errorText") if isinstance(errors[0], dict) else None
    return trusted(ErrorInfo, message=as_text(text), type="error")


def _only_an_error(body: FrozenDict, own: dict[str, Any]) -> Response:
    raw_error = body["error"]
    text = raw_error.get("message") if isinstance(raw_error, dict) else raw_error
    kept = {key: item for key, item in body.items() if key != "error" or not isinstance(raw_error, str)}
    error = trusted(ErrorInfo, message=as_text(text))
    own = {**own, "body": frozen_mapping(kept)} if kept else own
    return trusted(Response, error=error, extra=freeze({FORMAT: own}) if own else None)


# -- writing -----------------------------------------------------------------------------------------------------------


def write_response(response: Response) -> dict[str, Any]:
    """The UI message; `{"error": …}` for a response that is nothing but an error."""
    if response.error is not None and response.choices:
        drop(FORMAT, "error", "a UI message cannot say that it failed", message=response.choices[0].message)
    body = current_body(response)
    return older(body, (response.choices[0].message,)) if response.choices else body


def current_body(response: Response) -> dict[str, Any]:
    """The same in the form of version 5, whatever version it came in."""
    drop_foreign_extras(FORMAT, response)
    if response.error is not None and not response.choices:
        return {"error": response.error.message or "", **object_in(extra_of(response, FORMAT), "body")}
    if len(response.choices) != 1:
        raise UnsupportedError("the AI SDK has one answer at a time", path="choices", hint="choose one")
    return write_group((response.choices[0].message,), index=0, split=False)


def _stop_reason(word: str, message: Message) -> StopReason:
    """The stop reason of a word; `tool-calls` is one only where there is a call."""
    reason = _STOP_REASONS.get(word, StopReason.OTHER)
    return StopReason.OTHER if reason is StopReason.CALL and not has_call(message.content) else reason


def stop_word(choice: Choice | None) -> str | None:
    """The wire's word for why the choice ended: the one that it came with, if it still means the same."""
    if choice is None:
        return None
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    own = raw in _STOP_REASONS or FORMAT in (choice.extra or {})
    if raw is not None and own and _stop_reason(raw, choice.message) is reason:
        return raw
    if reason is StopReason.CALL and not has_call(choice.message.content):
        return "stop"
    return None if reason is None else _STOP_WORDS.get(reason, "other")
