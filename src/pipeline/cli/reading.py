"""Reading input files, and reporting errors in one line.

What makes a message of a file is imported when one is read, so that help and completion are fast.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from cmf.errors import CmfError, DecodeError, ShapeError
from cmf.json.codec import MAX_BYTES, loads
from pipeline.cli.format_detection import detected
from pipeline.cli.policy_places import file_of
from pipeline.decisions.display import visible
from pipeline.decisions.errors import (
    AuditError,
    CaseError,
    ConfigError,
    LedgerError,
    PipelineError,
    PolicyError,
    ReplayError,
    SessionError,
)

if TYPE_CHECKING:
    from cmf.message.message import Message
    from cmf.message.request import Request, Response
    from cmf.message.tools import ToolDefinition
    from pipeline.decisions.context import Context
    from pipeline.run.recorded_input import Entry

_CONTEXT: Final = (
    "write `subject: {id: ann, roles: [editor]}`; further keys are session, environment, labels, classification,"
    " headers, agent, request and custom"
)


_LISTING: Final = frozenset({"tools", "nextCursor", "_meta"})  # the keys of a result of MCP's tools/list


class Exit(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    POLICY = 3
    INPUT = 4
    EVALUATION = 5
    SUSPENDED = 6


_DURATION: Final = re.compile(r"([1-9]\d{0,5})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration_of(text: str) -> timedelta:
    """The time that `--for` names, such as 30m or 8h; a usage error otherwise."""
    found = _DURATION.fullmatch(text)
    if found is None:
        fail("--for takes a number and s, m, h or d, such as 30m or 8h", Exit.USAGE)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def fail(message: str, code: Exit) -> NoReturn:
    """Print `message` on standard error and exit."""
    typer.echo(f"cmf: {message}", err=True)
    raise typer.Exit(int(code))


@contextmanager
def one_line_errors(file: str = "", policies: Sequence[Path] = ()) -> Iterator[None]:
    """A block in which our errors end the command with one line and their exit code, never a traceback.

    Files of `policies` are named relative to the current directory.
    """
    where = f"{file}: " if file and file != "-" else ""
    try:
        yield
    except PolicyError as error:
        if error.path and policies:
            error.path = file_of(error.path, policies)
        fail(str(error), Exit.POLICY)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)
    except (AuditError, CaseError, LedgerError, ReplayError) as error:
        fail(str(error), Exit.INPUT)
    except SessionError as error:
        fail(str(error), Exit.REFUSED)
    except PipelineError as error:
        fail(str(error), Exit.EVALUATION)
    except CmfError as error:
        fail(f"{where}{error}", Exit.INPUT)


def read_bytes(file: str) -> bytes:
    """The bytes of a file or of standard input, up to the size limit."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(file).open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DecodeError(f"cannot be read: {error.strerror}", code="input.unreadable", hint="check the path") from None


def read_seal_key(path: Path) -> bytes:
    """The seal key in a file: 64 hexadecimal digits. ConfigError if it is missing or malformed."""
    try:
        return bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        hint = "write 64 hexadecimal digits into it: openssl rand -hex 32"
        raise ConfigError("the seal key cannot be read", path=str(path), code="config.seal-key", hint=hint) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A file's value, and its format and kind; `entry` if it is a recorded input, with its own context and session."""

    traffic: Message | Request | Response
    source: str
    kind: str
    entry: Entry | None = None


def read_wire(file: str, source: str | None, kind: str | None) -> Read:
    """The request, response or message in `file`. Identity in it is only a claim: the subject comes from the context.

    A format or kind that is not given is detected from the shape, and noted on standard error. A recorded input, as
    `cmf audit reveal` and `--record` write it, is recognised too.
    """
    from pipeline.run.recorded_input import read_entry

    raw = read_bytes(file)
    body = loads(raw)
    if source is None and isinstance(body, dict) and {"schema", "traffic", "decision"} <= body.keys():
        entry = read_entry(raw)
        typer.echo(f"cmf: read as the recorded input of {visible(entry.id)}", err=True)
        return Read(traffic=entry.traffic, source="canonical", kind=body["kind"], entry=entry)
    if source is None:
        source, seen = detected(body)
        kind = kind or seen
        what = source if source == "canonical" else f"{source}, a {kind}"
        typer.echo(f"cmf: read as {what}; --from and --kind override this", err=True)
    elif kind is None:
        try:
            kind = detected(body)[1]
        except ShapeError:
            kind = "request"
    return Read(traffic=traffic_in(body, source, kind), source=source, kind=kind)


