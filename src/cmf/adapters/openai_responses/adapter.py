"""The adapter of the OpenAI Responses format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from cmf.adapters.openai_responses import stream
from cmf.adapters.openai_responses.decode import decode_answer, decode_envelope
from cmf.adapters.openai_responses.encode import encode_answer, encode_envelope
from cmf.adapters.openai_responses.fold import fold
from cmf.adapters.openai_responses.items import FORMAT, KINDS
from cmf.adapters.openai_responses.parts_in import ItemReader
from cmf.adapters.openai_responses.parts_out import ItemWriter, default_form, in_form, message_form
from cmf.adapters.wire import layout
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.call_id_forms import marked_again
from cmf.adapters.wire.driver import drive
from cmf.adapters.wire.extra_body import reading_one_body
from cmf.adapters.wire.fields import PARTIAL, extra_of, unmarked
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.loss import drop_foreign_extras, locating_errors, respecting_critical
from cmf.adapters.wire.non_json_reply import error_text, is_unrecognized, unrecognized, write_unrecognized
from cmf.adapters.wire.stream import StreamEvent
from cmf.enums import MessageStatus, Role
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import NO_SHAPE, Layout, Message, Part, TextPart
from cmf.message.request import Request, Response

_INSTRUCTIONS: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "instructions"}))
_STRING_INPUT: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "input"}))


class OpenAIResponsesAdapter(Adapter):
    """The adapter of `openai_responses`."""

    name: Final = FORMAT

    # -- requests ------------------------------------------------------------------------------------------------------

    @reading_one_body
    @reading_exact_names
    def from_wire_request(
        self,
        body: Any,
        *,
        model: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """The canonical request; `model` counts where the body names none.

        Raises:
            ShapeError: no JSON object; an item that is none, or a message without a role. UnknownRoleError.
        """
        frozen = freeze(body)
        request = decode_envelope(frozen, model=model)
        listed = frozen.get("input")
        messages = [_plain_message(Role.SYSTEM, frozen["instructions"], _INSTRUCTIONS)] if _instructs(frozen) else []
        if isinstance(listed, str):
            messages.append(_plain_message(Role.USER, listed, _STRING_INPUT))
        elif isinstance(listed, list):
            reader = ItemReader()
            messages += [_message(reader, item, at) for at, item in enumerate(listed)]
        spelt = layout.envelope_layout(encode_envelope(request), _outside(frozen), format_name=FORMAT)
        return layout.with_layout(replace(request, messages=tuple(messages)), spelt)

    @respecting_critical
    def to_wire(self, request: Request) -> dict[str, Any]:
        """The request body.

        Raises:
            UnsupportedError: a tool, or media, that the format cannot say. LossyProjectionError: a critical drop.
        """
        drop_foreign_extras(FORMAT, request)
        body = layout.respell_envelope(
            encode_envelope(request),
            replace(request, messages=()),
            format_name=FORMAT,
            decode=lambda spelt: decode_envelope(spelt, model=request.model),
        )
        messages = marked_again(request.messages, FORMAT)
        if messages and _form(messages[0]) == "instructions" and (text := _only_text(messages[0], Role.SYSTEM)):
            body["instructions"] = text[0]
            messages = messages[1:]
        if len(messages) == 1 and _form(messages[0]) == "input" and (text := _only_text(messages[0], Role.USER)):
            body["input"] = text[0]
        elif messages:
            writer = ItemWriter()
            body["input"] = [item for message in messages for item in _spelled_items(writer, message)]
        return body

    def to_http(self, request: Request) -> HttpCall:
        """The call: the format keeps nothing outside the body."""
        return HttpCall(path="/v1/responses")

    # -- responses -----------------------------------------------------------------------------------------------------

    @reading_exact_names
    def from_wire_response(
        self,
        body: Any,
        context: Request | None = None,
    ) -> Response:
        """The canonical response; what is no response is an error.

        Raises:
            ShapeError: an output item that is no object.
        """
        frozen = freeze(body)
        if not isinstance(frozen, dict):
            return unrecognized(frozen, FORMAT)
        response, form = decode_answer(frozen)
        shape = {**layout.spelling(encode_answer(response, form), unmarked(frozen), "$"), **form}
        if not shape:
            return response
        return layout.with_layout(response, Layout(format=FORMAT, shape=FrozenDict(shape)))

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The response body; marks of the folder are left out."""
        if is_unrecognized(response, FORMAT):
            return write_unrecognized(response, FORMAT)
        drop_foreign_extras(FORMAT, response)
        shape = layout.shape_of(response, FORMAT)
        plain = encode_answer(response, shape)
        if "at" not in shape:
            return plain
        spelt = layout.apply(plain, shape)
        return spelt if _decodes_to(spelt, response) else plain

    # -- streams -------------------------------------------------------------------------------------------------------

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The response body that the events add up to [RSP-13]."""
        return fold(events)

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The events that stream the response."""
        if is_unrecognized(response, FORMAT):
            return [{"event": "error", "data": {"type": "error", "message": error_text(response)}}]
        body = self.to_wire_response(response)
        return stream.events_of(body, whole=stream.is_ended(response))

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, stream.LiveDecoder())


