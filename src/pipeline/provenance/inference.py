"""What a tool's definition tells of it: a profile for a tool that nobody described, with a reason for each fact.

Names and schemas say what a tool does well enough to ask about the wrong calls, and not well enough to refuse any: what
rules may do with an inferred profile is theirs to say. A tool that its name does not explain acts; what its
server claims (a harmless description, `readOnlyHint`) never makes its profile laxer. Spec: docs/spec/profiles.md.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cmf.json.value import replace
from cmf.message.tools import ToolDefinition
from pipeline.provenance.matching import unmarked
from pipeline.provenance.profile import AskedFor, Profile, ResultProfile, Trust
from pipeline.provenance.words import MAX_NAME, inferred_words, words_of

Find: TypeAlias = Callable[[str, str | None], Profile | None]
OwnTool: TypeAlias = Callable[[str, str | None], ToolDefinition | None]
InferenceMode: TypeAlias = Literal["off", "observe", "enforce"]
MAX_KEPT: Final = 4_096  # inferred profiles in this process
MAX_CHARACTERS: Final = 4_096  # of a description that are read; 256 of one of an argument, or of a name
MAX_ARGUMENTS: Final = 256  # that are looked at, of all depths; with more, every argument is control
MAX_NODES: Final = 4_096  # of a schema that are visited, references and alternatives each time; with more, likewise
MAX_ALIKE: Final = 8  # definitions of one name that are looked at; with more, every argument is control
MAX_DEPTH: Final = 6  # of objects within arguments, and of references and alternatives in their schemas

FIELDS: Final = ("actions", "sink", "irreversible", "control", "content", "asked_for", "result")
"""The fields of a profile that are inferred where nobody wrote them."""
_KNOWN: Final[OrderedDict[tuple[bytes, tuple[str, ...]], Inferred]] = OrderedDict()
"""Inferred profiles by the digest of the definition, which costs what it costs only once. No definition is kept."""
_LOCK: Final = threading.Lock()
_PREFIX: Final = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.S)
_SERVER: Final = re.compile(r"(?P<server>.+)(?:__|[.:/])(?P<tool>[^.:/]+)", re.S)
_SENTENCE: Final = re.compile(
    r"(?:\A|[.!;\n] ?|,? and (?:then )?)(?:(?:this|the)\s+(?:tool|function|method|command)\s+|it\s+|you\s+|"
    r"(?:will|can|may|also|then|automatically|immediately|permanently)\s+)*([^\W\d_]+)"
)
_MAX_TYPES: Final = 7  # that JSON Schema knows
_JOINED: Final = frozenset({"and", "or", "then", "und", "oder", "et", "ou", "y", "e", "o"})
_ODD_KEY: Final = re.compile(r'["\x00-\x1f]')
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STRONG: Final = ("send", "grant", "spend", "destroy")
"""Classes of acts that are recognised even in a description; what they do leaves the house, or stays done."""
_POINTING: Final = re.compile(
    r"\b(?:ids?|identifiers?|uuid|iban|account|e-?mail|address(?:es)?|url|uri|link|path|phone|username|key|token|"
    r"password|recipients?|channel|repository|name of the)\b",
    re.I,
)
_FREE: Final = re.compile(r"\b(?:text|content|body|message|description|comment|note|markdown|html|summary)\b", re.I)


class Fact(NamedTuple):
    """One inferred fact: the field of the profile (for an argument `control.to`, `other.n`), and why."""

    field: str
    value: Any
    reason: str


class Inferred(NamedTuple):
    """A profile that was inferred, and the reason for each fact of it, in order."""

    profile: Profile
    facts: tuple[Fact, ...]


class Described(NamedTuple):
    """What is known of a tool, and which fields of it nobody wrote."""

    profile: Profile
    inferred: frozenset[str] = frozenset()


def infer(tool: ToolDefinition, *arguments: str, digest: bytes | None = None) -> Inferred:
    """What `tool` is by its definition; `arguments` are names of arguments of a call that its schema may not have.

    `digest` is that of the definition, for callers that know it.
    """
    more = tuple(sorted({*arguments[:MAX_ARGUMENTS]} - _properties(tool.input_schema).keys()))
    key = digest or _digest(tool), more
    with _LOCK:
        known = _KNOWN.get(key)
        if known is not None:
            _KNOWN.move_to_end(key)
            return known
    inferred = _inferred(tool, more, whole=len(arguments) <= MAX_ARGUMENTS)
    with _LOCK:
        _KNOWN[key] = inferred
        if len(_KNOWN) > MAX_KEPT:
            _KNOWN.popitem(last=False)
    return inferred


def _digest(tool: ToolDefinition) -> bytes:
    return hashlib.sha256(tool.model_dump_json()).digest()


def merged(written: Profile | None, inferred: Profile) -> Described:
    """What an operator wrote, and what is inferred where he wrote nothing."""
    if written is None:
        return Described(inferred, frozenset(FIELDS))
    missing = {name for name in FIELDS if getattr(written, name) is None}
    if written.actions is not None or written.sink is not None:
        missing -= {"actions", "sink"}
    changes = {name: getattr(inferred, name) for name in missing}
    return Described(replace(written, **changes) if changes else written, frozenset(missing))


class ToolFacts:
    """What is known of tools in one conversation: profiles, and what the definitions of the tools tell.

    `tools` are those that are offered. Of two with one name, a call may mean either, so it is held to both. `own` finds
    a tool that nobody offered.
    """

    def __init__(
        self,
        find: Find,
        tools: Sequence[ToolDefinition] = (),
        *,
        mode: InferenceMode = "off",
        own: OwnTool | None = None,
    ) -> None:
        self.mode = mode
        self._own = own
        self._find = find
        self._tools = tools
        self._by_name: dict[str, list[ToolDefinition]] | None = None
        self._digests: dict[int, tuple[ToolDefinition, bytes]] = {}  # by identity, which holds while the tool is kept

    def named(self, name: str, namespace: str | None = None, arguments: Sequence[str] = ()) -> Described | None:
        """What is known of a tool by its name and, where nobody defined it, the names of its arguments."""
        written: Profile | None = self._find(name, namespace)
        if self.mode == "off":
            return None if written is None else Described(written)
        defined = self._definitions(name, namespace)
        if not defined:
            profile = infer(ToolDefinition(name=name, namespace=namespace), *arguments).profile
            return merged(written, _acting(profile) if self._tools and not profile.sink else profile)
        profiles = [infer(tool, *arguments, digest=self._digest(tool)).profile for tool in defined[:MAX_ALIKE]]
        if len(defined) > MAX_ALIKE:
            profiles.append(_UNKNOWN)
        return merged(written, profiles[0] if len(profiles) == 1 else _strictest(profiles))

    def _digest(self, tool: ToolDefinition) -> bytes:
        if id(tool) not in self._digests:
            self._digests[id(tool)] = tool, _digest(tool)
        return self._digests[id(tool)][1]

    def _definitions(self, name: str, namespace: str | None) -> list[ToolDefinition]:
        if self._by_name is None:
            self._by_name = {}
            for tool in self._tools:
                self._by_name.setdefault(tool.name, []).append(tool)
        named = self._by_name.get(name, [])
        same = [tool for tool in named if tool.namespace == namespace] or named
        own = self._own(name, namespace) if not same and self._own is not None else None
        return same if own is None else [own]


_UNKNOWN: Final = Profile(
    actions=("write", "send"),
    sink=True,
    irreversible=True,
    control=("**",),
    content=(),
    result=ResultProfile(trust=Trust.UNTRUSTED),
)
"""What a tool is of which too much is said to be looked at."""


def _acting(profile: Profile) -> Profile:
    """The profile of a tool that nobody defined where others are: behind its name may be any of them."""
    return replace(profile, actions=("write",), sink=True)


def _strictest(profiles: Sequence[Profile]) -> Profile:
    """A profile as strict as each of several in every field."""
    acting = [profile for profile in profiles if profile.sink]
    first = acting[0] if acting else profiles[0]
    control = tuple(dict.fromkeys(pattern for profile in profiles for pattern in profile.control or ()))
    results = [profile.rules for profile in profiles]
    return replace(
        first,
        irreversible=any(profile.irreversible for profile in profiles),
        actions=tuple(dict.fromkeys(act for profile in profiles for act in profile.actions or ())),
        control=control,
        asked_for=None if any(profile.asked_for != first.asked_for for profile in profiles) else first.asked_for,
        result=max(results, key=lambda result: list(Trust).index(result.trust)),
    )


# -- names -------------------------------------------------------------------------------------------------------------


def split_name(name: str) -> tuple[str | None, str]:
    """The server in a tool's name, and the tool's own name: `mcp__github__create_issue`, `github.create_issue`."""
    split = _PREFIX.fullmatch(name[:MAX_NAME]) or _SERVER.fullmatch(name[:MAX_NAME])
    return (split["server"], split["tool"]) if split is not None else (None, name[:MAX_NAME])


class _Vocabulary(NamedTuple):
    acts: Mapping[str, str]
    reads: Set[str]
    ambiguous: Set[str]
    sent: Set[str]
    guarded: Mapping[str, str]
    opened: Set[str]
    outside: Set[str]
    texts: Set[str]
    listing: Set[str]
    control: Set[str]
    content: Set[str]
    other: Set[str]
    people: Set[str]
    weighs: Set[str]
    decides: Set[str]
    graver: Set[str]
    traces: Set[str]
    typed: Set[str]
    gathered: Set[str]


_ROLES: Final = ("control", "content", "other", "weighs", "decides", "graver", "traces", "typed", "gathered")


@cache
def _vocabulary() -> _Vocabulary:
    words = inferred_words()
    acts: dict[str, str] = {}
    for kind, languages in words["acts"].items():  # of a word in two classes the first, which is the stricter one
        for verb in (verb for verbs in languages.values() for verb in _spellings(verbs)):
            acts.setdefault(verb, kind)
    guarded = {thing: kind for kind, things in words["guarded_things"].items() for thing in _spellings(things)}
    roles = words["arguments"]
    tools = {
        name: _spellings(words[name])
        for name in ("also_things", "sent_things", "opened_things", "outside", "texts", "listing")
    }
    return _Vocabulary(
        acts=acts,
        reads=_spellings(verb for verbs in words["reads"].values() for verb in verbs),
        ambiguous=tools["also_things"],
        sent=tools["sent_things"],
        guarded=guarded,
        opened=tools["opened_things"],
        outside=tools["outside"],
        texts=tools["texts"],
        listing=tools["listing"],
        people=_spellings(roles["to_people"]),
        **{role: _spellings(roles[role]) for role in _ROLES},
    )


def _spellings(words: Iterable[str]) -> frozenset[str]:
    """Words, and how those spell them who name things in ASCII: "observacao"."""
    return frozenset(spelled for word in words for spelled in (word, unmarked(word)))


def _in(word: str, held: Set[str] | Mapping[str, Any]) -> str | None:
    """The word as the list has it, in the singular if need be; None if it is not in it."""
    plain = f"{word[:-3]}ao" if word.endswith("oes") else word
    for form in (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("en"), plain):
        if form in held:
            return form
    return None


class _Act(NamedTuple):
    """What a name says that the tool does: `kind` is a class of acts, or `read`; `verb` None: it does not say."""

    kind: str
    verb: str | None
    reason: str


def _act_of(name: tuple[str, ...]) -> _Act:
    """What the words of a tool's name say that it does. A name that says nothing acts."""
    known = _vocabulary()
    verbs = [(at, word) for at, word in enumerate(name) if word in known.acts or word in known.reads]
    plain = [(at, word) for at, word in verbs if word not in known.ambiguous or at == 0]
    heads = verbs[-1:] if verbs and verbs[-1][0] == len(name) - 1 else verbs[:1]  # "text search" is a search
    for at, word in plain[:1] or heads:
        reads = word in known.reads and (word not in known.acts or (at == 0 and word not in _BOTH_ACT))
        if not reads:
            return _weighed(known.acts[word], word, name, at)
        joined = (later for before, later in zip(name[at + 1 :], name[at + 2 :], strict=False) if before in _JOINED)
        second = next((later for later in joined if later in known.acts), None)
        if second is not None:
            return _weighed(known.acts[second], second, name, name.index(second))
        return _Act("read", word, f'its name says "{word}"')
    return _Act("change", None, "its name does not say what it does")


