"""Trying out a policy set in a subprocess before it goes into service. Spec: docs/spec/policies.md [POL-48].

The subprocess reads and compiles the set, runs its own tests and judges a few synthetic views. A set that crashes it,
or exceeds its time or memory, is refused, and the caller keeps the set it had.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cmf.enums import Role, ViewAction, ViewKind
from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.decisions.decision import Effect, Mode
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.rego_tests import run_tests
from pipeline.policy import policy_set
from pipeline.policy.loading import Sources
from pipeline.policy.metadata import Module
from pipeline.policy.policy_set import BuiltinErrors, PolicySet
from pipeline.policy.portability import KINDS_WITH
from pipeline.policy.shipped import shipped_tests

TIMEOUT_SECONDS: Final = 60.0
MEMORY_BYTES: Final = 4 * 1024**3  # address space; every evaluation maps 512 MiB of it as its stack
PROBE_SECONDS: Final = 1.0  # per synthetic view: a guard's default timeout

_REPORT: Final = 1 << 20  # bytes of output accepted from the subprocess


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The inputs of a policy set: its sources, how to load them (see `policy_set.load`), and for which engine.

    A set for an OPA server may call builtins that the embedded engine lacks, so it is loaded but not run.
    """

    sources: Sources
    entrypoint: str | None = None
    modes: Mapping[str, Mode | str] = field(default_factory=dict)
    builtin_errors: BuiltinErrors = "strict"
    engine: Literal["embedded", "opa"] = "embedded"

    @classmethod
    def of(cls, policies: PolicySet, *, engine: Literal["embedded", "opa"] = "embedded") -> Recipe:
        """The recipe of a loaded set."""
        return cls(
            engine=engine,
            sources=policies.sources,
            entrypoint=policies.own_entrypoint,
            modes=policies.modes,
            builtin_errors=policies.builtin_errors,
        )

    def build(self) -> PolicySet:
        """The set; PolicyError if it cannot be loaded."""
        return policy_set.build(
            self.sources, entrypoint=self.entrypoint, modes=self.modes, builtin_errors=self.builtin_errors
        )


@dataclass(frozen=True, slots=True)
class Vetted:
    """The result: the set's revision, and how many of its tests and of our probes passed."""

    revision: str
    tests: int
    probes: int


def vet(recipe: Recipe, *, timeout_seconds: float = TIMEOUT_SECONDS, memory_bytes: int = MEMORY_BYTES) -> Vetted:
    """Vet the set in a subprocess; the calling process compiles and evaluates none of it.

    Raises:
        PolicyError: the set is refused, with the error of loading it, or `policy.test-failed`,
            `policy.probe-failed`, `policy.vetting-timeout`, `policy.vetting-died`.
    """
    command = [sys.executable, "-m", "pipeline.run.vetting", str(timeout_seconds), str(memory_bytes)]
    with subprocess.Popen(  # noqa: S603 - this very interpreter, and no shell
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            answer, _ = process.communicate(pickle.dumps(recipe), timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise PolicyError(
                f"vetting took longer than {timeout_seconds:g} seconds",
                hint="find the rule or test that is slow, or allow more time",
                code="policy.vetting-timeout",
            ) from None
        finally:
            _end(process)
    return _read(answer, process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything it started."""
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
        f"the vetting process ended with status {status}",
        hint="the set may need more memory than the limit",
        code="policy.vetting-died",
    )


# -- in the process ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Vet the recipe on standard input and write the result to standard output."""
    _limit(float(sys.argv[1]), int(sys.argv[2]))
    try:
        report = _vetted(pickle.load(sys.stdin.buffer))  # noqa: S301 - of the process that started this one
    except PolicyError as error:
        place = [error.path, error.line, error.column]
        report = {"code": error.code, "message": error.message, "hint": error.hint, "place": place}
    sys.stdout.write(json.dumps(report))


def _limit(seconds: float, memory_bytes: int) -> None:
    import resource  # not on every platform; without it only the caller's timeout applies

    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _vetted(recipe: Recipe) -> dict[str, Any]:
    policies = recipe.build()
    if recipe.engine == "opa":
        return {"revision": policies.revision, "tests": 0, "probes": 0}
    tests = [test for test in run_tests(policies, _is_own) if not test.skipped]
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


def _is_own(test: Module) -> bool:
    """Whether it was written for this set: the shipped tests hold with the shipped settings, and not with others."""
    return test not in shipped_tests()


def probe(policies: PolicySet) -> int:
    """The number of synthetic views judged, each in time and with a well-formed decision, in both compiled forms.

    Raises:
        PolicyError: the set does not compile, or a view failed (`policy.probe-failed`).
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
                message = f"no decision on a {kind} view: {problem}"
                hint = "have the rules handle missing fields: a view may lack any optional field of its kind"
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
    """A minimal view of `kind`, a full one, and one with a long text."""
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
