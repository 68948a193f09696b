"""Small policy sets, written where the test can be read beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.new_store import migrated
from tests.pipeline.postgres_server import Postgres, running_postgres
from tests.pipeline.redis_server import running_redis
from tests.pipeline.session_stores import Clock
from ulid import ULID

from pipeline import Config, Guard, Pipeline, Stage
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.policy_set import PolicySet
from pipeline.run import assembly
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.redis import RedisSessions
from pipeline.store.database import Store

Rules = Callable[..., Guard]

METADATA = """\
# METADATA
# title: A rule of a test
# description: A rule of a test.
# custom:
#   code: test.{name}
#   severity: high
#   kinds: [{kinds}]
#   capabilities: [{capabilities}]
#   mode: {mode}
package cmf.rules.test.{name}

"""
ALL_KINDS = (
    "text, thinking, tool_call, tool_result, resource, resource_ref, prompt_request, prompt_result, image, video, "
    "audio, document, request, response, tool_definition, opaque"
)


def write_rules(
    directory: Path,
    rules: Mapping[str, str],
    *,
    kinds: str = ALL_KINDS,
    capabilities: str = "read_labels, read_roles, read_subject",
    mode: str = "enforce",
) -> Path:
    """A policy directory with one rule per entry: name → Rego after the package line."""
    for name, body in rules.items():
        home = directory / "cmf" / "rules" / "test" / name
        home.mkdir(parents=True, exist_ok=True)
        head = METADATA.format(name=name, kinds=kinds, capabilities=capabilities, mode=mode)
        (home / f"{name}.rego").write_text(head + body + "\n", encoding="utf-8")
    return directory


_COMPILED: dict[tuple[str, str], EmbeddedEngine] = {}  # the last ones used, by what tells one from another
_KEPT = 32


@pytest.fixture(autouse=True, scope="module")
def compiled_once() -> Iterator[None]:
    """Guards with the same policies share their engine, as tenants would: it remembers nothing of what it judged.

    Compiling takes a twentieth of a second and more, and six of seven guards here have policies that others have.
    """
    compile_anew = assembly.embedded_engine

    def compiled(policies: PolicySet) -> EmbeddedEngine:
        key = policies.revision, policies.builtin_errors
        _COMPILED[key] = engine = _COMPILED.pop(key, None) or compile_anew(policies)
        if len(_COMPILED) > _KEPT:
            del _COMPILED[next(iter(_COMPILED))]
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "embedded_engine", compiled)
        yield


@pytest.fixture
def guarded(tmp_path: Path) -> Rules:
    """A function that makes a guard from rules given as Rego text."""

    def make(rules: Mapping[str, str], *, config: Config | None = None, **options: str) -> Guard:
        return Guard(write_rules(tmp_path, rules, **options), config=config)

    return make


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store on each kind of database in turn."""
    if request.param == "sqlite":
        url = f"sqlite:///{migrated(tmp_path / 'store.sqlite3')}"
    else:
        url = request.getfixturevalue("postgres").new()
    with Store(url, key=tmp_path / "audit.pem") as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[SessionStore]:
    """Each kind of store in turn."""
    if request.param == "memory":
        yield MemorySessions(clock)
    elif request.param == "sqlite":
        with Store.at(migrated(tmp_path / "store.sqlite3")) as database:
            yield database.sessions(clock=clock, timeout_seconds=60)
    elif request.param == "postgresql":
        with Store(request.getfixturevalue("postgres").new(), key=tmp_path / "audit.pem") as database:
            yield database.sessions(clock=clock, timeout_seconds=60)
    else:
        sessions = RedisSessions(request.getfixturevalue("redis_url"), prefix=str(ULID()), clock=clock)
        yield sessions
        sessions.close()


@pytest.fixture(scope="session")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy set that denies one word alone."""
    rule = 'deny contains {"code": "never", "reason": "x"} if input.content == "forbidden"'
    return write_rules(tmp_path_factory.mktemp("lenient"), {"never": rule})


@pytest.fixture
def pipe(lenient: Path) -> Callable[..., Pipeline]:
    """A function that makes a pipeline of stages in front of a lenient policy set."""

    def make(*stages: Stage, **options: Any) -> Pipeline:
        return Pipeline(stages, policies=lenient, **options)

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, for the tests of one module: while it runs there can be no event loop."""
    from tests.pipeline.browser import chromium  # brings a library that few tests need

    with chromium() as opened:
        yield opened


@pytest.fixture
def watch(address: str) -> Iterator[Any]:
    """A `Watch` of the module's `address`: the test fails if a page does what it must not do."""
    from tests.pipeline.browser import Watch

    watching = Watch(address)
    yield watching
    assert watching.wrong == []
