"""An MCP server behind policy: the SDK's client begins `cmf mcp-proxy`, which begins the server (this file again).

python examples/mcp_proxy.py
"""

from __future__ import annotations

import asyncio
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def read_note(name: str) -> str:
    """Read a note."""
    return f"{name}: the key is AKIAIOSFODNN7EXAMPLE"


async def main() -> None:
    cmf = [sys.executable, "-c", "from pipeline.cli import main; main()"]  # `cmf`, wherever it is installed
    command = [*cmf, "mcp-proxy", "--name", "notes", "--", sys.executable, __file__, "server"]
    async with Client(stdio_client(StdioServerParameters(command=command[0], args=command[1:]))) as client:
        print("tools:", [tool.name for tool in (await client.list_tools()).tools])
        read = await client.call_tool("read_note", {"name": "today"})
        print("read_note:", read.content[0].text)
        leaked = await client.call_tool("read_note", {"name": "AKIAIOSFODNN7EXAMPLE"})
        print("refused:", leaked.is_error, leaked.meta["cmf/code"])


if __name__ == "__main__":
    if sys.argv[1:] == ["server"]:
        server.run()
    else:
        asyncio.run(main())
