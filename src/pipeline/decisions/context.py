"""The context of a run: the subject, the session, and other facts from the host. Spec: docs/spec/pipeline.md.

Identity never comes from the traffic: the context's subject replaces whatever a message claims [PIPE-2].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import AfterValidator

from cmf.errors import ShapeError
from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import Str, Value, replace, value
from cmf.message.message import AgentExtension, Extensions, HttpExtension, MCPExtension, Message, RequestExtension
from cmf.message.request import Request, Response
from cmf.message.security import (
    DataPolicies,
    DataPolicy,
    Headers,
    HttpHeaders,
    Objects,
    ObjectSecurityProfile,
    SecurityExtension,
    StrSet,
    SubjectExtension,
)
from cmf.message.transform import messages_of, with_messages
from cmf.views.access import messages_inside
from pipeline.decisions.traffic import brought_labels, labels_of

_T = TypeVar("_T", bound=Message | Request | Response)
Texts = Annotated[dict[Str, Str], AfterValidator(frozen_mapping)]


@value
class Context(Value):
    """The facts of one run, from the host.

    Attributes:
        subject: the caller, authenticated by the host; None is anonymous.
        session: the session's id; None for a run without one.
        environment: the environment of the request, such as `production`, if neither `request` nor the traffic has one.
        request: ids and trace of the request; replaces those of the traffic.
        agent: the agent; replaces what the traffic claims.
        headers: HTTP headers of the request, by name. Nothing shows the values of sensitive ones but `get_header`.
        labels: labels for all of its messages.
        classification: the classification of its data.
        objects: the access requirements of entities, by URI, `namespace/name` or name.
        data: the data policies of entities, by URI, `namespace/name` or name.
        custom: facts for your own rules (`input.extensions.custom`), for messages that have none.
        history: the conversation before a reply, or before a single message, for the origins of its tool calls. By
            default, the conversation that this process last saw in the session. Stages do not get it.
        call_id: the id of a call that is being made now, which counts as a new call. Without it, an equal call at the
            same place of the conversation counts as the same call.
        released: how many characters of a reply were already sent when it is judged again; for the record.
        recorded: further names and texts of the host for the record; nothing from the traffic.
        spent: approvals that were used for the same request at another upstream, which did not answer; they are valid.
        claimed: whether a model's or tool's answer is only claimed to be one; then it is not remembered as known.
    """

    subject: SubjectExtension | None = None
    session: Str | None = None
    environment: Str | None = None
    request: RequestExtension | None = None
    agent: AgentExtension | None = None
    headers: Headers = HttpHeaders()
    labels: StrSet = frozenset()
    classification: Str | None = None
    objects: Objects = FrozenDict()
    data: DataPolicies = FrozenDict()
    custom: FrozenDict | None = None
    history: Request | tuple[Message, ...] | None = None
    call_id: Str | None = None
    released: int | None = None
    recorded: Texts = FrozenDict()
    spent: StrSet = frozenset()
    claimed: bool = False

    def get_header(self, name: str) -> str | None:
        """The header's value, whatever the case of its name, also of a sensitive one; None without it."""
        return HttpHeaders(self.headers).get_header(name)


def as_context(given: object) -> Context:
    """Return `given`. Raises TypeError: it is not a Context; also for None, so that facts are not lost unnoticed."""
    if not isinstance(given, Context):
        raise TypeError(f"a context is a Context, not a {type(given).__name__}; write `Context(subject=…, session=…)`")
    return given


def as_subject(given: SubjectExtension | Mapping[str, Any]) -> SubjectExtension:
    """A subject from a value or its fields. Raises ShapeError at `subject`."""
    try:
        return SubjectExtension.model_validate(dict(given) if isinstance(given, Mapping) else given)
    except ShapeError as error:
        error.hint = error.hint or "write {'id': …, 'roles': […]}"
        raise error.at("subject") from None


class Known(NamedTuple):
    """What is known of the entities that one message names: labels, access profiles, data policies, MCP metadata."""

    labels: frozenset[str] = frozenset()
    objects: Mapping[str, ObjectSecurityProfile] = FrozenDict()
    data: Mapping[str, DataPolicy] = FrozenDict()
    mcp: MCPExtension | None = None


NOTHING_KNOWN: Final = Known()


