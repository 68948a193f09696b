"""Each kind of part that pydantic-ai has, asked of a model under a guard: judged and told, or refused."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.integrations.policies import OWN, guard_of

from cmf.json.value import replace
from cmf.message.message import ImagePart, Message
from cmf.message.message import TextPart as OurText
from cmf.message.message import ThinkingPart as OurThinking
from cmf.message.message import ToolCallPart as OurCall
from cmf.message.request import Choice, Request, Response
from pipeline import Config, Denied, Guard, as_stage
from pipeline.decisions.errors import CallError, ConfigError
from pipeline.integrations import pydantic_ai as cmf_pydantic

pytest.importorskip("pydantic_ai", reason="a development dependency")

from pydantic_ai import BinaryContent, ImageUrl, VideoUrl
from pydantic_ai.messages import (
    CachePoint,
    CapabilityInstructionSource,
    FilePart,
    InstructionId,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    RetryPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

PNG = BinaryContent(b"\x89PNG\r\n\x1a\n0000", media_type="image/png")
CALL = ToolCallPart("query", {"limit": 1}, tool_call_id="c1")
RETRY = RetryInfo(cause="validation", attempt=1, max_retries=2)


def older(content: str, **more: Any) -> RetryPromptPart:
    """What histories of earlier versions hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RetryPromptPart(content, **more)


HI = ModelRequest(parts=[UserPromptPart("hi")])


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return guard_of(tmp_path_factory.mktemp("policy"))[0]


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    """Sees one word wherever it is."""
    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "forbidden")'
    return Guard(write_rules(tmp_path_factory.mktemp("seeing"), {"seen": rule}))


