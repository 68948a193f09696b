"""Settings from `cmf.yaml` and the environment, with where each value came from. Spec: docs/spec/gateway.md [GW-1] ff.

The environment is read here and not with pydantic-settings, which passes over a `CMF_` name that it does not know: a
misspelt one would change nothing, in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import unquote, urlsplit

import pydantic
import yaml
from pydantic import BaseModel

from cmf.message.model_ids import PROVIDER_FORMATS
from pipeline.decisions.errors import ConfigError
from pipeline.gateway.config.settings import STDIO_KEYS, McpServer, Settings
from pipeline.gateway.config.settings_base import Secret, first_of, line_of, said_of, steps_in
from pipeline.policy.metadata import DUPLICATE_KEY, load_yaml
from pipeline.policy.shipped import WORD, shipped

MAX_FILE_BYTES: Final = 1024 * 1024
PREFIX: Final = "CMF_"
STORE: Final = "cmf.db"  # beside the file, where it names none
_OF_KUBERNETES: Final = re.compile(r"(service_(host|port)|port)(_[a-z0-9_]+)?")
_PATHS: Final = ("policies", "profiles", "store", "script", "file", "pins", "key_file", "heads_file", "public_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force, and for each value that is not a default where it comes from: `file`, or the variable."""

    settings: Settings
    sources: Mapping[str, str]

    def effective(self) -> Iterator[tuple[str, str, str]]:
        """Each value: its path, the value, where it is from. Secrets are named, never read."""
        for path, value in _leaves(self.settings):
            yield path, "-" if value in (None, {}, (), []) else str(value), _source(path, self.sources)


