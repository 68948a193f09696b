"""What is asked of a model, and what it answered. Spec: docs/spec/request.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import ArgsKwargs

from cmf.enums import ContentType, Role, StopReason
from cmf.errors import ShapeError
from cmf.json.frozen import JsonObject
from cmf.json.value import Flag, Number, Str, Value, value
from cmf.message.message import Layout, Message, Messages, TextPart, TokenUsage
from cmf.message.model_ids import wire_name
from cmf.message.tools import ToolDefinition

if TYPE_CHECKING:
    # Constructors take any sequence and keep a tuple.
    Tools: TypeAlias = Sequence[ToolDefinition]
else:
    Tools = tuple[ToolDefinition, ...]

ToolChoiceMode = Literal["auto", "none", "required", "tool"]


@value
class ToolChoice(Value):
    """Whether the model may, must or must not call tools; `name` goes with mode `tool`.

    Of the tools offered, only those named in `allowed` may be called; None: any.
    """

    mode: ToolChoiceMode
    name: Str | None = None
    allowed: tuple[Str, ...] | None = None


_LISTED: Final = BeforeValidator(lambda stop: (stop,) if isinstance(stop, str) else stop)


@value
class Sampling(Value):
    """How the model draws its answer. None: the provider's default."""

    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Number | None = None
    max_output_tokens: Annotated[int, Field(strict=True)] | None = None
    stop: Annotated[tuple[Str, ...], _LISTED] | None = None
    seed: Annotated[int, Field(strict=True)] | None = None
    frequency_penalty: Number | None = None
    presence_penalty: Number | None = None


NO_SAMPLING = Sampling()
SAMPLING_FIELDS = tuple(field.name for field in dataclasses.fields(Sampling))


