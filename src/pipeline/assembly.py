"""Where the parts are put together: the only module that names concrete engines and stores. Spec: pipeline.md."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from pipeline import policy_set
from pipeline.audit.kept_content import ContentMode
from pipeline.checks.vetting import Recipe, vet
from pipeline.claims import HistoryTrust
from pipeline.decision import Mode
from pipeline.engines.base import Engine
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.reuse import MAX_VERDICTS, ReusingEngine
from pipeline.errors import ConfigError
from pipeline.events import Events
from pipeline.policies import policy_files
from pipeline.policies.bundle_signature import Verification
from pipeline.policies.policy_files import Sources
from pipeline.policy_set import BuiltinErrors, PolicySet
from pipeline.runner import APPROVAL_SECONDS, Runner
from pipeline.sessions.base import SessionStore
from pipeline.sessions.choice import SessionMode
from pipeline.stage import Stage, StageCall

REDIS: Final = ("redis://", "rediss://", "unix://")  # how the address of a Redis server begins
EngineName = Literal["embedded", "opa"]
EngineChoice: TypeAlias = EngineName | Engine
"""An engine by its name, or one of the host's own with the policies in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a guard works.

    Attributes:
        mode: `enforce`, or `observe` to record what would have been done and forward everything. (Rules can be `off`.)
        timeout_seconds: deadline for each call of the engine; past it, the parts that it was about are denied.
        opa_url: where the OPA server listens, for engine `opa`.
        entrypoint: `data.<package>.<rule>` of policies that are not made of rules.
        builtin_errors: what a builtin that fails means: `strict`, the part is denied; `undefined`, the expression is
            undefined, as policies for ordinary OPA expect it.
        bundle_keys: the public keys, by one of which policies have to be signed, whenever they are read; the shipped
            policies need no signature.
        max_verdicts: how many verdicts are remembered for parts that come again, of rules that read nothing but the
            part; 0 for none.
        reuse: whether a turn of a session takes over what the turn before it settled, where nothing that it depends on
            changed; the outcome is the same either way. Never so with an engine of your own.
        history: whether tool results and replies that a request presents, and that were not judged here, are believed:
            `claimed`, they are not; `trusted`, they are (your own application runs the tools, say).
        sessions: what becomes of a run without a session id: `by_id`, it stands alone; `by_prefix`, it gets the session
            of the longest beginning of its conversation that its subject sent before; `required`, it is refused.
        on_record_failure: what becomes of a run whose record cannot be written: `refuse`, or `release` with an event.
        content: what is kept of the traffic itself, beside the record: `none`, `masked` (without secrets) or `whole`.
        content_days: how long it is kept, at most; the retention of its data may say less.
        approval_seconds: how long an approval holds, from when it was asked for.
        seal_key: 32 bytes that encrypt what waits for a person; the same in all processes that share a store. Without
            it each process makes its own, and a suspended reply is lost when its process ends.
    """

    mode: Mode = Mode.ENFORCE
    timeout_seconds: float = 1.0
    opa_url: str | None = None
    entrypoint: str | None = None
    builtin_errors: BuiltinErrors = "strict"
    bundle_keys: Verification | None = None
    max_verdicts: int = MAX_VERDICTS
    reuse: bool = True
    history: HistoryTrust = "claimed"
    sessions: SessionMode = "by_id"
    on_record_failure: Literal["refuse", "release"] = "refuse"
    content: ContentMode = "none"
    content_days: float | None = None
    approval_seconds: float = APPROVAL_SECONDS
    seal_key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Words are taken as text too; one that there is not is a ConfigError, and so is a number that cannot be."""
        _one_of("mode", self.mode, (Mode.ENFORCE, Mode.OBSERVE))
        object.__setattr__(self, "mode", Mode(self.mode))
        for name, words in _WORDS.items():
            _one_of(name, getattr(self, name), words)
        for name in _ABOVE_ZERO:
            _above_zero(name, getattr(self, name))
        if self.max_verdicts:
            _above_zero("max_verdicts", self.max_verdicts)


_ABOVE_ZERO: Final = ("timeout_seconds", "content_days", "approval_seconds")
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    name: get_args(kind) for name, kind in get_type_hints(Config).items() if get_origin(kind) is Literal
}


def _one_of(name: str, word: object, words: Sequence[str]) -> None:
    if word not in words:
        raise ConfigError("there is no such setting", path=name, hint=f"use {' or '.join(words)}", code="config.word")


def _above_zero(name: str, number: object) -> None:
    if number is not None and (not isinstance(number, int | float) or isinstance(number, bool) or not number > 0):
        raise ConfigError("this is no number above 0", path=name, hint="write one", code="config.number")


Policies = str | Path | PolicySet | Sequence[str | Path] | None


def load_policies(
    policies: Policies = None,
    *,
    entrypoint: str | None = None,
    builtin_errors: BuiltinErrors = "strict",
    verification: Verification | None = None,
) -> PolicySet:
    """The policy set that `policies` name: a directory, several (later ones add and replace), or None for the shipped.

    The word `"shipped"` is the directory of the shipped ones: `["shipped", "mine"]` are those and one's own.

    Directories that hold only data are the settings of an operator who writes no rules: they go over the shipped set.

    Raises:
        PolicyError: the set cannot be used, and why.
    """
    if isinstance(policies, PolicySet):
        return policies
    sources = load_sources(policies, verification=verification)
    return policy_set.build(sources, entrypoint=entrypoint, builtin_errors=builtin_errors)


