"""Items of the Responses format as parts, and back; and the items as tables: which are calls, which results, who runs.

Bodies are frozen once at the door (which checks depth, text and types), so every piece can be shared. What came from
this format carries its own facts in `extra` and goes back as it was; what came from elsewhere is written plainly, and
what cannot be written is dropped with a record. Spec: docs/spec/adapters/openai_responses.md [RSP-3] to [RSP-8].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from cmf.adapters.wire.call_ids import CallIds, is_short, mark, short_form, with_mark
from cmf.adapters.wire.fields import MARK, Fields, arguments_text, extra_of, role_named
from cmf.adapters.wire.loss import drop, resource_as_text
from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.binary import data_url, type_of
from cmf.message.message import (
    NO_SHAPE,
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

_HINT: Final = "see the provider's reference"
_IMAGE_FORMATS: Final = frozenset({"png", "jpeg", "webp"})
FORMAT: Final = "openai_responses"

ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}

# Keys of our own in the `extra` of parts; a wire part that has one of them stays opaque, so that none can be forged.
ITEM: Final = "item"  # facts of the item that begins with this part
INSIDE: Final = "inside"  # the opaque part is inside this kind of item, and not an item itself
STREAM: Final = f"{MARK}stream"  # in the fold of a stream: what it had and the body has not

Runner = Literal["client", "provider"]


class CallItem(NamedTuple):
    """How an item of one type spells a tool call.

    `tool`: the tool's name where the item has none of its own. The arguments are JSON text under `text`, the object
    under `whole`, or an object made of the item's `keys`. `result`: the key under which the provider adds the result.
    """

    tool: str | None = None
    id_key: str = "call_id"
    space: str = "namespace"
    text: str | None = None
    whole: str | None = None
    keys: tuple[str, ...] = ()
    result: str | None = None
    runner: Runner = "client"


CALLS: Final[dict[str, CallItem]] = {
    "function_call": CallItem(text="arguments"),
    "custom_tool_call": CallItem(keys=("input",)),
    "mcp_call": CallItem(id_key="id", space="server_label", text="arguments", result="output", runner="provider"),
    "mcp_approval_request": CallItem(id_key="id", space="server_label", text="arguments", runner="provider"),
    "web_search_call": CallItem(tool="web_search", id_key="id", whole="action", runner="provider"),
    "file_search_call": CallItem("file_search", "id", keys=("queries",), result="results", runner="provider"),
    "code_interpreter_call": CallItem(
        "code_interpreter", "id", keys=("code", "container_id"), result="outputs", runner="provider"
    ),
    "image_generation_call": CallItem(
        "image_generation", "id", keys=("revised_prompt",), result="result", runner="provider"
    ),
    "shell_call": CallItem(tool="shell", whole="action"),
    "local_shell_call": CallItem(tool="local_shell", whole="action"),
    "apply_patch_call": CallItem(tool="apply_patch", whole="operation"),
    "computer_call": CallItem(tool="computer", keys=("action", "actions")),
    "tool_search_call": CallItem(tool="tool_search", whole="arguments"),
}

RESULTS: Final[dict[str, tuple[str, bool]]] = {
    "function_call_output": ("call_id", True),
    "custom_tool_call_output": ("call_id", True),
    "shell_call_output": ("call_id", False),
    "local_shell_call_output": ("id", False),
    "apply_patch_call_output": ("call_id", False),
    "computer_call_output": ("call_id", False),
}
"""Items that answer a call: the key of the call's id, and whether a list is content parts (else it is plain JSON)."""

CLIENT_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
"""Results of tools that nobody but the client has."""

KINDS: Final = frozenset({*CALLS, *RESULTS} - {"function_call", "function_call_output"})
"""Types of calls and results that layout keeps, so that an edited one stays what it is [RSP-5]."""

TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Content parts that are text, and the key of the text."""

HOSTED_TOOLS: Final = frozenset(
    {
        "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search",
        "code_interpreter", "image_generation", "mcp", "tool_search", "programmatic_tool_calling", "x_search",
    }
)  # fmt: skip
CLIENT_TOOLS: Final = frozenset(
    {"shell", "local_shell", "apply_patch", "computer", "computer_use_preview", "custom", "namespace"}
)

_ASKED_OF_THE_MODEL: Final = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request", "program"})


def role_of(kind: str, item: dict[str, Any]) -> Role:
    """The role of an item that is not a message: its own if it names one, else by its type."""
    named = item.get("role")
    if isinstance(named, str) and named in ROLES:
        return ROLES[named]
    if kind in RESULTS or kind.endswith("_output"):
        return Role.TOOL
    return Role.ASSISTANT if kind.endswith("_call") or kind in _ASKED_OF_THE_MODEL else Role.USER


def text_type(role: Role) -> str:
    """The type that a text part has by default in a message of this role."""
    return "output_text" if role is Role.ASSISTANT else "input_text"


# -- reading -----------------------------------------------------------------------------------------------------------


class ItemReader:
    """Reads the items of one request, or of one answer, in order: a result takes the name of the call it answers.

    `names`: those of calls that are known and not among these items.
    """

    def __init__(self, *, answer: bool = False, items: Iterable[Any] = (), names: Mapping[str, str] = NO_SHAPE) -> None:
        self._answer = answer
        self._names = dict(names)
        # What an answer itself answers was run by the provider.
        self._answered = {_answered_id(item) for item in items} if answer else set()

    def read(self, item: Any, path: str) -> tuple[Role, tuple[Part, ...]]:
        """The role of an item, and its parts. An item that has no canonical shape is one opaque part."""
        if not isinstance(item, dict):
            raise ShapeError("an item must be an object", path=path, hint=_HINT)
        kind = item.get("type")
        if kind == "message" or (kind is None and "role" in item):
            return self._message(item, path)
        if not isinstance(kind, str):
            return Role.USER, (opaque(item, "item_reference"),)
        parts: tuple[Part, ...] | None = None
        if kind == "reasoning":
            parts = _reasoning(item)
        elif kind in CALLS:
            parts = self._call(item, kind, CALLS[kind])
        elif kind in RESULTS:
            parts = self._result(item, kind)
        return role_of(kind, item), parts if parts is not None else (opaque(item, kind),)

    def _message(self, item: dict[str, Any], path: str) -> tuple[Role, tuple[Part, ...]]:
        named, role, content = item.get("role"), Role.ASSISTANT, item.get("content")
        if not self._answer:
            if not isinstance(named, str):
                raise ShapeError("a message needs a role", path=f"{path}.role", hint=_HINT)
            role = role_named(named, ROLES, path)
        elif named != "assistant" and "role" in item:
            return role, (opaque(item, "message"),)
        if isinstance(content, str):
            parts: list[Part] = [trusted(TextPart, text=content)]
        elif isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
            parts = [self._part(part, role) for part in content]
        else:
            return role, (opaque(item, "message"),)
        facts = {key: fact for key, fact in item.items() if key not in ("role", "content")}
        if facts.get("type") == "message":
            del facts["type"]
        if facts or self._answer:
            parts[0] = _with_item(parts[0], facts)
        return role, tuple(parts)

    def _part(self, part: dict[str, Any], role: Role, *, within: str | None = "message") -> Part:
        """One content part; `within` is None where parts and items cannot be mixed up."""
        kind = part.get("type")
        canonical: Part | None = None
        if isinstance(kind, str) and ITEM not in part and INSIDE not in part:
            if kind in TEXTS:
                canonical = self._text(part, kind, role)
            elif kind in _MEDIA:
                canonical = _media(part, kind)
            elif kind == "input_audio":
                canonical = _audio(part)
        if canonical is not None:
            return canonical
        inside = frozen_mapping({FORMAT: frozen_mapping({INSIDE: within})}) if within is not None else None
        return opaque(part, kind if isinstance(kind, str) else "part", extra=inside)

    def _text(self, part: dict[str, Any], kind: str, role: Role) -> TextPart | None:
        fields = Fields(part, "")
        text = fields.take(TEXTS[kind], str)
        if text is None:
            return None
        if kind == text_type(role):
            fields.drop("type", kind)
            if self._answer:
                for name in ("annotations", "logprobs"):  # the encoder writes them, so empty ones are spelling
                    fields.drop(name, FrozenList())
        return trusted(TextPart, text=text, extra=fields.rest(FORMAT))

    def _call(self, item: dict[str, Any], kind: str, spec: CallItem) -> tuple[Part, ...] | None:
        fields = Fields(item, "")
        left = fields.left()
        if kind == "function_call":
            fields.drop("type", kind)
        name = spec.tool if spec.tool is not None else fields.take("name", str)
        given = _arguments(left, spec)
        if name is None or given is None:
            return None
        call_id = fields.take(spec.id_key, str)
        namespace = fields.take(spec.space, str) if spec.tool is None else None
        if call_id is not None:
            self._names[call_id] = name
        runner = spec.runner
        if kind == "tool_search_call":
            runner = "provider" if item.get("execution") == "server" else "client"
        elif spec.tool is not None and call_id is not None and call_id in self._answered:
            runner = "provider"  # not the client's own tools: an answer that holds their outputs repeats history
        about = {"tool_call_id": call_id, "executed_by": runner}
        results: tuple[Part, ...] = ()
        if spec.result is not None and left.get(spec.result) is not None:
            content = _provider_result(left.pop(spec.result), kind, left)
            failed = left.get("error") is not None
            results = (trusted(ToolResultPart, **about, tool_name=name, content=content, is_error=failed),)
        call = trusted(
            ToolCallPart,
            **about,
            name=name,
            arguments=given[0],
            arguments_raw=given[1],
            namespace=namespace,
            extra=_with_long_id(fields.rest(FORMAT), call_id),
        )
        return (call, *results)

    def _result(self, item: dict[str, Any], kind: str) -> tuple[Part, ...] | None:
        id_key, of_parts = RESULTS[kind]
        content = item.get("output")
        if isinstance(content, list) and of_parts:
            if not all(isinstance(part, dict) for part in content):
                return None
            content = tuple(self._part(part, Role.TOOL, within=None) for part in content) or content
        elif of_parts and not (content is None or isinstance(content, str)):
            return None
        fields = Fields(item, "")
        fields.left().pop("output", None)
        if kind == "function_call_output":
            fields.drop("type", kind)
        call_id = fields.take(id_key, str)
        part = trusted(
            ToolResultPart,
            tool_call_id=call_id,
            tool_name=self._names.get(call_id) if call_id is not None else None,
            content=content,
            executed_by="provider" if self._answer and kind not in CLIENT_RESULTS else "client",
            extra=_with_long_id(fields.rest(FORMAT), call_id),
        )
        return (part,)


def opaque(block: dict[str, Any], kind: str, *, extra: FrozenDict | None = None) -> OpaquePart:
    """A block that has no canonical shape, whole."""
    return trusted(OpaquePart, provider=FORMAT, type=kind, value=block, extra=extra)


def _answered_id(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    answered = item.get(RESULTS[kind][0]) if isinstance(kind, str) and kind in RESULTS else None
    return answered if isinstance(answered, str) else None


def _with_item(part: Part, facts: dict[str, Any]) -> Part:
    """The part, marked as the first of an item with these facts."""
    own = dict(part.extra[FORMAT]) if part.extra is not None else {}
    own[ITEM] = frozen_mapping(facts)
    return replace(part, extra=frozen_mapping({FORMAT: frozen_mapping(own)}))


def _with_long_id(extra: FrozenDict | None, call_id: str | None) -> FrozenDict | None:
    """The other fields; an id that is longer than the format's reference allows is kept, and marked so [RSP-16]."""
    return extra if call_id is None or is_short(call_id) else with_mark(extra, FORMAT)


