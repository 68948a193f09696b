"""An upstream that plays a script: replies, tool calls, errors and delays from YAML. Spec: gateway.md."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from pydantic import Field

from cmf.adapters.wire.base import estimate
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.stream import TextDelta
from cmf.enums import MessageStatus, Role, StopReason
from cmf.json.frozen import frozen_mapping
from cmf.json.value import replace
from cmf.message.message import Message, Part, TextPart, ThinkingPart, TokenUsage, ToolCallPart, ToolResultPart
from cmf.message.model_ids import model_matches
from cmf.message.request import Choice, ErrorInfo, Request, Response
from pipeline.decisions.errors import ConfigError
from pipeline.gateway.config.settings_base import Section
from pipeline.gateway.upstreams.upstream import StreamObserver, UpstreamError, error_of
from pipeline.policy.metadata import load_yaml


class When(Section):
    """The requests that get a reply; all conditions given must hold."""

    model: str | None = None  # a glob
    says: str | None = None  # in the text of the last message; case is ignored
    result_of: str | None = None  # the last message answers a call of this tool


class Call(Section):
    """A tool call of a reply."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Failure(Section):
    """An error instead of a reply."""

    status: Annotated[int, Field(ge=400, le=599)]
    message: str


class Reply(Section):
    """One reply. In `text`, `{said}` is replaced by the text of the last message."""

    when: When = When()
    thinking: str | None = None
    text: str | None = None
    tool_calls: tuple[Call, ...] = ()
    error: Failure | None = None
    cut: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=600)] = 0.0
    pieces: Annotated[int, Field(ge=1, le=10_000)] = 1  # into which the text of a stream is cut
    pace_seconds: Annotated[float, Field(ge=0, le=600)] = 0.0  # after each of them
    times: Annotated[int, Field(ge=1)] | None = None  # how often it is used; after that, the next that fits


class Script(Section):
    """A whole script. The first reply that fits a request is given."""

    replies: Annotated[tuple[Reply, ...], Field(min_length=1)]


def load_script(path: Path) -> Script:
    """The script in a YAML file. ConfigError, with the path in it, where it is not valid."""
    try:
        return Script.model_validate(load_yaml(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        hint = "write `replies:` in YAML"
        raise ConfigError("the script cannot be read", path=str(path), code="config.script", hint=hint) from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(first["msg"], path=f"{path}: {where}", code="config.script", hint="see gateway.md") from None


class ScriptedUpstream:
    """Plays one script, in the process. It takes requests in the canonical form."""

    target = "canonical"
    provider = "scripted"

    def __init__(self, script: Script) -> None:
        self._script = script
        self._given = [0] * len(script.replies)

    def knows(self, _model: str, /) -> bool:
        """See `Upstream`."""
        return True

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def ask(self, request: Request, _body: Any, live: StreamObserver | None, /) -> Response:
        """The first reply that fits. UpstreamError where none does, or where the script cuts it off."""
        left = (
            at for at, reply in enumerate(self._script.replies) if reply.times is None or self._given[at] < reply.times
        )
        at = next((at for at in left if _fits(self._script.replies[at].when, request)), None)
        if at is None:
            raise UpstreamError(502, "upstream.no-reply", "The script has no reply that fits this request.")
        self._given[at] += 1
        reply = self._script.replies[at]
        if reply.delay_seconds:
            await asyncio.sleep(reply.delay_seconds)
        response = _response(reply, request)
        if request.stream:
            await _played(reply, response, live)
        if reply.cut:
            raise UpstreamError(502, "upstream.cut", "The upstream's stream ended before its answer was complete.")
        if reply.error is not None:
            return error_of(reply.error.status, ErrorInfo(message=reply.error.message))
        return response


def _fits(when: When, request: Request) -> bool:
    model = (request.model or "").removeprefix("scripted:")
    return (
        (when.model is None or model_matches(model, when.model))
        and (when.says is None or when.says.casefold() in _last_text(request).casefold())
        and (when.result_of is None or when.result_of in _answered(request))
    )


async def _played(reply: Reply, response: Response, live: StreamObserver | None) -> None:
    """Let the text arrive piece by piece: the parts before any call, with so many pieces of their text."""
    (choice,) = response.choices
    for number in range(1, reply.pieces + 1 if reply.text else 1):
        if live is not None:
            so_far: list[Part] = []
            news = ""
            for part in choice.message.content:
                if isinstance(part, TextPart):
                    begin, end = (len(part.text) * at // reply.pieces for at in (number - 1, number))
                    news = part.text[begin:end]
                    so_far.append(replace(part, text=part.text[:end]))
                elif isinstance(part, ThinkingPart):
                    so_far.append(part)
            message = replace(choice.message, content=tuple(so_far), status=MessageStatus.PARTIAL)
            part_of_it = replace(response, choices=(replace(choice, message=message, stop_reason=None),))
            live.observe(TextDelta(text=news))
            await live.pause(lambda part=part_of_it: part)  # type: ignore[misc]  # a default binds it now
        await asyncio.sleep(reply.pace_seconds)


def _response(reply: Reply, request: Request) -> Response:
    parts: list[Part] = [] if reply.thinking is None else [ThinkingPart(text=reply.thinking)]
    if reply.text is not None:
        parts.append(TextPart(text=reply.text.replace("{said}", _last_text(request))))
    at = len(request.messages)
    parts += [
        ToolCallPart(name=call.name, tool_call_id=f"call_{at}_{index}", arguments=frozen_mapping(call.arguments))
        for index, call in enumerate(reply.tool_calls)
    ]
    message = Message(role=Role.ASSISTANT, content=tuple(parts))
    stop = StopReason.CALL if reply.tool_calls else StopReason.END
    sent, replied = estimate(request), estimate(Request(messages=(message,)))
    usage = TokenUsage(input_tokens=sent, output_tokens=replied, total_tokens=sent + replied)
    model = (request.model or "").removeprefix("scripted:")
    return Response(choices=(Choice(message=message, stop_reason=stop),), usage=usage, model=model or None)


def _last_text(request: Request) -> str:
    parts = request.messages[-1].content if request.messages else ()
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _answered(request: Request) -> set[str | None]:
    """The names of the tools whose results end the conversation; clients of Ollama name no call, but the tool."""
    names = call_names(request.messages)
    answered: set[str | None] = set()
    for message in reversed(request.messages):
        results = [part for part in message.content if isinstance(part, ToolResultPart)]
        if not results:
            break
        answered.update(names.get(part.tool_call_id or "", part.tool_name) for part in results)
    return answered
