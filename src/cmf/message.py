"""One turn of a conversation. Spec: docs/spec/message.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

from pydantic import Field, model_validator
from pydantic_core import ArgsKwargs

from cmf import content as _content
from cmf import extensions as _extensions
from cmf.content import Parts, ToolResultPart
from cmf.enums import Capability, Channel, Hook, MessageStatus, Role
from cmf.errors import CmfError, UnknownRoleError
from cmf.extensions import Extensions
from cmf.frozen import FrozenDict, JsonObject
from cmf.migrations import CURRENT, refuse_newer, upgrade_message
from cmf.value import Str, UtcTime, Value, value

if TYPE_CHECKING:
    from cmf.view import MessageView

SCHEMA_VERSION: int = CURRENT

_Function = TypeVar("_Function", bound=Callable[..., Any])

NO_SHAPE: Final = FrozenDict()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a message was spelled on its wire: grouping, absent against null, the text of embedded JSON [A15].

    It holds no fact: an adapter uses it only if decoding what it yields gives exactly this message again. It is made by
    adapters alone; no JSON form of a message has it, so none can bring one in.

    `group` numbers the wire message (or item) that this message was part of, `size` how many messages came from it.
    `texts` is how the arguments of its calls were spelled, in their order: None for those that are spelled plainly.
    """

    format: str
    group: int = 0
    size: int = 1
    shape: FrozenDict = NO_SHAPE
    texts: tuple[str | None, ...] = ()


@value
class Message(Value):
    """One turn: a role and an ordered list of parts; everything else is optional [A2]."""

    role: Role
    content: Parts
    id: Str | None = None
    session_id: Str | None = None
    parent_id: Str | None = None
    channel: Channel | None = None
    status: MessageStatus = MessageStatus.COMPLETE
    created_at: UtcTime | None = None
    schema_version: Annotated[int, Field(strict=True, ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    extensions: Extensions | None = None
    extra: JsonObject | None = None
    provider_raw: Layout | None = dataclasses.field(
        default=None, init=False, compare=False, repr=False, metadata={"dump": False}
    )

    @property
    def parent_tool_use_id(self) -> str | None:
        """The id of the call that a tool message answers: derived, so that it cannot disagree [A11]."""
        for part in self.content:
            if isinstance(part, ToolResultPart):
                return part.tool_call_id
        return None

    @property
    def hash(self) -> str:
        """SHA-256, in hex, of the whole message but its layout; see `cmf.digests`."""
        digest: str = _derived["value_hash"](self)
        return digest

    @property
    def content_digest(self) -> str:
        """SHA-256, in hex, of the message's content, without generated ids; see `cmf.digests`."""
        digest: str = _derived["content_digest"](self)
        return digest

    def iter_views(
        self, *, hook: Hook | str | None = None, capabilities: Iterable[Capability | str] | None = None
    ) -> Iterator[MessageView]:
        """The views of this message: see `cmf.iter_views`."""
        views: Iterator[MessageView] = _derived["iter_views"](self, hook=hook, capabilities=capabilities)
        return views

    @model_validator(mode="before")
    @classmethod
    def _current(cls, data: Any) -> Any:
        """Older schema versions are read into this one, wherever a message occurs; newer ones are refused [A14]."""
        if isinstance(data, dict):
            _refuse_unknown_role(data)
            return upgrade_message(data)
        if isinstance(data, ArgsKwargs):
            refuse_newer(data.kwargs or {})
        return data


class _Derived(dict[str, Callable[..., Any]]):
    def __missing__(self, name: str) -> NoReturn:
        raise CmfError(f"{name} is not loaded", hint="import Message from cmf", code="message.not-loaded")


_derived: Final = _Derived()


def derived(function: _Function) -> _Function:
    """Let messages have `function` as a method. It sits above this module, since it takes requests too."""
    _derived[function.__name__] = function
    return function


_ROLES: Final = frozenset(map(str, Role))


def _refuse_unknown_role(data: dict[str, Any]) -> None:
    role = data.get("role")
    if isinstance(role, str) and role not in _ROLES:
        raise UnknownRoleError("unknown role", path="$.role", hint=f"use one of {', '.join(Role)}")


# Parts hold messages and messages hold parts. Types are built when first used, so it is enough that the modules below
# know the name by then.
for _module in (_content, _extensions):
    vars(_module)["Message"] = Message