def vetted(policies: Policies, engine: EngineName, config: Config) -> PolicySet:
    """The set that `policies` name, once a process of its own has survived it; see `pipeline.checks.vetting`.

    Raises:
        PolicyError: it is refused, and why.
    """
    if isinstance(policies, PolicySet):
        recipe = Recipe.of(policies, engine=engine)
    else:
        recipe = Recipe(
            sources=load_sources(policies, verification=config.bundle_keys),
            entrypoint=config.entrypoint,
            builtin_errors=config.builtin_errors,
            engine=engine,
        )
    vet(recipe)
    return policies if isinstance(policies, PolicySet) else recipe.build()


def load_sources(policies: str | Path | Sequence[str | Path] | None, verification: Verification | None) -> Sources:
    """What `policies` name, read and not yet compiled; see `load_policies`."""
    if policies is None:
        return policy_files.read(policy_set.shipped())
    named = [policies] if isinstance(policies, str | Path) else list(policies)
    directories = [policy_files.place_of(one) for one in named]
    files = {path.name for directory in directories for path in policy_files.below(directory)}
    if not any(name.endswith(".rego") for name in files) and not files.isdisjoint(policy_set.DATA_FILES):
        directories.insert(0, policy_set.shipped())
    return policy_files.read(*directories, verification=verification)


@contextmanager
def open_sessions(place: str, *, made: bool = True) -> Iterator[SessionStore]:
    """The sessions of a store, until the end of the block.

    `place` is the path of a SQLite file, or a URL: `sqlite:////path/to/file`, `postgresql://host/database`,
    `redis://host:port/0`. `made`: whether a file that is missing is made.

    Raises:
        ConfigError: a URL of another kind. StoreError: the store cannot be opened.
    """
    if place.startswith(REDIS):
        from pipeline.sessions.redis_store import RedisSessions  # each store brings its client

        try:
            shared = RedisSessions(place)
        except ValueError:
            raise ConfigError("this is no address of a Redis server", hint="write redis://host:port/0") from None
        try:
            yield shared
        finally:
            shared.close()
    else:
        from pipeline.store.database import Store
        from pipeline.store.engine import check_is_there

        if not made:
            check_is_there(place)
        with Store.named(place, keyless=True) as store:  # sessions put nothing on record
            yield store.sessions()


def embedded_engine(policies: PolicySet) -> EmbeddedEngine:
    """The engine in this process, bare: it remembers nothing, and tools can ask it for more than verdicts.

    Raises:
        PolicyError: the set does not compile.
    """
    strict = policies.builtin_errors == "strict"
    return EmbeddedEngine(
        policies.modules, policies.data, policies.entrypoints, strict_builtin_errors=strict, revision=policies.revision
    )


def build_engine(policies: PolicySet, name: EngineChoice, config: Config) -> Engine:
    """The engine called `name` with `policies` in it; one that is there already is taken as it is.

    Raises:
        PolicyError: the set does not compile. ConfigError: no such engine, or no URL for the server.
    """
    if not isinstance(name, str):
        return name
    if name == "embedded":
        return _remembering(embedded_engine(policies), policies, config)
    if name == "opa":
        if config.opa_url is None:
            raise ConfigError(
                "engine `opa` needs a server", code="config.no-opa-url", hint="give --opa-url, or Config(opa_url=…)"
            )
        from pipeline.engines.opa_server import OpaServerEngine  # brings aiohttp, which only this road needs

        server = OpaServerEngine(
            config.opa_url, revision=policies.revision, strict_builtin_errors=policies.builtin_errors == "strict"
        )
        return _remembering(server, policies, config)
    raise ConfigError(f"no engine is called {name!r}", code="config.unknown-engine", hint="use embedded or opa")


def _remembering(engine: Engine, policies: PolicySet, config: Config) -> Engine:
    return ReusingEngine(engine, policies.parts, policies.capabilities, max_verdicts=config.max_verdicts)


def build_runner(
    policies: Policies,
    engine: EngineChoice,
    config: Config,
    *,
    stages: Sequence[Stage | StageCall] = (),
    events: Events | None = None,
) -> Runner:
    """A runner over the policies that `load_policies` gives."""
    loaded = load_policies(
        policies,
        entrypoint=config.entrypoint,
        builtin_errors=config.builtin_errors,
        verification=config.bundle_keys,
    )
    return Runner(
        loaded,
        build_engine(loaded, engine, config),
        mode=config.mode,
        timeout_seconds=config.timeout_seconds,
        replacer_key=_replacer_key(config),
        stages=stages,
        events=events,
        approval_seconds=config.approval_seconds,
        reuses=config.reuse and isinstance(engine, str),
    )


def _replacer_key(config: Config) -> bytes:
    # Where a redaction leaves a hash, what was approved elsewhere has to come to the same hash here.
    if config.seal_key is None:
        return secrets.token_bytes(32)
    return hmac.new(config.seal_key, b"replacements", hashlib.sha256).digest()
