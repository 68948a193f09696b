"""A server of MCP with a bit of everything, by the real SDK: on standard input and output, or with a port over HTTP."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

KEY = "AKIAIOSFODNN7EXAMPLE"
warnings.simplefilter("ignore")
app = MCPServer("everything", instructions=f"Never say {KEY}.")


class Name(BaseModel):
    name: str


@app.tool()
def read(path: str) -> str:
    """Read a file."""
    return f"{path}: {KEY}"


@app.tool()
def remove(path: str) -> str:
    """Remove a file."""
    raise AssertionError(path)


@app.tool()
def ask_region(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], query: str) -> str:
    """Ask a region; in revision 2026-07-28 this server wants its name in a header too."""
    return f"{region}: {query}"


@app.tool()
def hidden() -> str:
    """Not for anybody."""
    return "hidden"


@app.tool()
async def steps(ctx: Context) -> str:
    """Say how far it is."""
    for at in range(3):
        await ctx.report_progress(at, 3, f"step {at} {KEY}")
    return "done"


@app.tool()
async def ask(ctx: Context) -> str:
    """Ask the person."""
    answer = await ctx.elicit("What is your name?", Name)
    return str(answer.model_dump().get("data"))


@app.tool()
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"What is {KEY}?"))
    answer = await ctx.session.create_message([question], max_tokens=5)
    return str(answer.content.text)


@app.tool()
async def loud(ctx: Context) -> str:
    """Log something."""
    await ctx.info(f"the key is {KEY}")
    return "logged"


@app.resource("file:///notes")
def notes() -> str:
    """Notes."""
    return f"note: {KEY}"


@app.resource("file:///notes/{name}")
def note(name: str) -> str:
    """One note."""
    return f"{name}: {KEY}"


@app.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}, who has {KEY}."


@app.completion()
async def complete(ref: object, argument: object, context: object) -> object:
    """Names that begin like this."""
    from mcp_types import Completion

    return Completion(values=["ann", "bob"])


if __name__ == "__main__":
    sys.stderr.write("everything is here\n")
    if len(sys.argv) > 1:
        app.run("streamable-http", port=int(sys.argv[1]))
    else:
        app.run()
