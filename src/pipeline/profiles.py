"""What an operator says about tools and resources: profiles, and where they are looked up. Spec: docs/spec/profiles.md.

A profile is data, not a rule [D9]: which fields of a result a third party can write, which arguments steer the act and
which only carry content, what the act does, and what words ask for it. Rules read them as `data.cmf.profiles`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import yaml
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from cmf.codec import MAX_BYTES, loads
from cmf.errors import CmfError, ShapeError
from cmf.frozen import FrozenDict, frozen_mapping
from cmf.security import DataPolicy, ObjectSecurityProfile
from cmf.tools import ToolDefinition
from cmf.uris import normalise, tool_uri
from cmf.value import Flag, Str, Value, json_schema, replace, value
from pipeline import field_paths
from pipeline.errors import ConfigError
from pipeline.metadata import load_yaml

CODE: Final = "profile.invalid"
MAX_SHAPED_CHARACTERS: Final = 256  # of a value that has the shape of a name
MAX_ASKED_CHARACTERS: Final = 65_536  # of one user message that are searched for words that ask


class Trust(StrEnum):
    """Who can have written what stands in a field."""

    TRUSTED = "trusted"
    METADATA = "metadata"
    UNTRUSTED = "untrusted"


def _pattern(text: str) -> str:
    try:
        field_paths.compiled(text)
    except ValueError as error:
        raise PydanticCustomError("field_pattern", "{why}", {"why": str(error)}) from None
    return text


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error:
        raise PydanticCustomError("expression", "not a regular expression") from None
    return text


def _spelled_short(rule: Any) -> Any:
    return {"trust": rule} if isinstance(rule, str) else rule


Pattern: TypeAlias = Annotated[Str, AfterValidator(_pattern)]
Expression: TypeAlias = Annotated[Str, AfterValidator(_expression)]
Word: TypeAlias = Annotated[Str, Field(min_length=1, max_length=80)]
DataAction = Literal[
    "read", "write", "execute", "invoke", "send", "receive", "generate", "export", "forward", "store", "log", "train",
    "display",
]  # fmt: skip
"""ViewAction and the data-policy words of C13."""


@value
class FieldRule(Value):
    """How far one field of a result is trusted, and the labels of what stands in it."""

    trust: Annotated[
        Trust,
        Field(
            description="`untrusted` if a third party can author free text there; `metadata` if the service itself "
            "fills it in (ids, senders, dates); `trusted` if it is first-party data"
        ),
    ]
    labels: tuple[Str, ...] = ()
    shape: Annotated[
        Expression | None,
        Field(
            description="A regular expression for the whole value, at most 256 characters long: the trust holds only "
            "for what has this shape, and the rest is untrusted. For names that others choose but cannot write text in"
        ),
    ] = None

    def trust_in(self, content: str) -> Trust:
        """The trust of one value of the field."""
        if self.shape is None:
            return self.trust
        fits = len(content) <= MAX_SHAPED_CHARACTERS and re.fullmatch(self.shape, content) is not None
        return self.trust if fits else Trust.UNTRUSTED


FieldRules: TypeAlias = Annotated[
    dict[Pattern, Annotated[FieldRule, BeforeValidator(_spelled_short)]],
    AfterValidator(frozen_mapping),
    Field(
        description="Field pattern -> trust (a word, or {trust, labels}). A pattern names a field and all below it: "
        "`[*].sender`, `items[*].from`, `**.id`; a final `~` names the keys themselves: `*~`. Where several match, the "
        "least trusted holds."
    ),
]


@value
class ResultProfile(Value):
    """How far a tool's result is trusted: as a whole, and field by field where it can be read."""

    trust: Annotated[Trust, Field(description="Of every field that no rule names")] = Trust.UNTRUSTED
    format: Annotated[
        Literal["auto", "json", "yaml", "python", "text"],
        Field(
            description="How a result that comes as text is read into fields: strict JSON, block YAML, or a Python "
            "literal; `auto` tries them in this order; `text` has no fields. Name the one that the tool writes if it "
            "may also return text of others as it is. What cannot be read is trusted as its least trusted field."
        ),
    ] = "auto"
    labels: Annotated[tuple[Str, ...], Field(description="Labels of everything in the result")] = ()
    fields: FieldRules = FrozenDict()

    @property
    def weakest(self) -> Trust:
        """The trust of a result whose fields cannot be told apart."""
        rules = self.fields.values()
        ranks = [self.trust, *(rule.trust if rule.shape is None else Trust.UNTRUSTED for rule in rules)]
        return max(ranks, key=list(Trust).index)


