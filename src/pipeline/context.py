"""Who asks, in which session, under which facts: what the host knows and the traffic does not. Spec: pipeline.md.

Identity never comes from the traffic: the context's subject replaces whatever a message claims [PIPE-2].
"""

from __future__ import annotations

from typing import TypeVar, cast

from cmf.extensions import AgentExtension, Extensions, Headers, HttpExtension, RequestExtension
from cmf.frozen import FrozenDict
from cmf.message import Message
from cmf.request import Request, Response
from cmf.security import DataPolicies, Objects, SecurityExtension, StrSet, SubjectExtension
from cmf.value import Str, Value, replace, value

_T = TypeVar("_T", bound=Message | Request | Response)


@value
class Context(Value):
    """The facts of one run. Without a subject the request is anonymous; without a session it stands alone.

    `history` is the conversation before a reply or a message that is judged by itself: where the values of its tool
    calls can have come from. Without it, what this process has last seen of the session counts. Stages do not get it.

    `call_id` is for whoever makes a call here and now, and knows that it is a new one: it is counted, whatever was said
    before. Without it, the same thing said at the same place of a conversation is the same call.
    """

    subject: SubjectExtension | None = None
    session: Str | None = None
    environment: Str | None = None
    request: RequestExtension | None = None
    agent: AgentExtension | None = None
    headers: Headers = FrozenDict()
    labels: StrSet = frozenset()
    classification: Str | None = None
    objects: Objects = FrozenDict()
    data: DataPolicies = FrozenDict()
    custom: FrozenDict | None = None
    history: Request | tuple[Message, ...] | None = None
    call_id: Str | None = None


def ingest(traffic: _T, context: Context, session_labels: frozenset[str]) -> _T:
    """`traffic` with the context's facts on each of its messages; messages without own extensions share one object.

    Labels that a message brings, those of the context and those of the session are united: labels only grow.
    """
    known_before: dict[int, Extensions] = {}

    def known(message: Message) -> Message:
        own = message.extensions
        extensions = known_before.get(id(own))
        if extensions is None:
            extensions = known_before[id(own)] = _extensions(own or Extensions(), context, session_labels)
        return replace(message, extensions=extensions)

    if isinstance(traffic, Message):
        return cast("_T", known(traffic))
    if isinstance(traffic, Request):
        return replace(traffic, messages=tuple(map(known, traffic.messages)))
    choices = tuple(replace(one, message=known(one.message)) for one in traffic.choices)
    return replace(traffic, choices=choices)


def _extensions(own: Extensions, context: Context, session_labels: frozenset[str]) -> Extensions:
    security = own.security or SecurityExtension()
    return replace(
        own,
        request=context.request or own.request or _request(context),
        agent=context.agent or own.agent or _agent(context),
        http=HttpExtension(headers=context.headers) if context.headers else own.http,
        security=replace(
            security,
            labels=security.labels | context.labels | session_labels,
            classification=context.classification or security.classification,
            subject=context.subject,
            objects=context.objects or security.objects,
            data=context.data or security.data,
        ),
        custom=context.custom if own.custom is None else own.custom,
    )


def _request(context: Context) -> RequestExtension | None:
    return RequestExtension(environment=context.environment) if context.environment is not None else None


def _agent(context: Context) -> AgentExtension | None:
    return AgentExtension(session_id=context.session) if context.session is not None else None


def labelled(message: Message, labels: frozenset[str]) -> Message:
    """`message` with `labels` added to its own; the same object where that adds nothing."""
    extensions = message.extensions or Extensions()
    security = extensions.security or SecurityExtension()
    if labels <= security.labels:
        return message
    security = replace(security, labels=security.labels | labels)
    return replace(message, extensions=replace(extensions, security=security))
