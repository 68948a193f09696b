"""A server of MCP that says whatever the protocol lets it say, by the real SDK, and what a client asks and answers."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as t
from mcp.server.lowlevel import Server
from tests.pipeline.mcp.pairs import PNG

WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x44\xac\0\0\x88\x58\1\0\2\0\x10\0data\0\0\0\0"
).decode()
NOTE = t.Annotations(audience=["user", "assistant"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
ICONS = [t.Icon(src=f"data:image/png;base64,{PNG}", mime_type="image/png", sizes=["1x1"], theme="light")]
HINTS = t.ToolAnnotations(title="T", read_only_hint=True, destructive_hint=False, open_world_hint=False)
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CHOICE = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]}
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "size": CHOICE},
    "required": ["name"],
}
WEATHER = t.Tool(name="weather", description="Says the weather.", input_schema={"type": "object"})


def said(text: str) -> t.TextContent:
    return t.TextContent(type="text", text=text, annotations=NOTE, _meta={"m": 1})


PICTURE = t.ImageContent(type="image", data=PNG, mime_type="image/png", annotations=NOTE)
SOUND = t.AudioContent(type="audio", data=WAV, mime_type="audio/wav")
TEXT = t.TextResourceContents(uri="file:///a.txt", text="one", mime_type="text/plain", _meta={"z": 1})
BLOB = t.BlobResourceContents(uri="file:///a.png", blob=PNG, mime_type="image/png")
LINK = t.ResourceLink(
    type="resource_link", uri="https://example.com/x", name="x", title="X", description="d", size=10, icons=ICONS
)
EVERYTHING = [
    said("hello"), PICTURE, SOUND, LINK, t.EmbeddedResource(type="resource", resource=TEXT, annotations=NOTE),
    t.EmbeddedResource(type="resource", resource=BLOB),
]  # fmt: skip
DESCRIBED: dict[str, Any] = {"title": "A", "description": "d", "icons": ICONS, "_meta": {"q": 1}}


# -- the server --------------------------------------------------------------------------------------------------------


def tool(name: str, **more: Any) -> t.Tool:
    return t.Tool(name=name, input_schema={"type": "object"}, annotations=HINTS, **DESCRIBED, **more)


async def list_tools(_ctx: Any, params: Any) -> t.ListToolsResult:
    if params is not None and params.cursor == "more":
        return t.ListToolsResult(tools=[tool("fails")])
    listed = [tool("all", output_schema=COUNT), *map(tool, ("url", "form", "roots", "sample", "notify", "steps"))]
    return t.ListToolsResult(tools=listed, next_cursor="more", _meta={"k": "v"})


async def sample(ctx: Any) -> str:
    """Have the client's model call a tool twice, and tell it the results."""
    asked = [t.SamplingMessage(role="user", content=said("weather?"))]
    likes = t.ModelPreferences(hints=[t.ModelHint(name="m")], cost_priority=0.1, intelligence_priority=0.3)
    options: dict[str, Any] = {"max_tokens": 5, "tools": [WEATHER]}
    first = await ctx.session.create_message(
        asked, system_prompt="s", temperature=0.5, stop_sequences=["x"], metadata={"p": 1}, model_preferences=likes,
        tool_choice=t.ToolChoice(mode="required"), **options,
    )  # fmt: skip
    found = [
        t.ToolResultContent(
            type="tool_result", tool_use_id=use.id, content=[said(use.id), PICTURE], structured_content={"t": 1}
        )
        for use in first.content
        if use.type == "tool_use"
    ]
    asked += [t.SamplingMessage(role="assistant", content=first.content), t.SamplingMessage(role="user", content=found)]
    last = await ctx.session.create_message(asked, tool_choice=t.ToolChoice(mode="none"), **options)
    return str(last.content.text)


async def notify(ctx: Any) -> str:
    """All that a server says of its own accord."""
    await ctx.session.send_log_message(level="warning", data={"a": ["b"]}, logger="l")
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_prompt_list_changed()
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_resource_updated("file:///a.txt")
    await ctx.session.send_ping()
    return "told"


async def call_tool(ctx: Any, params: Any) -> t.CallToolResult:
    match params.name:
        case "all":
            return t.CallToolResult(content=EVERYTHING, structured_content={"n": 3}, _meta={"a": "b"})
        case "url":
            answer = await ctx.session.elicit_url("Please pay", url="https://example.com/?id=1", elicitation_id="e1")
            await ctx.session.send_elicit_complete("e1")
            text = str(answer.action)
        case "form":
            text = (await ctx.session.elicit_form("Who?", requested_schema=FORM)).model_dump_json()
        case "roots":
            text = (await ctx.session.list_roots()).model_dump_json()
        case "sample":
            text = await sample(ctx)
        case "notify":
            text = await notify(ctx)
        case "steps":
            for at in range(3):
                await ctx.session.report_progress(at, 3, f"step {at}")
            text = "done"
        case _:
            return t.CallToolResult(content=[said("no")], is_error=True)
    return t.CallToolResult(content=[said(text)])