def ingest(
    traffic: _T,
    context: Context,
    session_labels: frozenset[str],
    known: Sequence[Known] = (),
    *,
    before: frozenset[str] = frozenset(),
    done: tuple[Message, ...] = (),
) -> _T:
    """`traffic` with the context's facts in the extensions of each message; equal extensions are one shared object.

    Labels that a message and those inside it bring, those of its data (`known`, one per message), of all earlier
    messages (`before`, and those in the traffic), of the context and of the session are united: labels only grow
    [PIPE-4]. `done` are the first messages of a request as an earlier call with the same facts returned them.
    """
    messages = messages_of(traffic)[len(done) :]
    before |= context.labels | session_labels
    if context.agent is not None and context.agent.conversation is not None:
        before = before.union(*map(brought_labels, context.agent.conversation.history or ()))
    before = before.union(labels_of(done[-1])) if done else before
    arrivals = known[len(done) :] if known else (NOTHING_KNOWN,) * len(messages)
    if arrivals.count(NOTHING_KNOWN) == len(arrivals) and all(
        one.extensions is None and not messages_inside(one) for one in messages
    ):
        shared = _extensions(_NONE, context, before, NOTHING_KNOWN)  # the common case: traffic from a wire format
        return with_messages(traffic, done + tuple([replace(one, extensions=shared) for one in messages]))
    labels = carried_labels(messages, arrivals, before, together=isinstance(traffic, Response))
    made: dict[tuple[int, frozenset[str], int], Extensions] = {}
    new = []
    for message, about, carried in zip(messages, arrivals, labels, strict=True):
        own = message.extensions
        key = (id(own), carried, id(about))
        if key not in made:
            made[key] = _extensions(_NONE if own is None else own, context, carried, about)
        new.append(replace(message, extensions=made[key]))
    return with_messages(traffic, done + tuple(new))


def carried_labels(
    messages: Sequence[Message], known: Sequence[Known], before: frozenset[str], *, together: bool
) -> list[frozenset[str]]:
    """The labels of each message: its own, those of its data, and of all before it.

    Choices, which stand `together`, share theirs [C3].
    """
    own = [brought_labels(one) | about.labels for one, about in zip(messages, known, strict=True)]
    if together:
        return [before.union(*own)] * len(own)
    carried = []
    for labels in own:
        before |= labels
        carried.append(before)
    return carried


_NONE: Final = Extensions()
_NO_SECURITY: Final = SecurityExtension()


def _extensions(own: Extensions, context: Context, labels: frozenset[str], known: Known) -> Extensions:
    security, at, session = own.security or _NO_SECURITY, context.environment, context.session
    own_request = None if at is None else RequestExtension(environment=at)
    own_agent = None if session is None else AgentExtension(session_id=session)
    return replace(
        own,
        request=context.request or own.request or own_request,
        agent=context.agent or own.agent or own_agent,
        http=HttpExtension(headers=context.headers) if context.headers else own.http,
        security=replace(
            security,
            labels=labels,
            classification=context.classification or security.classification,
            subject=context.subject,
            # Access requirements and data policies never come from the traffic.
            objects=frozen_mapping({**context.objects, **known.objects}) if known.objects else context.objects,
            data=frozen_mapping({**context.data, **known.data}) if known.data else context.data,
        ),
        mcp=known.mcp or own.mcp,
        custom=context.custom if own.custom is None else own.custom,
    )


def labelled(message: Message, labels: frozenset[str]) -> Message:
    """`message` with `labels` added to its own; the same object where that adds nothing."""
    extensions = message.extensions or _NONE
    security = extensions.security or _NO_SECURITY
    if labels <= security.labels:
        return message
    security = replace(security, labels=security.labels | labels)
    return replace(message, extensions=replace(extensions, security=security))


_NOBODY: Final = "anonymous"


class SessionKey(NamedTuple):
    """Whose session it is, and which: `subject` is `id:<subject id>` or `anonymous`; no session is None."""

    subject: str
    session: str | None


def session_key(context: Context) -> SessionKey:
    """The key of the context's session; equal session ids of two subjects give two keys."""
    subject = subject_key(None if context.subject is None else context.subject.id)
    return SessionKey(subject, context.session)


def owner_of(context: Context) -> str | None:
    """For whom approvals of values stand: the subject's tenant, or a subject without one; None for somebody unknown.

    The tenant is a claim that the host vouches for.
    """
    subject = context.subject
    if subject is None or not subject.id:
        return None
    tenant = (subject.claims or {}).get("tenant")
    return f"tenant:{tenant}" if isinstance(tenant, str) and tenant else subject_key(subject.id)


def subject_key(subject: str | None) -> str:
    """A subject by its id, as keys and rows name it: `id:<subject id>`, or `anonymous`, which is nobody's."""
    return _NOBODY if subject is None else f"id:{subject}"


def stored_subject(subject: str) -> str:
    """A subject as rows name it, from what people write: its id, or `anonymous`."""
    return subject if subject == _NOBODY else subject_key(subject)


def shown_subject(key: str) -> str:
    """A subject as people write it, from what rows have."""
    return key.removeprefix("id:")