@value
class AskedFor(Value):
    """The words by which a user asks for the act. Each message of the user is looked at by itself; case is ignored."""

    verbs: Annotated[tuple[Word, ...], Field(description="Words or phrases; regular English endings match too")] = ()
    objects: Annotated[
        tuple[Word, ...], Field(description="If given, one of them must stand in the same message as the verb")
    ] = ()
    patterns: Annotated[tuple[Expression, ...], Field(description="Regular expressions; each is enough by itself")] = ()

    def is_said_in(self, text: str) -> bool:
        """Whether one message of the user asks for the act."""
        text = text[:MAX_ASKED_CHARACTERS]
        if any(_compiled(pattern).search(text) for pattern in self.patterns):
            return True
        return _says(self.verbs, text) and (not self.objects or _says(self.objects, text))


@value
class Profile(Value):
    """What is known of one tool, prompt or resource."""

    description: Str | None = None
    actions: Annotated[
        tuple[DataAction, ...] | None,
        Field(description="What running it does with data; absent: not known, so it may write"),
    ] = None
    sink: Annotated[Flag, Field(description="Data leaves, or the world changes")] = False
    irreversible: Annotated[Flag, Field(description="What it does cannot be undone")] = False
    control: Annotated[
        tuple[Pattern, ...],
        Field(description="Arguments that say what is acted on, or where data goes: recipients, accounts, ids, URLs"),
    ] = ()
    content: Annotated[tuple[Pattern, ...], Field(description="Arguments that only carry text: subject, body")] = ()
    asked_for: AskedFor | None = None
    result: ResultProfile = ResultProfile()
    object: ObjectSecurityProfile | None = None
    data_policy: DataPolicy | None = None
    intents: Annotated[tuple[Str, ...], Field(description="Names of purposes that this serves, for rules")] = ()

    @property
    def writes(self) -> bool:
        """Whether running it may change what a later call reads."""
        return self.actions is None or not set(self.actions) <= {"read", "receive", "display"}

    @property
    def result_labels(self) -> frozenset[str]:
        """The labels of everything that it returns."""
        return frozenset(self.result.labels) | frozenset(self.data_policy.apply_labels if self.data_policy else ())

    def use_of(self, path: field_paths.Path) -> str:
        """`control`, `content` or `other`: what an argument is for. Where both name it, it is control."""
        for use, patterns in (("control", self.control), ("content", self.content)):
            if any(field_paths.names(field_paths.compiled(pattern), path) for pattern in patterns):
                return use
        return "other"


@value
class ProfileDocument(Value):
    """A file of profiles."""

    version: Annotated[Literal[1], Field(description="Of this form; always 1")] = 1
    profiles: Annotated[
        dict[Str, Profile],
        AfterValidator(frozen_mapping),
        Field(description="By `name`, `namespace/name`, or URI (`tool://namespace/name`, `prompt://…`, a resource's)"),
    ]


Resolver: TypeAlias = Callable[[str], "Profile | Mapping[str, Any] | None"]
Source: TypeAlias = "str | Path | Mapping[str, Any] | Resolver"


