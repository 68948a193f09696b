"""How traffic comes in: with the context's facts, what is registered of it, and the rule on its data. Spec: data.md.

After the stages it is looked at again, if they changed something: what they brought in brings its labels too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cmf.message import Message
from cmf.request import Request
from cmf.security import RetentionPolicy
from pipeline.context import Context, carried_labels, ingest, labelled
from pipeline.data_policy import DataRule
from pipeline.draft import labels_of, messages_of, with_messages
from pipeline.policy_input import SessionFacts
from pipeline.profiles import Profiles
from pipeline.registry import Lookup, Registry, look_up, retention_of
from pipeline.stage import Traffic


@dataclass(frozen=True, slots=True)
class Ingested:
    """Traffic as it is judged. `before` is the conversation so far; None in requests, which bring it with them."""

    value: Traffic
    registry: Registry
    found: Lookup
    session: SessionFacts
    before: Sequence[Message] = ()

    @property
    def events(self) -> frozenset[tuple[str, str]]:
        """The labels that data brought, each with its source event: the session's taints [C3]."""
        return self.found.stamped(self.session.lifted)

    @property
    def retention(self) -> RetentionPolicy | None:
        """How long the data in it, and in its session, may be kept together; None where nobody limits it."""
        earlier = (policy for _, policy in self.registry.bound_to(self.session))
        return retention_of((*(one.policy for one in self.found.returned), *earlier))

    def rule(self) -> DataRule:
        """The rule on what the data may be used for, for this traffic."""
        return DataRule(self.registry, self.found.returned, self.session, reply=not isinstance(self.value, Request))

    def after(self, value: Traffic) -> Ingested:
        """The same for what the stages made of it; `self` where that is nothing."""
        if value is self.value:
            return self
        found = look_up(value, self.registry, self.session.lifted, self.before)
        labels = carried_labels(value, found.known, frozenset())
        messages = tuple(map(labelled, messages_of(value), labels))
        return Ingested(with_messages(value, messages), self.registry, found, self.session, self.before)


def take_in(
    traffic: Traffic, context: Context, session: SessionFacts, profiles: Profiles, before: Sequence[Message] | None
) -> Ingested:
    """`traffic` with the context's facts, what is registered of what it names, and the labels that its data brings.

    Raises:
        ConfigError: the registry failed: nobody knows what binds this traffic.
    """
    registry = Registry(profiles, context)
    so_far = () if isinstance(traffic, Request) or before is None else before
    found = look_up(traffic, registry, session.lifted, so_far)
    # What this process remembers is labelled in the session; what the host gives brings its labels with it.
    given = map(labels_of, so_far if context.history is not None else ())
    earlier = frozenset[str]().union(*given, *(one.stamped(session.lifted) for one in found.earlier))
    value = ingest(traffic, context, session.labels, found.known, before=earlier)
    return Ingested(value, registry, found, session, so_far)


__all__ = ["Ingested", "take_in"]
