"""Where a request may be sent, in which order, and how the reply is returned. Spec: gateway.md [GW-80] ff."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from pipeline.decisions.display import meant
from pipeline.gateway.config.settings_base import Name, Seconds, Section, SettingError

Target = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}(/[A-Za-z0-9._@:/-]{1,200})?$")]
Aliases = Mapping[str, tuple[str, ...]]


def _chain(value: object) -> object:
    """The targets of a chain written as one string, `claude,local/llama3:8b`."""
    return [one.strip() for one in value.split(",")] if isinstance(value, str) else value


Chain = Annotated[tuple[Target, ...], BeforeValidator(_chain, json_schema_input_type=str | list[str])]


class WindowMode(Section):
    """Send text as soon as it is judged: after `window` more characters, or an eighth more if that is longer."""

    window: Annotated[int, Field(ge=1, le=65_536)]
    """How many new characters are judged at a time."""


class HealthSettings(Section):
    """After how many failures an upstream is skipped, and how long; that doubles up to `max_cooldown_seconds`."""

    failures: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Failures in a row after which it is skipped."""
    cooldown_seconds: Seconds = 1.0
    """How long it is skipped the first time."""
    max_cooldown_seconds: Seconds = 60.0
    """How long it is skipped at most."""


class Candidate(NamedTuple):
    """Where a request may be sent: the name of an upstream, and the model to ask for (None: the one requested)."""

    upstream: str
    model: str | None


class Destinations(Section):
    """Where the requests of a route are sent, and how their replies are returned.

    `upstream` (with `model`) names one; `targets` several, tried in order: `upstream`, `upstream/model`, an alias.
    """

    upstream: Name | None = None
    """The name of the upstream to ask."""
    model: str | None = None
    """The model to ask it for; by default the one that was requested."""
    targets: Chain = ()
    """Several to try in order: `upstream`, `upstream/model`, or an alias."""
    stream: Literal["buffer"] | WindowMode = "buffer"
    """`buffer` judges the whole reply first; `{window: 256}` sends text as soon as it is judged."""

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if (self.upstream is None) == (not self.targets):
            raise ValueError("give `upstream` or `targets`, one of them")
        if self.targets and self.model is not None:
            raise ValueError("with `targets`, write the model behind each: `upstream/model`")
        return self

    def candidates(self, aliases: Aliases) -> tuple[Candidate, ...]:
        """Where its requests may be sent, in order, with aliases resolved and repeats left out.

        Raises:
            SettingError: an alias that leads back to itself.
        """
        if self.upstream is not None:
            return (Candidate(self.upstream, self.model),)
        return tuple(dict.fromkeys(one for target in self.targets for one in _resolved(target, aliases, ())))


def check_routing(routes: Mapping[str, Destinations], aliases: Aliases, upstreams: Collection[str]) -> None:
    """Check that every route and alias leads to known upstreams. SettingError says which does not, and why."""
    for name in aliases:
        place = ("aliases", name)
        if name in upstreams:
            raise SettingError(f"alias {name} is also the name of an upstream", *place, hint="rename one of them")
        _check(f"alias {name}", tuple(_resolved(name, aliases, ())), place, {*upstreams, *aliases}, upstreams)
    for index, (name, route) in enumerate(routes.items()):
        known = {*upstreams, *aliases}
        _check(f"route {name}", route.candidates(aliases), ("routes", index), known, upstreams)


def _check(
    what: str,
    candidates: Collection[Candidate],
    place: tuple[str | int, ...],
    known: Collection[str],
    upstreams: Collection[str],
) -> None:
    if not candidates:
        raise SettingError(f"{what} has no target", *place, hint="write `upstream`, or `upstream/model`")
    for one in candidates:
        if one.upstream not in upstreams:
            names = ", ".join(sorted(known))
            hint = meant(one.upstream, known, f"there are {names}" if names else "there is none")
            raise SettingError(f"{what} names no upstream or alias there is: {one.upstream}", *place, hint=hint)


def _resolved(target: str, aliases: Aliases, path: tuple[str, ...]) -> Iterator[Candidate]:
    if target in path:
        why = f"alias {target} leads back to itself: {' → '.join((*path, target))}"
        raise SettingError(why, "aliases", path[-1], hint="write the name of an upstream in place of one of them")
    if target in aliases:
        for each in aliases[target]:
            yield from _resolved(each, aliases, (*path, target))
    else:
        upstream, _, model = target.partition("/")
        yield Candidate(upstream, model or None)
