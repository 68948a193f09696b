"""The composition root: the only module that names concrete engines and stores. Spec: pipeline.md."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from pipeline.decisions.decision import Mode
from pipeline.decisions.engine import Engine
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.events import Events
from pipeline.decisions.stage import Stage, StageCall
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.verdict_cache import MAX_VERDICTS, ReusingEngine
from pipeline.policy import loading, policy_set
from pipeline.policy.bundle_signature import Verification
from pipeline.policy.loading import Sources
from pipeline.policy.policy_set import BuiltinErrors, PolicySet
from pipeline.provenance.claims import HistoryTrust
from pipeline.provenance.inference import InferenceMode
from pipeline.run.recording import ContentMode
from pipeline.run.runner import APPROVAL_SECONDS, Runner
from pipeline.run.session_choice import SessionMode
from pipeline.run.tool_schemas import UnreadableCalls
from pipeline.run.vetting import Recipe, vet
from pipeline.sessions.base import SessionStore

REDIS: Final = ("redis://", "rediss://", "unix://")  # the URL schemes of Redis servers
EngineName = Literal["embedded", "opa"]
EngineChoice: TypeAlias = EngineName | Engine
"""An engine by name, or an engine object of the host, made with its policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a guard or pipeline.

    Attributes:
        mode: `enforce`, or `observe`: everything is forwarded, and records say what would have been done. (Single rules
            can also be `off`.)
        timeout_seconds: the deadline of a run, without its stages; what is not judged by then is denied.
        opa_url: the URL of the OPA server, for the engine `opa`.
        entrypoint: `data.<package>.<rule>`, for policies that are not organised in rules.
        builtin_errors: the meaning of a builtin that fails: with `strict` the part is denied; with `undefined` the
            expression is undefined, as in OPA.
        bundle_keys: public keys. Policies must be signed with one of them whenever they are read; the shipped ones need
            no signature.
        max_verdicts: how many verdicts to remember for parts that repeat, of rules that read only the part; 0 for none.
        reuse: whether a turn of a session reuses results of the turn before it where nothing that they depend on
            changed; the outcome is the same. Not with an engine of your own.
        history: whether to trust tool results and replies in a request's history that were not judged here: `claimed`,
            no; `trusted`, yes (for example because your own application runs the tools).
        unreadable_calls: what becomes of a tool call whose arguments are no strict JSON object: `refuse`, or `warn`, by
            which it is forwarded with a finding on record.
        inference: whether a tool that no profile describes is known by its definition: `enforce`; `observe`, rules only
            warn of what they find by it; `off`.
        sessions: the session of a run without a session id: `by_id`, none; `by_prefix`, that of the longest beginning
            of its conversation that its subject sent before; `required`, the run is refused.
        on_record_failure: what to do with a run whose record cannot be written: `refuse`, or `release` with an event.
        content: which content is kept besides the record: `none`, `masked` (without secrets) or `whole`.
        content_days: how many days it is kept; data policies may require less.
        approval_seconds: how long an approval is valid after it was requested.
        seal_key: 32 bytes that encrypt what waits for approval; the same in all processes that share a store. Without
            it, each process generates its own, and suspended replies are lost when the process ends.
    """

    mode: Mode = Mode.ENFORCE
    timeout_seconds: float = 5.0
    opa_url: str | None = None
    entrypoint: str | None = None
    builtin_errors: BuiltinErrors = "strict"
    bundle_keys: Verification | None = None
    max_verdicts: int = MAX_VERDICTS
    reuse: bool = True
    history: HistoryTrust = "claimed"
    unreadable_calls: UnreadableCalls = "refuse"
    inference: InferenceMode = "enforce"
    sessions: SessionMode = "by_id"
    on_record_failure: Literal["refuse", "release"] = "refuse"
    content: ContentMode = "none"
    content_days: float | None = None
    approval_seconds: float = APPROVAL_SECONDS
    seal_key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Convert text to enums. Raises ConfigError: an unknown word, or a number that is not above 0."""
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
        raise ConfigError("this value is not known", path=name, hint=f"use {' or '.join(words)}", code="config.word")


def _above_zero(name: str, number: object) -> None:
    if number is not None and (not isinstance(number, int | float) or isinstance(number, bool) or not number > 0):
        raise ConfigError("this must be a number above 0", path=name, hint="give such a number", code="config.number")


Policies = str | Path | PolicySet | Sequence[str | Path] | None


