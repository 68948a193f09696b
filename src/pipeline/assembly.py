"""Where the parts are put together: the only module that names concrete engines and stores. Spec: pipeline.md."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline import policy_set
from pipeline.decision import Mode
from pipeline.engines.base import Engine
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.errors import ConfigError
from pipeline.policy_set import PolicySet
from pipeline.runner import Runner

EngineName = Literal["embedded", "opa"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a guard works.

    Attributes:
        mode: `enforce`, or `observe` to record what would have been done and forward everything.
        timeout_seconds: deadline for each question to the engine; past it, the parts it was about are denied.
        opa_url: where the OPA server listens, for engine `opa`.
        entrypoint: `data.<package>.<rule>` of policies that are not made of rules.
    """

    mode: Mode = Mode.ENFORCE
    timeout_seconds: float = 1.0
    opa_url: str | None = None
    entrypoint: str | None = None


def load_policies(directory: str | Path | None, *, entrypoint: str | None = None) -> PolicySet:
    """The policy set in `directory`, or the shipped one. Raises PolicyError."""
    return policy_set.load(policy_set.shipped() if directory is None else directory, entrypoint=entrypoint)


def build_engine(policies: PolicySet, name: EngineName, config: Config) -> Engine:
    """The engine called `name` with `policies` in it.

    Raises:
        PolicyError: the set does not compile. ConfigError: no such engine, or no URL for the server.
    """
    if name == "embedded":
        modules = [(module.path, module.text) for module in policies.modules]
        return EmbeddedEngine(modules, policies.data, policies.entrypoints, revision=policies.revision)
    if name == "opa":
        if config.opa_url is None:
            raise ConfigError("engine `opa` needs a server", code="config.no-opa-url", hint="give --opa-url")
        from pipeline.engines.opa_server import OpaServerEngine  # brings aiohttp, which only this road needs

        return OpaServerEngine(policies, config.opa_url)
    raise ConfigError(f"no engine is called {name!r}", code="config.unknown-engine", hint="use embedded or opa")


def build_runner(directory: str | Path | PolicySet | None, engine: EngineName, config: Config) -> Runner:
    """A runner over the policies in `directory` (None: the shipped ones)."""
    policies = directory if isinstance(directory, PolicySet) else load_policies(directory, entrypoint=config.entrypoint)
    return Runner(
        policies,
        build_engine(policies, engine, config),
        mode=config.mode,
        timeout_seconds=config.timeout_seconds,
        replacer_key=secrets.token_bytes(32),
    )