def _arguments(left: dict[str, Any], spec: CallItem) -> tuple[FrozenDict | None, str | None] | None:
    """Arguments and raw arguments, taken out of `left`; None where they have a shape of their own."""
    if spec.keys:
        return frozen_mapping({key: left.pop(key) for key in spec.keys if key in left}), None
    key = spec.text or spec.whole or ""
    value = left.pop(key, None)
    if not value and spec.text is not None and isinstance(value, str | None):
        return FrozenDict(), None
    if value is None:
        return None, None
    if spec.text is None:
        return (value, None) if isinstance(value, FrozenDict) else None
    if not isinstance(value, str):
        return None
    read = loads_object(value)
    return (None, value) if read is None else (freeze(read), None)


def _provider_result(value: Any, kind: str, left: dict[str, Any]) -> Any:
    if kind != "image_generation_call" or not isinstance(value, str):
        return value
    named = left.get("output_format")
    media_type = f"image/{named}" if isinstance(named, str) and named in _IMAGE_FORMATS else None
    return (trusted(ImagePart, type="base64", data=value, media_type=media_type),)


def _reasoning(item: dict[str, Any]) -> tuple[Part, ...] | None:
    parts: list[Part] = []
    for key, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        entries = item.get(key)
        if entries is None or entries == []:
            continue
        if not isinstance(entries, list):
            return None
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("type") != kind or not isinstance(entry.get("text"), str):
                return None
            if ITEM in entry or INSIDE in entry:
                return None
            fields = Fields(entry, "")
            text = fields.take("text", str)
            if kind == "summary_text":
                fields.drop("type", kind)
            parts.append(trusted(ThinkingPart, text=text, extra=fields.rest(FORMAT)))
    sealed = item.get("encrypted_content")
    if sealed is not None and not isinstance(sealed, str):
        return None
    if not parts:
        if sealed is None:
            return None
        parts.append(trusted(RedactedThinkingPart, data=sealed))
    elif sealed is not None:
        parts[0] = replace(parts[0], signature=sealed)
    read_keys = ("type", "summary", "content", "encrypted_content")
    parts[0] = _with_item(parts[0], {key: value for key, value in item.items() if key not in read_keys})
    return tuple(parts)


