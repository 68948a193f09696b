"""`cmf profiles`: what is known of tools and why, drafts of profiles, and patterns that name nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pipeline.cli.groups import command_group
from pipeline.cli.options import FromOrSeen, OutputAs, ProfilesOption, Records, RecordsKey
from pipeline.cli.reading import Exit, fail, one_line_errors, tools_in
from pipeline.cli.rendering import write_json
from pipeline.cli.stores import lines_of
from pipeline.decisions.display import counted, escaped_json, visible
from pipeline.decisions.errors import ConfigError

if TYPE_CHECKING:
    from cmf.message.message import Message
    from cmf.message.request import Request, Response
    from cmf.message.tools import ToolDefinition
    from pipeline.authoring.profile_drafts import KnownFact

_ANSWER_SECONDS: Final = 30.0  # for all answers of a server
_MAX_PAGES: Final = 1_000
_SHOWN_VERBS: Final = 4
_PROTOCOL: Final = "2025-06-18"

command = command_group("What is known of tools: written in profiles, or inferred from their definitions.")
Definitions = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="A request, or an MCP tools/list result, with definitions; - for stdin."),
]
OfRecords = Annotated[
    str | None, typer.Option("--records", help="Definitions in recorded inputs instead: a file of them, or a store.")
]
Server = Annotated[
    str | None, typer.Option("--server", metavar="COMMAND", help="Definitions of the MCP server that this starts.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="The server that the tools belong to.")]


@command.command("draft")
def draft(
    file: Definitions = None,
    source: FromOrSeen = None,
    records: OfRecords = None,
    key: RecordsKey = None,
    server: Server = None,
    namespace: Namespace = None,
) -> None:
    """Print profiles as YAML, inferred from definitions, with the reason for each line."""
    from pipeline.authoring import profile_drafts

    with one_line_errors(file or ""):
        tools = _definitions(file, source, records, key, server, namespace)
        if not tools:
            fail("no tool definitions found; give a request, or a tools/list result", Exit.INPUT)
        typer.echo(profile_drafts.draft(tools), nl=False)


@command.command("show")
def show(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name, or namespace/name.")],
    file: Definitions = None,
    source: FromOrSeen = None,
    records: OfRecords = None,
    key: RecordsKey = None,
    server: Server = None,
    namespace: Namespace = None,
    profiles: ProfilesOption = None,
    output: OutputAs = "text",
) -> None:
    """Show what is known of one tool, and where each fact comes from. Without a definition, the name says it."""
    from cmf.message.tools import ToolDefinition
    from pipeline.authoring.profile_drafts import known_facts
    from pipeline.provenance.profiles import Profiles

    with one_line_errors(file or ""):
        known = Profiles.load(*([] if profiles is None else [profiles]))
        tools = _definitions(file, source, records, key, server, namespace)
        within, slash, name = tool.rpartition("/")
        named = [each for each in tools if each.name == name and (not slash or each.namespace == within)]
        if tools and not named:
            fail(f"no definition of {visible(tool)} there", Exit.INPUT)
        definition = named[-1] if named else ToolDefinition(name=name, namespace=within or namespace)
        facts = known_facts(definition, known)
    if output == "json":
        write_json([fact._asdict() for fact in facts])
        return
    for fact in facts:
        origin = f"inferred: {fact.reason}" if fact.inferred else fact.reason
        typer.echo(f"{visible(f'{fact.field}: {_shown(fact)}'):<40}  {visible(origin)}")


@command.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="PROFILES", help="A file of profiles.")],
    records: Records,
    key: RecordsKey = None,
    output: OutputAs = "text",
) -> None:
    """Report patterns of profiles that name no field of any recorded result or call. Exit code 1 if there are some."""
    from pipeline.authoring.profile_drafts import unmatched_patterns
    from pipeline.provenance.profiles import Profiles

    with one_line_errors(), _traffic(records, key) as traffic:
        findings = unmatched_patterns(Profiles.load(file).written, traffic)
    if output == "json":
        write_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            what = counted(finding.seen, "call" if finding.field in ("control", "content") else "result")
            typer.echo(visible(f"{finding.tool}  {finding.field}  {finding.pattern}  names nothing in {what}"))
        typer.echo(f"cmf: {counted(len(findings), 'pattern')} without a field", err=True)
    raise typer.Exit(int(Exit.REFUSED if findings else Exit.OK))


def _shown(fact: KnownFact) -> str:
    """The value of a fact on one line; of many words the first ones."""
    if fact.field == "asked_for" and isinstance(fact.value, dict):
        verbs = fact.value.get("verbs", ())
        more = f" and {len(verbs) - _SHOWN_VERBS} more" if len(verbs) > _SHOWN_VERBS else ""
        return ", ".join(verbs[:_SHOWN_VERBS]) + more
    return fact.value if isinstance(fact.value, str) else escaped_json(fact.value, indent=None)


def _definitions(
    file: str | None, source: str | None, records: str | None, key: Path | None, server: str | None, within: str | None
) -> list[ToolDefinition]:
    """The definitions in a file, in recorded inputs, or of a server; the latest of each name."""
    from cmf.json.value import replace

    if sum(place is not None for place in (file, records, server)) > 1:
        raise ConfigError("several places with definitions", hint="give one of FILE, --records and --server")
    tools: list[ToolDefinition] = []
    if file is not None:
        tools = [*tools_in(file, source)]
    elif records is not None:
        with _traffic(records, key) as traffic:
            tools = [tool for value in traffic for tool in getattr(value, "tools", ())]
    elif server is not None:
        import asyncio
        import shlex

        tools = asyncio.run(_asked(shlex.split(server)))
    if within is not None:
        tools = [replace(tool, namespace=within) for tool in tools]
    return [*{(tool.namespace, tool.name): tool for tool in tools}.values()]


@contextmanager
def _traffic(records: str, key: Path | None) -> Iterator[Iterator[Message | Request | Response]]:
    """The recorded inputs of a file or store; reading those of a store is recorded."""
    from pipeline.run.recorded_input import lines, read_entry

    with lines_of(records, key, lines, actor="cmf profiles", reason="looked for tools and their fields") as recorded:
        yield (read_entry(line).traffic for line in recorded())


async def _asked(server: Sequence[str]) -> list[ToolDefinition]:
    """What an MCP server answers to `tools/list`, all pages of it."""
    import asyncio

    from cmf.json.codec import MAX_BYTES, loads
    from pipeline.mcp.judging import response_of
    from pipeline.mcp.stdio import Process, ServerDisconnected

    process = await Process.begin(server, None, MAX_BYTES)
    tools: list[ToolDefinition] = []
    client = {"name": "cmf profiles", "version": "1"}
    asked = {"method": "initialize", "params": {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}}
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            lines = process.lines()
            for number in range(_MAX_PAGES):
                await process.send({"jsonrpc": "2.0", "id": number, **asked})
                body: dict[str, Any] = {}
                while body.get("id") != number or "method" in body:  # it may log, or ask something, meanwhile
                    line = await anext(lines)
                    body = loads(line) if line.lstrip()[:1] == b"{" else {}
                if number:
                    tools += response_of(body, None, None).tools
                else:
                    await process.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
                cursor = body.get("result", {}).get("nextCursor") if number else ""
                if cursor is None:
                    return tools
                asked = {"method": "tools/list", "params": {"cursor": cursor} if cursor else {}}
        raise ConfigError("the server lists its tools on too many pages", hint="give a file with its definitions")
    except (TimeoutError, StopAsyncIteration, ServerDisconnected):
        raise ConfigError("the server does not list its tools", hint="start it by hand to see why") from None
    finally:
        await process.end()
