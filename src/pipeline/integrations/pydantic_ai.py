"""pydantic-ai: judges every model request of an agent, and every response before the agent acts on it.

agent = Agent("openai:gpt-5", capabilities=[capability(guard)])
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from cmf.enums import Role
from cmf.json.codec import loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping, thaw
from cmf.json.value import replace as replaced
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Choice, Request, Response
from cmf.message.tools import ToolDefinition
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import needs
from pipeline.guard import Guard
from pipeline.integrations.judged_calls import (
    ajudged_call,
    as_json,
    as_settings,
    cannot_be_judged,
    checked,
    kept_tools,
    merged_fields,
)
from pipeline.run.outcome import Outcome

if TYPE_CHECKING:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

_TOOL_KINDS: Final = ("function_tools", "output_tools", "native_tools")
_MEDIA: Final[dict[str, Any]] = {"image": ImagePart, "audio": AudioPart}
_PART_FIELDS: Final = frozenset(
    {"content", "tool_name", "args", "tool_call_id", "signature", "part_kind", "timestamp", "retry"}
)
_INSTRUCTION_FIELDS: Final = frozenset({"content", "part_kind", "dynamic", "on_change"})
_TEXT_FIELDS: Final = frozenset({"content", "kind"})
_BINARY_FIELDS: Final = frozenset({"data", "media_type", "kind"})
_LINK_FIELDS: Final = frozenset({"url", "kind", "force_download"})
_RESPONSE_FIELDS: Final = frozenset({"parts", "model_name", "kind", "timestamp", "state", "run_id", "conversation_id"})


def capability(guard: Guard) -> AbstractCapability[Any]:
    """A capability that judges all of an agent's model calls; for `Agent(capabilities=[…])`.

    Put it last, so that what other capabilities add is judged too.

    Raises:
        ConfigError: no guard, or the package is not installed.
        CallError (when a realtime session starts): its audio cannot be judged.
    """
    _package()
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models import Model

    checked(guard)

    class CmfCapability(AbstractCapability[Any]):
        async def for_run(self, ctx: Any) -> AbstractCapability[Any]:
            if not isinstance(ctx.model, Model):  # a realtime session does not wrap a model
                raise cannot_be_judged("a realtime session")
            return self

        def get_wrapper_model(self, model: Model) -> Model:
            return guarded_model(guard, model)

    return CmfCapability()


def guarded_model(guard: Guard, inner: Model) -> Model:
    """The model with its calls judged, to be given to an agent directly.

    Raises (when called):
        Denied, ApprovalRequired, PolicyUnavailable: the request is refused, and the model was not called; or its
            response is.
        CallError: the request or the response contains something that cannot be judged.
    """
    _package()
    from pydantic_ai.models import CompletedStreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel

    checked(guard)

    class GuardedModel(WrapperModel):
        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
            asked = _ModelCall(self.wrapped, messages, model_settings, model_request_parameters)

            async def ask(admitted: Outcome) -> tuple[Response, ModelResponse]:
                answer = await self.wrapped.request(asked.left(admitted), model_settings, asked.offered(admitted))
                return _response(answer), answer

            outcome, answer = await ajudged_call(guard, asked.request(), ask)
            left: ModelResponse = _answer(outcome, answer)
            return left

        @asynccontextmanager
        async def request_stream(
            self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
        ) -> AsyncIterator[Any]:
            asked = _ModelCall(self.wrapped, messages, model_settings, model_request_parameters)

            async def ask(admitted: Outcome) -> tuple[Response, ModelResponse]:
                left, offered = asked.left(admitted), asked.offered(admitted)
                async with self.wrapped.request_stream(left, model_settings, offered, run_context) as stream:
                    async for _ in stream:
                        pass
                    answer = stream.get()
                return _response(answer), answer

            outcome, answer = await ajudged_call(guard, asked.request(), ask)
            replayed = _answer(outcome, answer)
            yield CompletedStreamedResponse(
                replayed, model_request_parameters=model_request_parameters, replay_events=True
            )

        async def count_tokens(self, *_: Any, **__: Any) -> Any:
            raise cannot_be_judged("a request to count tokens")

        async def compact_messages(self, *_: Any, **__: Any) -> Any:
            raise cannot_be_judged("a request to compact messages")

        def __getattr__(self, item: str) -> Any:
            if "batch" in item:
                raise cannot_be_judged("a batch of requests")
            return super().__getattr__(item)

    def no_batch(_: Any) -> Any:
        raise cannot_be_judged("a batch of requests")

    for name in [name for name in dir(WrapperModel) if "batch" in name and not name.startswith("__")]:
        setattr(GuardedModel, name, property(no_batch))
    return GuardedModel(inner)


class _ModelCall:
    """One request, each piece of it as its own message, so that edits can be matched by message id."""

    def __init__(self, model: Any, messages: Any, settings: Any, parameters: Any) -> None:
        self._name = f"{model.system}:{model.model_name}"
        self._messages = messages
        self._settings = settings
        self._parameters = parameters
        self._pieces: dict[str, Part] = {}
        self._tools = tuple(_tool(tool) for kind in _TOOL_KINDS for tool in getattr(parameters, kind))

    def request(self) -> Request:
        """The complete model request."""
        pieces: list[tuple[str, Role, Part]] = [
            (f"i.{at}", Role.SYSTEM, TextPart(text=one.content, extra=_rest(one, _INSTRUCTION_FIELDS)))
            for at, one in self._instructions()
        ]
        pieces += [
            (f"{at}.{number}.{item}", *piece)
            for at, message in enumerate(self._messages)
            for number, part in enumerate(message.parts)
            for item, piece in enumerate(_pieces(part))
        ]
        self._pieces |= {name: piece for name, _, piece in pieces}
        output, template = self._parameters.output_object, self._parameters.prompted_output_template
        options = {
            "settings": as_settings(self._settings or {}),
            **merged_fields(self._settings or {}),
            "output": None if output is None else vars(output),
            **({"template": template} if template else {}),
        }
        messages = tuple(Message(id=name, role=role, content=(piece,)) for name, role, piece in pieces)
        extra = FrozenDict(freeze({"pydantic_ai": as_json(options)}))
        return Request(model=self._name, messages=messages, tools=self._tools, extra=extra)

    def left(self, admitted: Outcome) -> list[Any]:
        """The messages after policy."""
        found = self._found(admitted)
        made = []
        for at, message in enumerate(self._messages):
            parts = []
            for number, part in enumerate(message.parts):
                names = (f"{at}.{number}.{item}" for item in range(len(_pieces(part))))
                parts += _edited(part, [(self._pieces[name], found.get(name)) for name in names])
            if parts:
                made.append(_bare(message, parts))
        return made

    def offered(self, admitted: Outcome) -> Any:
        """The parameters, with tools and instructions after policy."""
        left = iter(kept_tools(admitted, self._tools))
        found = self._found(admitted)
        given: dict[str, Any] = {
            kind: [tool for tool in getattr(self._parameters, kind) if next(left)] for kind in _TOOL_KINDS
        }
        kept = []
        for at, one in self._instructions():
            piece = found.get(f"i.{at}")
            if isinstance(piece, TextPart):
                kept.append(one if piece == self._pieces[f"i.{at}"] else type(one)(content=piece.text))
        return replace(self._parameters, **given, instruction_parts=kept)

    def _instructions(self) -> list[tuple[int, Any]]:
        from pydantic_ai.messages import InstructionPart

        parts = self._parameters.instruction_parts
        if parts is None:
            texts = [one.instructions for one in self._messages if getattr(one, "instructions", None) is not None]
            parts = [InstructionPart(content=text) for text in texts[-1:]]
        return list(enumerate(parts))

    @staticmethod
    def _found(admitted: Outcome) -> dict[str, Part]:
        messages = () if admitted.request is None else admitted.request.messages
        return {str(message.id): message.content[0] for message in messages if len(message.content) == 1}


# -- converting parts --------------------------------------------------------------------------------------------------


def _pieces(part: Any) -> list[tuple[Role, Part]]:
    """The pieces of content in a part of a request or response."""
    extra = _rest(part)
    match part.part_kind:
        case "system-prompt":
            return [(Role.SYSTEM, TextPart(text=part.content, extra=extra))]
        case "user-prompt":
            items = [part.content] if isinstance(part.content, str) else list(part.content)
            return [(Role.USER, _item(item)) for item in items]
        case "tool-return":
            from pydantic_ai.messages import BinaryContent, FileUrl

            returned = part.content if isinstance(part.content, list | tuple) else [part.content]
            if any(isinstance(item, BinaryContent | FileUrl) for item in returned):  # these would go separately
                raise cannot_be_judged("media in a tool's result")
            named = {"tool_call_id": part.tool_call_id, "tool_name": part.tool_name}
            return [(Role.TOOL, ToolResultPart(**named, content=freeze(as_json(part.content)), extra=extra))]
        case "retry-prompt" | "retry-feedback":
            text = part.model_response()
            name = getattr(part, "tool_name", None)
            if name is None:
                return [(Role.USER, TextPart(text=text))]
            named = {"tool_call_id": part.tool_call_id, "tool_name": name}
            return [(Role.TOOL, ToolResultPart(**named, content=text, is_error=True))]
        case "text":
            return [(Role.ASSISTANT, TextPart(text=part.content, extra=extra))]
        case "thinking":
            return [(Role.ASSISTANT, ThinkingPart(text=part.content, signature=part.signature, extra=extra))]
        case "tool-call":
            return [(Role.ASSISTANT, _call(part, extra))]
        case "file":
            piece = _item(part.content)
            beside = {key: item for each in (piece.extra, extra) if each for key, item in each["pydantic_ai"].items()}
            both = FrozenDict({"pydantic_ai": FrozenDict(beside)})
            return [(Role.ASSISTANT, replaced(piece, extra=both) if beside else piece)]
    raise cannot_be_judged(f"a part of kind {part.part_kind}")


def _call(part: Any, extra: FrozenDict | None) -> ToolCallPart:
    named, arguments = {"tool_call_id": part.tool_call_id, "name": part.tool_name}, part.args or {}
    if isinstance(arguments, str):
        raw, arguments = arguments, loads_object(arguments)  # strictly: other readers may take another of two keys
        if arguments is None:
            return ToolCallPart(**named, arguments_raw=raw, extra=extra)
    return ToolCallPart(**named, arguments=frozen_mapping(arguments), extra=extra)


def _item(item: Any) -> Part:
    """One item of a user's content, or of a model's output."""
    if isinstance(item, str):
        return TextPart(text=item)
    kind = getattr(item, "kind", None)
    if kind == "text-content":
        return TextPart(text=item.content, extra=_rest(item, _TEXT_FIELDS))
    if kind == "binary":
        data = base64.b64encode(item.data).decode()
        make = _MEDIA.get(item.media_type.partition("/")[0], DocumentPart)
        media: Part = make(type="base64", data=data, media_type=item.media_type, extra=_rest(item, _BINARY_FIELDS))
        return media
    if kind in ("image-url", "audio-url", "document-url"):
        extra = _rest(item, _LINK_FIELDS)
        linked: Part = _MEDIA.get(kind.partition("-")[0], DocumentPart)(type="url", data=item.url, extra=extra)
        return linked
    raise cannot_be_judged(f"content of kind {kind or type(item).__name__}")


def _edited(part: Any, pieces: list[tuple[Part, Part | None]]) -> list[Any]:
    """The part after policy: itself if unchanged, empty if everything was removed."""
    if all(before == after for before, after in pieces):
        return [part]
    if part.part_kind == "user-prompt" and not isinstance(part.content, str):
        items = []
        for item, (before, after) in zip(part.content, pieces, strict=True):
            if before == after:
                items.append(item)
            elif isinstance(after, TextPart):
                items.append(after.text)
            elif after is not None:
                raise cannot_be_judged("media that policy changed")
        return [type(part)(content=items)] if items else []
    after = pieces[0][1]
    return [] if after is None else [_made(part, after)]


def _made(part: Any, piece: Part) -> Any:
    """A part of that kind with the content of the piece and nothing else; feedback becomes its text."""
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    feedback = part.part_kind in ("retry-prompt", "retry-feedback")
    match piece:
        case TextPart() if feedback:
            return UserPromptPart(content=piece.text)
        case TextPart():
            return type(part)(content=piece.text)
        case ThinkingPart():
            return type(part)(content=piece.text)
        case ToolCallPart():
            arguments = thaw(piece.arguments) if piece.arguments is not None else piece.arguments_raw
            return type(part)(tool_name=piece.name, args=arguments, tool_call_id=piece.tool_call_id)
        case ToolResultPart():
            make: Any = ToolReturnPart if feedback else type(part)
            return make(tool_name=piece.tool_name, content=thaw(piece.content), tool_call_id=piece.tool_call_id)
    raise cannot_be_judged("media that policy changed")


def _bare(message: Any, parts: list[Any]) -> Any:
    """A message with these parts, and nothing else that could reach a model."""
    if message.kind == "request":
        return type(message)(parts=parts, timestamp=message.timestamp)
    kept = {name: getattr(message, name) for name in ("usage", "model_name", "provider_name", "timestamp")}
    return type(message)(parts=parts, **kept)


def _response(answer: Any) -> Response:
    parts = tuple(piece for part in answer.parts for _, piece in _pieces(part))
    message = Message(role=Role.ASSISTANT, content=parts)
    return Response(choices=(Choice(message=message),), model=answer.model_name, extra=_rest(answer, _RESPONSE_FIELDS))


def _answer(outcome: Outcome, answer: Any) -> Any:
    """The response after policy."""
    response = outcome.response
    left = list(response.message.content) if response is not None and response.choices else []
    known = [(part, _pieces(part)[0][1]) for part in answer.parts]
    parts = []
    for piece in left:
        at = next((at for at, (_, before) in enumerate(known) if before == piece), None)
        if at is None:  # edited: match it with the first missing part of its kind
            same = (at for at, (_, one) in enumerate(known) if type(one) is type(piece) and one not in left)
            at = next(same, None)
            if at is None:
                raise cannot_be_judged("a part that stages cannot add")
            parts.append(_made(known[at][0], piece))
        else:
            parts.append(known[at][0])
        known = known[at + 1 :]
    if outcome.decision.action is Action.FORWARD_MODIFIED:  # details may repeat content that was removed
        return replace(answer, parts=parts, provider_details=None)
    return replace(answer, parts=parts)


def _tool(tool: Any) -> ToolDefinition:
    if hasattr(tool, "parameters_json_schema"):
        answers = None if tool.return_schema is None else {"pydantic_ai": {"return_schema": tool.return_schema}}
        return ToolDefinition(
            name=tool.name,
            description=tool.description,
            input_schema=freeze(as_json(tool.parameters_json_schema)),
            extra=None if answers is None else FrozenDict(freeze(as_json(answers))),
        )
    own = {"pydantic_ai": as_json({field_.name: getattr(tool, field_.name) for field_ in fields(tool)})}
    return ToolDefinition(name=tool.unique_id, executed_by="provider", extra=FrozenDict(freeze(own)))


def _rest(part: Any, known: frozenset[str] = _PART_FIELDS) -> FrozenDict | None:
    """Further fields of a part or response that may reach a model: shown to policy, kept while unchanged."""
    own = {
        field_.name: getattr(part, field_.name)
        for field_ in fields(part)
        if field_.init and field_.name not in known and getattr(part, field_.name) is not None
    }
    return FrozenDict(freeze({"pydantic_ai": as_json(own)})) if own else None


def _package() -> None:
    with needs("pydantic-ai"):
        import pydantic_ai  # noqa: F401 - is it installed?


__all__ = ["capability", "guarded_model"]