def _source(fields: Fields, *, inline: str, url: str | None) -> dict[str, Any] | None:
    """`type`, `data` and `media_type` of a media part, taken out of its fields."""
    text = fields.take(inline, str)
    if text is not None:
        inline_data = data_url(text)
        if inline_data is not None and inline_data[0]:
            return {"type": "base64", "media_type": inline_data[0], "data": inline_data[1]}
        return {"type": "url" if inline == "image_url" else "base64", "data": text}
    for key, kind in ((url, "url"), ("file_id", "file_ref")):
        if key is not None and (text := fields.take(key, str)) is not None:
            return {"type": kind, "data": text}
    return None


_MEDIA: Final[dict[str, tuple[type[Part], str, str | None]]] = {
    "input_image": (ImagePart, "image_url", None),
    "computer_screenshot": (ImagePart, "image_url", None),
    "input_file": (DocumentPart, "file_data", "file_url"),
}
"""By type of a content part: its part, and the keys of its data and of its URL."""


def _media(part: dict[str, Any], kind: str) -> Part | None:
    part_type, inline, url = _MEDIA[kind]
    fields = Fields(part, "")
    if kind != "computer_screenshot":
        fields.drop("type", kind)
    source = _source(fields, inline=inline, url=url)
    if source is not None and part_type is DocumentPart:
        source["title"] = fields.take("filename", str)
    return None if source is None else trusted(part_type, **source, extra=fields.rest(FORMAT))