class Played:
    """A model that says what it is given, and keeps what it was asked."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts or (TextPart("ok"),)
        self.heard: list[ModelMessage] = []
        self.model = FunctionModel(self.answer)
        self.info: AgentInfo | None = None

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.heard, self.info = messages, info
        return ModelResponse(parts=list(self.parts))

    async def asked(self, guard: Guard, messages: Sequence[ModelMessage] = (HI,), **more: Any) -> ModelResponse:
        model = cmf_pydantic.guarded_model(guard, self.model)
        return await model.request(list(messages), None, ModelRequestParameters(**more))


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    "item",
    [
        BinaryContent(PNG.data, media_type="image/png", identifier="forbidden"),
        BinaryContent(PNG.data, media_type="image/png", vendor_metadata={"detail": "forbidden"}),
        ImageUrl("https://x.example/a.png", vendor_metadata={"detail": "forbidden"}),
        ImageUrl("https://x.example/a.png", media_type="forbidden"),
        TextContent("hi", metadata={"a": "forbidden"}),
    ],
)
async def test_what_stands_beside_an_item_is_judged_with_it(seeing: Guard, item: Any) -> None:
    played = Played()
    with pytest.raises(Denied):
        await played.asked(seeing, [ModelRequest(parts=[UserPromptPart([item])])])

    assert played.heard == []


@pytest.mark.spec("INT-20")
async def test_what_a_tool_says_that_it_gives_back_is_judged(seeing: Guard) -> None:
    played = Played()
    tool = ToolDefinition(name="t", return_schema={"description": "forbidden"}, include_return_schema=True)
    with pytest.raises(Denied):
        await played.asked(seeing, function_tools=[tool])

    assert played.heard == []


@pytest.mark.spec("INT-20")
async def test_the_details_of_an_answer_are_judged_and_go_where_it_was_changed(seeing: Guard, guard: Guard) -> None:
    def detailed(text: str, details: str) -> Played:
        played = Played()
        answer = ModelResponse(parts=[TextPart(text)], provider_details={"logprobs": [details]})
        played.model = FunctionModel(lambda *_: answer)
        return played

    with pytest.raises(Denied):
        await detailed("hi", "forbidden").asked(seeing)
    kept = await detailed("hi", "hi").asked(Guard())
    masked = await detailed("PIN 1234", "1234").asked(guard)

    assert kept.provider_details == {"logprobs": ["hi"]}
    assert (masked.text, masked.provider_details) == ("PIN [MASKED]", None)


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    "beside",
    [
        {"provider_response_id": "forbidden"},
        {"finish_reason": "forbidden"},
        {"metadata": {"forbidden": 1}},
        {"usage": RequestUsage(details={"forbidden": 1})},
        {"provider_url": "https://forbidden.example"},
    ],
    ids=str,
)
async def test_what_stands_beside_the_parts_of_an_answer_is_judged(seeing: Guard, beside: dict[str, Any]) -> None:
    played = Played()
    played.model = FunctionModel(lambda *_: ModelResponse(parts=[TextPart("ok")], **beside))

    with pytest.raises(Denied):
        await played.asked(seeing)


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize("beside", [{"id": "forbidden"}, {"provider_details": {"a": "forbidden"}}], ids=str)
async def test_what_stands_beside_a_file_is_judged_with_it(seeing: Guard, beside: dict[str, Any]) -> None:
    made, asked = Played(FilePart(PNG, **beside)), Played()

    with pytest.raises(Denied):
        await made.asked(seeing)
    with pytest.raises(Denied):
        await asked.asked(seeing, [HI, ModelResponse(parts=[FilePart(PNG, **beside)])])

    assert asked.heard == []


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    "asked",
    [
        {
            "prompted_output_template": "forbidden {schema}",
            "output_object": OutputObjectDefinition(json_schema={"type": "object"}),
            "output_mode": "prompted",
        },
        {"instruction_parts": [InstructionPart("hi", name="forbidden")]},
        {"instruction_parts": [InstructionPart("hi", id=InstructionId(CapabilityInstructionSource("forbidden")))]},
    ],
    ids=["template", "name", "id"],
)
async def test_what_the_package_would_write_into_the_instructions_is_judged(
    seeing: Guard, asked: dict[str, Any]
) -> None:
    played = Played()
    with pytest.raises(Denied):
        await played.asked(seeing, **asked)

    assert played.heard == []


@pytest.mark.spec("INT-25")
async def test_credentials_among_the_settings_go_out_and_are_shown_to_no_policy(seeing: Guard) -> None:
    played = Played()
    model = cmf_pydantic.guarded_model(seeing, played.model)
    settings = ModelSettings(extra_headers={"Authorization": "forbidden"})

    await model.request([HI], settings, ModelRequestParameters())
    with pytest.raises(Denied):
        await model.request([HI], ModelSettings(extra_headers={"X-Note": "forbidden"}), ModelRequestParameters())

    assert played.info is not None
    assert played.info.model_settings == settings


@pytest.mark.spec("INT-25")
async def test_settings_that_policy_changed_are_not_passed_over(tmp_path: Path) -> None:
    where = "/properties/extra/pydantic_ai/settings/user"
    hit = f'{{"code": "no.user", "reason": "x", "pointer": "{where}", "replacement": "drop"}}'
    rule = f"redact contains {hit} if input.properties.extra.pydantic_ai.settings.user"
    played = Played()
    model = cmf_pydantic.guarded_model(Guard(write_rules(tmp_path, {"user": rule})), played.model)

    with pytest.raises(CallError) as caught:
        await model.request([HI], {"user": "ann"}, ModelRequestParameters())

    assert (caught.value.code, played.heard) == ("integration.settings-changed", [])


@pytest.mark.spec("INT-20", "INT-23")
@pytest.mark.parametrize(
    "messages",
    [
        [ModelRequest(parts=[RetryFeedbackPart("forbidden", retry=RETRY)])],
        [ModelResponse(parts=[CALL]),
         ModelRequest(parts=[older("forbidden", tool_name="query", tool_call_id="c1")])],
        [ModelRequest(parts=[UserPromptPart([TextContent("forbidden")])])],
    ],
)  # fmt: skip
async def test_each_part_of_the_history_is_judged_before_the_model_gets_it(
    guard: Guard, messages: list[ModelMessage]
) -> None:
    played = Played()
    with pytest.raises(Denied):
        await played.asked(guard, messages)

    assert played.heard == []


@pytest.mark.spec("INT-20")
async def test_the_model_gets_each_part_as_policy_edited_it(guard: Guard) -> None:
    answered = ToolReturnPart("query", {"text": "1234"}, tool_call_id="c1")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart([TextContent("my 1234"), PNG, "fine"])]),
        ModelResponse(parts=[ThinkingPart("1234", signature="s")]),
        ModelResponse(parts=[ThinkingPart("1234?"), CALL]),
        ModelRequest(parts=[answered, UserPromptPart("try 1234")]),
    ]
    played = Played()

    await played.asked(guard, messages)

    first, third, fourth = played.heard  # signed thinking goes as a whole, and its message with it
    assert first.parts[0].content == ["my [MASKED]", PNG, "fine"]
    assert [one.part_kind for one in third.parts] == ["thinking", "tool-call"]
    assert third.parts[0].content == "[MASKED]?"
    assert third.parts[1] == CALL
    assert "1234" not in str(fourth.parts)
    assert str(fourth.parts).count("[MASKED]") == 2


@pytest.mark.spec("INT-20")
async def test_a_call_whose_arguments_are_not_json_reaches_the_model_unchanged(lenient: Path) -> None:
    guard, played = Guard(lenient, config=Config(unreadable_calls="warn")), Played()
    for odd in (ToolCallPart("query", "{", tool_call_id="c1"), ToolCallPart("query", {"limit": 1})):
        await played.asked(guard, [HI, ModelResponse(parts=[odd])])

        assert played.heard[1].parts == [odd]


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize("spelt", ['{"limit": "forbidden", "limit": 1}', '{"limit": 1} forbidden'])
async def test_arguments_that_another_reader_takes_otherwise_are_judged_as_they_are_spelt(
    tmp_path: Path, spelt: str
) -> None:
    rule = 'deny contains {"code": "no.forbidden", "reason": "x"} if contains(json.marshal(input), "forbidden")'
    guard = Guard(write_rules(tmp_path, {"word": rule}, kinds="tool_call"))
    played = Played()

    with pytest.raises(Denied):
        await played.asked(guard, [HI, ModelResponse(parts=[ToolCallPart("query", spelt, tool_call_id="c1")])])

    assert played.heard == []


@pytest.mark.spec("INT-23")
async def test_a_stripped_tool_is_gone_though_another_has_its_name(tmp_path: Path) -> None:
    guard = Guard(write_rules(tmp_path, OWN, kinds="tool_definition"))
    played, mine = Played(), ToolDefinition(name="web_search")

    await played.asked(guard, function_tools=[mine], native_tools=[WebSearchTool()])

    assert played.info is not None
    assert played.info.model_request_parameters.function_tools == [mine]
    assert played.info.model_request_parameters.native_tools == []


@pytest.mark.spec("INT-20")
async def test_a_picture_that_a_model_made_comes_back_as_it_was(guard: Guard) -> None:
    made = FilePart(PNG)

    assert (await Played(made).asked(guard)).parts == [made]


@pytest.mark.spec("INT-23")
@pytest.mark.parametrize(
    "part",
    [UserPromptPart([VideoUrl("https://h/v.mp4")]), UserPromptPart(["see", CachePoint()]), NativeToolCallPart("x", {})],
)
async def test_what_has_no_words_here_is_not_sent(guard: Guard, part: Any) -> None:
    played = Played()
    message = ModelRequest(parts=[part]) if isinstance(part, UserPromptPart) else ModelResponse(parts=[part])
    with pytest.raises(CallError) as caught:
        await played.asked(guard, [message])

    assert caught.value.code == "integration.unsupported"
    assert played.heard == []


@pytest.mark.spec("INT-23")
async def test_tools_that_a_provider_runs_are_judged_and_offered(guard: Guard) -> None:
    played = Played()
    own = WebSearchTool()

    await played.asked(guard, native_tools=[own])

    assert played.info is not None
    assert played.info.model_request_parameters.native_tools == [own]


@pytest.mark.spec("INT-24")
def test_what_a_model_has_for_batches_is_not_there() -> None:
    model: Any = cmf_pydantic.guarded_model(Guard(), Played().model)
    with pytest.raises(CallError):
        _ = model.batch_of_another_kind
    with pytest.raises(AttributeError):
        _ = model.nothing_of_that_name


@pytest.mark.spec("INT-24")
def test_without_the_package_there_is_nothing(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ConfigError, match="pydantic-ai"):
        cmf_pydantic.capability(guard)


# -- stages, which may change more than rules --------------------------------------------------------------------------


Change = Callable[[Any], Any]


def staged(lenient: Path, kind: type, change: Change) -> Guard:
    """A guard with a stage that makes this of each request, or each answer."""
    stage = as_stage("change")(lambda value, _: change(value) if isinstance(value, kind) else None)
    return Guard(lenient, stages=[stage])


def other(part: Any) -> Any:
    """The part with other content."""
    match part:
        case ImagePart():
            return replace(part, data="AAAA")
        case OurText():
            return replace(part, text="changed")
    return part


def with_parts(message: Message, make: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Message:
    return replace(message, content=make(message.content))


@pytest.mark.spec("INT-20")
async def test_instructions_that_a_stage_removed_do_not_reach_the_model(lenient: Path) -> None:
    def first_gone(request: Request) -> Request:
        gone, changed, *others = request.messages
        assert gone.content == (OurText(text="one"),)
        left = (with_parts(gone, lambda _: ()), with_parts(changed, lambda parts: tuple(map(other, parts))))
        return replace(request, messages=(*left, *others))

    played = Played()
    guard = staged(lenient, Request, first_gone)
    await played.asked(guard, instruction_parts=[InstructionPart("one"), InstructionPart("two")])

    assert played.info is not None
    assert played.info.model_request_parameters.instruction_parts == [InstructionPart("changed")]


@pytest.mark.spec("INT-20")
async def test_a_prompt_that_a_stage_removed_does_not_reach_the_model(lenient: Path) -> None:
    played = Played()

    def first_gone(request: Request) -> Request:
        first, *others = request.messages
        return replace(request, messages=(with_parts(first, lambda _: ()), *others))

    guard = staged(lenient, Request, first_gone)
    texts = ModelRequest(parts=[UserPromptPart(["one"]), UserPromptPart("two")])

    await played.asked(guard, [texts, HI])
    await played.asked(guard, [ModelRequest(parts=[UserPromptPart("one")]), HI])

    assert [part.content for message in played.heard for part in message.parts] == ["hi"]


@pytest.mark.spec("INT-20")
async def test_feedback_reaches_the_model_as_policy_edited_it(guard: Guard) -> None:
    failed = older("1234 is wrong", tool_name="query", tool_call_id="c1")
    asked = ModelRequest(parts=[failed, older("not 1234"), RetryFeedbackPart("never 1234", retry=RETRY)])
    played = Played()

    await played.asked(guard, [HI, ModelResponse(parts=[CALL]), asked])

    one, two, three = played.heard[2].parts
    assert (one.part_kind, one.tool_name, one.tool_call_id) == ("tool-return", "query", "c1")
    assert one.content.startswith("[MASKED] is wrong")
    assert (two.part_kind, three.part_kind) == ("user-prompt", "user-prompt")
    assert "not [MASKED]" in two.content
    assert three.content.count("never [MASKED]") == 1


@pytest.mark.spec("INT-23")
async def test_media_that_a_stage_changes_is_refused(lenient: Path) -> None:
    def changed(value: Any) -> Any:
        if isinstance(value, Request):
            return replace(
                value, messages=tuple(with_parts(one, lambda parts: tuple(map(other, parts))) for one in value.messages)
            )
        (choice,) = value.choices
        message = with_parts(choice.message, lambda parts: tuple(map(other, parts)))
        return replace(value, choices=(replace(choice, message=message),))

    asked = staged(lenient, Request, changed)
    answered = staged(lenient, Response, changed)
    with pytest.raises(CallError, match="media"):
        await Played().asked(asked, [ModelRequest(parts=[UserPromptPart(["see", PNG])])])
    with pytest.raises(CallError, match="media"):
        await Played(FilePart(PNG)).asked(answered)


@pytest.mark.spec("INT-23")
async def test_of_an_answer_a_stage_may_change_and_take_away_but_add_nothing(lenient: Path) -> None:
    def made(*parts: Any) -> Change:
        def change(response: Response) -> Response:
            message = replace(response.choices[0].message, content=parts)
            return replace(response, choices=(Choice(message=message),))

        return change

    said = (ThinkingPart("hm"), TextPart("ok"), CALL)
    thought, text = OurThinking(text="hm"), OurText(text="fine")
    less = await Played(*said).asked(staged(lenient, Response, made(thought, text)))
    with pytest.raises(CallError, match="add"):
        await Played(*said).asked(staged(lenient, Response, made(text, thought, OurText(text="more"))))
    capped = OurCall(tool_call_id="c1", name="query", arguments={"limit": 0})
    raw = OurCall(tool_call_id="c1", name="query", arguments_raw="{")
    called = await Played(*said).asked(staged(lenient, Response, made(capped)))
    with pytest.raises(Denied, match="tool_input_invalid"):
        await Played(*said).asked(staged(lenient, Response, made(raw)))

    assert less.parts == [ThinkingPart("hm"), TextPart("fine")]
    assert called.parts[0].args == {"limit": 0}


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    ("given", "raw"), [('{"to": "a"}', None), ('{"to": "a", "to": "b"}', '{"to": "a", "to": "b"}')]
)
def test_arguments_in_text_are_read_only_where_all_readers_agree(given: str, raw: str | None) -> None:
    read = cmf_pydantic._call(ToolCallPart("send", given), None)

    assert (read.arguments, read.arguments_raw) == (None if raw else {"to": "a"}, raw)