def load_policies(
    policies: Policies = None,
    *,
    entrypoint: str | None = None,
    builtin_errors: BuiltinErrors = "strict",
    verification: Verification | None = None,
) -> PolicySet:
    """Load a policy set: from a directory, from several (later ones add and replace), or None for the shipped set.

    The word `"shipped"` stands for the directory of the shipped policies: `["shipped", "mine"]` is both. Directories
    with only data files are settings for the shipped policies, which they extend.

    Raises:
        PolicyError: the set cannot be used; it says why.
    """
    if isinstance(policies, PolicySet):
        return policies
    sources = load_sources(policies, verification=verification)
    return policy_set.build(sources, entrypoint=entrypoint, builtin_errors=builtin_errors)


def vetted(policies: Policies, engine: EngineName, config: Config) -> PolicySet:
    """Load a policy set after a separate process has tried it out; see `pipeline.run.vetting`.

    Raises:
        PolicyError: the set cannot be used; it says why.
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
    """The source files of a policy set, read and not yet compiled; see `load_policies`."""
    if policies is None:
        return loading.read(policy_set.shipped())
    named = [policies] if isinstance(policies, str | Path) else list(policies)
    directories = [loading.place_of(one) for one in named]
    files = {path.name for directory in directories for path in loading.below(directory)}
    if not any(name.endswith(".rego") for name in files) and not files.isdisjoint(loading.DATA_FILES):
        directories.insert(0, policy_set.shipped())
    return loading.read(*directories, verification=verification)


@contextmanager
def open_sessions(place: str, *, made: bool = True) -> Iterator[SessionStore]:
    """Open the session store at `place` for the block.

    Args:
        place: the path of a SQLite file, or a URL: `sqlite:////path/to/file`, `postgresql://host/database`,
            `redis://host:port/0`.
        made: whether to create a file that is missing.

    Raises:
        ConfigError: another kind of URL. StoreError: the store cannot be opened.
    """
    if place.startswith(REDIS):
        from pipeline.sessions.redis import RedisSessions  # imports its client, which only this store needs

        try:
            shared = RedisSessions(place)
        except ValueError:
            raise ConfigError("this is no URL of a Redis server", hint="write redis://host:port/0") from None
        try:
            yield shared
        finally:
            shared.close()
    else:
        from pipeline.store.database import Store
        from pipeline.store.engine import check_is_there

        if not made:
            check_is_there(place)
        with Store.named(place, keyless=True) as store:  # sessions sign no records
            yield store.sessions()


def embedded_engine(policies: PolicySet) -> EmbeddedEngine:
    """The embedded engine without a cache of verdicts; tools can query it for more than verdicts.

    Raises:
        PolicyError: the set does not compile.
    """
    strict = policies.builtin_errors == "strict"
    return EmbeddedEngine(
        policies.modules, policies.data, policies.entrypoints, strict_builtin_errors=strict, revision=policies.revision
    )


def build_engine(policies: PolicySet, name: EngineChoice, config: Config) -> Engine:
    """The engine `name` with `policies`; an engine object is returned as it is.

    Raises:
        PolicyError: the set does not compile. ConfigError: an unknown engine, or no URL for the server.
    """
    if not isinstance(name, str):
        return name
    engine: Engine
    if name == "embedded":
        engine = embedded_engine(policies)
    elif name == "opa":
        if config.opa_url is None:
            raise ConfigError(
                "engine `opa` needs a server", code="config.no-opa-url", hint="give --opa-url, or Config(opa_url=…)"
            )
        from pipeline.engines.opa import OpaServerEngine  # imports aiohttp, which only this engine needs

        engine = OpaServerEngine(
            config.opa_url, revision=policies.revision, strict_builtin_errors=policies.builtin_errors == "strict"
        )
    else:
        raise ConfigError(f"there is no engine {name!r}", code="config.unknown-engine", hint="use embedded or opa")
    return ReusingEngine(engine, policies.parts, policies.capabilities, max_verdicts=config.max_verdicts)


def build_runner(
    policies: Policies,
    engine: EngineChoice,
    config: Config,
    *,
    stages: Sequence[Stage | StageCall] = (),
    events: Events | None = None,
) -> Runner:
    """A runner for the policies that `load_policies` loads."""
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
        unreadable=config.unreadable_calls,
    )


def _replacer_key(config: Config) -> bytes:
    # An approved effect may contain hashes of redactions: every process that shares the store must compute the same.
    if config.seal_key is None:
        return secrets.token_bytes(32)
    return hmac.new(config.seal_key, b"replacements", hashlib.sha256).digest()