_BOTH_ACT: Final = frozenset({"select", "resolve", "convert", "load", "play", "watch", "test", "process", "open"})
"""First words that read and act: as first word of a name they act."""


def _weighed(kind: str, verb: str, name: tuple[str, ...], at: int) -> _Act:
    """An act, weighed by the thing that it is done to: adding a comment sends, adding a member grants."""
    known = _vocabulary()
    reason = f'its name says "{verb}"'
    if kind in ("change", "execute"):
        for thing in reversed(name[:at] + name[at + 1 :]):
            guarded = _in(thing, known.guarded)
            if guarded is not None:
                return _Act(known.guarded[guarded], verb, f'{reason}, of "{thing}"')
        if name[at + 1 :] and verb in _BRINGS_OUT and _in(name[-1], known.sent):
            return _Act("send", verb, f'{reason}, of "{name[-1]}"')
    return _Act(kind, verb, reason)


_BRINGS_OUT: Final = frozenset(
    {"add", "create", "write", "make", "new", "put", "compose", "schedule", "start", "open", "submit", "generate",
     "erstellen", "schreiben", "hinzufügen", "créer", "ajouter", "écrire", "crear", "añadir", "agregar", "escribir",
     "creare", "aggiungere", "scrivere", "criar", "adicionar", "escrever"}
)  # fmt: skip
"""Verbs of making something: with a comment or a mail, it is there for others."""


