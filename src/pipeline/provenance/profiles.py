"""Where profiles of tools, prompts and resources are looked up: the registry. Spec: docs/spec/profiles.md.

What they say stands in `pipeline.provenance.profile`. Rules meet it in what is judged: origins, access profiles, data
policies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import yaml

from cmf.errors import CmfError, ShapeError
from cmf.json.codec import MAX_BYTES, loads
from cmf.json.value import Value, replace
from cmf.message.security import DataPolicy
from cmf.message.tools import ToolDefinition
from cmf.views.render import entity_keys
from cmf.views.uris import normalise, segment, tool_uri
from pipeline.decisions.display import counted
from pipeline.decisions.errors import ConfigError
from pipeline.policy.metadata import load_yaml, yaml_problem
from pipeline.provenance.profile import (
    Profile,
    ProfileDocument,
    ServerProfile,
    Trust,
)

CODE: Final = "profile.invalid"
Resolver: TypeAlias = Callable[[str], "Profile | Mapping[str, Any] | None"]
Source: TypeAlias = "str | Path | Mapping[str, Any] | Resolver"
_NAMED: Final = ("tool", "prompt")  # schemes whose entities have a name within a namespace


class Entity(NamedTuple):
    """What a part of a message names: `namespace` is that of a tool, or the server of a prompt; no name: a resource."""

    uri: str
    name: str | None = None
    namespace: str | None = None

    @classmethod
    def tool(cls, name: str, namespace: str | None) -> Entity:
        """A tool."""
        return cls(tool_uri(name, namespace), name, namespace)

    @classmethod
    def prompt(cls, name: str, server: str | None) -> Entity:
        """A prompt of a server."""
        return cls(f"prompt://{segment(server) if server else '_'}/{segment(name)}", name, server)

    @classmethod
    def resource(cls, uri: str) -> Entity:
        """A resource, or whatever else a URI names."""
        return cls(normalise(uri))

    @classmethod
    def of_uri(cls, uri: str) -> Entity:
        """What a URI names: `tool://namespace/name` a tool, `prompt://server/name` a prompt, with `_` for none."""
        scheme, _, rest = normalise(uri).partition("://")
        namespace, slash, name = rest.rpartition("/")
        if scheme not in _NAMED or not slash:
            return cls.resource(uri)
        return cls(normalise(uri), unquote(name), None if namespace == "_" else unquote(namespace))

    @classmethod
    def of_key(cls, key: str) -> Entity:
        """What a key of a registry means: a URI, `namespace/name` or the name of a tool."""
        if "://" in key:
            return cls.of_uri(key)
        namespace, slash, name = key.rpartition("/")
        return cls.tool(name, namespace if slash else None)

    @property
    def names(self) -> frozenset[str | None]:
        """Under which name origins know what it returned: a tool's own; None for everything else [PROV-2]."""
        return frozenset({self.name if self.uri.startswith("tool://") else None})

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys under which it may have an entry, in order of precedence [B9]."""
        return entity_keys(self.uri, self.namespace, self.name)


class Found(NamedTuple):
    """A profile, and the key of the registry that has it."""

    uri: str
    profile: Profile


class Profiles:
    """Profiles by entity. Later sources replace an entity's profile as a whole; functions are asked last."""

    def __init__(
        self,
        entries: Mapping[str, Profile] | None = None,
        resolvers: Iterable[Resolver] = (),
        *,
        servers: Mapping[str, ServerProfile] | None = None,
        tools: Mapping[str, ToolDefinition] | None = None,
    ) -> None:
        self._by_uri = {Entity.of_key(key).uri: profile for key, profile in (entries or {}).items()}
        self._resolvers = tuple(resolvers)
        self._servers = dict(servers or {})
        self._tools = dict(tools or {})
        self._by_name: dict[tuple[str, str], list[str]] = {}
        for uri in self._by_uri:
            scheme, _, rest = uri.partition("://")
            if scheme in _NAMED:
                self._by_name.setdefault((scheme, unquote(rest.rpartition("/")[2])), []).append(uri)

    def __repr__(self) -> str:
        return f"<Profiles: {counted(len(self._by_uri) + len(self._servers), 'profile')}>"

    @classmethod
    def load(cls, *sources: Source) -> Profiles:
        """The profiles of files (`.json`, `.yaml`, `.yml`), documents in memory, and functions from URI to profile.

        Raises:
            ConfigError: `profile.unreadable`, `profile.invalid` or `profile.twice`; path: file, and place within it.
        """
        entries: dict[str, Profile] = {}
        servers: dict[str, ServerProfile] = {}
        resolvers: list[Resolver] = []
        for source in sources:
            if callable(source):
                resolvers.append(source)
            else:
                document, where = _document(source)
                entries.update(_entries(document, where))
                servers.update(document.servers)
        return cls(entries, resolvers, servers=servers)

    @property
    def written(self) -> Mapping[str, Profile]:
        """The profiles that documents have, by URI; functions cannot be listed."""
        return self._by_uri

    # -- looking up ------------------------------------------------------------------------------------------------

    def find(self, name: str, namespace: str | None = None) -> Profile | None:
        """The profile of a tool: by URI, by `namespace/name`, then by name if exactly one entry has it [B9]."""
        found = self.lookup(Entity.tool(name, namespace)) if self else None
        return None if found is None else found.profile

    def lookup(self, entity: Entity) -> Found | None:
        """The profile of an entity in the order of [B9], and under which URI it is kept; ConfigError as `for_uri`."""
        exact = self.for_uri(entity.uri)
        if exact is not None:
            return Found(entity.uri, exact)
        if entity.name is None:
            return None
        scheme = entity.uri.partition("://")[0]
        named = self._by_name.get((scheme, entity.name), [])
        unqualified = f"{scheme}://_/{segment(entity.name)}"
        if len(named) != 1 or (entity.namespace is not None and named[0] != unqualified):
            return None
        return Found(named[0], self._by_uri[named[0]])

    def named(self, entity: Entity) -> tuple[Found, ...]:
        """Every profile that may be meant where only a name is known; that of the entity itself if there is one.

        For what must not be missed (labels, data policies). What grants something is looked up by `lookup`.
        """
        found = self.lookup(entity)
        if found is not None or entity.name is None:
            return () if found is None else (found,)
        scheme = entity.uri.partition("://")[0]
        return tuple(Found(uri, self._by_uri[uri]) for uri in self._by_name.get((scheme, entity.name), []))

    def for_uri(self, uri: str) -> Profile | None:
        """The profile of exactly that entity.

        Raises:
            ConfigError: a function failed (`profile.unavailable`), or answered with no profile (`profile.invalid`).
        """
        uri = normalise(uri)
        found = self._by_uri.get(uri)
        if found is not None:
            return found
        for resolver in self._resolvers:
            answer = _asked(resolver, uri)
            if answer is not None:
                return _profile(answer, f"<{uri}>")
        return None

    def tool(self, uri: str) -> ToolDefinition | None:
        """A server's description of its tool (`with_mcp_tools`), by its exact URI: claims that policy can read."""
        return self._tools.get(normalise(uri))

    def tool_schema(self, uri: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's arguments: the profile's, else its server's; None if neither has one.

        `uri` is `tool://<namespace or _>/<name>`, looked up in the order of [B9]. For [C12].
        """
        found = self.lookup(Entity.of_uri(uri))
        if found is not None and found.profile.input_schema is not None:
            return found.profile.input_schema
        declared = self.tool(uri)
        return None if declared is None else declared.input_schema

    def trusts(self, namespace: str | None) -> bool:
        """Whether the operator trusts the descriptions that the server of that namespace gives of its tools."""
        server = self._servers.get(namespace) if namespace is not None else None
        return server is not None and server.trusted

    # -- what servers say ------------------------------------------------------------------------------------------

    def with_mcp_tools(
        self, tools: Iterable[ToolDefinition], *, server: str | None = None, trusted: bool | None = None
    ) -> Profiles:
        """These profiles, and an MCP server's descriptions of its tools in `tools/list`.

        Annotations are the server's own claims: unless it is trusted they only ever make a profile stricter, and never
        say that a tool merely reads.

        Args:
            tools: as `tools/list` had them.
            server: whose answer it was: the namespace of tools that name none.
            trusted: whether to believe it; by default what the registry says of the tool's server.
        """
        entries, declared = dict(self._by_uri), dict(self._tools)
        for listed in tools:
            tool = listed if listed.namespace is not None else replace(listed, namespace=server)
            uri = tool_uri(tool.name, tool.namespace)
            declared[uri] = tool
            annotations = annotations_of(tool)
            if annotations is not None:
                believed = self.trusts(tool.namespace) if trusted is None else trusted
                entries[uri] = annotated(annotations, self.find(tool.name, tool.namespace), trusted=believed)
        return Profiles(entries, self._resolvers, servers=self._servers, tools=declared)

    # -- what others read ------------------------------------------------------------------------------------------

    def data_policies(self) -> dict[str, DataPolicy]:
        """The data policies, by URI: `Context.data`."""
        return {uri: profile.data_policy for uri, profile in self._by_uri.items() if profile.data_policy is not None}

    @property
    def revision(self) -> str | None:
        """SHA-256, as hex, of all entries here for entities, servers and their tools; None if there are none.

        What a function will answer is in no digest.
        """
        declared: tuple[Mapping[str, Value], ...] = (self._by_uri, self._servers, self._tools)
        if not any(declared):
            return None
        digest = hashlib.sha256()
        for each in declared:
            digest.update(len(each).to_bytes(8, "big"))
            for key in sorted(each):
                for text in (key.encode(), each[key].model_dump_json()):
                    digest.update(len(text).to_bytes(8, "big") + text)
        return digest.hexdigest()

    @property
    def asks(self) -> bool:
        """Whether functions are asked, whose answers can change from one moment to the next."""
        return bool(self._resolvers)

    def __len__(self) -> int:
        return len(self._by_uri)

    def __bool__(self) -> bool:
        """Whether any profile can be known."""
        return bool(self._by_uri or self._resolvers)


def annotations_of(tool: ToolDefinition) -> Mapping[str, Any] | None:
    """A tool's annotations by its MCP server; None if it has none."""
    hints = ((tool.extra or {}).get("mcp") or {}).get("annotations")
    return hints if isinstance(hints, Mapping) else None


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
    if annotations.get("openWorldHint") is True and known.rules.trust is not Trust.UNTRUSTED:
        changes["result"] = replace(known.rules, trust=Trust.UNTRUSTED)
    return replace(known, **changes) if changes else known


def _document(source: str | Path | Mapping[str, Any]) -> tuple[ProfileDocument, str]:
    where = "$" if isinstance(source, Mapping) else str(source)
    body = source if isinstance(source, Mapping) else _read(Path(source))
    try:
        return ProfileDocument.model_validate(dict(body) if isinstance(body, Mapping) else body), where
    except ShapeError as error:
        raise _invalid(error, where) from None


def _entries(document: ProfileDocument, where: str) -> dict[str, Profile]:
    entries: dict[str, Profile] = {}
    for key, profile in document.profiles.items():
        uri = Entity.of_key(key).uri
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
        line, column, _ = yaml_problem(error) if isinstance(error, yaml.YAMLError) else (0, 0, "")
        where = f":{line}:{column}" if line else ""
        why = "cannot be read" if isinstance(error, OSError) else "neither strict JSON nor YAML"
        hint = "give a .json or .yaml file of profiles"
        if isinstance(error, yaml.YAMLError):
            why = f"{why}: {yaml_problem(error)[1]}"
            hint = 'put what begins with * or [ in quotes ("**.body"), indent with spaces, and name each key once'
        raise ConfigError(why, path=f"{path}{where}", code="profile.unreadable", hint=hint) from None


def _asked(resolver: Resolver, uri: str) -> Profile | Mapping[str, Any] | None:
    try:
        return resolver(uri)
    except Exception as error:
        why = f"the function raised {type(error).__name__}"
        raise ConfigError(why, path=f"<{uri}>", code="profile.unavailable", hint="see to the registry") from error


def _profile(answer: Profile | Mapping[str, Any], where: str) -> Profile:
    try:
        return Profile.model_validate(answer if isinstance(answer, Profile) else dict(answer))
    except (ShapeError, TypeError, ValueError) as error:
        raise _invalid(error, where) from None


def _invalid(error: Exception, where: str) -> ConfigError:
    at = error.path.removeprefix("$").removeprefix(".") if isinstance(error, ShapeError) else ""
    why = error.message.removeprefix("ProfileDocument: ") if isinstance(error, ShapeError) else "not a profile"
    hint = "see `cmf schema profiles`"
    if at in ("", "profiles"):
        hint = f"a file is `profiles: {{<tool>: {{…}}}}`; {hint}"
    elif "valid string" in why:
        hint = f"put it in quotes: YAML reads yes, no, on, off and 1:1 as something else; {hint}"
    return ConfigError(why, path=f"{where}: {at}" if at else where, code=CODE, hint=hint)
