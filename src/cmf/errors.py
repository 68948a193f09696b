"""What can go wrong with a message, as one tree.

    CmfError                        root: every refusal of this package
      DecodeError                   bytes that are not strict JSON, or too large or too deep
      ShapeError                    JSON or arguments that do not fit a type
        UnknownRoleError            a role outside the closed set
        SchemaVersionError          written by a newer schema than this reader knows
        ModelIdError                not `<provider>:<model>`
      InvariantError                a finding of the strict profile, raised
      ToolSchemaError               a tool schema outside the accepted JSON Schema subset
      ToolNameError                 a tool name that a registry refuses
      UnknownToolError              a tool that no registry knows
      UnknownToolIdError            a tool id that the session's map does not hold
      CapabilityError               a fact was asked for that was not granted
      UnmappedPartError             a part that no table maps to a view: a programming error
      ProjectionError               what a target format cannot say
        LossyProjectionError        a critical part cannot be expressed in the target format
        UnsupportedError            a target cannot express the request at all
      UnknownFormatError            no adapter has that name
      UnknownPriceError             the price table has no entry for that model
      MediaError                    media that cannot be accepted: wrong type, too large, not fetchable
      MissingExtraError             a package that an extra installs is not there

Each error has a stable `code`, the JSON `path` where it happened (when there is one) and a `hint` that says what
to do. Texts name fields and types, never the content of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final


class LocatedError(Exception):
    """What happened, where, and what to do about it: the form of the errors of `cmf` and of `pipeline`."""

    default_code: ClassVar[str]

    def __init__(self, message: str, *, path: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(message)  # first: ImportError's sets a path too
        self.message = message
        self.path = path
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        return self._located(self.message)

    def _located(self, message: str) -> str:
        where = f" at {self.path}" if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{message}{where}{hint} [{self.code}]"


class CmfError(LocatedError):
    """Root of all errors of this package."""

    default_code = "cmf.error"

    def at(self, prefix: str) -> CmfError:
        """The same error with `prefix` put before its path; for code that decodes something nested."""
        self.path = join_path(prefix, self.path)
        return self


def join_path(prefix: str, path: str) -> str:
    """`prefix` and `path` as one JSON path: `$.messages[0]` + `content[1]` → `$.messages[0].content[1]`."""
    rest = path.removeprefix("$").removeprefix(".")
    if not rest:
        return prefix
    return f"{prefix}{rest}" if rest.startswith("[") else f"{prefix}.{rest}"


class DecodeError(CmfError, ValueError):
    """The bytes are not strict JSON (or are too large or too deep to be read)."""

    default_code = "json.syntax"


class ShapeError(CmfError, ValueError):
    """Well-formed JSON, or constructor arguments, that do not fit the type."""

    default_code = "shape.invalid"


class UnknownRoleError(ShapeError):
    """A role outside system, developer, user, assistant and tool."""

    default_code = "shape.unknown-role"


class SchemaVersionError(ShapeError):
    """The value was written by a newer schema than this reader knows [A14]."""

    default_code = "schema.too-new"


class ModelIdError(ShapeError):
    """A model id that is not `<provider>:<model>`."""

    default_code = "model-id.invalid"


class InvariantError(CmfError, ValueError):
    """A value breaks an invariant of the strict profile."""

    default_code = "invariant.broken"


class ToolSchemaError(CmfError, ValueError):
    """A tool's input schema uses a construct outside the accepted subset."""

    default_code = "tool-schema.disallowed"


class ToolNameError(CmfError, ValueError):
    """A tool name that is not snake_case, or is taken."""

    default_code = "tool-name.invalid"


class UnknownToolError(CmfError, LookupError):
    """No registry entry under that name, or more than one."""

    default_code = "tool.unknown"


class UnknownToolIdError(CmfError, LookupError):
    """The session's id map has no such tool id."""

    default_code = "tool-id.unknown"


class CapabilityError(CmfError, PermissionError):
    """A fact was asked for that the reader's capabilities do not grant [B7]."""

    default_code = "capability.missing"


class UnmappedPartError(CmfError, TypeError):
    """A part that no table maps to a view. Skipping it would hide it from policy, so it is an error."""

    default_code = "view.unmapped-part"


class ProjectionError(CmfError):
    """The target format cannot say this.

    Attributes:
        about: the part, message or tool that it cannot say; whoever writes the whole makes a path of it.
    """

    default_code = "projection.refused"

    def __init__(self, message: str, *, about: object = None, path: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(message, path=path, hint=hint, code=code)
        self.about = about


class LossyProjectionError(ProjectionError):
    """A part marked critical cannot be expressed in the target format [A13]."""

    default_code = "projection.critical"


class UnsupportedError(ProjectionError):
    """The target cannot express this request, and dropping would change its meaning [C8]."""

    default_code = "projection.unsupported"


class UnknownFormatError(CmfError, LookupError):
    """No adapter goes by that name."""

    default_code = "adapter.unknown"


class UnknownPriceError(CmfError, LookupError):
    """The price table has no entry for that model, so its cost is unknown."""

    default_code = "price.unknown-model"


class MediaError(CmfError, ValueError):
    """Media that cannot be accepted."""

    default_code = "media.refused"


class MissingExtraError(CmfError, ImportError):  # type: ignore[misc]  # each has its own `path`; ours stands
    """A package that an extra installs is not there."""

    default_code = "extra.missing"


@contextmanager
def needs(extra: str, error: Callable[..., ImportError] = MissingExtraError) -> Iterator[None]:
    """A block of imports that works where `extra` is installed; elsewhere `error` says what to install.

    Of blocks within each other the outermost names the extra: it is about what was asked for.
    """
    try:
        yield
    except ImportError as cause:
        package = (cause.name or "").partition(".")[0]
        if package in ("", "cmf", "pipeline") or not (isinstance(cause, ModuleNotFoundError) or hasattr(cause, "hint")):
            raise
        missing = error(f"the package {package} is not installed", hint=f'run: pip install "cmf-pipeline[{extra}]"')
        missing.name = package
        raise missing from None


SHAPE_WORDS: Final = {
    "unexpected_keyword_argument": "there is no such field",
    "missing": "this field is missing",
    "missing_keyword_only_argument": "this field is missing",
    "dataclass_type": "this has to be an object",
    "model_attributes_type": "this has to be an object",
    "tuple_type": "this has to be a list",
    "frozen_set_type": "this has to be a list",
    "string_unicode": "this is no Unicode text",
    "union_tag_not_found": "this does not say its content_type",
    "union_tag_invalid": "unknown tag",  # of a wrong tag pydantic quotes content
    "unexpected_positional_argument": "fields have names: write name=value",
}
"""pydantic's names of types, which are Python's, as those of JSON."""
