"""Which upstreams a request may go to, in which order, and how its answer comes back. Spec: gateway.md [GW-80] ff."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from pipeline.display import meant
from pipeline.gateway.sections import Name, Seconds, Section

Target = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}(/[A-Za-z0-9._@:/-]{1,200})?$")]
Aliases = Mapping[str, tuple[str, ...]]


def _chain(said: object) -> object:
    """A chain as one word, `claude,local/llama3:8b`, as its targets."""
    return [one.strip() for one in said.split(",")] if isinstance(said, str) else said


Chain = Annotated[tuple[Target, ...], BeforeValidator(_chain, json_schema_input_type=str | list[str])]


class WindowMode(Section):
    """Text goes out as it was judged: each time `window` more characters have come, or an eighth of all that came."""

    window: Annotated[int, Field(ge=1, le=65_536)]


class HealthSettings(Section):
    """When an upstream is left alone, and for how long: twice as long each time, up to `max_cooldown_seconds`."""

    failures: Annotated[int, Field(ge=1, le=1_000)] = 3  # in a row
    cooldown_seconds: Seconds = 1.0
    max_cooldown_seconds: Seconds = 60.0


class Candidate(NamedTuple):
    """One place that a request may go to: an upstream by name, and the model that it is asked for (None: as said)."""

    upstream: str
    model: str | None


class Destinations(Section):
    """Where the requests of a route go, and how their answers come back.

    `upstream` (with `model`) names one; `targets` several, tried in order: `upstream`, `upstream/model`, or an alias.
    """

    upstream: Name | None = None
    model: str | None = None
    targets: Chain = ()
    stream: Literal["buffer"] | WindowMode = "buffer"

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if (self.upstream is None) == (not self.targets):
            raise ValueError("give `upstream` or `targets`, one of them")
        if self.targets and self.model is not None:
            raise ValueError("with `targets`, write the model behind each: `upstream/model`")
        return self

    def candidates(self, aliases: Aliases) -> tuple[Candidate, ...]:
        """Where its requests may go, aliases resolved; of what is named twice, the first stays.

        Raises:
            ValueError: an alias that leads back to itself.
        """
        if self.upstream is not None:
            return (Candidate(self.upstream, self.model),)
        return tuple(dict.fromkeys(one for target in self.targets for one in _resolved(target, aliases, ())))


def check_routing(routes: Mapping[str, Destinations], aliases: Aliases, upstreams: Collection[str]) -> None:
    """Nothing, if every route (by its name) and alias leads to upstreams that there are; ValueError and why, if not."""
    for name in aliases:
        if name in upstreams:
            raise ValueError(f"alias {name} is also the name of an upstream")
        _check(f"alias {name}", tuple(_resolved(name, aliases, ())), upstreams)
    for name, route in routes.items():
        _check(f"route {name}", route.candidates(aliases), upstreams)


def _check(what: str, candidates: Collection[Candidate], upstreams: Collection[str]) -> None:
    if not candidates:
        raise ValueError(f"{what} leads nowhere")
    for one in candidates:
        if one.upstream not in upstreams:
            known = ", ".join(sorted(upstreams))
            hint = meant(one.upstream, upstreams, f"there are {known}" if known else "there is none")
            raise ValueError(f"{what} names no upstream or alias there is: {one.upstream}; {hint}")


def _resolved(target: str, aliases: Aliases, on_the_way: tuple[str, ...]) -> Iterator[Candidate]:
    if target in on_the_way:
        raise ValueError(f"alias {target} leads back to itself: {' → '.join((*on_the_way, target))}")
    if target in aliases:
        for each in aliases[target]:
            yield from _resolved(each, aliases, (*on_the_way, target))
    else:
        upstream, _, model = target.partition("/")
        yield Candidate(upstream, model or None)


__all__ = ["Candidate", "Chain", "Destinations", "HealthSettings", "Target", "WindowMode", "check_routing"]
