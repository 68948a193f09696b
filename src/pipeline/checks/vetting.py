"""A policy set is tried out in a process that may die, before it judges anything. Spec: docs/spec/policies.md [POL-48].

The process reads, compiles, runs the set's own tests and judges a few made-up views. What it cannot survive, or does
not finish in its time and memory, is refused, and whoever asked goes on with the set that it had.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cmf.codec import dumps, loads
from cmf.enums import Role, ViewAction, ViewKind
from cmf.errors import DecodeError
from pipeline import policy_set
from pipeline.checks.policy_tests import run_tests
from pipeline.checks.portability import KINDS_WITH
from pipeline.decision import Effect, Mode
from pipeline.engines.base import Decided, EngineResult, Failed, TimedOut
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.errors import PolicyError
from pipeline.policies.metadata import Module
from pipeline.policies.policy_files import Sources
from pipeline.policy_set import BuiltinErrors, PolicySet

TIMEOUT_SECONDS: Final = 60.0
MEMORY_BYTES: Final = 4 * 1024**3  # address space; every evaluation maps a stack of 512 MiB of it
PROBE_SECONDS: Final = 1.0  # for each made-up view: as long as a guard waits by default

_REPORT: Final = 1 << 20  # bytes that the process may say


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What makes a policy set: files as they were read, how to load them (see `policy_set.load`), and for which engine.

    A set for an OPA server may call what the embedded engine has not: it is read and not run.
    """

    sources: Sources
    entrypoint: str | None = None
    modes: Mapping[str, Mode | str] = field(default_factory=dict)
    builtin_errors: BuiltinErrors = "strict"
    engine: Literal["embedded", "opa"] = "embedded"

    @classmethod
    def of(cls, policies: PolicySet, *, engine: Literal["embedded", "opa"] = "embedded") -> Recipe:
        """The recipe of a set that is loaded already."""
        return cls(
            engine=engine,
            sources=policies.sources,
            entrypoint=policies.own_entrypoint,
            modes=policies.modes,
            builtin_errors=policies.builtin_errors,
        )

    def build(self) -> PolicySet:
        """The set; PolicyError if it cannot be one."""
        return policy_set.build(
            self.sources, entrypoint=self.entrypoint, modes=self.modes, builtin_errors=self.builtin_errors
        )


@dataclass(frozen=True, slots=True)
class Vetted:
    """What the process found: the set's revision, and how many of its tests and of our probes it passed."""

    revision: str
    tests: int
    probes: int


