"""`cmf convert`: one wire format into another, for files. Not for traffic: no policy is evaluated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from cmf.errors import LossyProjectionError, ShapeError
from cmf.json.codec import dumps, loads
from pipeline.cli.options import File, From, Wire
from pipeline.cli.reading import one_line_errors, read_bytes, read_wire
from pipeline.decisions.display import escaped, visible

if TYPE_CHECKING:
    from cmf.adapters import WireEvent
    from cmf.message.message import Message
    from cmf.message.request import Request, Response

NDJSON_FORMATS: Final = frozenset({"ollama"})
"""The formats whose streams are JSON lines; all others are server-sent events."""


ConvertKind = Literal["request", "response", "stream"]


def command(
    file: File,
    source: From,
    target: Annotated[Wire, typer.Option("--to", help="The format to write.")],
    kind: Annotated[ConvertKind, typer.Option("--kind", help="What FILE holds.")] = "request",
    strict: Annotated[bool, typer.Option("--strict", help="Fail if anything would be lost.")] = False,
) -> None:
    """Translate between wire formats. What the target cannot express is dropped and listed on standard error.

    No policy is evaluated: this converts files, and is not meant for traffic.
    """
    from cmf.adapters.wire import loss

    logging.getLogger("cmf").addHandler(logging.NullHandler())  # losses are reported once, below
    with one_line_errors(file), loss.collecting() as losses:
        if kind == "stream":
            output = _stream(file, source, target)
        else:
            output = dumps(encoded(read_wire(file, source, kind).traffic, target)).decode()
        for lost in losses:
            typer.echo(f"cmf: dropped {visible(lost.block_type)}: {visible(lost.reason)} [{lost.adapter}]", err=True)
        if strict and losses:
            hint = "leave out --strict to drop them"
            raise LossyProjectionError(f"{len(losses)} blocks cannot be expressed in {target}", hint=hint)
    typer.echo(escaped(output))


def encoded(value: Message | Request | Response, target: str) -> Any:
    """The wire form of a value, or its canonical form if `target` is canonical."""
    from cmf import adapters
    from cmf.message.request import Request, Response
    from pipeline.run.emit import with_wire_model

    if target == "canonical":
        return value.model_dump()
    adapter = adapters.get(target)
    if isinstance(value, Response):
        return adapter.to_wire_response(with_wire_model(value))
    return adapter.to_wire(with_wire_model(value if isinstance(value, Request) else Request(messages=(value,))))


def _stream(file: str, source: str, target: str) -> str:
    """Fold a stream to a whole response and write that as a stream again, or as the canonical response."""
    from cmf import adapters
    from cmf.adapters.wire import sse

    if source == "canonical":
        raise ShapeError("the canonical format has no streams", path="$", hint="use --kind response")
    adapter = adapters.get(source)
    raw = read_bytes(file)
    if raw.lstrip().startswith(b"["):  # a JSON array of events; otherwise the bytes as they came over the wire
        events: list[WireEvent] = loads(raw)
    else:
        reader = sse.NdjsonReader() if source in NDJSON_FORMATS else sse.SseReader()
        events = [*reader.feed(raw), *reader.close()]
    response = adapter.from_wire_response(adapter.fold_events(events))
    if target == "canonical":
        return dumps(response.model_dump()).decode()
    write = sse.ndjson_bytes if target in NDJSON_FORMATS else sse.sse_bytes
    return b"".join(map(write, adapters.get(target).to_wire_events(response))).decode().rstrip("\n")