class Profiles:
    """Profiles by entity. Later sources replace an entity's profile as a whole; functions are asked last."""

    def __init__(self, entries: Mapping[str, Profile] | None = None, resolvers: Iterable[Resolver] = ()) -> None:
        self._by_uri = {_uri_of(key): profile for key, profile in (entries or {}).items()}
        self._resolvers = tuple(resolvers)
        self._by_name: dict[str, list[str]] = {}
        for uri in self._by_uri:
            if uri.startswith("tool://"):
                self._by_name.setdefault(_name_of(uri), []).append(uri)

    @classmethod
    def load(cls, *sources: Source) -> Profiles:
        """The profiles of files (`.json`, `.yaml`, `.yml`), documents in memory, and functions from URI to profile.

        Raises:
            ConfigError: `profile.unreadable`, `profile.invalid` or `profile.twice`; path: file, and place within it.
        """
        entries: dict[str, Profile] = {}
        resolvers: list[Resolver] = []
        for source in sources:
            if callable(source):
                resolvers.append(source)
            else:
                entries.update(_entries(source))
        return cls(entries, resolvers)

    def find(self, name: str, namespace: str | None = None) -> Profile | None:
        """The profile of a tool: by URI, by `namespace/name`, then by name if exactly one entry has it [B9]."""
        uri = tool_uri(name, namespace)
        found = self.for_uri(uri)
        if found is not None:
            return found
        named = self._by_name.get(name, [])
        if len(named) != 1 or (namespace is not None and named[0] != tool_uri(name, None)):
            return None
        return self._by_uri[named[0]]

    def for_uri(self, uri: str) -> Profile | None:
        """The profile of exactly that entity.

        Raises:
            ConfigError: a function answered with something that is no profile.
        """
        uri = normalise(uri)
        found = self._by_uri.get(uri)
        if found is not None:
            return found
        for resolver in self._resolvers:
            answer = resolver(uri)
            if answer is not None:
                return _profile(answer, f"<{uri}>")
        return None

    def with_mcp_tools(self, tools: Iterable[ToolDefinition], *, trusted: bool = False) -> Profiles:
        """These profiles and what the annotations of MCP tools say.

        Annotations are the server's own claims: of a server that is not `trusted` they only ever make a profile
        stricter, and never say that a tool merely reads.
        """
        entries = dict(self._by_uri)
        for tool in tools:
            annotations = ((tool.extra or {}).get("mcp") or {}).get("annotations")
            if isinstance(annotations, Mapping):
                uri = tool_uri(tool.name, tool.namespace)
                base = self.find(tool.name, tool.namespace)
                entries[uri] = annotated(annotations, base, trusted=trusted)
        return Profiles(entries, self._resolvers)

    def as_data(self) -> dict[str, Any]:
        """The profiles as `data.cmf.profiles`: by URI, and by name where only one entry has the name."""
        data = {uri: profile.model_dump() for uri, profile in self._by_uri.items()}
        for name, uris in self._by_name.items():
            if len(uris) == 1:
                data[name] = data[uris[0]]
        return data

    def objects(self) -> dict[str, ObjectSecurityProfile]:
        """The object profiles, by URI: `Context.objects`."""
        return {uri: profile.object for uri, profile in self._by_uri.items() if profile.object is not None}

    def data_policies(self) -> dict[str, DataPolicy]:
        """The data policies, by URI: `Context.data`."""
        return {uri: profile.data_policy for uri, profile in self._by_uri.items() if profile.data_policy is not None}

    def __len__(self) -> int:
        return len(self._by_uri)

    def __bool__(self) -> bool:
        """Whether any profile can be known."""
        return bool(self._by_uri or self._resolvers)


def annotated(annotations: Mapping[str, Any], base: Profile | None = None, *, trusted: bool = False) -> Profile:
    """`base` and what MCP tool annotations add to it; absent hints have MCP's own defaults only where none is known.

    Spec: [PRF-6]; MCP 2025-06-18, ToolAnnotations: `destructiveHint` counts only where `readOnlyHint` is false.
    """
    reads = annotations.get("readOnlyHint") is True
    destroys = not reads and annotations.get("destructiveHint", base is None) is not False
    known = base or Profile(control=("**",), sink=True)
    changes: dict[str, Any] = {}
    if destroys:
        changes = {"irreversible": True, "sink": True}
    if reads and trusted and base is None:
        changes = {"actions": ("read",), "sink": annotations.get("openWorldHint") is not False}
    if annotations.get("openWorldHint") is True and known.result.trust is not Trust.UNTRUSTED:
        changes["result"] = replace(known.result, trust=Trust.UNTRUSTED)
    return replace(known, **changes) if changes else known


