"""The METADATA of a rule's package. Spec: docs/spec/policies.md [POL-3] to [POL-6].

It is read once, when a policy set is loaded. Rego never reads it, because engines differ there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import yaml

from cmf.enums import Capability, ViewKind
from pipeline.decisions.decision import Effect, Mode, Severity
from pipeline.decisions.display import meant
from pipeline.decisions.errors import PolicyError
from pipeline.policy.lookahead import Lookaheads, lookaheads_of
from pipeline.policy.setting_schema import declaration_problem

RULES: Final = "cmf.rules"
"""Every rule's package is `cmf.rules.<category>.<rule>`."""

_KEYS: Final = frozenset({"code", "severity", "kinds", "capabilities", "mode", "standards", "stream"} | {"settings"})
_OPA_KEYS: Final = frozenset(
    {"scope", "title", "description", "related_resources", "authors", "organizations", "schemas", "entrypoint"}
    | {"custom", "compile"}
)
"""The annotations allowed outside `custom`; OPA ignores any other."""
_REQUIRED: Final = ("code", "severity", "kinds")
_CODE: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_PACKAGE: Final = re.compile(r"^[ \t]*package[ \t]+(?P<name>[^\s#]+)", re.MULTILINE)
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
# `data` is a keyword too, but is allowed inside a package path.
_KEYWORDS: Final = frozenset(
    {"as", "contains", "default", "else", "every", "false", "if", "import", "in", "input"}
    | {"not", "null", "package", "set", "some", "true", "with"}
)
_NOT_A_SET: Final = re.compile(
    rf"^[ \t]*(?:default[ \t]+)?(?P<effect>{'|'.join(Effect)})(?![ \t]+contains\b)[ \t]*(?:[\[{{(:=.]|if\b)"
)

_Choice = TypeVar("_Choice", bound=StrEnum)


class Module(NamedTuple):
    """One Rego file: `path` relative to its policy directory, with forward slashes, and its text.

    A tuple, because engines take it as a pair.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy set.

    `id` is `<category>/<rule>`; `effects` are the sets that its text can contribute to; `lookaheads` say how much of a
    stream's end to hold back (None: judge the whole text only) [D7]; `settings` are the schemas of its settings by name
    (None: it declares none, and anything may be set) [POL-68].
    """

    id: str
    package: str
    path: str
    title: str
    description: str
    code: str
    severity: Severity
    kinds: frozenset[ViewKind]
    capabilities: frozenset[Capability]
    mode: Mode
    standards: tuple[str, ...]
    effects: tuple[Effect, ...]
    lookaheads: Lookaheads | None
    settings: Mapping[str, dict[str, Any]] | None = field(default=None, hash=False)


def package_of(module: Module) -> str:
    """The name of the module's package, as written.

    Raises:
        PolicyError: no package declaration (code policy.no-package).
    """
    match = _PACKAGE.search(module.text)
    if match is None:
        _refuse(module, 1, "the file declares no package", "start the file with `package <path>`", "policy.no-package")
    return match["name"]


def is_rule(module: Module) -> bool:
    """Whether a module is meant as a rule: its path or its package says so."""
    return module.path.startswith("cmf/rules/") or f"{package_of(module)}.".startswith(f"{RULES}.")


@lru_cache(maxsize=256)  # reading YAML takes half of loading a set, and the next set has mostly the same files
def rule_of(module: Module) -> Rule:
    """The rule that a module under `cmf/rules` holds.

    Raises:
        PolicyError: its package, path, name, METADATA or sets break [POL-3] to [POL-6]; the code says which.
    """
    category, name = _names(module)
    line, annotations = _annotations(module)
    custom = {**_DEFAULTS, **_custom(module, line, annotations)}
    effects = _effects(module)
    title = _text(module, line, annotations, "title")
    fields = {key: read(module, line, custom[key]) for key, read in _READERS.items() if key in custom}
    return Rule(
        id=f"{category}/{name}",
        package=package_of(module),
        path=module.path,
        title=title,
        description=str(annotations.get("description", "")).strip(),
        effects=effects,
        lookaheads=fields.pop("stream"),
        **fields,
    )


def problems(module: Module) -> list[PolicyError]:
    """Every reason why the module is not a valid rule, where `rule_of` raises the first; empty if it is one."""
    found: list[PolicyError] = []
    reads: list[Callable[[], object]] = [partial(_names, module), partial(_effects, module)]
    try:
        line, annotations = _annotations(module)
    except PolicyError as error:
        found.append(error)
    else:
        reads.append(partial(_text, module, line, annotations, "title"))
        custom = annotations.get("custom")
        found += _outer_problems(module, line, annotations)
        if isinstance(custom, dict):
            found += _key_problems(module, line, custom)
            reads += [partial(read, module, line, custom[key]) for key, read in _READERS.items() if key in custom]
        else:
            reads.append(partial(_custom, module, line, annotations))
    for read in reads:
        try:
            read()
        except PolicyError as error:
            found.append(error)
    return found