def _audio(part: dict[str, Any]) -> AudioPart | None:
    sound = part.get("input_audio")
    if not isinstance(sound, dict) or sound.keys() != {"data", "format"}:
        return None
    if not isinstance(sound["data"], str) or not isinstance(sound["format"], str):
        return None
    fields = Fields(part, "")
    fields.take("input_audio", dict)
    fields.drop("type", "input_audio")
    media_type = f"audio/{sound['format']}"
    return trusted(AudioPart, type="base64", data=sound["data"], media_type=media_type, extra=fields.rest(FORMAT))


# -- writing -----------------------------------------------------------------------------------------------------------

_OWN_KEYS: Final = frozenset({ITEM, INSIDE, "type"})


class ItemWriter:
    """Writes the items of one request, or of one answer; calls and results without ids are paired by order."""

    def __init__(self, *, answer: bool = False, stem: str = "") -> None:
        self._answer = answer
        self._stem = stem  # what the ids that items of an answer lack have between kind and number
        self._ids = CallIds()
        self._made = 0
        self._caller: str | None = None  # the id of the last call
        self._kind: Any = None  # the item type that the part had on this wire, if layout tells
        self._written: list[dict[str, Any]] = []
        self._facts: list[Any] = []  # the original fields of each item; None for one from another format
        self._open: str | None = None  # the kind of the last item while more parts may join it
        self._message: Message

    def items(self, message: Message, kinds: Mapping[str, Any] = NO_SHAPE) -> list[dict[str, Any]]:
        """The items with the content of the message; `kinds`: the original item type, by number of the part."""
        self._written, self._facts, self._open, self._message = [], [], None, message
        for number, part in enumerate(message.content):
            self._kind = kinds.get(str(number)) if kinds else None
            self._add(part)
        return [self._closed(item, facts) for item, facts in zip(self._written, self._facts, strict=True)]

    def _add(self, part: Part) -> None:
        own = extra_of(part, FORMAT)
        if isinstance(part, ThinkingPart | RedactedThinkingPart):
            self._add_thinking(part, own)
        elif isinstance(part, ToolCallPart):
            self._add_call(part, own)
        elif isinstance(part, ToolResultPart):
            self._add_result(part, own)
        elif isinstance(part, OpaquePart) and INSIDE not in own:
            if part.provider == FORMAT:
                self._begin(dict(part.value), {})
            else:
                self._drop(part, "a foreign block")
        else:
            self._add_content(part, own)

    def _begin(self, item: dict[str, Any], facts: Any = None, *, joinable: str | None = None) -> None:
        self._written.append(item)
        self._facts.append(facts)
        self._open = joinable

    def _drop(self, part: Part, reason: str) -> None:
        drop(FORMAT, part.content_type, reason, message=self._message)

    def _closed(self, item: dict[str, Any], facts: Any) -> dict[str, Any]:
        """The item with its original fields; one from another format with those that clients expect in an answer."""
        if isinstance(facts, dict):
            for key, fact in facts.items():
                item.setdefault(key, fact)
        elif self._answer:
            prefix = _ID_PREFIXES.get(str(item.get("type")))
            if prefix is not None:
                item.setdefault("id", f"{prefix}_{self._stem}{self._made}")
                if prefix != "rs":
                    item.setdefault("status", "completed")
            self._made += 1
        return item

    # -- content -------------------------------------------------------------------------------------------------------

    def _add_content(self, part: Part, own: dict[str, Any]) -> None:
        role = self._message.role
        if role is Role.TOOL:
            raise UnsupportedError(
                "this format has no text or media of role tool outside a result",
                about=part,
                hint="make it a tool result",
            )
        if self._answer and isinstance(part, ImagePart) and not own and part.type == "base64":
            self._begin({"type": "image_generation_call", "result": part.data})
            return
        written = self._part(part, own, role)
        if written is None:
            return
        facts = own.get(ITEM)
        if self._open == "message" and not isinstance(facts, dict):
            self._written[-1]["content"].append(written)
            return
        self._begin({"type": "message", "role": role.value, "content": [written]}, facts, joinable="message")

    def _part(self, part: Part, own: dict[str, Any], role: Role) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            written = self._text(part, own, role)
        elif isinstance(part, ImagePart):
            named = own.get("type")
            written = {"type": named if named == "computer_screenshot" else "input_image"}
            media_type = type_of(part.data, part.media_type)  # images of Ollama have none
            written["file_id" if part.type == "file_ref" else "image_url"] = _url(part.type, media_type, part.data)
        elif isinstance(part, DocumentPart):
            written = {"type": "input_file", _FILE_KEYS[part.type]: _url(part.type, part.media_type, part.data)}
            if part.title is not None:
                written["filename"] = part.title
        elif isinstance(part, AudioPart) and part.type == "base64":
            sound = {"data": part.data, "format": _audio_format(part.media_type)}
            written = {"type": "input_audio", "input_audio": sound}
        elif isinstance(part, AudioPart | VideoPart):
            problem = f"this format cannot carry {part.content_type} from {part.type}"
            raise UnsupportedError(problem, about=part, hint="drop it")
        elif isinstance(part, OpaquePart) and part.provider == FORMAT:
            return dict(part.value)
        elif isinstance(text := resource_as_text(FORMAT, part, message=self._message), TextPart):
            return self._text(text, {}, role)
        else:
            self._drop(part, "no such content part in this format")
            return None
        return with_leftover(written, own)

    def _text(self, part: TextPart, own: dict[str, Any], role: Role) -> dict[str, Any]:
        named = own.get("type")
        kind = named if isinstance(named, str) and named in TEXTS else text_type(role)
        written: dict[str, Any] = {"type": kind, TEXTS[kind]: part.text}
        if self._answer and kind == "output_text":
            written["annotations"] = own.get("annotations", [])
            written["logprobs"] = own.get("logprobs", [])
        return written

    # -- thinking ------------------------------------------------------------------------------------------------------

    def _add_thinking(self, part: ThinkingPart | RedactedThinkingPart, own: dict[str, Any]) -> None:
        facts = own.get(ITEM)
        has_facts = isinstance(facts, dict)
        if self._open != "reasoning" or has_facts:
            if not has_facts and (not self._answer or isinstance(part, RedactedThinkingPart)):
                self._drop(part, "only this provider's own reasoning can be sent back")
                return
            self._begin({"type": "reasoning", "summary": []}, facts, joinable="reasoning")
        item = self._written[-1]
        if isinstance(part, RedactedThinkingPart):
            item["encrypted_content"] = part.data
            return
        kind = own.get("type", "summary_text")
        target = item.setdefault("content", []) if kind == "reasoning_text" else item["summary"]
        target.append(with_leftover({"type": kind, "text": part.text}, own))
        if part.signature is not None:
            if has_facts:
                item["encrypted_content"] = part.signature
            else:
                drop(FORMAT, "signature", "a foreign signature", message=self._message)

    # -- calls and results ---------------------------------------------------------------------------------------------

    def _add_call(self, part: ToolCallPart, own: dict[str, Any]) -> None:
        named = own.get("type", self._kind)
        kind = named if isinstance(named, str) and named in CALLS else "function_call"
        spec = CALLS[kind]
        if kind == "function_call" and part.executed_by == "provider":
            self._drop(part, "a call that another provider ran")
            return
        item: dict[str, Any] = {"type": kind}
        call_id = self._call_id(part)
        if part.tool_call_id is not None or (spec.id_key not in own and spec.id_key == "call_id"):
            item[spec.id_key] = call_id
        if spec.tool is None:
            item["name"] = part.name
            if part.namespace is not None:
                item[spec.space] = part.namespace
        if spec.text is not None:
            item[spec.text] = arguments_text(part)
        elif part.arguments is not None:
            if spec.whole is not None:
                item[spec.whole] = part.arguments
            else:
                item.update({key: part.arguments[key] for key in spec.keys if key in part.arguments})
        self._caller = part.tool_call_id
        self._begin(with_leftover(item, own), {} if own else None, joinable=kind if spec.result is not None else None)

    def _add_result(self, part: ToolResultPart, own: dict[str, Any]) -> None:
        named = own.get("type", self._kind)
        if named is None and part.executed_by == "provider":
            self._join_result(part)
            return
        kind = named if isinstance(named, str) and named in RESULTS else "function_call_output"
        id_key, of_parts = RESULTS[kind]
        item: dict[str, Any] = {"type": kind}
        call_id = self._call_id(part)
        if part.tool_call_id is not None or (id_key not in own and id_key == "call_id"):
            item[id_key] = call_id
        item["output"] = self._output(part.content) if of_parts else part.content
        if part.is_error:
            drop(FORMAT, "is_error", "results have no error flag here", message=self._message)
        self._begin(with_leftover(item, own), {})

    def _call_id(self, part: ToolCallPart | ToolResultPart) -> str:
        """The id as the format takes it; a longer one that came from it is kept [RSP-16]."""
        call_id = self._ids.of(part)
        return call_id if part.extra and mark(FORMAT) in part.extra else short_form(call_id)

    def _join_result(self, part: ToolResultPart) -> None:
        """Put what a hosted tool returned into the item of its call, which it must follow."""
        spec = CALLS.get(self._open) if self._open is not None else None
        if spec is None or spec.result is None or self._caller != part.tool_call_id:
            self._drop(part, "a result that another provider made")
            return
        item = self._written[-1]
        content = part.content
        image = content[0] if isinstance(content, tuple) and content else None
        item[spec.result] = image.data if isinstance(image, ImagePart) else content
        self._open = None

    def _output(self, content: Any) -> Any:
        if content is None or isinstance(content, str):
            return content if content is not None else ""
        if not isinstance(content, tuple):
            return dumps(content).decode()
        written = (self._part(part, extra_of(part, FORMAT), Role.TOOL) for part in content)
        return [part for part in written if part is not None]


