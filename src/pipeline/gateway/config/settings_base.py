"""What all parts of `cmf.yaml` share. Spec: docs/spec/gateway.md [GW-1] ff."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cmf.errors import CmfError
from pipeline.decisions.decision import Mode
from pipeline.provenance.inference import InferenceMode

Step = int | str
ELSE: Final = "`cmf schema config` has all that may stand there"

_WORDS: Final = {
    "int": ("this is no whole number", "write digits alone"),
    "float": ("this is no number", "write digits alone: 20, not 20s"),
    "bool": ("this is neither true nor false", "write true or false"),
    "string": ("this is no text", "put it in quotes"),
    "tuple": ("this is no list", "put it in brackets: [one], or [one, two]"),
    "list": ("this is no list", "put it in brackets: [one], or [one, two]"),
    "dict": ("this is no mapping", "write {key: value}"),
    "model": ("this is no mapping", "write {key: value}"),
    "missing": ("it is missing", "write it"),
}
_SECRET: Final = ("a secret never stands in settings", "write {env: NAME} or {file: PATH}")
_SUBJECT: Final = "write {id: ci, roles: [agent]}"
_HASH: Final = ("this is no hash of a key", "`cmf config key` makes a key and its hash")


def first_of(findings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The finding to report: of a value that may be one of several things, the one that went furthest.

    An unknown key comes before a missing one beside it: it is often the missing one, misspelt.
    """
    first = findings[0]
    beside = [one for one in findings if one["loc"][: len(first["loc"]) - 1] == first["loc"][:-1]]
    return max(beside, key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))


def steps_in(body: Any, finding: Mapping[str, Any]) -> tuple[Step, ...]:
    """Where the finding is, without the names that pydantic gives to branches of a type."""
    *inner, last = finding["loc"] or ("",)
    steps: list[Step] = []
    value = body
    for step in inner:
        if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
            value = value[step]
            steps.append(step)
    new = finding["type"] == "missing"
    if finding["loc"] and (new or (isinstance(value, dict) and last in value) or isinstance(value, list)):
        steps.append(last)
    error = (finding.get("ctx") or {}).get("error")
    return (*steps, *error.steps) if isinstance(error, SettingError) else tuple(steps)


def said_of(finding: Mapping[str, Any], steps: Sequence[Step], value: Any) -> tuple[str, str]:
    """What is wrong, and what to write; of `value` nothing is quoted but a word that is near to one of a closed set."""
    kind = finding["type"]
    context = finding.get("ctx") or {}
    name = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if kind in ("model_type", "dict_type") and finding["msg"].endswith("Secret"):
        return _SECRET
    if name == "stream" and kind == "literal_error":
        return "this is no way to stream", "write buffer, or {window: 256}"
    if kind in ("literal_error", "enum"):
        expected = str(context.get("expected", ""))
        return _one_of(expected.replace("'off', ", "") if name == "mode" else expected, value)
    if kind == "string_pattern_mismatch":
        if name == "hash":
            return _HASH
        return "this cannot be written so", f"it has to match {context.get('pattern', '')}"
    if isinstance(error := context.get("error"), CmfError):
        why = error.message.rpartition(": ")[2].replace("Input should be a valid frozenset", "this is no list")
        return f"{why} ({error.path.removeprefix('$.')})", _SUBJECT
    if isinstance(error, SettingError):
        return str(error), error.hint
    if kind in ("value_error", "assertion_error"):
        why = str(finding["msg"]).removeprefix("Value error, ")
        return why, ELSE if steps else ""  # a message about all settings names what to write
    words = _WORDS.get(kind) or _WORDS.get(kind.split("_")[0])
    if words is not None:
        return words
    why = str(finding["msg"]).replace("Input should be", "it has to be").replace("String should", "it should")
    return why[:1].lower() + why[1:], ELSE