def _says(words: tuple[str, ...], text: str) -> bool:
    return any(_compiled(_inflected(word)).search(text) for word in words)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(maxsize=4096)
def _inflected(phrase: str) -> str:
    """An expression for a phrase whose first word may have a regular English ending."""
    first, *rest = phrase.split() or [phrase]
    stem = re.escape(first)
    forms = [f"{stem}(?:s|es|d|ed|ing)?"]
    if len(first) > 2 and first[-1] in "bdgklmnprt":
        forms.append(f"{stem}{re.escape(first[-1])}(?:ed|ing)")
    if first[-1] == "e":
        forms.append(f"{re.escape(first[:-1])}ing")
    if first[-1] == "y":
        forms.append(f"{re.escape(first[:-1])}(?:ies|ied)")
    return rf"(?<!\w)(?:{'|'.join(forms)})" + "".join(rf"\s+{re.escape(word)}" for word in rest) + r"(?!\w)"


def profiles_schema() -> dict[str, Any]:
    """The JSON Schema of a file of profiles [D9]."""
    schema = json_schema(ProfileDocument)
    rules = schema["$defs"]["ResultProfile"]["properties"]["fields"]
    words = {"type": "string", "enum": [trust.value for trust in Trust]}
    rules["additionalProperties"] = {"anyOf": [words, rules["additionalProperties"]]}
    return {**schema, "title": "Profiles of tools, prompts and resources"}


def _entries(source: str | Path | Mapping[str, Any]) -> dict[str, Profile]:
    where = "$" if isinstance(source, Mapping) else str(source)
    body = source if isinstance(source, Mapping) else _read(Path(source))
    try:
        document = ProfileDocument.model_validate(dict(body) if isinstance(body, Mapping) else body)
    except ShapeError as error:
        raise _invalid(error, where) from None
    entries: dict[str, Profile] = {}
    for key, profile in document.profiles.items():
        uri = _uri_of(key)
        if uri in entries:
            raise ConfigError("two entries name the same entity", path=where, code="profile.twice", hint="keep one")
        entries[uri] = profile
    return entries


def _read(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_BYTES:
            raise ConfigError("too large", path=str(path), code="profile.unreadable", hint="split the file")
        return loads(raw) if path.suffix == ".json" else load_yaml(raw.decode("utf-8"))
    except (OSError, CmfError, yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        why = "cannot be read" if isinstance(error, OSError) else "neither strict JSON nor YAML"
        raise ConfigError(
            why, path=f"{path}{where}", code="profile.unreadable", hint="give a .json or .yaml file of profiles"
        ) from None


def _profile(answer: Profile | Mapping[str, Any], where: str) -> Profile:
    try:
        return Profile.model_validate(answer if isinstance(answer, Profile) else dict(answer))
    except (ShapeError, TypeError, ValueError) as error:
        raise _invalid(error, where) from None


def _invalid(error: Exception, where: str) -> ConfigError:
    at = error.path.removeprefix("$").removeprefix(".") if isinstance(error, ShapeError) else ""
    why = error.message if isinstance(error, ShapeError) else "not a profile"
    return ConfigError(why, path=f"{where}: {at}" if at else where, code=CODE, hint="see `cmf schema profiles`")


def _uri_of(key: str) -> str:
    if "://" in key:
        return normalise(key)
    namespace, slash, name = key.rpartition("/")
    return tool_uri(name, namespace if slash else None)


def _name_of(uri: str) -> str:
    return unquote(uri.rpartition("/")[2])


__all__ = [
    "AskedFor",
    "FieldRule",
    "Profile",
    "ProfileDocument",
    "Profiles",
    "Resolver",
    "ResultProfile",
    "Trust",
    "annotated",
    "profiles_schema",
]
