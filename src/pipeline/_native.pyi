"""The Rust module `cmf-native`: the embedded Rego engine. Spec: docs/spec/engines.md."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

ENGINE: str
"""Name and version of the engine inside."""

class RefusedError(ValueError):
    """A policy set, query or input that is refused; args are (code, message, path, line, column)."""

    args: tuple[str, str, str, int, int]

@final
class PolicySet:
    """A compiled, immutable policy set."""

    def __init__(
        self,
        modules: list[tuple[str, str]],
        data: bytes,
        entrypoints: list[str],
        *,
        strict_builtin_errors: bool = True,
        use_compiled: bool = True,
        check_every: int = 1_000,
        max_input_bytes: int = 8_388_608,
        max_result_bytes: int = 8_388_608,
    ) -> None: ...
    @property
    def forms(self) -> list[tuple[str, str | None]]:
        """Each entrypoint and why it is interpreted, or None where the compiled form serves it."""

    @property
    def differences(self) -> int:
        """How often the two forms gave different answers."""

    def evaluate(
        self, entrypoints: list[str], shared: bytes, views: list[bytes], timeout_ms: int
    ) -> list[tuple[str, bytes, str, str]]:
        """(tag, JSON, code, detail) per view; tag is decided, undefined, failed or timeout."""

    def query(self, query: str, input: bytes, timeout_ms: int = 10_000) -> bytes:
        """OPA's result set as JSON."""

    def coverage(self, calls: list[tuple[str, bytes]], timeout_ms: int = 10_000) -> bytes:
        """[{"path", "covered", "not_covered"}] as JSON."""

def allowed_builtins() -> list[str]:
    """The builtins that a policy may call, sorted."""

def survey(modules: list[tuple[str, str]]) -> bytes:
    """What the modules read, call and are made of: {"modules": […], "rules": […]} as JSON."""

def foreign_pattern(pattern: str) -> tuple[str, str] | None:
    """What keeps a pattern from being used as in OPA, and what to write instead; None if nothing does."""

@final
class ValueWriter:
    """Writes what `cmf.value.to_bytes` does, faster; asks `form_of` once for each type."""

    def __init__(self, form_of: Callable[[type], object]) -> None: ...
    def write(self, item: object) -> bytes | None:
        """The same bytes, or None: something is not plainly in order, and `to_bytes` has the last word."""

    def fill(
        self,
        template: Template,
        part: object,
        path: str,
        given: str | None,
        message: Mapping[str, Any] | None,
        security: Mapping[str, Any] | None,
        origins: Sequence[Mapping[str, Any]] | None,
    ) -> bytes | None:
        """What the template makes of a part, or None as above."""

@final
class Template:
    """What the input of one type of part looks like: its beginning around `path`, and its holes."""

    def __init__(
        self,
        part: type,
        before_path: bytes,
        after_path: bytes,
        none: list[str],
        entries: list[tuple[str, str, str]],
        properties: list[tuple[str, str, str]],
    ) -> None: ...