_FILE_KEYS: Final = {"base64": "file_data", "url": "file_url", "file_ref": "file_id"}
_ID_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "image_generation_call": "ig"}


def with_leftover(written: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The wire object with its original fields; those that were written take precedence."""
    for key, value in own.items():
        if key not in _OWN_KEYS:
            written.setdefault(key, value)
    return written


def _url(kind: str, media_type: str | None, data: str) -> str:
    return f"data:{media_type};base64,{data}" if kind == "base64" and media_type is not None else data


def _audio_format(media_type: str | None) -> str:
    name = (media_type or "audio/wav").removeprefix("audio/")
    return {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}.get(name, name)


# -- the form of a message item ----------------------------------------------------------------------------------------


def message_form(item: dict[str, Any]) -> str:
    """How a wire message is spelled: with its type or without, its content as a string or as a list."""
    named = "typed" if item.get("type") == "message" else "easy"
    return named if isinstance(item.get("content"), str) else f"{named}-list"


def default_form(item: dict[str, Any]) -> str:
    """The form of a message for which none is recorded: the shortest."""
    if len(item) > 3:  # it has facts of its own beside type, role and content
        return "typed-list"
    return "easy" if _single_text(item) is not None else "easy-list"


def in_form(item: dict[str, Any], form: str) -> dict[str, Any]:
    """The message item (typed, its content a list) in another form; a string only if nothing is lost."""
    if item.get("type") != "message":
        return item
    if not form.endswith("-list"):
        text = _single_text(item)
        if text is not None:
            item["content"] = text
    if form.startswith("easy"):
        del item["type"]
    return item


def _single_text(item: dict[str, Any]) -> str | None:
    """The text of a message that is just one plain text."""
    content = item.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    part = content[0]
    plain = "output_text" if item.get("role") == Role.ASSISTANT else "input_text"
    return part["text"] if part.keys() == {"type", "text"} and part["type"] == plain else None