def _names(module: Module) -> tuple[str, str]:
    steps = package_of(module).split(".")
    if len(steps) != 4 or ".".join(steps[:2]) != RULES:
        hint = f"name it {RULES}.<category>.<rule>"
        _refuse(module, _package_line(module), "this is not a rule's package", hint, "policy.bad-package")
    category, name = steps[2:]
    for step in (category, name):
        if not _NAME.fullmatch(step) or step in _KEYWORDS:
            hint = "use lower-case letters, digits and underscores, and no Rego keyword"
            _refuse(module, _package_line(module), f"{step!r} cannot name a rule", hint, "policy.reserved-name")
    place = f"cmf/rules/{category}/{name}/{name}.rego"
    if module.path != place:
        hint = f"move it to {place}, or rename its package"
        if module.path.endswith(f"/{place}"):
            hint = f"load the directory {module.path.removesuffix(f'/{place}')} instead of the one above it"
        _refuse(module, _package_line(module), "the package does not match the path", hint, "policy.bad-package")
    return category, name


def _annotations(module: Module) -> tuple[int, Mapping[str, Any]]:
    """The first line of the METADATA block right above `package`, and its content."""
    lines = module.text.splitlines()
    last = _package_line(module) - 1
    first = last
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    starts = [number for number in range(first, last) if lines[number].rstrip() == "# METADATA"]
    if not starts:
        hint = "put `# METADATA` and its YAML in comments right above `package`"
        _refuse(module, last + 1, "the rule has no METADATA", hint, "policy.no-metadata")
    start = starts[-1] + 1
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[start:last])
    try:
        value = load_yaml(text)
    except yaml.YAMLError as error:
        line, _, problem = yaml_problem(error)
        message, hint = f"METADATA is not valid YAML: {problem}", "check indentation and quotes there"
        _refuse(module, start + max(line, 1), message, hint, "policy.bad-metadata", error)
    if not isinstance(value, dict):
        _refuse(module, start + 1, "METADATA is not a mapping", "write `key: value` lines", "policy.bad-metadata")
    return start + 1, value


DUPLICATE_KEY: Final = "duplicate key"


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe types. A duplicate key is an error, because parsers disagree on which value wins."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError):  # PyYAML raises it for a date such as a 13th month
            problem = f"not a valid {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            keys = [key.value for key, _ in node.value]
            again = next((key for at, (key, _) in enumerate(node.value) if key.value in keys[:at]), node)
            raise yaml.constructor.ConstructorError(None, None, DUPLICATE_KEY, again.start_mark)
        return mapping


def load_yaml(text: str) -> Any:
    """The value of a YAML text: safe types only, no duplicate keys; raises yaml.YAMLError.

    With aliases expanded it may have `MAX_YAML_NODES` nodes at most: a few lines of them can expand to more than any
    memory holds.
    """
    loader = _StrictLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    finally:
        loader.dispose()


