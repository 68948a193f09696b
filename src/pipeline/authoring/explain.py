"""Why a rule hit, or at which expression it stopped, and with which values [D4]. Spec: docs/spec/policies.md [POL-51].

The engine has no tracer. Instead, a function is generated for every prefix of a definition's body, in the same package
of a second engine. The first prefix without a solution ends in the expression that failed, and the values of its
operands come from the prefix before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cmf.enums import ViewKind
from cmf.json.codec import dumps, loads
from pipeline.decisions.decision import Effect
from pipeline.decisions.errors import EngineError, PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import Definition, Path, Place, Survey, SurveyedRule, text_at
from pipeline.policy.entrypoints import is_generated
from pipeline.policy.policy_set import PolicySet
from pipeline.policy.portability import effect_paths

MAX_WAYS: Final = 5  # solutions of a body, or failures of an expression, that are reported
MAX_DEPTH: Final = 3  # how far references to other rules are followed
QUERY_SECONDS: Final = 5.0

Bindings: TypeAlias = Mapping[str, Any]

_NAME: Final = "cmf_why"
_VALUE: Final = "cmf_why_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A part of an expression, as written, and its value; `known` is False if it is undefined."""

    text: str
    known: bool
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """The first expression of a body that fails, for one solution of the expressions before it.

    `error` is the engine's code if it could not be evaluated; `behind` are the rules that it refers to.
    """

    text: str
    place: Place
    operands: tuple[Operand, ...]
    bindings: Bindings
    error: str = ""
    behind: tuple[Body, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """One definition, or one of its `else` branches, on one input.

    `ways` are the variable bindings of up to five solutions, and `values` the body's value for each. `held` of `of`
    expressions held, counting the value as one; `failing` are the failures, for up to five solutions. Fields that do
    not apply are empty.
    """

    name: str
    place: Place
    held: int
    of: int
    ways: tuple[Bindings, ...] = ()
    values: tuple[Any, ...] = ()
    failing: tuple[Failing, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether it has a solution."""
        return bool(self.ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWhy:
    """What one rule does with an input: the bodies of each effect."""

    rule: str
    bodies: Mapping[Effect, tuple[Body, ...]] = field(default_factory=dict)

    @property
    def hits(self) -> tuple[tuple[Effect, Body], ...]:
        """The bodies that hold."""
        return tuple((effect, body) for effect, bodies in self.bodies.items() for body in bodies if body.holds)

    @property
    def near_misses(self) -> tuple[tuple[Effect, Body], ...]:
        """The other bodies, the ones that got furthest first."""
        missed = [(effect, body) for effect, bodies in self.bodies.items() for body in bodies if not body.holds]
        return tuple(sorted(missed, key=lambda pair: (-pair[1].held / max(pair[1].of, 1), -pair[1].held)))


class Why:
    """Explains what the rules of a set, or the entrypoint of policies without rules, do with an input.

    For authors and reviewers, never in service: explanations contain values of the input.

    Raises:
        PolicyError: the set does not compile.
    """

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._texts = {module.path: module.text.encode() for module in policies.modules}
        self._survey = Survey([module for module in policies.modules if not is_generated(module)])
        self._bodies = _generated(self._survey, self._texts)
        beside = [(f"{_NAME}/{number}.rego", text) for number, text in enumerate(_modules(self._survey, self._bodies))]
        self._engine = EmbeddedEngine(
            [*policies.modules, *beside],
            policies.data,
            policies.entrypoints,
            use_compiled=False,
            strict_builtin_errors=policies.builtin_errors == "strict",
        )

    def rules(
        self,
        document: Mapping[str, Any] | bytes,
        *,
        only: Iterable[str] | None = None,
        query_seconds: float = QUERY_SECONDS,
    ) -> list[RuleWhy]:
        """What each rule for the kind of the document, a whole policy input, does with it, by id.

        `only` names the rules to explain, whatever their kinds. There are a few queries for each expression.

        Raises:
            PolicyError: no rule has this id. EngineError: the document is refused.
        """
        content = document if isinstance(document, bytes) else dumps(document)
        asking = _Queries(self, content, query_seconds)
        explained = []
        rules, kind = {rule.id: rule for rule in self._policies.rules}, loads(content).get("kind")
        for name in (only := None if only is None else list(only)) or ():
            if name not in rules:
                raise PolicyError(f"there is no rule {name}", hint=f"one of {', '.join(rules)}", code="policy.no-rule")
        of_kind = self._policies.rules_for(ViewKind(kind)) if kind in set(ViewKind) else ()
        for rule in of_kind if only is None else [rules[name] for name in only]:
            surveyed = {Effect(path[-1]): self._survey.rule(path) for path in effect_paths(rule)}
            bodies = {effect: asking.bodies(one, (), 0) for effect, one in surveyed.items() if one is not None}
            explained.append(RuleWhy(rule=rule.id, bodies=bodies))
        return explained

    def entrypoint(self, path: str, document: Mapping[str, Any] | bytes) -> tuple[Body, ...]:
        """What each definition of the rule `data.<package>.<rule>` does with the document.

        If its value is an object, the bodies of the rules that it refers to follow, because they make up its members.

        Raises:
            PolicyError: there is no such rule. EngineError: the document is refused.
        """
        rule = self._survey.rule(tuple(path.split(".")))
        if rule is None or rule.is_function:
            raise PolicyError(f"there is no rule {path}", hint="write data.<package>.<rule>", code="policy.no-rule")
        asking = _Queries(self, document if isinstance(document, bytes) else dumps(document))
        bodies = asking.bodies(rule, (), 0)
        if any(isinstance(value, Mapping) for body in bodies for value in body.values):
            asked = (self._survey.rules[number] for number in sorted(rule.uses))
            named = [one for one in asked if not one.is_function and not _is_plain(one)]
            bodies += tuple(body for one in named for body in asking.bodies(one, (), 1))
        return bodies


# -- generated functions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One expression: its text, its place, the operands' texts, and the variables bound after it."""

    text: str
    place: Place
    operands: tuple[str, ...]
    bound: tuple[str, ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generated:
    """A body as functions: `name_<n>` gives the solutions of n steps, `name_<n>_operands` the next step's operands."""

    name: str
    shown: str
    place: Place
    arguments: tuple[str, ...]
    steps: tuple[_Step, ...]


def _generated(survey: Survey, texts: Mapping[str, bytes]) -> dict[tuple[Path, int], list[_Generated]]:
    """The bodies of each definition, by rule and number of the definition."""
    generated: dict[tuple[Path, int], list[_Generated]] = {}
    numbers = itertools.count()
    for rule in survey.rules:
        for at, definition in enumerate(rule.definitions):
            generated[rule.path, at] = list(_bodies(rule, definition, texts[definition.place.module], numbers))
    return generated


def _bodies(rule: SurveyedRule, definition: Definition, text: bytes, numbers: Iterator[int]) -> Iterator[_Generated]:
    raw = definition.raw
    if definition.is_default:
        return
    arguments = tuple(text_at(text, span) for span in raw["arguments"])
    for body in raw["bodies"] or [{"statements": [], "value": None}]:
        steps = list(_steps(body["statements"], text, definition.place.module))
        value = body["value"] or raw["value"]
        if value is not None:
            bound = steps[-1].bound if steps else ()
            shown = text_at(text, value).strip()
            before = text[: value[0]]
            at = Place(definition.place.module, before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
            steps.append(_Step(text=f"{_VALUE} := {shown}", place=at, operands=(), bound=(*bound, _VALUE)))
        yield _Generated(
            name=f"{_NAME}_{next(numbers)}",
            shown=".".join(rule.path[1:]),
            place=definition.place,
            arguments=arguments,
            steps=tuple(steps),
        )


def _steps(statements: Sequence[Mapping[str, Any]], text: bytes, module: str) -> Iterator[_Step]:
    """The statements ordered so that each has its variables bound: Rego reorders bodies itself, prefixes cannot."""
    waiting = list(statements)
    local = {name for statement in statements for name in statement["binds"]}
    bound: list[str] = []
    while waiting:
        ready = (one for one in waiting if not (set(one["needs"]) & local) - set(bound))
        statement = next(ready, waiting[0])
        waiting.remove(statement)
        bound += [name for name in statement["binds"] if name not in bound]
        if statement["kind"] == "some":
            continue  # a declaration evaluates nothing; the variable is bound later
        yield _Step(
            text=text_at(text, statement["span"]),
            place=Place(module, statement["line"], statement["column"]),
            operands=tuple(text_at(text, span) for span in statement["operands"] if span is not None),
            bound=tuple(bound),
            is_negated=statement["kind"] == "not",
        )


def _modules(survey: Survey, bodies: Mapping[tuple[Path, int], list[_Generated]]) -> Iterator[str]:
    by_module: dict[str, list[str]] = {}
    for one in itertools.chain.from_iterable(bodies.values()):
        by_module.setdefault(one.place.module, []).extend(_functions(one))
    for module in survey.modules:
        if functions := by_module.get(module["path"]):
            parts = [f"package {'.'.join(module['package'][1:])}", *module["imports"], *functions]
            yield "\n\n".join(parts) + "\n"


def _functions(body: _Generated) -> Iterator[str]:
    head = f"({', '.join(body.arguments)})" if body.arguments else ""
    for count in range(len(body.steps) + 1):
        before = body.steps[count - 1].bound if count else ()
        shown = "{" + ", ".join(f'"{name}": {name}' for name in before) + "}" if before else "object.union({}, {})"
        held = "\n\t".join(step.text for step in body.steps[:count]) or "true"
        yield f"{body.name}_{count}{head} := [{shown} |\n\t{held}\n]"
        operands = body.steps[count].operands if count < len(body.steps) else ()
        if operands:
            values = ", ".join(f"[{_VALUE} | {_VALUE} := {operand}]" for operand in operands)
            yield f'{body.name}_{count}_operands{head} := [{{"bound": {shown}, "values": [{values}]}} |\n\t{held}\n]'


# -- queries -----------------------------------------------------------------------------------------------------------


class _Queries:
    """The queries about one document."""

    def __init__(self, why: Why, document: bytes, query_seconds: float = QUERY_SECONDS) -> None:
        self._why = why
        self._seconds = query_seconds
        self._document = document

    def bodies(self, rule: SurveyedRule, arguments: Sequence[Any], depth: int) -> tuple[Body, ...]:
        """The bodies of the rule; `arguments` are for functions."""
        package = ".".join(self._why._survey.packages[rule.definitions[0].place.module])
        generated = (one for number in range(len(rule.definitions)) for one in self._why._bodies[rule.path, number])
        return tuple(self._body(one, package, arguments, depth) for one in generated)

    def _body(self, body: _Generated, package: str, arguments: Sequence[Any], depth: int) -> Body:
        ways: list[dict[str, Any]] = [{}]
        for count in range(1, len(body.steps) + 1):
            found, error = self._query(package, f"{body.name}_{count}", arguments)
            if not found:
                step = body.steps[count - 1]
                asked = self._query(package, f"{body.name}_{count - 1}_operands", arguments)[0] if step.operands else []
                rows = asked or [{"bound": way, "values": []} for way in ways]
                failing = tuple(self._failing(body, step, row, error, depth) for row in rows[:MAX_WAYS])
                return Body(body.shown, body.place, held=count - 1, of=len(body.steps), failing=failing)
            ways = found
        values = tuple(way.pop(_VALUE, True) for way in ways[:MAX_WAYS])
        whole = len(body.steps)
        return Body(body.shown, body.place, ways=tuple(ways[:MAX_WAYS]), held=whole, of=whole, values=values)

    def _query(self, package: str, name: str, arguments: Sequence[Any]) -> tuple[list[Any], str]:
        """The value of a generated function, and the error code if it failed."""
        called = f"({', '.join(dumps(argument).decode() for argument in arguments)})" if arguments else ""
        try:
            answer = self._why._engine.query(f"{package}.{name}{called}", self._document, timeout_seconds=self._seconds)
        except (EngineError, PolicyError) as error:
            return [], error.code
        if "result" not in answer:
            return [], ""
        value = answer["result"][0]["expressions"][0]["value"]
        return (value if isinstance(value, list) else []), ""

    def _failing(self, body: _Generated, step: _Step, row: Mapping[str, Any], error: str, depth: int) -> Failing:
        """The failed step, for one solution of the steps before it: `row` has the bindings and its operands' values."""
        operands = tuple(
            Operand(text=text, known=bool(values), value=values[0] if values else None)
            for text, values in zip(step.operands, row["values"], strict=False)
        )
        return Failing(
            text=step.text.removeprefix(f"{_VALUE} := "),
            place=step.place,
            operands=operands,
            bindings=row["bound"],
            error=error,
            behind=tuple(self._behind(body, step, operands, depth, is_error=bool(error))),
        )

    def _behind(
        self, body: _Generated, step: _Step, operands: Sequence[Operand], depth: int, *, is_error: bool
    ) -> Iterator[Body]:
        """The bodies of the rules that the expression names, and of the function that it calls."""
        if depth >= MAX_DEPTH:
            return
        survey = self._why._survey
        for definition in survey.definitions():
            if definition.place != body.place:
                continue
            for read in definition.reads:
                within = read.place.line in _lines(step)
                rule = survey.rule_of(read.path) if within and read.path[0] == "data" else None
                if rule is not None and not rule.is_function and not _is_plain(rule):
                    bodies = self.bodies(rule, (), depth + 1)
                    # A defined rule is shown as an operand; one that is undefined, negated or fails needs explaining:
                    # of a rule with two values these are the bodies that give them.
                    is_shown = step.is_negated or is_error or not any(one.holds for one in bodies)
                    yield from bodies if is_shown else ()
            for call in definition.calls:
                if call.place.line not in _lines(step):
                    continue
                steps = tuple(call.name.split("."))
                rule = survey.rule(steps) or survey.rule((*survey.packages[definition.place.module], *steps))
                # An operand may be the call itself (`some x in f(y)`): then its arguments are not known.
                is_operand = any(f"{steps[-1]}(" in operand.text for operand in operands)
                known = [] if is_operand else [operand.value for operand in operands if operand.known]
                if rule is not None and rule.is_function and len(known) == len(call.arguments) == len(operands):
                    yield from self.bodies(rule, known, depth + 1)


def _lines(step: _Step) -> range:
    return range(step.place.line, step.place.line + step.text.count("\n") + 1)


def _is_plain(rule: SurveyedRule) -> bool:
    """Whether there is nothing to explain: the rule is an alias for a constant or a path of data."""
    return all(definition.known is not None for definition in rule.definitions)