@value
class Request(Value):
    """One request to a model. `model` is `<provider>:<model>`, or as the client named it while no route is known.

    Parts of `critical_kinds` may be lost in no format: what cannot carry one refuses the request [A13].
    """

    model: Str | None = None
    messages: Messages = ()
    tools: Tools = ()
    tool_choice: ToolChoice | None = None
    response_schema: JsonObject | None = None
    response_schema_name: Str | None = None
    sampling: Sampling = Field(default_factory=Sampling)
    reasoning_effort: Str | None = None
    stream: Flag | None = None
    extra: JsonObject | None = None
    session_id: Str | None = None
    critical_kinds: tuple[ContentType, ...] = ()
    provider_raw: Layout | None = dataclasses.field(
        default=None, init=False, compare=False, repr=False, metadata={"dump": False}
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            model: str | None = None,
            messages: Messages = (),
            system: str | None = None,
            tools: Tools = (),
            tool_choice: ToolChoice | None = None,
            response_schema: JsonObject | None = None,
            response_schema_name: str | None = None,
            sampling: Sampling = ...,
            reasoning_effort: str | None = None,
            stream: bool | None = None,
            extra: JsonObject | None = None,
            session_id: str | None = None,
            critical_kinds: Sequence[ContentType] = (),
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _with_system(cls, data: Any) -> Any:
        """`Request(system=…)` puts that text in front of the messages; in JSON it has no key of its own [A5]."""
        if not isinstance(data, ArgsKwargs) or not data.kwargs or "system" not in data.kwargs:
            return data
        fields = dict(data.kwargs)
        text = fields.pop("system")
        messages = fields.get("messages", ())
        if text is not None and isinstance(messages, Iterable):
            fields["messages"] = (Message(role=Role.SYSTEM, content=(TextPart(text=text),)), *messages)
        return ArgsKwargs(data.args, fields)

    @property
    def system(self) -> str | None:
        """All system and developer text, joined by blank lines; None where there is none [A5]."""
        texts = [
            part.text
            for message in self.messages
            if message.role in (Role.SYSTEM, Role.DEVELOPER)
            for part in message.content
            if isinstance(part, TextPart)
        ]
        return "\n\n".join(texts) if texts else None

    def with_options(self, **options: Any) -> Request:
        """A copy with options applied: fields of the request, or of its sampling, by name. The original is unchanged.

        Raises:
            ShapeError: an unknown option, or a value that does not fit.
        """
        sampling = {name: options.pop(name) for name in SAMPLING_FIELDS if name in options}
        if sampling:
            base = Sampling.model_validate(options.get("sampling", self.sampling))
            options["sampling"] = base.model_copy(update=sampling)
        return self.model_copy(update=options)


@value
class Choice(Value):
    """One of the alternatives that a model offered, and why it stopped there."""

    message: Message
    stop_reason: StopReason | None = None
    raw_stop_reason: Str | None = None
    extra: JsonObject | None = None


@value
class ErrorInfo(Value):
    """A provider's error; `status` and `retry_after_seconds` come from HTTP."""

    message: Str | None = None
    type: Str | None = None
    code: Str | None = None
    status: Annotated[int, Field(strict=True)] | None = None
    retry_after_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = None


if TYPE_CHECKING:
    Choices: TypeAlias = Sequence[Choice]
else:
    Choices = tuple[Choice, ...]


@value
class Response(Value):
    """A model's answer: its choices, what it used, the model that really served it; or an error.

    `tools` are the definitions that a tool server lists in its answer; a model's answer has none.
    """

    choices: Choices = ()
    tools: tuple[ToolDefinition, ...] = ()
    usage: TokenUsage | None = None
    model: Str | None = None
    error: ErrorInfo | None = None
    extra: JsonObject | None = None
    provider_raw: Layout | None = dataclasses.field(
        default=None, init=False, compare=False, repr=False, metadata={"dump": False}
    )

    @property
    def message(self) -> Message:
        """The message of the single choice.

        Raises:
            ShapeError: there is not exactly one choice; look at `choices` then.
        """
        if len(self.choices) != 1:
            raise ShapeError(
                f"the response has {len(self.choices)} choices",
                path="$.choices",
                code="response.not-single",
                hint="read `choices`",
            )
        return self.choices[0].message


def build_request(messages: Iterable[Message | dict[str, Any]], *, system: str | None = None, **fields: Any) -> Request:
    """A request whose `system` text, if any, becomes its first message [A5]."""
    listed: Any = tuple(messages)  # dicts too: the constructor reads them
    return Request(messages=listed, system=system, **fields)


# -- the models that a request names -----------------------------------------------------------------------------------

_LISTS: Final = ("fallbacks", "models")
_ROUTES: Final = ("routing_config", "routingConfig")  # of Gemini, here or in its `generationConfig`
_NAMES: Final = ("model", "model_name", "modelName")


def other_models(request: Request) -> list[str]:
    """The models that a request names besides its own: those its provider may turn to, those its tools ask [VIEW-23].

    Wire formats keep them in fields that no table knows. The names are as written on the wire, in order, each once.
    """
    if not request.extra and not any(tool.extra for tool in request.tools):
        return []
    names: dict[str, None] = {}
    for own in _levels(request.extra or {}):
        names |= dict.fromkeys(name for key in _LISTS for name in _listed(own.get(key)))
        for route in (own.get(key) for key in _ROUTES):
            if isinstance(route, dict):
                names |= dict.fromkeys(name for level in _levels(route) for name in _named(level))
    for tool in request.tools:
        names |= dict.fromkeys(name for own in _levels(tool.extra or {}) for name in _named(own))
    model = request.model or ""
    return [name for name in names if name not in (model, wire_name(model))]


def _listed(item: Any) -> Iterator[str]:
    """Names, or objects that have one, in a list or alone ("default" is one too: nobody here knows which it means)."""
    for each in item if isinstance(item, list | tuple) else [item]:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from _named(each)


def _named(own: Mapping[str, Any]) -> Iterator[str]:
    yield from (item for key in _NAMES if isinstance(item := own.get(key), str))


def _levels(extra: Mapping[str, Any], depth: int = 2) -> Iterator[Mapping[str, Any]]:
    """These fields, and the objects among them: under the name of a wire format, and once more within."""
    yield extra
    if depth:
        for inner in extra.values():
            if isinstance(inner, dict):
                yield from _levels(inner, depth - 1)
