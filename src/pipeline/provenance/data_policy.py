"""Data policies enforced: what data may be used for, wherever it goes [C13]. Spec: docs/spec/data.md.

A call is refused if an argument comes from data whose policy forbids what the tool does. The argument's origins tell;
if they are unknown, a label in force that the data brought does. This is a rule of the pipeline's own, so that no
policy set can leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cmf.enums import Role, ViewKind
from cmf.message.security import DataPolicy
from cmf.views.view import MessageView
from pipeline.decisions.decision import Effect, Hit
from pipeline.decisions.errors import PipelineError
from pipeline.decisions.paths import message_place
from pipeline.decisions.policy_input import SessionFacts
from pipeline.provenance.profile import DATA_ACTIONS
from pipeline.provenance.profiles import Entity
from pipeline.provenance.registry import Registry, Returned, remembered

RULE: Final = "data_policy"
DISPLAY: Final = frozenset({"display"})
_CALLS: Final = frozenset({ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST})
_SHOWN: Final = frozenset(
    {ViewKind.TEXT, ViewKind.THINKING, ViewKind.IMAGE, ViewKind.VIDEO, ViewKind.AUDIO, ViewKind.DOCUMENT}
)
_OWN_WORDS: Final = frozenset({"user", "system"})  # origins that are no data of a tool
_FOUNDED: Final = _OWN_WORDS | {"tool_result", "metadata", "resource"}  # origins that were found, not claimed
_NO_DATA: Final = frozenset({"call", "before", "boolean", "null", "empty"})  # entries that hold no copy of anything


class _Bound(NamedTuple):
    """A data policy with limits. `names` are the tools whose results are its data; None in it: data of no tool."""

    policy: DataPolicy
    names: frozenset[str | None]


class _Active(NamedTuple):
    """Data of the entity is in the conversation from that message of the traffic on; -1: from before the traffic."""

    uri: str
    since: int


class DataRule:
    """The rule for one run. `reply` says whether the traffic is shown to the user, rather than sent to a model."""

    def __init__(self, registry: Registry, returned: Sequence[Returned], session: SessionFacts, *, reply: bool) -> None:
        self._registry = registry
        self._reply = reply
        self._bound = _all_bound(registry, returned, session)
        self._active = tuple(_all_active(returned, session)) if self._bound else ()

    def upto(self, place: int) -> tuple[object, ...]:
        """What its hits on the messages before index `place` depend on, besides those messages and the profiles."""
        if not self._bound:
            return ()
        return self._bound, tuple(one for one in self._active if one.since < place)

    def __call__(self, view: MessageView, origins: Sequence[Mapping[str, Any]] | None) -> tuple[Hit, ...]:
        """The hits on one view: one for each policy that it breaks. It never raises; what fails inside is a deny."""
        if not self._bound:
            return ()
        try:
            if view.kind in _CALLS:
                return self._of_call(view, origins)
            if (
                self._reply
                and view.kind in _SHOWN
                and view.role is Role.ASSISTANT
                and "container" not in view.properties
            ):
                return tuple(self._hits(self._forbidding(DISPLAY, view), _before(self._active, view), "label"))
        except (PipelineError, LookupError, TypeError) as error:
            code = error.code if isinstance(error, PipelineError) else "data_policy.failed"
            return (_hit("data_policy.failed", {"problem": code}, "It is not known what this data may be used for."),)
        return ()

    def _of_call(self, view: MessageView, origins: Sequence[Mapping[str, Any]] | None) -> tuple[Hit, ...]:
        forbidding = self._forbidding(self._acts(view), view)
        if not forbidding:
            return ()
        active = _before(self._active, view)
        led = {uri for entry in origins or () for uri in self._led_to(entry, forbidding, active)}
        unknown = origins is None or any(map(_is_unknown, origins))
        return (
            *self._hits(forbidding, led, "origin"),
            *self._hits(forbidding, active - led if unknown else (), "label"),
        )

    def _acts(self, view: MessageView) -> frozenset[str] | None:
        """What the call does with data (its acts); None if that is unknown, which means any act."""
        name, own = view.name or "", view.properties
        if view.kind is ViewKind.TOOL_CALL:
            entity = Entity.tool(name, own.get("namespace"))
        else:
            entity = Entity.prompt(name, own.get("server_id"))
        found = self._registry.profiles.lookup(entity)
        return None if found is None or found.profile.actions is None else frozenset(found.profile.actions)

    def _forbidding(self, acts: frozenset[str] | None, view: MessageView) -> dict[str, str]:
        """The entities whose policy forbids one of the acts, each with that act."""
        found = {}
        for uri, bound in self._bound.items():
            act = forbidden(bound.policy, acts, view.action.value)
            if act is not None:
                found[uri] = act
        return found

    def _led_to(self, entry: Mapping[str, Any], forbidding: Mapping[str, str], active: frozenset[str]) -> Iterator[str]:
        """The entities in `forbidding` whose data a value may be a copy of, by the entry of its origins."""
        sources = entry["sources"]
        if entry.get("type") in _NO_DATA or any(source["kind"] in _OWN_WORDS for source in sources):
            return
        # What quotes no tool may quote whatever else came back in this conversation.
        names = {source.get("tool") for source in sources if source["kind"] != "assistant"}
        for uri in forbidding:
            common = self._bound[uri].names & names
            if common - {None} or (common and uri in active):
                yield uri

    def _hits(self, forbidding: Mapping[str, str], uris: Iterable[str], by: str) -> Iterator[Hit]:
        for uri in sorted(set(uris) & forbidding.keys()):
            listed = forbidding[uri] in self._bound[uri].policy.denied_actions
            code = "data_policy.denied" if listed else "data_policy.not-allowed"
            detail = {"policy": uri, "action": forbidding[uri], "by": by}
            yield _hit(code, detail, "This would use data in a way that its policy does not allow.")


def _hit(code: str, detail: Mapping[str, Any], reason: str) -> Hit:
    return Hit(rule=RULE, code=code, effect=Effect.DENY, reason=reason, severity="critical", detail=detail)


def forbidden(policy: DataPolicy, acts: frozenset[str] | None, view_action: str) -> str | None:
    """The first act that the policy forbids, in alphabetical order; None where all are allowed.

    `acts` is what is done with the data, None for any act. `view_action` is the view's own action (`execute`, say). It
    is looked up in the denied actions only: a list of allowed ones names acts on data, and being called is none.
    """
    denied = frozenset(policy.denied_actions)
    known = DATA_ACTIONS if acts is None else acts
    if denied - DATA_ACTIONS:  # an unknown word may mean any act
        return min(denied - DATA_ACTIONS)
    hit = denied & (known | {view_action})
    if hit:
        return min(hit)
    if policy.allowed_actions is None:
        return None
    return min((known or {view_action}) - frozenset(policy.allowed_actions), default=None)


def _all_bound(registry: Registry, returned: Sequence[Returned], session: SessionFacts) -> dict[str, _Bound]:
    """Every entity that is known to have a data policy with limits, by URI."""
    if not (registry or returned):
        return {}
    known = [(one.entity, one.policy, one.names) for one in returned]
    known += [(entity, policy, entity.names) for entity, policy in registry.policies()]
    known += [(entity, policy, entity.names) for entity, policy in registry.bound_to(session)]
    found: dict[str, _Bound] = {}
    for entity, policy, names in known:
        if policy is not None and (policy.denied_actions or policy.allowed_actions is not None):
            before = found.get(entity.uri)
            found[entity.uri] = _Bound(policy, names if before is None else names | before.names)
    return found


def _all_active(returned: Sequence[Returned], session: SessionFacts) -> Iterator[_Active]:
    here: set[str] = set()
    for one in returned:
        here.add(one.event)
        if not one.labels or one.stamped(session.lifted):
            yield _Active(one.entity.uri, one.message)
    for uri, events in remembered(session).items():
        if events - here:  # what is in the traffic counts from its own place on
            yield _Active(uri, -1)


def _before(active: Iterable[_Active], view: MessageView) -> frozenset[str]:
    """The entities whose data came in the view's message or before it."""
    place = message_place(view.path)
    return frozenset(one.uri for one in active if place is None or one.since <= place)


def _is_unknown(entry: Mapping[str, Any]) -> bool:
    """Whether a value may have come from anywhere: only the model has it, or the search for it was cut short."""
    if entry.get("type") in _NO_DATA:
        return False
    kinds = {source["kind"] for source in entry["sources"]}
    if kinds & _OWN_WORDS:
        return False
    return not kinds & _FOUNDED or "complete" in entry or "more" in entry
