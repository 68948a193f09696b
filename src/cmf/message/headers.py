"""Which HTTP headers must never leave the process: not to policy, audit, logs or a repr [B12]. Spec: extensions.md."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cmf.json.frozen import FrozenDict
from cmf.json.value import Str

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


class _Values:
    """The values of sensitive headers. No copy, pickle or text of it has them."""

    __slots__ = ("texts",)

    def __init__(self, texts: Mapping[str, str] = FrozenDict()) -> None:
        self.texts = texts

    def __repr__(self) -> str:
        return "<withheld>"

    def __reduce__(self) -> tuple[type[_Values], tuple[()]]:
        return _Values, ()


_NO_VALUES: Final = _Values()


class HttpHeaders(FrozenDict):
    """HTTP headers by name. The value of a sensitive one is None, here and in whatever is made of it [EXT-9].

    `get_header` alone gives such a value, and only while the object it was given to lives: JSON, pickles and copies
    made by field keep the name, with null, which is no header's text.
    """

    __slots__ = ("_values",)
    _values: _Values

    def __new__(cls, headers: Mapping[str, str | None] = FrozenDict()) -> Self:  # noqa: D102  (as `dict`)
        if type(headers) is cls:
            return headers
        given = dict(headers)
        values = {name: text for name, text in given.items() if text is not None and is_sensitive(name)}
        shown = dict.__new__(cls)
        dict.update(shown, {name: None if name in values else text for name, text in given.items()})
        shown._values = _Values(values) if values else _NO_VALUES
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