def tools_in(file: str, source: str | None) -> tuple[ToolDefinition, ...]:
    """The tool definitions in a request, or in an MCP `tools/list` result, also without its JSON-RPC envelope."""
    from cmf.message.message import Message

    body = loads(read_bytes(file))
    is_listing = source == "mcp" or (source is None and isinstance(body, dict) and body.keys() <= _LISTING)
    if is_listing and isinstance(body, dict) and "jsonrpc" not in body:
        body = {"jsonrpc": "2.0", "id": 1, "result": body}
    kind = "response" if is_listing else "request"
    if source is None:
        source, kind = ("mcp", kind) if is_listing else detected(body)
    value = traffic_in(body, source, kind)
    return () if isinstance(value, Message) else tuple(value.tools)


def traffic_in(body: Any, source: str, kind: str) -> Message | Request | Response:
    """The value of a body in this format."""
    from cmf import adapters
    from cmf.message.model_ids import FORMAT_PROVIDERS
    from pipeline.run.emit import with_provider

    if source == "canonical":
        return _canonical(body)
    adapter = adapters.get(source)
    provider = FORMAT_PROVIDERS.get(source)
    if kind == "response":
        return with_provider(adapter.from_wire_response(body), provider)
    return with_provider(adapter.from_wire_request(body), provider)


def _canonical(body: Any) -> Message | Request | Response:
    from cmf.message.message import Message
    from cmf.message.request import Request, Response

    if isinstance(body, dict):
        if "messages" in body:
            return Request.model_validate(body)
        if "choices" in body or "error" in body:
            return Response.model_validate(body)
        if "role" in body:
            return Message.model_validate(body)
    hint = "give an object with `role`, `messages` or `choices`"
    raise ShapeError("neither a message, a request nor a response", path="$", hint=hint)


def check_has_none(what: str, given: Mapping[str, object]) -> None:
    """Exit if an option is given whose value `what` has itself, such as a recorded input."""
    named = next((option for option, value in given.items() if value is not None), None)
    if named is not None:
        fail(f"{named} cannot be used with {what}, which has its own; leave it out", Exit.USAGE)


def read_context(path: Path | None, subject: str | None, session: str | None = None) -> Context:
    """The context from a JSON or YAML file, if given; a named `subject` or `session` replaces the one in it."""
    from pipeline.decisions.context import Context

    if path is None:
        context = Context()
    else:
        raw = read_bytes(str(path))
        body = _yaml(raw) if path.suffix in (".yaml", ".yml") else loads(raw)
        if not isinstance(body, dict):
            hint = "write `key: value` lines, such as `subject: {id: ann}`"
            raise ShapeError("the context is not an object", path="$", hint=hint)
        try:
            context = Context.model_validate(body)
        except ShapeError as error:
            error.hint = error.hint or _CONTEXT
            raise
    named = {} if subject is None else {"subject": {"id": subject}}
    return context.model_copy(update=named | ({} if session is None else {"session": session}))


def _yaml(raw: bytes) -> Any:
    import yaml

    from pipeline.policy.metadata import load_yaml, yaml_problem

    try:
        return load_yaml(raw.decode())
    except UnicodeDecodeError:
        raise DecodeError("not UTF-8", code="yaml.syntax", hint="save it as UTF-8") from None
    except yaml.YAMLError as error:
        line, column, problem = yaml_problem(error)
        where = f" at line {line} column {column}" if line else ""
        raise DecodeError(f"not YAML{where}: {problem}", code="yaml.syntax", hint="correct the text there") from None
