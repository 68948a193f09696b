"""One part of a message as policy sees it: uniform, read-only, showing only what was granted. Spec: docs/spec/views.md.

What a view is (kind, direction, action, URI) is computed from tables; what its reader may know of the context comes
from `cmf.views.access`. A part that no table maps raises: skipping it would hide it from policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from cmf.enums import Capability, Hook, Role, ViewAction, ViewKind
from cmf.errors import CapabilityError
from cmf.json.frozen import FrozenDict
from cmf.json.value import to_bytes, to_json
from cmf.message.security import DataPolicy, HttpHeaders, ObjectSecurityProfile, SubjectExtension, spelled_out
from cmf.views.access import Scope
from cmf.views.render import BRIEFS, KINDS, SAFE_PROPERTIES, JoinedText, Piece, Shower, exact_json
from cmf.views.uris import matches

_PRE_KINDS: Final = frozenset(
    {ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST, ViewKind.RESOURCE_REF, ViewKind.REQUEST, ViewKind.TOOL_DEFINITION}
)
_POST_KINDS: Final = frozenset({ViewKind.TOOL_RESULT, ViewKind.PROMPT_RESULT, ViewKind.RESOURCE, ViewKind.RESPONSE})
_PRE_ROLES: Final = frozenset({Role.SYSTEM, Role.DEVELOPER, Role.USER})
_ACTIONS: Final = {
    ViewKind.THINKING: ViewAction.GENERATE,
    ViewKind.TOOL_CALL: ViewAction.EXECUTE,
    ViewKind.TOOL_RESULT: ViewAction.RECEIVE,
    ViewKind.RESOURCE: ViewAction.READ,
    ViewKind.RESOURCE_REF: ViewAction.READ,
    ViewKind.PROMPT_REQUEST: ViewAction.INVOKE,
    ViewKind.PROMPT_RESULT: ViewAction.RECEIVE,
    ViewKind.REQUEST: ViewAction.INVOKE,
    ViewKind.RESPONSE: ViewAction.RECEIVE,
    ViewKind.TOOL_DEFINITION: ViewAction.READ,
}
_HOOKS: Final = {
    ViewKind.TOOL_CALL: Hook.TOOL_PRE,
    ViewKind.TOOL_RESULT: Hook.TOOL_POST,
    ViewKind.RESOURCE_REF: Hook.RESOURCE_PRE,
    ViewKind.RESOURCE: Hook.RESOURCE_POST,
    ViewKind.PROMPT_REQUEST: Hook.PROMPT_PRE,
    ViewKind.PROMPT_RESULT: Hook.PROMPT_POST,
    ViewKind.REQUEST: Hook.LLM_REQUEST,
    ViewKind.RESPONSE: Hook.LLM_RESPONSE,
}
_WITH_ARGUMENTS: Final = frozenset({ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST})
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_CONTENT: Final = frozenset({"content", "arguments"})
_MEDIA: Final = frozenset({ViewKind.IMAGE, ViewKind.VIDEO, ViewKind.AUDIO, ViewKind.DOCUMENT})


class MessageView:
    """A read-only view of one part, made by `cmf.iter_views`. Everything it hands out is immutable."""

    __slots__ = ("_container", "_first", "_part", "_scope", "_show", "_shown", "kind", "path", "role")

    kind: ViewKind
    role: Role
    path: str
    _part: Any
    _show: Shower
    _shown: dict[str, Any] | None
    _scope: Scope
    _container: str | None
    _first: bool

    @property
    def _own(self) -> Mapping[str, Any]:
        """What of the input is this view's alone, made when first asked for; never handed out, for it can change."""
        shown = self._shown
        if shown is None:
            part, scope, container = self._part, self._scope, self._container
            shown = dict(_HEADS[self.kind, self.role, container is not None, scope.hook])
            shown["path"] = self.path
            properties, keys = self._show(part, shown)
            if part.extra:
                properties["extra"] = exact_json(part.extra, "/properties/extra", properties)
            content = shown.get("content")
            if content is not None and "size_bytes" not in shown:
                shown["size_bytes"] = len(content) if content.isascii() else len(content.encode())
            if container is not None:
                properties["container"] = container
            message = scope.facts
            if message is None or self._first:
                message = scope.message_facts(self._first)
            if message:
                properties["message"] = message
            shown["properties"] = properties
            if (keys or container is not None) and (entity := scope.entity(keys, container)):
                shown["extensions"] = {"security": {name: spelled_out(entry) for name, entry in entity.items()}}
            _put_shown(self, shown)
        return shown

    def _entity(self) -> Mapping[str, Any]:
        if "extensions" not in self._own:
            return _NOTHING
        _, keys = self._show(self._part, {})
        return self._scope.entity(keys, self._container)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a view cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a view cannot be changed")

    def __repr__(self) -> str:
        return f"MessageView(kind={self.kind.value!r}, role={self.role.value!r}, path={self.path!r}, uri={self.uri!r})"

    # -- core attributes (seed 003 §4.3) -------------------------------------------------------------------------------

    @property
    def content(self) -> str | None:
        """Scannable text: the text itself, arguments or values as JSON, a URL; None for binary data."""
        return self._own.get("content")

    @property
    def uri(self) -> str | None:
        """The view's address, normalised; the raw spelling is in `properties.raw_uri` where it differed."""
        return self.address[0]

    @property
    def name(self) -> str | None:
        """The entity's name: tool, prompt, resource."""
        return self.address[1]

    @property
    def address(self) -> tuple[str | None, str | None]:
        """`uri` and `name`. For most parts, this costs less than asking for both."""
        brief = BRIEFS.get(type(self._part)) if self._shown is None else None
        return (self._own.get("uri"), self._own.get("name")) if brief is None else brief(self._part)

    @property
    def head(self) -> FrozenDict:
        """The first entries of the input (`kind`, `role`, `action`, `is_pre` …), shared by all views that are alike."""
        return _HEADS[self.kind, self.role, self._container is not None, self._scope.hook]

    @property
    def action(self) -> ViewAction:
        """What happens with the part. Everything inside a result or resource is received."""
        return ViewAction(self.head["action"])

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments of a tool call or prompt request; None for other kinds."""
        return self._part.arguments if self.kind in _WITH_ARGUMENTS else None

    args = arguments

    @property
    def arguments_raw(self) -> str | None:
        """The text of a tool call's arguments if they are no strict JSON object; None otherwise [A8]."""
        raw: str | None = self._part.arguments_raw if self.kind is ViewKind.TOOL_CALL else None
        return raw

    @property
    def mime_type(self) -> str | None:
        """The declared media type."""
        return self._own.get("mime_type")

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the content (UTF-8), or of the data that a base64 source holds."""
        return self._own.get("size_bytes")

    @property
    def properties(self) -> FrozenDict:
        """What is particular to the kind, and everything else that the part carries."""
        return FrozenDict(self._own["properties"])

    def get_property(self, name: str, default: Any = None) -> Any:
        """One entry of `properties`."""
        return self.properties.get(name, default)

    @property
    def hook(self) -> Hook | None:
        """Where in the traffic the view is judged: as the caller gave it, or by its kind."""
        return self._scope.hook or _HOOKS.get(self.kind)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The parts whose texts this view joins; empty for the view of a part."""
        part = self._part
        return part.pieces if isinstance(part, JoinedText) else ()

    # -- direction and flags (seed 003 §4.4) ---------------------------------------------------------------------------

    @property
    def is_pre(self) -> bool:
        """Whether it goes in: to a model, a tool, a server. Text of role `tool` comes out."""
        is_pre: bool = self.head["is_pre"]
        return is_pre

    @property
    def is_post(self) -> bool:
        """Whether it comes out."""
        return not self.is_pre

    @property
    def is_tool(self) -> bool:
        """A tool call or tool result."""
        return self.kind in (ViewKind.TOOL_CALL, ViewKind.TOOL_RESULT)

    @property
    def is_prompt(self) -> bool:
        """A prompt request or prompt result."""
        return self.kind in (ViewKind.PROMPT_REQUEST, ViewKind.PROMPT_RESULT)

    @property
    def is_resource(self) -> bool:
        """A resource or a reference to one."""
        return self.kind in (ViewKind.RESOURCE, ViewKind.RESOURCE_REF)

    @property
    def is_text(self) -> bool:
        """Text or thinking."""
        return self.kind in (ViewKind.TEXT, ViewKind.THINKING)

    @property
    def is_media(self) -> bool:
        """An image, video, sound or document."""
        return self.kind in _MEDIA

    # -- context, as far as granted (seed 003 §4.5) --------------------------------------------------------------------

    @property
    def environment(self) -> str | None:
        """Where the request runs (`production`, say)."""
        return None if (request := self._scope.request) is None else request.environment

    @property
    def request_id(self) -> str | None:
        """The id of the request."""
        return None if (request := self._scope.request) is None else request.request_id

    @property
    def subject(self) -> SubjectExtension | None:
        """The subject with only the granted fields; None where none of them is granted [C2]."""
        return self._scope.subject

    @property
    def roles(self) -> frozenset[str] | None:
        """The subject's roles."""
        return None if (subject := self.subject) is None else subject.roles

    @property
    def permissions(self) -> frozenset[str] | None:
        """The subject's permissions."""
        return None if (subject := self.subject) is None else subject.permissions

    @property
    def teams(self) -> frozenset[str] | None:
        """The subject's teams."""
        return None if (subject := self.subject) is None else subject.teams

    @property
    def headers(self) -> Mapping[str, str | None] | None:
        """All HTTP headers by name; the value of a sensitive one is None, and `get_header` gives it [B12]."""
        return self._scope.headers

    @property
    def labels(self) -> frozenset[str] | None:
        """The security labels of the message; None without `read_labels`. Granted and empty is an empty set."""
        return self._scope.security.labels if self._scope.grants(Capability.READ_LABELS) else None

    @property
    def agent_input(self) -> str | None:
        """What the user asked the agent for."""
        return None if (agent := self._scope.agent) is None else agent.input

    @property
    def session_id(self) -> str | None:
        """The agent's session."""
        return None if (agent := self._scope.agent) is None else agent.session_id

    @property
    def conversation_id(self) -> str | None:
        """The conversation."""
        return None if (agent := self._scope.agent) is None else agent.conversation_id

    @property
    def turn(self) -> int | None:
        """Which turn of the conversation this is, counted from 0."""
        return None if (agent := self._scope.agent) is None else agent.turn

    @property
    def agent_id(self) -> str | None:
        """The agent that acts."""
        return None if (agent := self._scope.agent) is None else agent.agent_id

    @property
    def parent_agent_id(self) -> str | None:
        """The agent that spawned it."""
        return None if (agent := self._scope.agent) is None else agent.parent_agent_id

    @property
    def object(self) -> ObjectSecurityProfile | None:
        """The access profile of this view's entity; of the enclosing one where it has none of its own [B2]."""
        return self._entity().get("object")

    @property
    def data_policy(self) -> DataPolicy | None:
        """The data policy of this view's entity; of the enclosing one where it has none of its own [B2]."""
        return self._entity().get("data_policy")

    # -- helpers -------------------------------------------------------------------------------------------------------

    def has_role(self, role: str) -> bool:
        """Whether the subject has the role. Raises CapabilityError without `read_roles`: a "no" could be wrong [B7]."""
        self._require(Capability.READ_ROLES)
        return role in (self.roles or ())

    def has_permission(self, permission: str) -> bool:
        """Whether the subject has the permission. Raises CapabilityError without `read_permissions`."""
        self._require(Capability.READ_PERMISSIONS)
        return permission in (self.permissions or ())

    def has_label(self, label: str) -> bool:
        """Whether the message carries the label. Raises CapabilityError without `read_labels`."""
        self._require(Capability.READ_LABELS)
        return label in (self.labels or ())

    def has_header(self, name: str) -> bool:
        """Whether the header is there, whatever its case. Raises CapabilityError without `read_headers`."""
        self._require(Capability.READ_HEADERS)
        return name.lower() in map(str.lower, self.headers or ())

    def get_header(self, name: str) -> str | None:
        """The header's value, whatever the case of its name; None without it, or if its value was not kept [EXT-9].

        Raises:
            CapabilityError: without `read_headers`.
        """
        self._require(Capability.READ_HEADERS)
        headers = self.headers
        return None if headers is None else HttpHeaders(headers).get_header(name)

    def get_arg(self, name: str, default: Any = None) -> Any:
        """One argument; `default` where there is none."""
        return default if self.arguments is None else self.arguments.get(name, default)

    def has_arg(self, name: str) -> bool:
        """Whether the argument is there, even if null."""
        return self.arguments is not None and name in self.arguments

    def matches_uri_pattern(self, pattern: str) -> bool:
        """Whether the view's URI matches the glob; False for a view without one. See `cmf.views.uris`."""
        return self.uri is not None and matches(self.uri, pattern)

    def has_content(self) -> bool:
        """Whether there is any text to scan."""
        return bool(self.content)

    # -- serialisation (seed 003 §4.7) ---------------------------------------------------------------------------------

    def to_dict(self, *, include_content: bool = True, include_context: bool = True) -> dict[str, Any]:
        """The view as fresh JSON objects; a None attribute is absent. Sensitive headers are never in it.

        Args:
            include_content: with `content`, `arguments` and the properties that hold content.
            include_context: with the `extensions` block, as far as granted.
        """
        shown: dict[str, Any] = to_json(self._own)
        if not include_content:
            shown = {name: item for name, item in shown.items() if name not in _CONTENT}
            properties = shown["properties"]
            shown["properties"] = {name: properties[name] for name in SAFE_PROPERTIES if name in properties}
        own = shown.pop("extensions", _NOTHING)
        if include_context:
            shown["extensions"] = shared = to_json(self._scope.shared())
            if own:
                shared["security"] = shared.get("security", {}) | own["security"]
        return shown

    def to_opa_input(self) -> dict[str, Any]:
        """`{"input": …}` as a policy engine takes it, without `session` and `origins`, which the pipeline adds [B8]."""
        return {"input": self.to_dict()}

    def to_bytes(self, **more: Any) -> bytes:
        """The entries of the input that are this view's alone, and `more`, as JSON; the other views share the rest."""
        own = self._shown or self._own
        return to_bytes({**own, **more} if more else own)

    @property
    def scope(self) -> Scope:
        """The context that the views of one message share."""
        return self._scope

    def _require(self, capability: Capability) -> None:
        if not self._scope.grants(capability):
            raise CapabilityError(
                f"{capability.value} was not granted", path=self.path, hint="declare the capability on the reader"
            )


