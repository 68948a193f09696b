"""Messages of version 4 of the AI SDK: calls and files in them are judged as such, and go back as they came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cmf.enums import ContentType
from cmf.errors import ShapeError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import DocumentPart, ImagePart, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request
from pipeline.decisions.errors import Denied
from pipeline.guard import Guard
from tests.cmf.adapters.aisdk_bodies import AISDK, PNG, STEP, read, text, ui, written
from tests.pipeline.conftest import write_rules

CALLED: dict[str, Any] = {"state": "call", "toolCallId": "c1", "toolName": "look", "args": {"at": 1}}
ANSWERED: dict[str, Any] = {**CALLED, "state": "result", "step": 0, "toolCallId": "c2", "result": {"rows": [1]}}
BEGUN: dict[str, Any] = {**CALLED, "state": "partial-call", "toolCallId": "c3", "args": None}
PICTURE = {"name": "a.png", "contentType": "image/png", "url": f"data:image/png;base64,{PNG}"}
PAGE = {"contentType": "text/plain", "url": "https://files.example/a.txt"}


def older(*invoked: Any, content: Any = "", **own: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "assistant", "content": content, "toolInvocations": [*invoked], **own}


def inside(invocation: Any) -> dict[str, Any]:
    return {"type": "tool-invocation", "toolInvocation": invocation}


def attached(*files: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "user", "content": "see", "experimental_attachments": [*files]}


MESSAGES = {
    "calls": older(CALLED, ANSWERED, BEGUN, content="so"),
    "calls beside parts": older(CALLED, parts=[text("so")], content="so"),
    "calls in parts": ui(STEP, inside(ANSWERED), text("so"), inside(CALLED)),
    "calls in parts, repeated": older(ANSWERED, CALLED, parts=[inside(ANSWERED), text("so"), inside(CALLED)]),
    "calls in parts and others beside": older(CALLED, parts=[inside(ANSWERED)]),
    "no content": {"role": "assistant", "toolInvocations": [CALLED]},
    "content null": older(CALLED, content=None),
    "a result that is null": older({**ANSWERED, "result": None}),
    "arguments that are text, or none": older({**CALLED, "args": "{"}, {k: BEGUN[k] for k in BEGUN if k != "args"}),
    "files": attached(PICTURE, PAGE),
    "files beside parts": {**attached(PICTURE), "parts": [text("see")], "content": "see"},
    "a file in parts": ui({"type": "file", "mimeType": "image/png", "data": PNG, "filename": "a.png"}, text("see")),
}


NO_CALL = 'deny contains {"code": "no.look", "reason": "Not this tool."} if endswith(input.uri, "/look")'
NO_MEDIA = 'deny contains {"code": "no.media", "reason": "No files."} if input.kind in {"image", "document"}'


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    rules = {"call": NO_CALL, "media": NO_MEDIA}
    home = write_rules(tmp_path_factory.mktemp("rules"), rules, kinds="tool_call, image, document")
    with Guard(home) as made:
        yield made


@pytest.mark.spec("AISDK-10")
@pytest.mark.parametrize("how", MESSAGES)
def test_policy_refuses_calls_and_files_of_version_4(guard: Guard, how: str) -> None:
    with pytest.raises(Denied) as denied:
        guard.check(read(MESSAGES[how]))

    assert {hit.code for hit in denied.value.decision.hits} & {"no.look", "no.media"}


@pytest.mark.spec("AISDK-10")
@pytest.mark.parametrize("how", MESSAGES)
def test_no_call_or_file_of_version_4_is_anything_else(how: str) -> None:
    request = read(MESSAGES[how])

    kinds = [part.content_type for message in request.messages for part in message.content]
    assert {ContentType.TOOL_CALL, ContentType.IMAGE, ContentType.DOCUMENT} & {*kinds}
    assert ContentType.OPAQUE not in kinds
    assert not any("toolInvocations" in str(message.extra) for message in request.messages)


@pytest.mark.spec("AISDK-10", "ADP-6")
@pytest.mark.parametrize("how", MESSAGES)
def test_messages_of_version_4_go_back_as_they_came(how: str) -> None:
    message = MESSAGES[how]

    assert same_spelling(written(read(message, message)), [message, message])
    assert same_spelling(AISDK.to_wire_response(AISDK.from_wire_response(message)), message)


@pytest.mark.spec("AISDK-10")
def test_calls_and_files_of_version_4_are_read_like_those_of_version_5() -> None:
    calls = read(older(CALLED, ANSWERED, content="so")).messages
    files = read(attached(PICTURE, PAGE)).messages

    look = ToolCallPart(tool_call_id="c1", name="look", arguments={"at": 1})
    assert calls[0].content[:2] == (TextPart(text="so"), look)
    assert calls[1].content == (ToolResultPart(tool_call_id="c2", tool_name="look", content={"rows": [1]}),)
    picture = ImagePart(type="base64", data=PNG, media_type="image/png", extra={"aisdk": {"filename": "a.png"}})
    assert files[0].content[1:] == (picture, DocumentPart(type="url", data=PAGE["url"], media_type="text/plain"))


def _edited(request: Request, at: int, part: Any) -> Request:
    first, *rest = request.messages
    parts = (*first.content[:at], *part, *first.content[at + 1 :])
    return replace(request, messages=(replace(first, content=parts), *rest))


@pytest.mark.spec("AISDK-10")
def test_what_was_edited_goes_back_in_version_4_and_what_was_taken_away_does_not() -> None:
    request = read(older(CALLED, content="so"))
    call = ToolCallPart(tool_call_id="c1", name="look", arguments={"at": "***"})
    taken = _edited(read(MESSAGES["a file in parts"]), 0, ())

    (edited,) = written(_edited(request, 1, (call,)))
    (moved,) = written(_edited(request, 0, (call,)))
    (less,) = written(_edited(request, 1, ()))

    assert edited["toolInvocations"] == [{**CALLED, "args": {"at": "***"}}]
    assert edited["content"] == "so"
    assert [part["type"] for part in moved["parts"]] == ["tool-look", "tool-look"]
    assert [part["type"] for part in less["parts"]] == ["text"]
    assert [part["type"] for part in written(taken)[0]["parts"]] == ["text"]


@pytest.mark.spec("AISDK-10")
def test_a_call_that_failed_in_an_edit_has_no_place_in_version_4() -> None:
    request = read(older(ANSWERED))
    call, (result,) = request.messages[0], request.messages[1].content
    failed = replace(request.messages[1], content=(replace(result, is_error=True, content="no"),))

    (message,) = written(replace(request, messages=(call, failed)))

    assert [part["type"] for part in message["parts"]] == ["text", "tool-look"]


@pytest.mark.spec("AISDK-10")
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (older(5), "toolInvocations"),
        ({**older(), "toolInvocations": {"0": CALLED}}, "toolInvocations"),
        ({**older(), "toolInvocations": "look"}, "toolInvocations"),
        (older({**CALLED, "state": "done"}), "toolInvocations[0]"),
        (older({**CALLED, "state": ["call"]}), "toolInvocations[0]"),
        (older({**CALLED, "toolName": ""}), "toolInvocations[0]"),
        (older({**CALLED, "toolName": 5}), "toolInvocations[0]"),
        (older({**CALLED, "toolCallId": None}), "toolInvocations[0]"),
        (older({**CALLED, "args": ["rm"]}), "toolInvocations[0]"),
        (older({**CALLED, "input": {}}), "toolInvocations[0]"),
        (older({**CALLED, "result": 1}), "toolInvocations[0]"),
        (older({**CALLED, "state": "result"}), "toolInvocations[0]"),
        (older(CALLED, {**ANSWERED, "toolCallId": "c1"}), ""),
        (older(CALLED, parts=None), "parts"),
        (older(CALLED, parts="so"), "parts"),
        (ui(inside(5)), "parts[0]"),
        (ui({**inside(CALLED), "more": 1}), "parts[0]"),
        (ui(inside({**CALLED, "state": "done"})), "parts[0].toolInvocation"),
        (ui({"type": "file", "data": PNG}), "parts[0]"),
        (ui({"type": "file", "mimeType": "image/png", "data": 5}), "parts[0]"),
        (ui({"type": "file", "mimeType": "image/png", "data": PNG, "more": 1}), "parts[0]"),
        (attached("https://files.example"), "experimental_attachments"),
        (attached({"url": "https://files.example"}), "experimental_attachments[0]"),
        (attached({**PAGE, "size": "1"}), "experimental_attachments[0]"),
        (attached({**PAGE, "name": None}), "experimental_attachments[0]"),
    ],
)
def test_what_is_no_call_or_file_of_version_4_is_refused(message: dict[str, Any], path: str) -> None:
    with pytest.raises(ShapeError) as refused:
        read(message)

    assert refused.value.path == f"$.messages[0].{path}".rstrip(".")