async def list_resources(_ctx: Any, _params: Any) -> t.ListResourcesResult:
    listed = t.Resource(uri="file:///a.txt", name="a", mime_type="text/plain", size=3, annotations=NOTE, **DESCRIBED)
    return t.ListResourcesResult(resources=[listed])


async def list_templates(_ctx: Any, _params: Any) -> t.ListResourceTemplatesResult:
    return t.ListResourceTemplatesResult(
        resource_templates=[t.ResourceTemplate(uri_template="file:///{x}", name="x", annotations=NOTE, **DESCRIBED)]
    )


async def read_resource(_ctx: Any, _params: Any) -> t.ReadResourceResult:
    return t.ReadResourceResult(contents=[TEXT, BLOB])


async def list_prompts(_ctx: Any, _params: Any) -> t.ListPromptsResult:
    wants = t.PromptArgument(name="a", title="A", description="d", required=True)
    return t.ListPromptsResult(prompts=[t.Prompt(name="p", arguments=[wants], **DESCRIBED)])


async def get_prompt(_ctx: Any, _params: Any) -> t.GetPromptResult:
    messages = [t.PromptMessage(role="user", content=block) for block in EVERYTHING]
    return t.GetPromptResult(
        description="d", messages=[*messages, t.PromptMessage(role="assistant", content=said("a"))]
    )


async def complete(_ctx: Any, _params: Any) -> t.CompleteResult:
    return t.CompleteResult(completion=t.Completion(values=["x", "y"], total=2, has_more=False))


async def nothing(_ctx: Any, _params: Any) -> t.EmptyResult:
    return t.EmptyResult()


async def heard(_ctx: Any, _params: Any) -> None:
    return None


def server() -> Any:
    return Server(
        "rich", version="1", title="Rich", instructions="Be kind.", website_url="https://example.com", icons=ICONS,
        on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources,
        on_list_resource_templates=list_templates, on_read_resource=read_resource, on_list_prompts=list_prompts,
        on_get_prompt=get_prompt, on_completion=complete, on_set_logging_level=nothing,
        on_subscribe_resource=nothing, on_unsubscribe_resource=nothing, on_roots_list_changed=heard,
    )  # fmt: skip


# -- the client --------------------------------------------------------------------------------------------------------


async def sampled(_ctx: Any, params: Any) -> t.CreateMessageResultWithTools:
    last = params.messages[-1].content
    if not isinstance(last, list):
        uses = [t.ToolUseContent(type="tool_use", id=f"call-{at}", name="weather", input={"at": at}) for at in range(2)]
        return t.CreateMessageResultWithTools(
            role="assistant", content=[said("let me see"), *uses], model="m", stop_reason="toolUse"
        )
    text = ", ".join(f"{result.tool_use_id}: {result.content[0].text}" for result in last)
    return t.CreateMessageResultWithTools(role="assistant", content=said(text), model="m", stop_reason="endTurn")


async def elicited(_ctx: Any, params: Any) -> t.ElicitResult:
    content = {"name": "ann", "size": "s"} if params.mode == "form" else None
    return t.ElicitResult(action="accept", content=content)


async def roots(_ctx: Any) -> t.ListRootsResult:
    return t.ListRootsResult(roots=[t.Root(uri="file:///home/ann", name="home", _meta={"r": 1})])


ANSWERS: dict[str, Any] = {
    "sampling_callback": sampled,
    "sampling_capabilities": t.SamplingCapability(tools=t.SamplingToolsCapability()),
    "elicitation_callback": elicited,
    "list_roots_callback": roots,
}


async def session(client: Any, told: list[Any], *, legacy: bool) -> list[Any]:
    """All that the client gets to hear when it asks for everything; what comes of its own accord is in `told`."""
    prompt, template = t.PromptReference(name="p"), t.ResourceTemplateReference(uri="file:///{x}")

    async def progressed(*said: Any) -> None:
        told.append(said)

    found = [
        client.instructions, await client.list_tools(), await client.list_tools(cursor="more"),
        await client.call_tool("all", {"a": 1}), await client.call_tool("fails"),
        await client.list_resources(), await client.list_resource_templates(),
        await client.read_resource("file:///a.txt"), await client.list_prompts(),
        await client.get_prompt("p", {"a": "b"}),
        await client.complete(prompt, {"name": "a", "value": "x"}, {"b": "c"}),
        await client.complete(template, {"name": "x", "value": "x"}),
    ]  # fmt: skip
    if legacy:
        found += [await client.call_tool(name) for name in ("url", "form", "roots", "sample", "notify")]
        found += [await client.subscribe_resource("file:///a"), await client.unsubscribe_resource("file:///a")]
        found += [await client.set_logging_level("debug"), await client.send_ping()]
        found.append(await client.call_tool("steps", progress_callback=progressed))
        await client.send_roots_list_changed()
    return found
