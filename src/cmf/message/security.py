"""Who asks, what data is touched, what may be done with it, and which headers carry credentials. Spec: extensions.md.

Such headers must never leave the process: not to policy, audit, logs or a repr [B12].
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cmf.enums import SubjectType
from cmf.json.frozen import FrozenDict, JsonObject, frozen_mapping
from cmf.json.value import Count, Str, UtcTime, Value, value, whole_reader


def _as_set(items: Any) -> Any:
    """Sets are written as JSON arrays, and read back from any of the built-in collections."""
    try:
        return frozenset(items) if isinstance(items, list | tuple | set) else items
    except TypeError:
        raise ValueError("the items of a set are texts") from None  # an object or array is among them


StrSet = Annotated[frozenset[Str], BeforeValidator(_as_set)]


@value
class SubjectExtension(Value):
    """The authenticated entity that makes the request. A field that is None was not granted, or not known."""

    id: Str | None = None
    type: SubjectType | None = None
    roles: StrSet | None = None
    permissions: StrSet | None = None
    teams: StrSet | None = None
    claims: JsonObject | None = None


@value
class ObjectSecurityProfile(Value):
    """What access to an entity (tool, resource, prompt) requires, and which data it reaches."""

    managed_by: Literal["host", "tool", "both"] = "host"
    permissions: tuple[Str, ...] = ()
    trust_domain: Str | None = None
    data_scope: tuple[Str, ...] = ()


@value
class RetentionPolicy(Value):
    """How long data may be kept: the earlier of `max_age_seconds` and `delete_after` wins."""

    max_age_seconds: Count | None = None
    policy: Literal["session", "transient", "persistent", "none"] = "persistent"
    delete_after: UtcTime | None = None


@value
class DataPolicy(Value):
    """Rules for the data that an entity returns. `allowed_actions` None is unrestricted, empty allows nothing."""

    apply_labels: tuple[Str, ...] = ()
    allowed_actions: tuple[Str, ...] | None = None
    denied_actions: tuple[Str, ...] = ()
    retention: RetentionPolicy | None = None


def spelled_out(entry: ObjectSecurityProfile | DataPolicy | RetentionPolicy) -> dict[str, Any]:
    """The fields of a profile as policy sees them: those at their default too, and none that is None.

    A rule that asks whether access is kept by the host must not depend on whether somebody wrote so [VIEW-19].
    """
    shown = _READERS[type(entry)](entry)
    if "retention" in shown:
        shown["retention"] = spelled_out(shown["retention"])
    return shown


_READERS: Final = {cls: whole_reader(cls) for cls in (ObjectSecurityProfile, DataPolicy, RetentionPolicy)}

Objects = Annotated[dict[Str, ObjectSecurityProfile], AfterValidator(frozen_mapping)]
DataPolicies = Annotated[dict[Str, DataPolicy], AfterValidator(frozen_mapping)]


@value
class SecurityExtension(Value):
    """Labels (which only grow), classification, subject, and the profiles and data policies by entity name."""

    labels: StrSet = frozenset()
    classification: Str | None = None
    subject: SubjectExtension | None = None
    objects: Objects = FrozenDict()
    data: DataPolicies = FrozenDict()


# -- HTTP headers ------------------------------------------------------------------------------------------------------

_Text = TypeVar("_Text", str, str | None)

_WORDS: Final = ("authorization", "cookie", "api-key", "apikey", "token", "secret", "password", "credential")
_LAST_WORDS: Final = frozenset(
    {"auth", "authentication"}
)  # others begin names of who was let in (`X-Auth-Request-User`)
_WHOLE_WORDS: Final = frozenset({"bearer", "dpop", "jwt", "passphrase", "passwd", "pwd"})
_OTHERS: Final = frozenset(
    {"proxy-authenticate", "www-authenticate", "x-amzn-oidc-data", "x-client-cert", "x-forwarded-client-cert"}
)
_OPEN_KEYS: Final = frozenset({"idempotency-key", "sec-websocket-key", "surrogate-key"})  # they open nothing
_FEW: Final = 64  # headers of one request; what is remembered is bounded by it


@lru_cache(maxsize=512)  # the same names come with every request; asking anew takes a microsecond and a half
def is_sensitive(name: str) -> bool:
    """Whether a header of this name carries a credential; case, underscores and dots do not matter."""
    plain = name.strip().lower().replace("_", "-").replace(".", "-")
    if plain in _OTHERS or any(word in plain for word in _WORDS):
        return True
    words = plain.split("-")
    is_key = plain.removeprefix("x-") not in _OPEN_KEYS and any(word.endswith(("key", "keys")) for word in words)
    return is_key or words[-1] in _LAST_WORDS or not _WHOLE_WORDS.isdisjoint(words)


def without_sensitive(headers: Mapping[str, _Text]) -> dict[str, _Text]:
    """The headers that may be shown, in their order."""
    shown = dict(headers)
    for name in _sensitive(tuple(headers)) if len(headers) <= _FEW else filter(is_sensitive, headers):
        del shown[name]
    return shown


@lru_cache(maxsize=128)  # a client sends the same ones with every request
def _sensitive(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(is_sensitive, names))


class _Withheld:
    """The values of sensitive headers. No copy, pickle or text of it has them."""

    __slots__ = ("texts",)

    def __init__(self, texts: Mapping[str, str] = FrozenDict()) -> None:
        self.texts = texts

    def __repr__(self) -> str:
        return "<withheld>"

    def __reduce__(self) -> tuple[type[_Withheld], tuple[()]]:
        return _Withheld, ()


_NO_WITHHELD: Final = _Withheld()


class HttpHeaders(FrozenDict):
    """HTTP headers by name. The value of a sensitive one is None, here and in whatever is made of it [EXT-9].

    `get_header` alone gives such a value, and only while the object it was given to lives: JSON, pickles and copies
    made by field keep the name, with null, which is no header's text.
    """

    __slots__ = ("_values",)
    _values: _Withheld

    def __new__(cls, headers: Mapping[str, str | None] = FrozenDict()) -> Self:  # noqa: D102  (as `dict`)
        if type(headers) is cls:
            return headers
        given = dict(headers)
        values = {name: text for name, text in given.items() if text is not None and is_sensitive(name)}
        shown = dict.__new__(cls)
        dict.update(shown, {name: None if name in values else text for name, text in given.items()})
        shown._values = _Withheld(values) if values else _NO_WITHHELD
        return shown

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and (type(other) is not HttpHeaders or exposed(self) == exposed(other))

    __hash__ = FrozenDict.__hash__

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return HttpHeaders, (dict(self),)

    def get_header(self, name: str) -> str | None:
        """The header's value, whatever the case of its name; None without it, or if its value was not kept."""
        wanted = name.lower()
        return next((text for key, text in exposed(self).items() if key.lower() == wanted), None)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(given: Any, texts: Any) -> HttpHeaders:
            if type(given) is cls:
                return given
            read = texts(given)
            if any(text is None and not is_sensitive(name) for name, text in read.items()):
                raise PydanticCustomError("string_type", "Only the value of a sensitive header may be null")
            return cls(read)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(dict[Str, Str | None]))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema)


def exposed(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """All headers with their values, sensitive ones too; None for one that was not kept. Never for a reader."""
    values = headers._values.texts if isinstance(headers, HttpHeaders) else FrozenDict()
    return {name: values.get(name, text) for name, text in headers.items()}


if TYPE_CHECKING:
    # Constructors take any mapping.
    Headers: TypeAlias = Mapping[str, str | None]
else:
    Headers = HttpHeaders