def yaml_problem(error: yaml.YAMLError) -> tuple[int, int, str]:
    """Line and column of the error, from 1 (0: not known), and the parser's message."""
    mark = getattr(error, "problem_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    return line, column, str(getattr(error, "problem", None) or error)


MAX_YAML_NODES: Final = 1_000_000


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes `node` has with every alias expanded."""
    if id(node) not in known:
        known[id(node)] = MAX_YAML_NODES  # until it is known: a node that contains itself is too large
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for entry in inner for part in (entry if isinstance(entry, tuple) else (entry,)))
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    if known[id(node)] > MAX_YAML_NODES:
        raise yaml.constructor.ConstructorError(None, None, "too large with its aliases expanded", node.start_mark)
    return known[id(node)]


def _custom(module: Module, line: int, annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    custom = annotations.get("custom")
    if not isinstance(custom, dict):
        _refuse(module, line, "METADATA has no `custom`", f"give it {', '.join(_REQUIRED)}", "policy.no-metadata")
    for problem in (*_outer_problems(module, line, annotations), *_key_problems(module, line, custom)):
        raise problem
    return custom


def _outer_problems(module: Module, line: int, annotations: Mapping[str, Any]) -> Iterator[PolicyError]:
    for key in sorted(str(key) for key in annotations if key not in _OPA_KEYS):
        known = f"known keys: {', '.join(sorted(_OPA_KEYS))}"
        hint = "put it under `custom:`" if key in _KEYS else meant(key, _OPA_KEYS, known)
        where = _line_of(module, line, key)
        yield _problem(module, where, f"unknown key {key} outside of custom", hint, "policy.bad-metadata")


def _line_of(module: Module, line: int, key: str) -> int:
    """The line of METADATA that sets `key`; `line` if there is none."""
    annotations = re.compile(rf"#[ \t]*{re.escape(key)}[ \t]*:")
    lines = enumerate(module.text.splitlines()[line - 1 : _package_line(module)], line)
    return next((number for number, text in lines if annotations.match(text)), line)


def _key_problems(module: Module, line: int, custom: Mapping[str, Any]) -> list[PolicyError]:
    known = f"known keys: {', '.join(sorted(_KEYS))}"
    unknown = sorted(str(key) for key in custom if key not in _KEYS)
    return [
        *(
            _problem(module, _line_of(module, line, key), f"unknown key custom.{key}", known, "policy.bad-metadata")
            for key in unknown
        ),
        *(
            _problem(module, line, f"METADATA has no custom.{key}", "add it under `custom:`", "policy.no-metadata")
            for key in _REQUIRED
            if key not in custom
        ),
    ]


def _text(module: Module, line: int, annotations: Mapping[str, Any], key: str) -> str:
    value = annotations.get(key)
    if not isinstance(value, str) or not value.strip():
        hint = f"describe the rule in one line: `{key}: …`"
        _refuse(module, line, f"METADATA has no {key}", hint, "policy.no-metadata")
    return value.strip()


def _rule_code(module: Module, line: int, code: object) -> str:
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        hint = "use lower-case words, as in `data.secret`"
        _refuse(module, _line_of(module, line, "code"), "custom.code is not a valid code", hint, "policy.bad-metadata")
    return code


def _stream(module: Module, line: int, value: object) -> Lookaheads | None:
    if value == "whole":
        return None
    lookaheads = lookaheads_of(value)
    if lookaheads is None:
        hint = (
            "write `stream: whole`, or how long a match is: `{max_match: <characters>}` (with `where: data.<path>`, if"
            " it takes that), `{max_word: <characters>}` (with `opened_by: [<text>]`), or a list of such"
        )
        where = _line_of(module, line, "stream")
        _refuse(module, where, "custom.stream is not a valid lookahead", hint, "policy.bad-metadata")
    return lookaheads


def _settings(module: Module, line: int, value: object) -> Mapping[str, dict[str, Any]]:
    problem = declaration_problem(value)
    if problem is not None:
        hint, where = "write `settings:` and a JSON Schema for each name below it", _line_of(module, line, "settings")
        _refuse(module, where, f"custom.settings: {problem}", hint, "policy.bad-metadata")
    return cast("Mapping[str, dict[str, Any]]", value)


def _strings(module: Module, line: int, key: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        message, where = f"custom.{key} is not a list of strings", _line_of(module, line, key)
        _refuse(module, where, message, f"write `{key}: [a, b]`", "policy.bad-metadata")
    return value


def _choices(module: Module, line: int, key: str, choices: type[_Choice], value: object) -> frozenset[_Choice]:
    words = _strings(module, line, key, value)
    if key == "kinds" and not words:
        hint = "list the view kinds that the rule judges"
        _refuse(module, _line_of(module, line, key), "custom.kinds is empty", hint, "policy.bad-metadata")
    return frozenset(_choice(module, line, key, choices, word) for word in words)


def _choice(module: Module, line: int, key: str, choices: type[_Choice], value: object) -> _Choice:
    if not isinstance(value, str) or value not in set(choices):
        code = f"policy.unknown-{'kind' if choices is ViewKind else key}"
        hint = meant(str(value), choices, f"use one of {', '.join(choices)}")
        _refuse(module, _line_of(module, line, key), f"unknown value {value!r} of custom.{key}", hint, code)
    return choices(value)


def _effects(module: Module) -> tuple[Effect, ...]:
    """The sets that the module contributes to, in order of precedence."""
    lines = module.text.splitlines()
    code = [(number, line) for number, line in enumerate(lines, 1) if not line.lstrip().startswith("#")]
    for number, line in code:
        if match := _NOT_A_SET.match(line):
            hint = f"write `{match['effect']} contains {{…}} if {{…}}`"
            _refuse(module, number, f"`{match['effect']}` is not defined as a set", hint, "policy.bad-effect")
    text = "\n".join(line for _, line in code)
    effects = tuple(effect for effect in Effect if re.search(rf"\b{effect}\s+contains\b", text))
    if not effects:
        _refuse(module, 1, "the rule contributes to no set", f"define one of {', '.join(Effect)}", "policy.no-effect")
    return effects


def _package_line(module: Module) -> int:
    match = _PACKAGE.search(module.text)
    return module.text.count("\n", 0, match.start()) + 1 if match else 1


_DEFAULTS: Final = {"capabilities": [], "mode": Mode.ENFORCE, "standards": [], "stream": "whole"}
_READERS: Final[Mapping[str, Callable[[Module, int, Any], Any]]] = {
    "code": _rule_code,
    "severity": lambda module, line, value: _choice(module, line, "severity", Severity, value),
    "kinds": lambda module, line, value: _choices(module, line, "kinds", ViewKind, value),
    "capabilities": lambda module, line, value: _choices(module, line, "capabilities", Capability, value),
    # YAML 1.1 reads a bare `off` as false. The intent is clear, and rejecting it would leave the rule on.
    "mode": lambda module, line, value: _choice(module, line, "mode", Mode, "off" if value is False else value),
    "standards": lambda module, line, value: tuple(_strings(module, line, "standards", value)),
    "stream": _stream,
    "settings": _settings,
}


def _problem(module: Module, line: int, message: str, hint: str, code: str) -> PolicyError:
    return PolicyError(message, path=module.path, line=line, hint=hint, code=code)


def _refuse(
    module: Module, line: int, message: str, hint: str, code: str, cause: BaseException | None = None
) -> NoReturn:
    raise _problem(module, line, message, hint, code) from cause