def _described_act(description: str) -> str | None:
    """The strongest act that a description says of the tool, at the beginning of a sentence or beside another act."""
    known = _vocabulary().acts
    lines = "\n".join(" ".join(line.split()) for line in description.lower().splitlines() if not line.isspace())
    said = {known.get(verb) for match in _SENTENCE.finditer(lines) for verb in _stems(match[1])}
    return next((kind for kind in _STRONG if kind in said), None)


def _stems(verb: str) -> Iterator[str]:
    """A verb of a description in the infinitive: "sends", "notifies", "deletes"."""
    yield verb
    if verb.endswith("ies"):
        yield f"{verb[:-3]}y"
    elif verb.endswith("es"):
        yield from (verb[:-2], verb[:-1])
    elif verb.endswith("s"):
        yield verb[:-1]


# -- schemas -----------------------------------------------------------------------------------------------------------


class _Argument(NamedTuple):
    """One argument, or field of one: the pattern that names it, its name, and what its schema says."""

    pattern: str
    name: str
    types: frozenset[str]
    form: str
    choices: int
    description: str
    required: bool


def _properties(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


class _Schema:
    """The arguments that a schema declares; `whole` is False if it has more than are looked at."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._left = MAX_ARGUMENTS
        self._nodes = MAX_NODES
        self.whole = True
        self.arguments = list(self._fields(schema, "", 0))

    def _fields(self, schema: Any, above: str, depth: int) -> Iterator[_Argument]:
        for node in self._branches(schema, depth):
            required = node.get("required")
            required = required[: MAX_ARGUMENTS + 1] if isinstance(required, list | tuple) else ()
            self.whole = self.whole and len(required) <= MAX_ARGUMENTS
            needed = frozenset(filter(_is_text, required))
            for name, inner in _properties(node).items():
                self._left -= 1
                if self._left < 0 or depth > MAX_DEPTH or _is_odd(name):
                    self.whole = False
                    return
                yield from self._field(inner, name, above, depth, required=name in needed)

    def _field(self, schema: Any, name: str, above: str, depth: int, *, required: bool) -> Iterator[_Argument]:
        key = _quoted(name)
        pattern = f"{above}.{key}" if above and key[0] != "[" else f"{above}{key}"
        nodes = [*self._branches(schema, depth)]
        items = [each for node in nodes if "items" in node for each in self._branches(node["items"], depth + 1)]
        if any(map(_properties, nodes)):
            yield from self._fields(schema, pattern, depth + 1)
        elif any(map(_properties, items)):
            yield from (held for each in items for held in self._fields(each, f"{pattern}[*]", depth + 2))
        else:
            nodes += items
            yield _Argument(
                pattern,
                name,
                frozenset(kind for node in nodes for kind in _types(node)),
                next((form for node in nodes if isinstance(form := node.get("format"), str)), ""),
                max((_choices(node) for node in nodes), default=0),
                next((text[:MAX_NAME] for node in nodes if isinstance(text := node.get("description"), str)), ""),
                required,
            )

    def _branches(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        """The schema, what it refers to, and its alternatives."""
        waiting: list[tuple[Any, int]] = [(schema, depth)]
        while waiting:
            node, level = waiting.pop()
            self._nodes -= 1
            if level > MAX_DEPTH or self._nodes < 0:
                self.whole = False
                return
            if not isinstance(node, Mapping):
                continue
            yield node
            for word in ("anyOf", "oneOf", "allOf"):
                inner = node.get(word)
                if isinstance(inner, list | tuple):
                    waiting += [(each, level + 1) for each in inner[: self._nodes + 1]]
            reference = node.get("$ref")
            if isinstance(reference, str):
                waiting.append((self._referred(reference), level + 1))

    def _referred(self, reference: str) -> Any:
        found = self._root
        if not reference.startswith("#/"):
            self.whole = False
        for step in reference[2:].split("/")[:MAX_DEPTH]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def _choices(node: Mapping[str, Any]) -> int:
    """How many values a schema leaves; 0 for any."""
    words = node.get("enum")
    return len(words) if isinstance(words, list | tuple) else int("const" in node)


def _types(node: Mapping[str, Any]) -> Iterable[str]:
    kind = node.get("type")
    kinds = kind[:_MAX_TYPES] if isinstance(kind, list | tuple) else (kind,)
    return filter(_is_text, kinds)


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _role_of(argument: _Argument, made: Set[str] | None) -> tuple[str, str]:
    """What an argument is for (`control`, `content`, `other`), and why; `made`: the words of what the call makes."""
    known = _vocabulary()
    words = words_of(argument.name)
    if argument.types and argument.types <= {"boolean", "null"}:
        graver = next((word for word in words if word in known.graver), None)
        return ("other", "it is true or false") if graver is None else ("control", f'its name says "{graver}"')
    if argument.form in _FORMS:
        return _FORMS[argument.form], f'its format is "{argument.form}"'
    if not known.traces.isdisjoint(words):
        return "other", "it only tells calls apart"
    numeric = bool(argument.types) and argument.types <= {"integer", "number", "null"}
    heads = words[: words.index("of")] if "of" in words[1:] else words
    last = heads[-1] if heads else ""
    weight = next((word for word in heads if _in(word, known.weighs)), None)
    if weight is not None and (numeric or _in(last, known.weighs)):
        return "control", f'it says how much: "{weight}"'
    if numeric and words and words[0] in ("start", "end", "display"):
        return "other", f'its name begins with "{words[0]}"'
    if words and words[0] in ("max", "min", "limit", "num", "per", "is", "has", "include", "show"):
        return "other", f'its name begins with "{words[0]}"'
    if last in ("type", "kind") and not known.typed.isdisjoint(heads):
        return "control", "it says which kind of thing is meant"
    if last in known.decides and len(heads) == 1 and (argument.choices > 1 or last in _STATES) and not numeric:
        return "control", "it says which act this is"
    if heads[-2:] == ("time", "zone"):
        return "other", "it is a time zone"
    if last == "name" and made is not None and (len(heads) == 1 or heads[0] in _OF_PEOPLE or made >= {*heads[:-1]}):
        return "content", "it names what the call makes"
    if "object" in argument.types and (last in known.gathered or _in(last, known.content) is None):
        return "control", "it can hold anything"
    for word in reversed(heads):
        if _in(word, known.content) and not numeric and not argument.choices:
            return "content", f'its name says "{word}"'
        if _in(word, known.other):
            return "other", f'its name says "{word}"'
        if _in(word, known.control) and not (argument.choices and word not in _RIGHTS):
            return "control", f'its name says "{word}"'
    if numeric or argument.choices:
        return "other", "it is a number" if numeric else "it is one of a few words"
    if _POINTING.search(argument.description):
        return "control", "its description says that it names something"
    if _FREE.search(argument.description):
        return "content", "its description says that it is text"
    return "control", "nothing says what it is for"


_STATES: Final = frozenset({"state", "status", "action", "operation", "command", "estado", "stato"})
_RIGHTS: Final = frozenset({"role", "roles", "permission", "permissions", "scope", "access", "privilege", "visibility"})
_POINTING_FORMS: Final = (
    "email", "idn-email", "uri", "uri-reference", "iri", "url", "uuid", "hostname", "ipv4", "ipv6",
)  # fmt: skip
_FORMS: Final = dict.fromkeys(_POINTING_FORMS, "control") | dict.fromkeys(
    ("date", "time", "date-time", "duration"), "other"
)


# -- the profile -------------------------------------------------------------------------------------------------------


def _inferred(tool: ToolDefinition, more: tuple[str, ...], *, whole: bool) -> Inferred:
    server, own = split_name(tool.name)
    name = words_of(own)
    act = _act_of(name)
    if act.verb is None and server is not None:
        name = (*words_of(server), *name)
        act = _act_of(name)
    schema = _Schema(tool.input_schema)
    arguments = [
        *schema.arguments,
        *(_Argument(_quoted(each), each, frozenset(), "", 0, "", False) for each in more),
    ]
    made = None
    if act.kind == "change" and act.verb in _NAMES:
        made = frozenset(name) if act.verb in _BRINGS_OUT else frozenset[str]()
    roles = [(argument, *_role_of(argument, made)) for argument in arguments]
    act = _stricter(act, name, tool, roles)
    control = tuple(argument.pattern for argument, role, _ in roles if role == "control")
    content = tuple(argument.pattern for argument, role, _ in roles if role == "content")
    facts = [Fact(f"{role}.{argument.pattern}", True, why) for argument, role, why in roles]
    if not (whole and schema.whole) or any(map(_is_odd, more)):
        control, content = ("**",), ()
        facts = [Fact("control.**", True, "its arguments are too many, too deep, or not all named")]
    profile = Profile(
        actions=_ACTIONS.get(act.kind, ("write",)),
        sink=act.kind != "read",
        irreversible=act.kind in ("destroy", "spend", "grant", "execute"),
        control=control,
        content=content,
        asked_for=_asked_for(act),
        result=_result(act, name),
    )
    facts = [
        Fact("actions", profile.actions, act.reason),
        Fact("sink", profile.sink, act.reason),
        Fact("irreversible", profile.irreversible, act.reason),
        *facts,
        Fact("asked_for", profile.asked_for, "its verb, and what people say for it"),
        Fact("result", profile.rules.trust.value, _why_result(profile)),
    ]
    return Inferred(profile, tuple(facts))


_ACTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "read": ("read",), "open": ("read", "send"), "send": ("send",), "spend": ("send",), "grant": ("write", "send"),
    "execute": ("execute",),
}  # fmt: skip


def _quoted(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else "**" if _is_odd(name) else f'["{name}"]'


def _is_odd(name: str) -> bool:
    """Whether no pattern can name it."""
    return not name or len(name) > MAX_NAME or _ODD_KEY.search(name) is not None


def _stricter(
    act: _Act, name: Sequence[str], tool: ToolDefinition, roles: Sequence[tuple[_Argument, str, str]]
) -> _Act:
    """The act, made stricter by what description, annotations and arguments add to the name."""
    known = _vocabulary()
    hints = ((tool.extra or {}).get("mcp") or {}).get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    description = (tool.description or "")[:MAX_CHARACTERS]
    told = _described_act(description)
    heads = [(argument, words_of(argument.name)) for argument, role, _ in roles if role == "control"]
    people = next((argument.name for argument, words in heads if words and _in(words[-1], known.people)), None)
    if act.kind == "read":
        if told in _STRONG and act.verb not in _SURE_READS:
            return _Act(str(told), act.verb, "its description says that it acts")
        if people is not None and any(_is_payload(argument, role) for argument, role, _ in roles):
            return _Act("send", None, f'no look-up takes "{people}" and a text or an amount for them')
        opened = next(
            (
                each.name
                for each, words in heads
                if (each.form in _OPENED or (bool(words) and _in(words[-1], _vocabulary().opened) is not None))
            ),
            None,
        )
        if opened is not None:
            return _Act("open", act.verb, f'it opens "{opened}"')
        asks_web = not known.outside.isdisjoint(name) or _WEB.search(description)
        if act.verb in _SEARCHES and asks_web:
            return _Act("open", act.verb, "what it searches for goes to the web")
        if hints.get("destructiveHint") is True or hints.get("readOnlyHint") is False:
            return _Act("change", act.verb, "its server says that it changes something")
        return act
    if act.kind == "change" and hints.get("destructiveHint") is True:
        return _Act("destroy", act.verb, "its server says that it destroys something")
    if act.kind == "change" and told is not None:
        return _Act(told, act.verb, "its description says so")
    if act.kind == "change" and people is not None:
        return _Act("send", act.verb, f'"{people}" gets it')
    return act


def _is_payload(argument: _Argument, role: str) -> bool:
    """Whether an argument is what somebody gets: a text that goes somewhere; what a call must have, or an amount."""
    words = words_of(argument.name)
    if role == "content":
        return argument.required or not _BODIES.isdisjoint(words)
    return argument.required and any(_in(word, _vocabulary().weighs) for word in words)


_NAMES: Final = _BRINGS_OUT | {
    "update", "edit", "rename", "modify", "change", "set", "aktualisieren", "umbenennen", "modifier", "renommer",
    "actualizar", "renombrar", "modificare", "rinominare", "atualizar", "renomear",
}  # fmt: skip
"""Verbs whose object gets a name by the call: it is read by people, and aims at nothing."""
_OF_PEOPLE: Final = frozenset({"first", "last", "middle", "full", "given", "family", "display"})
_SEARCHES: Final = frozenset({"search", "find", "lookup", "browse", "research", "explore", "discover", "query"})
_WEB: Final = re.compile(r"\b(?:web|internet|online)\b", re.I)
_OPENED: Final = frozenset({"uri", "url", "iri", "hostname"})
_BODIES: Final = frozenset({"body", "content", "contents", "text", "message", "html", "markdown"})
"""Arguments for text that goes somewhere, rather than for what is looked for."""
_SURE_READS: Final = frozenset({"get", "list", "read", "search", "find", "show", "view", "describe", "count"})


def _asked_for(act: _Act) -> AskedFor | None:
    """The verb of the tool's name, and what people say for it. Of a tool without a verb, the names of all acts."""
    if act.kind == "read":
        return None
    groups: list[list[str]] = inferred_words()["asked_as"]
    if act.verb is None:
        return AskedFor(verbs=tuple(dict.fromkeys(verb for group in groups[:-1] for verb in group)))
    alike = (verb for group in groups if act.verb in group for verb in group)
    return AskedFor(verbs=tuple(dict.fromkeys((act.verb, *alike))))


def _result(act: _Act, name: tuple[str, ...]) -> ResultProfile:
    """By key and shape; what returns a page or the text of a file may return any keys."""
    known = _vocabulary()
    is_outside = act.kind == "open" or any(_in(word, known.outside) for word in name)
    is_text = act.kind == "read" and any(word in known.texts for word in name)
    if is_outside or (is_text and known.listing.isdisjoint(name)):
        return ResultProfile(trust=Trust.UNTRUSTED)
    return ResultProfile(trust=Trust.AUTO)


def _why_result(profile: Profile) -> str:
    by_shape = profile.rules.trust is Trust.AUTO
    return "each field by its key and its shape" if by_shape else "it returns what others wrote"