class _Heads(dict[tuple[ViewKind, Role, bool, Hook | None], FrozenDict]):
    """Kind, role, whether inside another part, hook → the first entries of the input, which follow from these alone.

    A few hundred combinations at most; working them out took a third of the time of an input. `path` is to be set.
    """

    def __missing__(self, combination: tuple[ViewKind, Role, bool, Hook | None]) -> FrozenDict:
        kind, role, contained, hook = combination
        comes_out = contained or kind in _POST_KINDS
        is_pre = not comes_out and (kind in _PRE_KINDS or role in _PRE_ROLES)
        action = ViewAction.RECEIVE if contained else _ACTIONS.get(kind)
        if action is None:
            action = ViewAction.RECEIVE if role is Role.TOOL else ViewAction.SEND
        head: dict[str, Any] = {"kind": kind.value, "role": role.value}
        if (at := hook or _HOOKS.get(kind)) is not None:
            head["hook"] = at.value
        head |= {"path": "", "is_pre": is_pre, "is_post": not is_pre, "action": action.value}
        self[combination] = frozen = FrozenDict(head)
        return frozen


_HEADS: Final = _Heads()


def head(kind: ViewKind, role: Role, contained: bool, hook: Hook | None) -> dict[str, Any]:
    """What the input of such a view begins with, in order; its `path` is empty."""
    return dict(_HEADS[kind, role, contained, hook])


class _Unsealed(MessageView):
    """A view that is being made: the same slots, and nothing that refuses to fill them."""

    __slots__ = ()
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # undoes the refusal
    __delattr__ = object.__delattr__  # without it, the interpreter does not take the short way to `__setattr__`


_put_shown: Final = MessageView.__dict__["_shown"].__set__


def view_of(
    part: Any, scope: Scope, path: str, role: Role, container: str | None = None, first: bool = False
) -> MessageView:
    """The view of one part. In a third of the time of a constructor that goes round the refusal slot by slot."""
    view = _Unsealed()
    view.kind, view._show = KINDS[type(part)]
    view.role = role
    view.path = path
    view._part = part
    view._shown = None
    view._scope = scope
    view._container = container
    view._first = first
    view.__class__ = MessageView  # type: ignore[assignment]  # from here on it refuses
    return view