def vet(recipe: Recipe, *, timeout_seconds: float = TIMEOUT_SECONDS, memory_bytes: int = MEMORY_BYTES) -> Vetted:
    """What a process of its own found about the set; the calling process compiles and evaluates nothing of it.

    Raises:
        PolicyError: the set is refused: what loading says, or `policy.test-failed`, `policy.probe-failed`,
            `policy.vetting-timeout`, `policy.vetting-died`.
    """
    command = [sys.executable, "-m", "pipeline.checks.vetting", str(timeout_seconds), str(memory_bytes)]
    with subprocess.Popen(  # noqa: S603 - this very interpreter, and no shell
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            answer, _ = process.communicate(_written(recipe), timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise PolicyError(
                f"vetting took longer than {timeout_seconds:g} seconds",
                hint="look for what takes so long, or allow more time",
                code="policy.vetting-timeout",
            ) from None
        finally:
            _end(process)
    return _read(answer, process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """No such process is left, whatever it did, and none that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _read(answer: bytes, status: int) -> Vetted:
    try:
        report = loads(answer, max_bytes=_REPORT)
    except DecodeError:
        report = None
    match report:
        case {"revision": str(revision), "tests": int(tests), "probes": int(probes)}:
            return Vetted(revision, tests, probes)
        case {"code": str(code), "message": str(message), "hint": str(hint), "place": [path, line, column]}:
            raise PolicyError(message, path=path, line=line, column=column, hint=hint, code=code)
    raise PolicyError(
        f"the process that vetted the set ended with {status}",
        hint="it may need more memory than it was given",
        code="policy.vetting-died",
    )


def _written(recipe: Recipe) -> bytes:
    sources = recipe.sources
    return dumps(
        {
            "modules": [[*module] for module in sources.modules],
            "tests": [[*module] for module in sources.tests],
            "data": sources.data,
            "entrypoint": recipe.entrypoint,
            "modes": {name: str(mode) for name, mode in recipe.modes.items()},
            "builtin_errors": recipe.builtin_errors,
            "engine": recipe.engine,
        }
    )


# -- in the process ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Vet the recipe on standard input, and say on standard output what came of it."""
    _limit(float(sys.argv[1]), int(sys.argv[2]))
    try:
        report: dict[str, Any] = _vetted(_recipe(loads(sys.stdin.buffer.read())))
    except PolicyError as error:
        place = [error.path, error.line, error.column]
        report = {"code": error.code, "message": error.message, "hint": error.hint, "place": place}
    sys.stdout.write(json.dumps(report))


def _limit(seconds: float, memory_bytes: int) -> None:
    import resource  # not on every platform; where it is missing the caller's own clock is what there is

    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _recipe(document: Mapping[str, Any]) -> Recipe:
    def modules(name: str) -> tuple[Module, ...]:
        return tuple(itertools.starmap(Module, document[name]))

    return Recipe(
        sources=Sources(modules=modules("modules"), tests=modules("tests"), data=document["data"]),
        entrypoint=document["entrypoint"],
        modes=document["modes"],
        builtin_errors=document["builtin_errors"],
        engine=document["engine"],
    )


def _vetted(recipe: Recipe) -> dict[str, Any]:
    policies = recipe.build()
    if recipe.engine == "opa":
        return {"revision": policies.revision, "tests": 0, "probes": 0}
    tests = [test for test in run_tests(policies) if not test.skipped]
    failed = next((test for test in tests if not test.passed), None)
    if failed is not None:
        raise PolicyError(
            f"{failed.name} failed: {failed.problem}",
            path=failed.path,
            line=failed.line,
            hint="correct the policy or its test",
            code="policy.test-failed",
        )
    return {"revision": policies.revision, "tests": len(tests), "probes": probe(policies)}


def probe(policies: PolicySet) -> int:
    """How many made-up views were judged in time and in a shape that is a decision; both forms are asked for each.

    Raises:
        PolicyError: the set does not compile, or one of them was not (`policy.probe-failed`).
    """
    engine = EmbeddedEngine(
        policies.modules,
        policies.data,
        policies.entrypoints,
        strict_builtin_errors=policies.builtin_errors == "strict",
        check_every=1,
    )
    count = 0
    for kind in ViewKind:
        for view in _views(kind):
            name = policies.entrypoint(kind)
            (result,) = engine.evaluate([name], b"{}", [dumps(view)], timeout_seconds=PROBE_SECONDS)
            if (problem := _problem(result)) is not None:
                message = f"a {kind} view is not decided: {problem}"
                hint = "guard what the rules take for granted; a view has what its kind may have, or not"
                raise PolicyError(message, hint=hint, code="policy.probe-failed")
            count += 1
    return count


def _problem(result: EngineResult) -> str | None:
    match result:
        case Decided(dict() as value) if all(isinstance(value.get(effect.value), list) for effect in Effect):
            return None
        case Failed(code, detail):
            return f"{code} {detail}".strip()
        case TimedOut():
            return "engine.timeout"
        case _:
            return "policy.bad-result"


def _views(kind: ViewKind) -> Iterator[dict[str, Any]]:
    """A bare view of `kind`, one with much in it, and one with a long text."""
    bare: dict[str, Any] = {
        "kind": kind.value,
        "role": Role.USER.value,
        "path": "content[0]",
        "is_pre": True,
        "is_post": False,
        "action": ViewAction.SEND.value,
        "properties": {},
        "extensions": {},
    }
    yield bare
    named = {"uri": f"tool://probe/{kind.value}", "name": "probe", "mime_type": "text/plain"}
    called = {"arguments": {"to": "a@example.com", "n": 3, "deep": {"list": [1, "two", None]}}}
    extensions = {
        "security": {
            "subject": {"id": "probe", "type": "user", "roles": ["r"], "permissions": [], "teams": [], "claims": {}},
            "labels": ["probe"],
            "classification": "internal",
        },
        "custom": {"probe": True},
    }
    session: dict[str, Any] = {"labels": [], "counters": {}, "events": [], "approvals": []}
    full = bare | {"content": "A probe, in words.", "size_bytes": 18, "extensions": extensions, "session": session}
    if kind in KINDS_WITH["name",]:
        full |= named
    if kind in KINDS_WITH["arguments",]:
        full |= called
    yield full
    yield full | {"content": "Words in a row. " * 4_000, "size_bytes": 64_000}


if __name__ == "__main__":
    main()