def load(file: Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """The settings in `file`, changed by `CMF_…` variables (`CMF_LISTEN__PORT`); `environment` is the process's own.

    Raises:
        ConfigError: `config.unreadable`, `config.unknown-key` with a suggestion, or `config.invalid`, with the place.
    """
    text, body = _read(file)
    sources = {path: "file" for path, _ in _leaves(body)}
    known = os.environ if environment is None else environment
    _add_upstreams(body, known, sources)
    _override(body, known, sources)
    body.setdefault("store", STORE)
    _anchor(body, file.absolute().parent)
    try:
        settings = Settings.model_validate(body)
    except pydantic.ValidationError as error:
        raise _refused(error, file, sources, text, body) from None
    return Loaded(settings=settings, sources=sources)


def secret_of(secret: Secret, environment: Mapping[str, str] | None = None, *, setting: str = "") -> str:
    """The secret itself: text without the spaces around it. `setting` is where the settings name it.

    Raises:
        ConfigError: code config.no-secret, where the variable or the file is missing or empty.
    """
    known = os.environ if environment is None else environment
    try:
        text = known.get(str(secret.env), "") if secret.file is None else secret.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    text = _key_in(str(secret.env), text.strip())
    if not text or not text.isprintable() or not text.isascii():
        why = "a secret is not one line of printable ASCII" if text else "a secret is missing"
        hint = f"set the variable {secret.env}" if secret.file is None else "write it there, readable by this user"
        path = f"{setting} ({secret})" if setting else str(secret)
        raise ConfigError(why, path=path, code="config.no-secret", hint=hint)
    return text


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    """The text of the file, and the mapping in it."""

    def unreadable(why: str, hint: str, where: str = "") -> ConfigError:
        return ConfigError(why, path=f"{file}{where}", code="config.unreadable", hint=hint)

    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise unreadable("too large", "it is settings, not data")
        text = raw.decode("utf-8")
        body = load_yaml(text)
    except FileNotFoundError:
        hint = "`cmf config new` prints one to begin with; `cmf serve --demo` needs none"
        raise unreadable("there is no such file", hint) from None
    except OSError as error:
        raise unreadable(f"it cannot be read ({error.strerror})", "look at the path") from None
    except UnicodeDecodeError:
        raise unreadable("not UTF-8", "save it as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        if getattr(error, "problem", None) == DUPLICATE_KEY:
            raise unreadable(DUPLICATE_KEY, "take one of them out", where) from None
        hint = "look at quotes, brackets and indentation there and above"
        raise unreadable("this is no YAML", hint, where) from None
    if not isinstance(body, dict):
        raise unreadable("not a mapping", "write `routes:` and the like; `cmf config new` prints one to begin with")
    return text, body


def _add_upstreams(body: dict[str, Any], environment: Mapping[str, str], sources: dict[str, str]) -> None:
    """Put the upstreams of the environment beside those of the file, or over what these say of address and key."""
    for variable, name, said in _upstreams_in(environment):
        there = body.setdefault("upstreams", {})
        if not isinstance(there, dict) or not isinstance(there.setdefault(name, {}), dict):
            continue  # it is refused as it is
        there[name] |= said
        sources |= {f"upstreams.{name}.{key}": variable for key in said}


def _override(body: dict[str, Any], environment: Mapping[str, str], sources: dict[str, str]) -> None:
    for variable in sorted(environment):
        if not variable.startswith(PREFIX):
            continue
        steps = variable.removeprefix(PREFIX).lower().split("__")
        if steps[0] not in Settings.model_fields:
            raise _unknown(variable, steps[0], Settings, "the environment")
        try:
            value = load_yaml(environment[variable])
        except yaml.YAMLError:
            raise ConfigError("not a YAML value", path=variable, code="config.unreadable", hint="quote it") from None
        inner: Any = body
        for step in steps[:-1]:
            if not isinstance(inner.setdefault(step, {}), dict):
                hint = "set the list as a whole"
                raise ConfigError("that is no mapping", path=variable, code="config.invalid", hint=hint)
            inner = inner[step]
        inner[steps[-1]] = value
        path = ".".join(steps)
        for old in [known for known in sources if known == path or known.startswith((f"{path}.", f"{path}["))]:
            del sources[old]
        sources[path] = variable


def _anchor(value: Any, home: Path) -> None:
    """Make the paths in `value` absolute, from where the file is. Among policies, `shipped` is the shipped ones."""

    def anchored(text: str) -> str:
        return str(shipped() if key == "policies" and text == WORD else home / Path(text).expanduser())

    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(item, str) and "://" in item:
            continue  # a URL, `sessions.store` say
        if key in _PATHS and isinstance(item, str):
            value[key] = anchored(item)
        elif key in _PATHS and isinstance(item, list):
            value[key] = [anchored(one) if isinstance(one, str) else one for one in item]
        else:
            _anchor(item, home)


def _refused(
    error: pydantic.ValidationError, file: Path, sources: Mapping[str, str], text: str, body: Any
) -> ConfigError:
    found = first_of(error.errors(include_url=False, include_input=False))
    steps = steps_in(body, found)
    path = _spelt(steps)
    source = _source(path, sources)
    where = source
    if source in ("file", "default"):
        line = line_of(text, steps)
        where = f"{file}:{line}" if line else str(file)
    if found["type"] == "extra_forbidden":
        return _unknown(path, str(found["loc"][-1]), _section_at(found["loc"][:-1]), where)
    why, hint = said_of(found, steps, _value_at(body, steps))
    return ConfigError(why, path=f"{where}: {path}" if path else where, hint=hint)


def _value_at(value: Any, steps: Iterable[int | str]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _unknown(path: str, key: str, section: type[BaseModel], where: str) -> ConfigError:
    if where == "the environment" and _OF_KUBERNETES.fullmatch(key):
        hint = "Kubernetes made it for a service called cmf: set enableServiceLinks: false, or call it something else"
    elif section is McpServer and key in STDIO_KEYS:
        hint = (
            "only servers over HTTP, with a `url`, are set here; start a stdio server with `cmf mcp-proxy -- COMMAND`"
        )
    elif near := get_close_matches(key, section.model_fields, n=1):
        hint = f"did you mean `{near[0]}`?"
    else:
        hint = f"the known keys are {', '.join(section.model_fields)}"
    return ConfigError("this key is not known", path=f"{where}: {path}", code="config.unknown-key", hint=hint)


def _section_at(steps: tuple[int | str, ...]) -> type[BaseModel]:
    """The section that the place is in; where a mapping or a list leads to it, what that holds."""
    section: type[BaseModel] = Settings
    for step in steps:
        field = section.model_fields.get(str(step))
        if field is not None:
            section = next(iter(_sections(field.annotation)), section)
    return section


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)


def _spelt(steps: tuple[int | str, ...]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _source(path: str, sources: Mapping[str, str]) -> str:
    """Where the value at `path`, or something in it, or what contains it, comes from."""
    within = next((source for known, source in sources.items() if known.startswith((f"{path}.", f"{path}["))), None)
    if within is not None:
        return within
    while path:
        if path in sources:
            return sources[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return "default"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value in settings, or in what a file says of them, with its path; secrets are named, never read."""
    if isinstance(value, BaseModel) and not isinstance(value, Secret):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple | list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


# -- upstreams in variables: `LLM_CLAUDE=anthropic://key@api.anthropic.com` [GW-7] -------------------------------------

UPSTREAM_PREFIX: Final = "LLM_"
_DIALECTS: Final = PROVIDER_FORMATS | {"openai-responses": "openai_responses"}
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME: Final = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}")


def _upstreams_in(environment: Mapping[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The upstreams in variables `LLM_<NAME>`: the variable, the name, what it says. Others are left alone."""
    for variable in sorted(environment):
        name = variable.removeprefix(UPSTREAM_PREFIX)
        scheme, separator, rest = environment[variable].strip().partition("://")
        kind, _, transport = scheme.partition("+")
        if name == variable or not _NAME.fullmatch(name) or not separator or kind not in _DIALECTS:
            continue
        if transport not in ("", "http", "https"):
            continue
        keyed, at, place = rest.rpartition("@")
        plain = transport == "http" or (not transport and _host_in(place) in _HERE)
        # No key goes to an address that it was not given for: without one here, the file's is dropped.
        key = {"env": variable} if at and keyed else None
        url = f"{'http' if plain else 'https'}://{place.rstrip('/')}"
        yield variable, name.lower(), {"dialect": _DIALECTS[kind], "base_url": url, "key": key}


def _host_in(place: str) -> str | None:
    try:
        return urlsplit(f"//{place}").hostname
    except ValueError:
        return None  # validation of the settings reports it


def _key_in(variable: str, text: str) -> str:
    """The secret in a variable: the key before the `@` of an upstream's address, or the whole text of any other."""
    if not variable.startswith(UPSTREAM_PREFIX) or "://" not in text:
        return text
    keyed, _, _ = text.partition("://")[2].rpartition("@")
    return unquote(keyed)