ADAPTER: Final = OpenAIResponsesAdapter()


# -- messages and their spelling ---------------------------------------------------------------------------------------


def _plain_message(role: Role, text: str, spelling: Layout | None) -> Message:
    parts = (trusted(TextPart, text=text),)
    return trusted(Message, role=role, content=parts, provider_raw=spelling)


def _instructs(body: FrozenDict) -> bool:
    return isinstance(body.get("instructions"), str)


def _outside(body: FrozenDict) -> dict[str, Any]:
    """The body without the texts that became messages; their absence and nulls stay, as spelling."""
    return {
        key: value
        for key, value in body.items()
        if not (key == "input" and (isinstance(value, str) or (isinstance(value, list) and value)))
        and not (key == "instructions" and isinstance(value, str))
    }


def _form(message: Message) -> str:
    """The form that the message had on this wire; empty if it did not come from it."""
    form = layout.shape_of(message, FORMAT).get("form")
    return form if isinstance(form, str) else ""


def _kinds(message: Message) -> Mapping[str, Any]:
    """The item type that the message had on this wire, as `ItemWriter.items` takes it."""
    kinds = layout.shape_of(message, FORMAT).get("kinds")
    return kinds if isinstance(kinds, dict) else NO_SHAPE


def _only_text(message: Message, role: Role) -> tuple[str] | None:
    """The text of a message that is nothing but one plain text of this role."""
    content = message.content
    if message.role is not role or message.extra is not None or len(content) != 1:
        return None
    part: Part = content[0]
    return (part.text,) if isinstance(part, TextPart) and part.extra is None else None


def _message(reader: ItemReader, item: Any, at: int) -> Message:
    """The message of one input item, with its spelling where the plain one differs."""
    role, parts = reader.read(item, f"$.input[{at}]")
    message = trusted(Message, role=role, content=parts)
    if len(item) == 2 and isinstance(item.get("content"), str):  # role and content: the plain form
        return message
    plain = ItemWriter().items(message)
    shape: dict[str, Any] = {}
    if len(plain) == 1 and plain[0].get("type") == "message":
        form = message_form(item)
        if form != default_form(plain[0]):
            shape["form"] = form
        plain = [in_form(plain[0], form)]
    elif (kind := item.get("type")) in KINDS:
        shape["kinds"] = {"0": kind}
    shape |= layout.spelling(plain, [item], f"$.input[{at}]")
    if not shape:
        return message
    return layout.with_layout(message, Layout(format=FORMAT, group=at, shape=FrozenDict(shape)))


def _spelled_items(writer: ItemWriter, message: Message) -> list[dict[str, Any]]:
    """The items of a message as they were spelled, if they still say exactly that; else plain."""
    plain = writer.items(message, _kinds(message))
    form = _form(message)
    plain = [in_form(item, form or default_form(item)) for item in plain]
    shape = layout.shape_of(message, FORMAT)
    if "at" not in shape:
        return plain
    spelt = layout.apply(plain, shape)
    return spelt if len(spelt) == 1 and _reads_as(spelt[0], message) else plain


def _reads_as(item: Any, message: Message) -> bool:
    """Whether the item has the content of the message. The name of an answered call is known from elsewhere."""
    frozen = freeze(item)
    reader = ItemReader()
    for part in message.content:
        reader.expect(part)
    role, parts = reader.read(frozen, "$")
    return role is message.role and parts == message.content and message.extra is None


def _decodes_to(spelt: Any, response: Response) -> bool:
    """Whether a body decodes to this very response, the folder's marks aside."""
    cut = any(one.message.status is MessageStatus.PARTIAL and one.stop_reason is None for one in response.choices)
    again, _ = decode_answer(freeze({**spelt, PARTIAL: True} if cut else spelt))
    return layout.wire_content(_unmarked(again)) == layout.wire_content(_unmarked(response))


def _unmarked(response: Response) -> Response:
    own = extra_of(response, FORMAT)
    kept = unmarked(own)
    if len(kept) == len(own):
        return response
    extra = {name: item for name, item in (response.extra or {}).items() if name != FORMAT}
    if kept:
        extra[FORMAT] = frozen_mapping(kept)
    return replace(response, extra=frozen_mapping(extra) if extra else None)