def _one_of(expected: str, value: Any) -> tuple[str, str]:
    words = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    if isinstance(value, bool) and "enforce" in words:  # YAML reads `off` as false
        return "no route goes without judgement: mode is enforce or observe", "write enforce or observe"
    written = str(value).casefold() if isinstance(value, str) else ""
    near = get_close_matches(written, words, n=1) or [word for word in words if written and written in word.split("_")]
    return f"this is none of {', '.join(words)}", f"did you mean {near[0]}?" if near else "write one of these"


def line_of(text: str, steps: Sequence[Step]) -> int:
    """The line of a value, or of the nearest enclosing setting that is written; 0 if there is none."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return 0
    line = 0
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, inner) for key, inner in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        else:
            found = None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingError(ValueError):
    """A setting that is refused, with its place below the section that was checked, and what to write instead."""

    def __init__(self, why: str, *steps: int | str, hint: str = "") -> None:
        super().__init__(why)
        self.steps = steps
        self.hint = hint


class Section(BaseModel):
    """A part of the file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Secret(Section):
    """Where a secret is read from when the gateway starts; the file never holds the secret itself."""

    env: str | None = None
    """The name of an environment variable."""
    file: Path | None = None
    """A file that holds nothing else."""

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("give either `env` or `file`")
        return self

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


def _bindable(host: str) -> str:
    if ":" in host:
        try:
            IPv6Address(host)
        except ValueError:
            hint = "write the host alone (IPv6 without brackets), and its port as `port`"
            raise SettingError("this is no address to listen on", hint=hint) from None
    return host


Host = Annotated[str, AfterValidator(_bindable)]
HostName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]

PageOrigin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[a-z0-9.:_-]+$|^https?://\[[0-9a-f:.]+\](:[0-9]+)?$")]
"""The origin of a page as browsers send it, `https://app.example`: no path, no slash at its end."""


def address(url: str) -> SplitResult:
    """The parts of a URL that can be connected to; ValueError says what is wrong with any other."""
    parts = urlsplit(url)
    if not all("!" <= character <= "~" for character in url):
        raise ValueError("a URL has no spaces and only ASCII characters")
    try:
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # or each request would find it out
        raise ValueError("its host or its port is not valid") from None
    return parts


def is_loopback(host: str) -> bool:
    """Whether a host name, or an address without brackets, is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def origin(url: str) -> str:
    """The address of a provider without a slash at its end; ValueError says what is wrong with any other text."""
    parts = address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError("this is no URL of a server", hint="write http://host or https://host")
    if parts.username is not None or parts.query or parts.fragment:
        hint = "write scheme, host, port and path only; set `key` for the key"
        raise SettingError("this URL holds more than an address", hint=hint)
    return url.rstrip("/")


def over_tls(url: str, why: str = "keys are fetched over https; http only from this machine") -> str:
    """The URL unchanged, if it is https or leads to this machine; ValueError says what is wrong with any other."""
    parts = address(url)
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("write https://host/path")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError(why)
    return url


class Judged(Section):
    """What is judged, by which policies and how."""

    policies: tuple[Path, ...] | None = None
    """Policy directories or bundles; by default those of the gateway."""
    mode: Mode | None = None
    """`enforce`, or `observe`: recorded, and nothing refused; by default that of the gateway."""
    inference: InferenceMode | None = None
    """Whether tools without a profile are known by their definitions; by default as for the gateway."""


_APIS: Final = re.compile(r"/(?:api/)?(?:v1|v1beta)(?:/(?:chat|chat/completions|responses|messages|models))?$")
_ENDPOINTS: Final = re.compile(r"/(?:api|api/chat|chat/completions)$")


def repeated_end(dialect: str, base_url: str) -> str:
    """The end of `base_url` that repeats what the dialect adds; empty if there is none."""
    found = _APIS.search(base_url) or _ENDPOINTS.search(base_url)
    if found is None or (found[0] == "/api" and dialect not in ("ollama", "openrouter")):
        return ""
    return found[0]
