"""The MCP SDK's client and server talk through the adapter: each message is read, and what is delivered was written."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from cmf.adapters import get
from cmf.enums import Role
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import ImagePart, Message, ResourceRefPart, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Request, Response
from tests.cmf.adapters.sdk.upstream import PNG
from tests.cmf.adapters.wiredata import first_difference

mcp = pytest.importorskip("mcp", reason="the protocol's own SDK is a development dependency")
types = pytest.importorskip("mcp_types")

from mcp.client._memory import InMemoryTransport  # noqa: E402  (after the check that it is there)
from mcp.server.mcpserver import Context, Image, MCPServer  # noqa: E402
from mcp.shared.memory import create_client_server_memory_streams  # noqa: E402
from mcp.shared.message import SessionMessage  # noqa: E402

MCP = get("mcp")
Edit = Callable[[Response], Response]
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


class Wire:
    """A wire between client and server that hands on only what the adapter wrote of what it read.

    `edit` changes each answer of a tool; `requests` and `responses` are what was read, in order.
    """

    def __init__(self, server: Any, edit: Edit | None = None) -> None:
        self.server = server
        self.edit = edit
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        self.asked: dict[Any, Request] = {}

    def passed(self, body: Any) -> Any:
        if "method" in body:
            request = MCP.from_wire_request(body)
            self.requests.append(request)
            self.asked[json.dumps(body.get("id"))] = request
            written = MCP.to_wire(request)
        else:
            context = self.asked.get(json.dumps(body.get("id")))
            response = MCP.from_wire_response(body, context)
            self.responses.append(response)
            written = MCP.to_wire_response(response)
            if self.edit is not None and _is_tool_answer(response):
                return MCP.to_wire_response(self.edit(response))
        assert same_spelling(written, body), first_difference(written, body)
        return written

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Any]:
        async with (
            InMemoryTransport(self.server) as (from_server, to_server),
            create_client_server_memory_streams() as (client, (from_client, to_client)),
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._pump, from_client, to_server)
            group.start_soon(self._pump, from_server, to_client)
            yield client
            group.cancel_scope.cancel()

    async def _pump(self, source: Any, sink: Any) -> None:
        async for item in source:
            body = json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True))
            message = types.jsonrpc_message_adapter.validate_python(self.passed(body), by_name=False)
            await sink.send(SessionMessage(message, item.metadata))

    def of(self, kind: type[Any]) -> list[Any]:
        """The parts of a kind in the requests so far."""
        return [
            part
            for request in self.requests
            for message in request.messages
            for part in message.content
            if isinstance(part, kind)
        ]


def _is_tool_answer(response: Response) -> bool:
    return any(isinstance(part, ToolResultPart) for choice in response.choices for part in choice.message.content)


def server() -> Any:
    made = MCPServer("tests", instructions="use with care")

    @made.tool()
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    @made.tool()
    def picture() -> Any:
        """A picture."""
        return Image(data=base64.b64decode(PNG), format="png")

    @made.tool()
    def broken() -> str:
        """Fails."""
        raise ValueError("no luck")

    @made.tool()
    async def ask(question: str, ctx: Context) -> str:
        """Asks the client's model."""
        answer = await ctx.session.create_message(
            messages=[
                types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question)),
            ],
            max_tokens=32,
            system_prompt="be brief",
        )
        return str(answer.content.text)

    @made.resource("note://today")
    def note() -> str:
        """A note."""
        return "buy milk"

    @made.prompt()
    def greet(name: str) -> str:
        """A greeting."""
        return f"Say hello to {name}"

    return made


def client_of(wire: Wire, mode: str, **options: Any) -> Any:
    return mcp.Client(wire(), mode=mode, **options)


@MODES
@pytest.mark.spec("ADP-12")
async def test_a_session_of_tools_resources_and_prompts_works_through_the_adapter(mode: str) -> None:
    wire = Wire(server())
    async with client_of(wire, mode) as client:
        tools = await client.list_tools()
        total = await client.call_tool("add", {"a": 1, "b": 2})
        image = await client.call_tool("picture", {})
        failed = await client.call_tool("broken", {})
        resources = await client.list_resources()
        note = await client.read_resource("note://today")
        prompts = await client.list_prompts()
        greeting = await client.get_prompt("greet", {"name": "Ann"})

    assert {tool.name for tool in tools.tools} == {"add", "picture", "broken", "ask"}
    assert (total.content[0].text, total.structured_content) == ("3", {"result": 3})
    assert (image.content[0].type, image.content[0].data) == ("image", PNG)
    assert failed.is_error
    assert [str(each.uri) for each in resources.resources] == ["note://today"]
    assert note.contents[0].text == "buy milk"
    assert [each.name for each in prompts.prompts] == ["greet"]
    assert greeting.messages[0].content.text == "Say hello to Ann"
    calls = wire.of(ToolCallPart)
    assert [(call.name, call.arguments) for call in calls] == [
        ("add", {"a": 1, "b": 2}),
        ("picture", {}),
        ("broken", {}),
    ]
    assert [part.uri for part in wire.of(ResourceRefPart)] == ["note://today"]


@MODES
@pytest.mark.spec("ADP-12")
async def test_a_tool_result_that_came_from_another_format_is_read(mode: str) -> None:
    foreign = ToolResultPart(
        content=(TextPart(text="four"), ImagePart(type="base64", data=PNG, media_type="image/png")), is_error=False
    )

    def answered(response: Response) -> Response:
        message = Message(role=Role.TOOL, content=(foreign,))
        return replace(response, choices=(Choice(message=message),))

    async with client_of(Wire(server(), edit=answered), mode) as client:
        result = await client.call_tool("picture", {})

    assert [block.type for block in result.content] == ["text", "image"]
    assert (result.content[0].text, result.content[1].mime_type) == ("four", "image/png")


@MODES
@pytest.mark.spec("ADP-12")
async def test_an_error_is_the_sdks_own(mode: str) -> None:
    async with client_of(Wire(server()), mode) as client:
        with pytest.raises(mcp.MCPError) as caught:
            await client.get_prompt("no_such_prompt", {})

    assert caught.value.error.message


@pytest.mark.spec("ADP-12")
@pytest.mark.filterwarnings("ignore:The sampling capability is deprecated")
async def test_what_a_server_asks_of_the_clients_model_is_read_and_answered() -> None:
    async def sample(context: Any, params: Any) -> Any:
        assert params.system_prompt == "be brief"
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=f"re: {params.messages[0].content.text}"),
            model="some-model",
            stop_reason="endTurn",
        )

    wire = Wire(server())
    async with client_of(wire, "legacy", sampling_callback=sample) as client:
        result = await client.call_tool("ask", {"question": "why?"})

    assert result.content[0].text == "re: why?"
    (asked,) = [request for request in wire.requests if request.sampling.max_output_tokens == 32]
    assert [message.role for message in asked.messages] == [Role.SYSTEM, Role.USER]
    assert any(response.model == "some-model" for response in wire.responses)
