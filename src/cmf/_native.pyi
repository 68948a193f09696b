"""The Rust module `cmf-native`: the embedded Rego engine, and what values are read with. Spec: docs/spec/engines.md."""

from collections.abc import Callable, Sequence
from typing import Any, final

ENGINE: str
"""Name and version of the engine inside."""

def normal_form(uri: str, /) -> str | None:
    """The normal form of a URI; None for an address that has none."""

class RefusedError(ValueError):
    """A policy set, query or input that is refused; args are (code, message, path, line, column)."""

    args: tuple[str, str, str, int, int]

@final
class Fingerprints:
    """Hashes values; asks `form_of` once for each type."""

    def __init__(self, form_of: Callable[[type], object]) -> None: ...
    def again(self, held: tuple[Any, ...], known: bytes, given: tuple[Any, ...]) -> tuple[int, bytes]:
        """How many of `given` at the beginning are as those of `held`, whose fingerprints are `known`; and theirs."""

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
        keeps_prints: bool = False,
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

    def printed(self, calls: list[tuple[str, bytes]], timeout_ms: int = 10_000) -> list[list[str]]:
        """By call what `print` says, each as `path:line: text`; nothing unless the set `keeps_prints`."""

def allowed_builtins() -> list[str]:
    """The builtins that a policy may call, sorted."""

def survey(modules: list[tuple[str, str]]) -> bytes:
    """What the modules read, call and are made of: {"modules": […], "rules": […]} as JSON."""

def picked(object: bytes, names: list[str]) -> bytes | None:
    """The same JSON object with the named members alone; None where that cannot be told quickly."""

def with_facts(view: bytes, asked: tuple[bool, bool, bool, bool, bool]) -> bytes | None:
    """The JSON of a view with the facts that are asked for; None if it has none of them."""

def with_context_facts(shared: bytes) -> bytes | None:
    """The JSON that views share with `spelled_context`; None if it is not needed."""

def plain(text: str) -> str | None:
    """A text in plain letters; None if it is."""

def in_content(text: str, is_folded: bool, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where spans of a text's plain (or folded) form stand in the text."""

def same_start(held: Sequence[object], given: Sequence[object]) -> int:
    """How many items at the beginning are the very same objects."""

def without_prints(modules: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same modules with `true` and spaces in place of each `print(…)`."""

def foreign_pattern(pattern: str) -> tuple[str, str] | None:
    """What keeps a pattern from being used as in OPA, and what to write instead; None if nothing does."""

def same_but_spaces(left: bytes, right: bytes) -> bool:
    """Whether two texts are the same once the spaces of JSON are left out of both, those in strings too."""

def filler(
    fields_of: Callable[[type], tuple[tuple[str, Any], ...]],
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions: `make(cls, **fields)` and `copy(item, **fields)`.

    `fields_of(cls)` gives the fields of a type, each with its default; it is asked once for each.
    """

def freezing(
    dict: type,
    list: type,
    freeze: Callable[[Any, int], Any],
    levels: int,
) -> tuple[Callable[..., Any], Callable[[Any, Any], bool], Callable[[Any, Any], bool]]:
    """Three functions: `freeze(item, levels=levels)`, `same_json(left, right)` and `same_spelling(left, right)`.

    The first asks the given one about what is not of the plainest types. `dict` and `list` are the types of what is
    frozen.
    """

@final
class ValueWriter:
    """Writes what `cmf.json.value.to_bytes` does, faster; asks `form_of` once for each type."""

    def __init__(self, form_of: Callable[[type], object]) -> None: ...
    def write(self, item: object) -> bytes | None:
        """The same bytes, or None: something is not plainly in order, and `to_bytes` has the last word."""
