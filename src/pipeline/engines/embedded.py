"""The engine inside this process: regorus behind our own binding, which `cmf._native` is.

Spec: docs/spec/engines.md [ENG-2] to [ENG-10].
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from cmf import _native
from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.decisions.decision import NO_EFFECTS
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.decisions.errors import EngineError
from pipeline.policy.analysis import allowed_builtins, policy_error

OFFLOAD_BYTES: Final = 32 * 1024
"""Larger batches are judged on another thread: below, the hop costs more than the work would hold up the loop."""

CHECK_EVERY: Final = 1_000  # one decision in so many is made by both forms [ENG-10]

_NOTHING_HIT: Final = dumps({effect: NO_EFFECTS[effect] for effect in sorted(NO_EFFECTS)})
_NO_HIT: Final = Decided(NO_EFFECTS)

Form = Literal["compiled", "interpreted", "mixed"]


class EmbeddedEngine:
    """A policy set compiled in this process. Immutable; any number of threads may call it at once.

    Args:
        modules: (path, Rego text), tests excluded.
        data: the `data` document, as JSON values or as JSON bytes.
        entrypoints: every rule that may be asked, as `data.<package>.<rule>`.
        strict_builtin_errors: a builtin error makes the view failed; otherwise undefined, as in ordinary OPA.
        use_compiled: False judges everything with the interpreter.
        check_every: one decision in so many is made by both forms; 0 for none.
        keeps_prints: for `printed`; else what policies `print` is taken out of them [ENG-19].

    Raises:
        PolicyError: the set may not run: the code says why, path, line and column where.
    """

    def __init__(
        self,
        modules: Sequence[tuple[str, str]],
        data: Mapping[str, Any] | bytes,
        entrypoints: Sequence[str],
        *,
        strict_builtin_errors: bool = True,
        use_compiled: bool = True,
        check_every: int = CHECK_EVERY,
        revision: str | None = None,
        keeps_prints: bool = False,
    ) -> None:
        document = data if isinstance(data, bytes) else dumps(data)
        self._revision = revision or revision_of(modules, document)
        try:
            self._set = _native.PolicySet(
                list(modules),
                document,
                list(entrypoints),
                strict_builtin_errors=strict_builtin_errors,
                use_compiled=use_compiled,
                check_every=check_every,
                keeps_prints=keeps_prints,
            )
        except _native.RefusedError as error:
            raise policy_error(error, modules) from None

    @property
    def revision(self) -> str:
        """SHA-256, in hex, of policies and data, or what the caller named instead."""
        return self._revision

    @property
    def form(self) -> Form:
        """The form in use: `compiled`, `interpreted`, or `mixed` if it depends on the entrypoint."""
        reasons = [reason for _, reason in self._set.forms]
        if all(reason is None for reason in reasons):
            return "compiled"
        return "mixed" if None in reasons else "interpreted"

    @property
    def forms(self) -> dict[str, str | None]:
        """Entrypoint → why it is interpreted, or None where the compiled form serves it."""
        return dict(self._set.forms)

    @property
    def differences(self) -> int:
        """How often the two forms gave different answers; after the first, the interpreter serves alone."""
        return self._set.differences

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """One result per view, in order; see `Engine.evaluate`. The interpreter lock is free meanwhile."""
        rows = self._set.evaluate(list(entrypoints), shared, list(views), _milliseconds(timeout_seconds))
        return [_result(row) for row in rows]

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The same; a large batch is judged on another thread."""
        if len(shared) + sum(map(len, views)) <= OFFLOAD_BYTES:
            return self.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)
        return await asyncio.to_thread(self.evaluate, entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Nothing to let go of: it holds memory alone."""

    def query(self, query: str, input: Any, *, timeout_seconds: float = 10.0) -> dict[str, Any]:
        """OPA's result set for a Rego query: {"result": [{"expressions", "bindings"}]}, or {} if undefined.

        `input` is a JSON value, or the bytes of one.

        Raises:
            EngineError: the query is not Rego, calls what policies may not, or fails on this input. DecodeError: the
                input is no JSON value.
        """
        document = input if isinstance(input, bytes) else dumps(input)
        try:
            answer = self._set.query(query, document, _milliseconds(timeout_seconds))
        except _native.RefusedError as error:
            raise _engine_error(error) from None
        results: dict[str, Any] = loads(answer)
        return results

    def coverage(self, calls: Sequence[tuple[str, bytes]], *, timeout_seconds: float = 10.0) -> list[dict[str, Any]]:
        """Lines that evaluating each (entrypoint, input) reached: [{"path", "covered", "not_covered"}].

        Raises:
            EngineError: an input is refused.
        """
        try:
            report = self._set.coverage(list(calls), _milliseconds(timeout_seconds))
        except _native.RefusedError as error:
            raise _engine_error(error) from None
        files: list[dict[str, Any]] = loads(report)
        return files

    def printed(self, calls: Sequence[tuple[str, bytes]], *, timeout_seconds: float = 10.0) -> list[list[str]]:
        """What `print` prints, by (entrypoint, input), each as `path:line: text`.

        Raises:
            EngineError: an input is refused.
        """
        try:
            return self._set.printed(list(calls), _milliseconds(timeout_seconds))
        except _native.RefusedError as error:
            raise _engine_error(error) from None


def revision_of(modules: Sequence[tuple[str, str]], data: bytes) -> str:
    """SHA-256, in hex, over the modules sorted by path, and data; each part behind its length."""
    digest = hashlib.sha256()
    for path, text in sorted(modules):
        for part in (path.encode(), text.encode()):
            digest.update(len(part).to_bytes(8) + part)
    digest.update(data)
    return digest.hexdigest()


def _milliseconds(seconds: float) -> int:
    """Whole milliseconds, at least none: a deadline that has passed is one of 0."""
    return max(0, math.floor(seconds * 1000))


def _result(row: tuple[str, bytes, str, str]) -> EngineResult:
    tag, value, code, detail = row
    match tag:
        case "decided" if value == _NOTHING_HIT:  # most answers: not read again and again
            return _NO_HIT
        case "decided":
            try:
                return Decided(loads(value))
            except DecodeError:
                return Failed("engine.bad-result")
        case "undefined":
            return Undefined()
        case "timeout":
            return TimedOut()
        case _:
            return Failed(code, detail)


def _engine_error(error: _native.RefusedError) -> EngineError:
    code, message, _path, line, column = error.args
    where = f"{line}:{column}" if line else ""
    return EngineError(message, path=where, code=code)


__all__ = ["CHECK_EVERY", "OFFLOAD_BYTES", "EmbeddedEngine", "Form", "allowed_builtins", "revision_of"]
