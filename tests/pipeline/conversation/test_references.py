"""Content by reference: found wherever it hides, and refused unless it was judged here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cmf.adapters.wiredata import records
from tests.pipeline.conftest import write_rules

from cmf import (
    Choice,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    PromptResultPart,
    Request,
    Response,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    adapters,
)
from cmf.adapters import FORMATS
from cmf.errors import CmfError
from pipeline import CallError, Config, Context, Denied, Guard, Mode, Pipeline, as_stage
from pipeline.conversation.references import Reference, Referred, mark, references, refusals
from pipeline.decisions.errors import SessionError
from pipeline.sessions.base import MemorySessions

FORMAT = "openai_responses"
ITEM = {"type": "item_reference", "id": "msg_1"}
KEYS = {"previous_response_id", "conversation", "cachedContent", "cached_content", "file_id", "file_ids"}


def nobody(marks: object) -> frozenset[str]:
    return frozenset()


def body(**fields: Any) -> Request:
    given = {"model": "gpt-5", "input": [{"role": "user", "content": "hi"}], **fields}
    return adapters.get(FORMAT).from_wire_request(given)


def holding(*parts: Any) -> Request:
    return Request(messages=[Message(role="user", content=parts)])


def answered(id: str, text: str = "fine") -> Response:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    output = [{**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}]
    whole = {"id": id, "object": "response", "model": "gpt-5", "status": "completed", "output": output}
    return adapters.get(FORMAT).from_wire_response(whole)


@pytest.mark.spec("REF-3")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Referred.FILE, "(an uploaded file, at messages[0].content[1]): send the content itself."),
        (
            Referred.ITEM,
            "(a stored item, at messages[0].content[1]): send the content itself, as clients do with `store: false`.",
        ),
        (Referred.PROMPT, "(a prompt beside the messages, at messages[0].content[1]): send it as messages."),
        (Referred.BACKGROUND, "(an answer to fetch later, at messages[0].content[1]): wait for the answer instead."),
    ],
)
def test_a_refusal_names_the_kind_the_place_and_what_to_send(kind: Referred, words: str) -> None:
    (record,) = refusals([Reference(kind, "file-canary", "messages[0].content[1]")], nobody)

    assert record.hit is not None
    assert record.hit.reason == f"This refers to content that was not judged here {words}"


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("REF-1")
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"previous_response_id": "resp_1"}, [Reference(Referred.RESPONSE, "resp_1", "request")]),
        ({"conversation": {"id": "conv_1"}}, [Reference(Referred.CONVERSATION, "conv_1", "request")]),
        ({"conversation": "conv_1"}, [Reference(Referred.CONVERSATION, "conv_1", "request")]),
        ({"conversation": 7}, [Reference(Referred.CONVERSATION, None, "request")]),
        ({"prompt": {"id": "pmpt_1", "version": "2"}}, [Reference(Referred.PROMPT, "pmpt_1", "request")]),
        ({"continuationToken": "more"}, [Reference(Referred.RESPONSE, "more", "request")]),
        ({"preset": "our-bot"}, [Reference(Referred.PROMPT, "our-bot", "request")]),
        ({"model": "acme/m@preset/bot"}, [Reference(Referred.PROMPT, "acme/m@preset/bot", "request")]),
        ({"models": ["acme/m", "@preset/bot"]}, [Reference(Referred.PROMPT, "@preset/bot", "request")]),
        ({"fallbacks": [{"model": "m@preset/bot"}]}, [Reference(Referred.PROMPT, "m@preset/bot", "request")]),
        ({"extra_body": {"google": {"cached_content": "c"}}}, [Reference(Referred.CACHE, "c", "request")]),
        ({"extra_body": {"extra_body": {"preset": "our-bot"}}}, [Reference(Referred.PROMPT, "our-bot", "request")]),
        ({"metadata": {"conversation": "7", "preset": "x"}, "extra_body": {"metadata": {"prompt": "x"}}}, []),
        (
            {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
            [Reference(Referred.RESPONSE, "msg_1", "request")],
        ),
        ({"thread": {"type": "continue", "previous_message_id": 7}}, [Reference(Referred.RESPONSE, None, "request")]),
        ({"thread": {"type": "create"}, "diagnostics": {"previous_message_id": "msg_1"}}, []),
        ({"background": True}, [Reference(Referred.BACKGROUND, None, "request")]),
        ({"background": "yes"}, [Reference(Referred.BACKGROUND, None, "request")]),
        ({"input": [ITEM]}, [Reference(Referred.ITEM, "msg_1", "messages[0].content[0]")]),
        ({"own": {"deep": [{"fileId": "f"}]}}, [Reference(Referred.FILE, "f", "request")]),
        ({"previous_response_id": None, "background": False, "conversation": None, "file_id": None}, []),
        ({"input": "the file_id is file-1, previous_response_id resp_1"}, []),
    ],
)  # fmt: skip
def test_a_request_s_own_references_are_found(fields: dict[str, Any], found: list[Reference]) -> None:
    assert list(references(body(**fields))) == found


@pytest.mark.spec("REF-1")
def test_references_in_tools_are_found_and_what_they_search_is_not_one() -> None:
    request = body(
        tools=[
            {"type": "code_interpreter", "container": "cntr_1"},
            {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f1", "f2"]}},
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "image_generation", "background": "auto"},
        ]
    )

    assert list(references(request)) == [
        Reference(Referred.CONTAINER, "cntr_1", "tools[0]"),
        Reference(Referred.FILE, "f1", "tools[1]"),
        Reference(Referred.FILE, "f2", "tools[1]"),
    ]


@pytest.mark.spec("REF-1")
def test_the_container_of_a_shell_and_skills_that_were_uploaded_are_references() -> None:
    skills = [{"type": "skill_reference", "skill_id": "sk_1", "version": 2}]
    shells = body(
        tools=[
            {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}},
            {"type": "shell", "environment": {"type": "container_auto", "skills": skills}},
            {"type": "shell", "environment": {"type": "container_reference", "containerId": 7}},
            {"type": "shell", "environment": {"type": "local", "container_id": None}},
        ]
    )
    held = [{"type": "custom", "skill_id": "sk_2"}, {"type": "anthropic", "skill_id": "pptx"}, {"skill_id": "sk_3"}]
    wire = {"model": "m", "max_tokens": 1, "messages": [], "container": {"skills": held}}
    claude = adapters.get("anthropic_messages").from_wire_request(wire)

    assert list(references(shells)) == [
        Reference(Referred.CONTAINER, "cntr_1", "tools[0]"),
        Reference(Referred.SKILL, "sk_1", "tools[1]"),
        Reference(Referred.CONTAINER, None, "tools[2]"),
    ]
    assert list(references(claude)) == [
        Reference(Referred.SKILL, "sk_2", "request"),
        Reference(Referred.SKILL, "sk_3", "request"),
    ]


@pytest.mark.spec("REF-1")
@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"id": "ig_1"}, ["ig_1"]),
        ({"id": "ig_1", "status": "completed", "result": None}, ["ig_1"]),
        ({"id": "ig_1", "result": ""}, ["ig_1"]),
        ({"id": "ig_1", "result": ["a"]}, ["ig_1"]),
        ({"id": 7}, [None]),
        ({"id": "ig_1", "result": "aGVsbG8="}, []),
        ({"result": None}, []),
    ],
)
def test_a_generated_image_with_only_an_id_is_a_reference(own: dict[str, Any], found: list[str | None]) -> None:
    request = body(input=[{"type": "image_generation_call", **own}, {"role": "user", "content": "make it red"}])

    assert list(references(request)) == [Reference(Referred.ITEM, named, "messages[0].content[0]") for named in found]


@pytest.mark.spec("REF-1")
def test_references_are_found_in_every_part_and_inside_parts() -> None:
    held = ImagePart(type="file_ref", data="f1")
    inner = Message(role="user", content=[held], extra={"own": {"file_id": "f2"}})
    opaque = OpaquePart(provider="x", type="container_upload", value={"file_id": "f3"})
    request = holding(
        TextPart(text="f"),
        TextPart(text="f", extra={"x": {"file_id": "f4"}}),
        ToolResultPart(content=[held, DocumentPart(type="url", data="https://example.org/x")]),
        PromptResultPart(prompt_name="p", messages=[inner]),
        opaque,
        ToolCallPart(name="read", arguments={"file_id": "f5", "previous_response_id": "r"}),
        ToolResultPart(content={"file_id": "f6"}),
    )

    assert [(one.id, one.path.removeprefix("messages[0].")) for one in references(request)] == [
        ("f4", "content[1]"),
        ("f1", "content[2].content[0]"),
        ("f2", "content[3].messages[0].content[0]"),
        ("f1", "content[3].messages[0].content[0]"),
        ("f3", "content[4]"),
    ]
    assert references(request.messages[0])[0].path == "content[1]"


@pytest.mark.spec("REF-1")
@pytest.mark.parametrize(
    ("address", "held"),
    [
        ("files/abc", True),
        ("/v1beta/files/abc", True),
        ("//generativelanguage.googleapis.com/v1beta/files/abc", True),
        ("https://generativelanguage.googleapis.com/v1beta/files/abc", True),
        ("https://generativelanguage.googleapis.com:443/v1beta/files/abc", True),
        ("HTTPS://u@GenerativeLanguage.googleapis.com./v1beta/%66iles/abc", True),
        ("https://generative%6canguage.googleapis.com/v1beta/files/abc", True),
        ("https://[generativelanguage.googleapis.com/v1beta/files/abc", True),
        ("https:\\\\generativelanguage.googleapis.com\\v1beta\\files\\abc", True),
        ("https:///generativelanguage.googleapis.com/v1beta/files/abc", True),
        ("https://\uff47enerativelanguage.googleapis.com/v1beta/files/abc", True),
        ("https://example.org/files/abc", False),
        ("https://example.org/?u=https://generativelanguage.googleapis.com/v1beta/files/abc", False),
        ("image.png", False),
        ("gs://bucket/files/abc", False),
    ],
)
def test_a_file_of_googles_service_is_a_reference_whatever_format_names_it(
    lenient: Path, address: str, held: bool
) -> None:
    chat = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}
    part = {"fileData": {"mimeType": "image/png", "fileUri": address}}

    for format_name, body in (
        ("openai_chat", {"model": "m", "messages": [chat]}),
        ("gemini", {"contents": [{"role": "user", "parts": [part]}]}),
        ("gemini", {"contents": [{"role": "user", "parts": [{**part, "text": "two kinds of data in one part"}]}]}),
    ):
        outcome = Guard(lenient).run(adapters.get(format_name).from_wire_request(body, model="m"))
        assert ("reference.file" in {hit.code for hit in outcome.decision.reasons}) is held


@pytest.mark.spec("REF-1")
def test_a_citation_and_an_answer_refer_to_nothing_for_the_model() -> None:
    cited = {"x": {"annotations": [{"type": "file_citation", "file_id": "f"}]}}

    assert references(holding(TextPart(text="x", extra=cited))) == ()
    assert references(answered("resp_1")) == ()
    assert references(Request(tools=[ToolDefinition(name="t", extra={"x": {"file_id": "f"}})])) != ()
    assert references(Request(extra={"previous_response_id": "made by hand"})) != ()


@pytest.mark.proof
@pytest.mark.spec("REF-1")
@pytest.mark.spec("REF-2")
def test_no_recorded_request_passes_with_a_reference(
    lenient_pipeline: Pipeline, proof_row: Callable[..., None]
) -> None:
    """Every body in which the wire itself names something by reference is refused, by the kind that it names."""
    kinds: Counter[str] = Counter()
    requests = refused = 0
    for name in FORMATS:
        for record in records(name):
            if record.request is None:
                continue
            try:
                request = adapters.get(name).from_wire_request(record.request)
            except CmfError:
                continue
            requests += 1
            found = references(request)
            named = set(_named(record.request))
            assert named <= {one.id for one in found}, (name, record.source)
            kinds.update(f"{name}.{one.kind.value}" for one in found)
            if found:
                outcome = lenient_pipeline.run(request)
                assert outcome.value is None
                assert {hit.rule for hit in outcome.decision.hits} == {"by_reference"}
                refused += 1
    proof_row("no recorded request passes by reference", requests=requests, refused=refused, **kinds)
    assert refused >= 20
    assert {kind.partition(".")[2] for kind in kinds} >= {"response", "file", "cache", "container", "background"}


def _named(item: Any) -> list[str]:
    """Ids under the keys that name content, wherever a wire body has them; citations bring nothing in."""
    if isinstance(item, list):
        return [each for inner in item for each in _named(inner)]
    if not isinstance(item, dict) or str(item.get("type", "")).endswith("citation"):
        return []
    named = [value for key, value in item.items() if key in KEYS and isinstance(value, str)]
    return named + [each for inner in item.values() for each in _named(inner)]


@pytest.fixture(scope="module")
def lenient_pipeline(lenient: Path) -> Pipeline:
    return Pipeline(policies=lenient)


@pytest.mark.spec("REF-1")
@pytest.mark.parametrize("name", FORMATS)
def test_a_canary_at_every_place_of_a_reference_is_found(name: str) -> None:
    """Real bodies, with each id in turn replaced: what is found is what stands there, and not a name that is known."""
    looked = 0
    for record in records(name):
        if record.request is None:
            continue
        for path in _places(record.request, ()):
            try:
                request = adapters.get(name).from_wire_request(_put(record.request, path, "canary-2207"))
            except CmfError:
                continue
            looked += 1
            assert "canary-2207" in {one.id for one in references(request)}, (record.source, path)
    assert looked > 0 or name in ("aisdk", "mcp", "ollama", "openai_chat", "openrouter")


def _places(item: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    if isinstance(item, list):
        return [place for at, inner in enumerate(item) for place in _places(inner, (*path, at))]
    if not isinstance(item, dict) or str(item.get("type", "")).endswith("citation"):
        return []
    own = [(*path, key) for key, value in item.items() if key in KEYS and isinstance(value, str)]
    return own + [place for key, inner in item.items() for place in _places(inner, (*path, key))]


def _put(item: Any, path: tuple[Any, ...], value: str) -> Any:
    if not path:
        return value
    if isinstance(item, list):
        return [_put(inner, path[1:], value) if at == path[0] else inner for at, inner in enumerate(item)]
    return {key: _put(inner, path[1:], value) if key == path[0] else inner for key, inner in item.items()}


# -- refusing and letting through --------------------------------------------------------------------------------------


@pytest.mark.spec("REF-2")
def test_a_reference_to_unjudged_content_is_refused_with_its_code_and_place(lenient: Path) -> None:
    guard = Guard(lenient)

    with pytest.raises(Denied) as caught:
        guard.check(body(previous_response_id="canary-resp"), subject={"id": "ann"}, session="s")

    (hit,) = caught.value.decision.reasons
    assert (hit.rule, hit.code, hit.detail["path"]) == ("by_reference", "reference.response", "request")
    assert caught.value.code == "reference.response"
    assert caught.value.decision.coverage.evaluated == 0
    assert "canary" not in str(caught.value) + str(caught.value.decision.to_json())


@pytest.mark.spec("REF-2")
def test_every_reference_is_named_and_no_mode_lets_one_through(lenient: Path) -> None:
    observing = Guard(lenient, config=Config(mode=Mode.OBSERVE))

    outcome = observing.run(body(previous_response_id="resp_1", background=True))

    assert outcome.value is None
    assert [hit.code for hit in outcome.decision.reasons] == ["reference.response", "reference.background"]


@pytest.mark.spec("REF-2")
def test_a_reference_that_a_stage_puts_in_is_refused_too(lenient: Path) -> None:
    def add(value: Request, _: Context) -> Request:
        return value.model_copy(update={"extra": {FORMAT: {"previous_response_id": "resp_1"}}})

    pipeline = Pipeline([as_stage("add", mode="transform")(add)], policies=lenient)

    assert pipeline.run(body()).decision.reasons[0].code == "reference.response"


@pytest.mark.spec("REF-3")
def test_an_answer_that_went_out_as_it_came_can_be_referred_to_by_its_subject_in_its_session(lenient: Path) -> None:
    guard = Guard(lenient)
    follows = body(previous_response_id="resp_1")

    guard.check(answered("resp_1"), subject={"id": "ann"}, session="s")

    assert guard.decide(follows, subject={"id": "ann"}, session="s").action == "forward"
    for subject, session in ((None, "s"), ({"id": "bob"}, "s"), ({"id": "ann"}, "t"), ({"id": "ann"}, None)):
        assert guard.decide(follows, subject=subject, session=session).action == "refuse"
    other = guard.decide(body(previous_response_id="resp_2"), subject={"id": "ann"}, session="s")
    assert other.action == "refuse"


@pytest.mark.spec("REF-3")
def test_an_answer_that_was_edited_refused_or_had_no_session_cannot_be_referred_to(tmp_path: Path) -> None:
    mask = 'redact contains {"code": "m", "reason": "x", "spans": [[0, 6]]} if startswith(input.content, "secret")'
    deny = 'deny contains {"code": "d", "reason": "x"} if startswith(input.content, "forbidden")'
    guard = Guard(write_rules(tmp_path, {"mask": mask, "deny": deny}, kinds="text"))

    guard.run(answered("resp_1", "secret"), session="s")
    guard.run(answered("resp_2", "forbidden"), session="s")
    guard.run(answered("resp_3", "fine"))

    for held in ("resp_1", "resp_2", "resp_3"):
        assert guard.decide(body(previous_response_id=held), session="s").action == "refuse"


@pytest.mark.spec("REF-3")
def test_history_that_a_host_trusts_makes_no_reference_known(lenient: Path) -> None:
    trusting = Guard(lenient, config=Config(history="trusted"))

    assert trusting.decide(body(previous_response_id="resp_1"), session="s").action == "refuse"


@pytest.mark.spec("REF-4")
def test_content_that_a_host_had_judged_can_be_referred_to(tmp_path: Path) -> None:
    mask = 'redact contains {"code": "m", "reason": "x", "spans": [[0, 6]]} if startswith(input.content, "secret")'
    deny = 'deny contains {"code": "d", "reason": "x"} if startswith(input.content, "forbidden")'
    guard = Guard(write_rules(tmp_path, {"mask": mask, "deny": deny}, kinds="text"), sessions=MemorySessions())
    asks = holding(DocumentPart(type="file_ref", data="file-1"))

    def upload(text: str) -> None:
        guard.refer("file", "file-1", Message(role="user", content=[TextPart(text=text)]))

    with pytest.raises(SessionError):
        upload("fine")
    with guard.session("s", subject={"id": "ann"}):
        with pytest.raises(Denied):
            upload("forbidden")
        with pytest.raises(CallError) as changed:
            upload("secret")
        assert (changed.value.code, guard.decide(asks).action) == ("reference.changed", "refuse")
        upload("fine")
        assert guard.decide(asks).action == "forward"
    assert guard.decide(asks).action == "refuse"


def test_marks_are_asked_for_only_where_there_are_references() -> None:
    asked: list[object] = []

    def seen(marks: Any) -> frozenset[str]:
        asked.append(set(marks))
        return frozenset(marks)

    assert refusals((), seen) == ()
    assert len(refusals([Reference(Referred.BACKGROUND, None, "request")], seen)) == 1
    assert asked == []
    assert refusals([Reference(Referred.FILE, "f", "request")], seen) == ()
    assert asked == [{mark(Referred.FILE, "f")}]


def test_an_answer_of_several_choices_marks_itself_once() -> None:
    from pipeline.conversation.references import judged

    message = Message(role="assistant", content=[TextPart(text="x")])
    answer = Response(choices=[Choice(message=message)] * 2, extra={FORMAT: {"id": "resp_9"}, "other": {"id": ""}})

    assert judged(answer, answer) == {mark(Referred.RESPONSE, "resp_9")}
    assert judged(answer, Response()) == frozenset()
    assert judged(Response(), Response()) == frozenset()
    assert judged(body(), body()) == frozenset()
