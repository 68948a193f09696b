"""The conversation before the value that is judged, and the origins of the tool calls in it.

A conversation is read only if a tool call's arguments are to be traced. What was read is kept for the session, so that
the next turn reads only its new messages. Spec: docs/spec/provenance.md, docs/spec/pipeline.md.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cmf.enums import ViewKind
from cmf.message.message import Message, PromptResultPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.tools import ToolDefinition
from cmf.message.transform import messages_of
from cmf.views.iterate import iter_views
from pipeline.approvals.needs import Asker
from pipeline.conversation.turn_cache import KeptTurn
from pipeline.decisions.approval import Approval
from pipeline.decisions.cancellation import Deadline
from pipeline.decisions.context import Context, SessionKey, owner_of, session_key
from pipeline.decisions.errors import ConfigError, PipelineError
from pipeline.decisions.paths import part_at
from pipeline.decisions.retention import FOREVER, Keep
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import identical_start
from pipeline.provenance.claims import Claims
from pipeline.provenance.index import Index
from pipeline.provenance.inference import InferenceMode, OwnTool, ToolFacts
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.sources import Origin
from pipeline.sessions.base import SessionStore

MAX_SESSIONS: Final = 256  # whose conversations are kept; the least recently used are forgotten first
MAX_WORK: Final = 4_000_000  # words of text, about, in all conversations that are kept
MAX_TRAILS: Final = 4  # per session: it has one as the client sent it, one as edited, and one for each of its agents
MAX_TOOLS: Final = 1_024  # definitions that are kept of a session
MAX_MESSAGES: Final = 10_000  # of a conversation that is judged message by message; older ones are forgotten

Look: TypeAlias = Callable[[Collection[str]], frozenset[str]]
Origins: TypeAlias = Mapping[str, Sequence[Origin]]
"""Path of a tool call's view → its origins."""


class Trail:
    """A conversation as far as it was read.

    Attributes:
        messages: those that were read.
        origins: for each of them, the origins of its tool calls, found in the messages before it.
        known: for each of them, and each of its parts, whether the part is believed (`Claims`).
        claims: reads on after the last message.
    """

    def __init__(self, profiles: Profiles, facts: ToolFacts) -> None:
        self.messages: tuple[Message, ...] = ()
        self.origins: list[Origins] = []
        self.known: list[tuple[bool, ...]] = []
        self.claims = Claims()
        self._index = Index(profiles, facts=facts)

    @property
    def work(self) -> int:
        """Roughly how much memory it takes, counted in words of text."""
        return self._index.work

    def leads_to(self, messages: Sequence[Message], end: int, facts: ToolFacts) -> bool:
        """Whether what was read so far is a beginning of the first `end` messages, so that it can be continued.

        Not if a tool that was called in it is another one by `facts` than it was when that was read.
        """
        known = len(self.messages)
        return known <= end and _alike(self.messages, messages) == known and self._index.holds_with(facts)

    def read(
        self,
        messages: tuple[Message, ...],
        end: int,
        look: Look,
        judged: Trail | None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Read on, up to index `end` (exclusive). `check` is called repeatedly, and raises when the time is over.

        `judged` has read the same messages as they were before this run edited them, if it did.
        """
        self._index.check = check
        start = len(self.messages)
        new = messages[start:end]
        digests = [self.claims.read(message) for message in new]
        found = look({digest for each in digests for digest in each if digest is not None})
        for number, (message, each) in enumerate(zip(new, digests, strict=True), start):
            known = tuple(digest is None or digest in found for digest in each)
            if judged is not None and number < len(judged.known) and len(judged.known[number]) == len(known):
                known = judged.known[number]  # a part that was edited in this run is believed if the original is
            self.origins.append(self.of(message))
            self._index.extend(message, known=known)
            self.known.append(known)
        if new:
            self.messages = messages[:end]

    def of(self, message: Message) -> Origins:
        """The origins of the tool calls in `message`, if it comes next: by the path of each call in it."""
        return {path: self._index.origins(call) for path, call in calls_in(message)}


@dataclass(slots=True)
class _Kept:
    """What is kept of a session: its conversation (None: unknown), its trails, and what its last turn settled."""

    messages: tuple[Message, ...] | None = None
    trails: list[Trail] = field(default_factory=list)
    tools: tuple[ToolDefinition, ...] = ()
    turn: KeptTurn | None = None
    keep: Keep = FOREVER
    found: frozenset[str] = frozenset()

    @property
    def work(self) -> int:
        return sum(trail.work for trail in self.trails) + (0 if self.turn is None else self.turn.work)


class History:
    """What one run knows of the conversation that its value belongs to. Not to be shared between threads.

    Attributes:
        seen: given some marks, those of them that are on record for the session.
        tools: the tools that the request in the context's history offers.
        facts: what is known of the tools that are called.
        found: all marks that were found on record so far, by this run and those before it.
        profiles: what is known of tools and resources.
        before: the conversation before a message or response; None if nothing is known of it. Requests bring their own.
        keep: how long the conversation may be kept [RET-4]; the runner sets it.
        turn: what the turn before settled. The runner replaces it by what this turn did, if it goes out.
        deadline: that of the run, if it has one; the runner sets it.
        asker: who asks, where an approval is required. standing: the approvals of values that stand for whoever asks.
    """

    def __init__(
        self,
        home: Histories,
        key: SessionKey,
        kept: _Kept,
        *,
        given: tuple[Message, ...] | None,
        seen: Look,
        tools: Sequence[ToolDefinition],
        facts: ToolFacts,
        found: set[str],
        owner: str | None,
    ) -> None:
        self.asker = Asker(key.subject, owner)
        self.profiles = home.profiles
        self.seen = seen
        self.found = found
        self.tools = tools
        self.facts = facts
        self.before = kept.messages if given is None else given
        self.keep: Keep = FOREVER
        self.turn = kept.turn if given is None else None
        self.deadline: Deadline | None = None
        self._home = home
        self._key = key
        self._given = given
        self._released = kept.messages or ()
        self._trails = kept.trails
        self._current: Trail | None = None

    def standing(self) -> tuple[Approval, ...]:
        """The approvals of values that stand for whoever asks. Raises StoreError."""
        return self._home.sessions.standing_approvals(self.asker.owner) if self.asker.owner is not None else ()

    def origins(self, value: Message | Response) -> Origins:
        """The origins of each tool call in `value`, found in the messages before it. For a request, call `read`.

        Raises:
            StoreError: the session store failed. ConfigError: a function that the host gave to the profiles failed.
        """
        with _failing_closed():
            trail = self._known()
            if isinstance(value, Message):
                return trail.of(value)
            each = (trail.of(choice.message).items() for choice in value.choices)
            return {f"choices[{at}].message.{path}": origins for at, own in enumerate(each) for path, origins in own}

    def read(self, messages: tuple[Message, ...], end: int | None = None) -> Trail:
        """The trail of `messages`, read before index `end` (None: to the end): the origins of each call, by message.

        Raises:
            StoreError, ConfigError: as `origins`.
        """
        with _failing_closed():
            return self._trail(messages, len(messages) if end is None else end)

    def marks(self, value: Traffic) -> frozenset[str]:
        """The digests to put on record when `value` goes out, so that later turns believe these parts [C4].

        A response, or a message judged by itself, is the host's word. The messages of a request are only claimed by a
        client: of those there are none.

        Raises:
            StoreError, ConfigError: as `origins`.
        """
        if isinstance(value, Request):
            return frozenset()
        own = messages_of(value)
        claims = Claims()
        if any(isinstance(part, ToolResultPart) for message in own for part in message.content):
            with _failing_closed():
                claims = self._known().claims
        return frozenset(digest for message in own for digest in claims.copy().read(message) if digest is not None)

    def new_messages(self, value: Traffic) -> Iterator[tuple[int | None, Message]]:
        """The messages of `value` that went out for the first time, each with its index in the conversation.

        The index is None where nothing is known of what came before.
        """
        if isinstance(value, Request):
            start = _alike(self._released, value.messages)
            yield from enumerate(value.messages[start:], start)
            return
        place = None if self.before is None else len(self.before)
        yield from ((place, message) for message in messages_of(value))

    def close(self, released: Traffic | None) -> None:
        """End the run and give its trails back. `released` went out, and continues the session's conversation."""
        self._home.put_back(self._key, self, self._trails, released)

    def continued(self, known: tuple[Message, ...] | None, released: Traffic | None) -> tuple[Message, ...] | None:
        """The session's conversation after the run, which was `known` so far."""
        if released is None:
            return known
        if isinstance(released, Request):
            return tuple(released.messages)
        before = known if self._given is None else self._given
        own = messages_of(released)
        if len(own) != 1:
            return before  # of several choices nobody knows yet which one the conversation goes on with
        return (*(before or ())[-MAX_MESSAGES:], *own)

    def _known(self) -> Trail:
        """The trail of `before`."""
        before = self.before or ()
        return self._trail(before, len(before))

    def _trail(self, messages: tuple[Message, ...], end: int) -> Trail:
        """The trail of the first `end` messages: the longest known trail that is their beginning, continued."""
        read = [trail for trail in self._trails if trail.leads_to(messages, end, self.facts)]
        trail = max(read, key=lambda one: len(one.messages), default=None) or Trail(self._home.profiles, self.facts)
        # It is not in the list while it reads, so that one that failed half-way is not given back.
        self._trails = [one for one in self._trails if one is not trail]
        look = frozenset if self._home.trusted else self.seen
        trail.read(messages, end, look, self._current, None if self.deadline is None else self.deadline.check)
        self._current = trail
        self._trails.insert(0, trail)
        return trail


class Histories:
    """The conversations that this process keeps, by session. Safe to share between threads.

    Args:
        sessions: the record of what was judged here.
        trusted: whether the history that clients send is believed without a record of it [C4].
        noting: whether the marks that were found are remembered, for the content that is kept with records.
        inference: whether tools are known by their definitions, too.
    """

    def __init__(
        self,
        profiles: Profiles,
        sessions: SessionStore,
        *,
        trusted: bool = False,
        noting: bool = False,
        inference: InferenceMode = "off",
        max_sessions: int = MAX_SESSIONS,
        max_work: int = MAX_WORK,
    ) -> None:
        self.profiles = profiles
        self.sessions = sessions
        self.trusted = trusted
        self._noting = noting
        self._inference: InferenceMode = inference
        self.own_tool: OwnTool | None = None
        """Finds the definition of one of the host's own functions; asked where nobody offered a tool of the name."""
        self._max_sessions = max_sessions
        self._max_work = max_work
        self._kept: OrderedDict[SessionKey, _Kept] = OrderedDict()
        self._work = 0
        self._lock = threading.Lock()

    def open(self, context: Context, now: int = 0, value: Traffic | None = None) -> History:
        """What is known of the conversation of one run, which has its trails for itself until it is closed.

        `value` is what the run is about. `now` is in microseconds since the epoch: what may not be kept until then is
        forgotten [RET-4].
        """
        key = session_key(context)
        history = context.history
        given = None if history is None else tuple(history.messages if isinstance(history, Request) else history)
        tools = history.tools if isinstance(history, Request) else ()
        with self._lock:
            if key in self._kept and self._kept[key].keep.over(now):
                self._forget(key)
            kept = self._kept.get(key) or _Kept()
            kept_trails, kept.trails = kept.trails, []
            self._work -= sum([trail.work for trail in kept_trails])
            taken = replace(kept, trails=kept_trails)
        offered = (value.tools if isinstance(value, Request) else tools) or taken.tools
        found = set(taken.found)

        def seen(digests: Collection[str]) -> frozenset[str]:
            known = self.sessions.seen(context, digests) if digests else frozenset()
            found.update(known)
            return known

        return History(
            self,
            key,
            taken,
            given=given,
            seen=seen,
            tools=tools,
            facts=ToolFacts(self.profiles.find, offered, mode=self._inference, own=self.own_tool),
            found=found,
            owner=owner_of(context),
        )

    def put_back(self, key: SessionKey, run: History, trails: Sequence[Trail], released: Traffic | None) -> None:
        """Keep for the session's next run what this one read, and what it settled, if something of it went out.

        Nothing is kept of a run without a session, or of data that may not be kept after the run [RET-4].
        """
        if key.session is None:
            return
        tools = released.tools if isinstance(released, Request | Response) else ()
        with self._lock:
            if not run.keep.after_run:
                self._forget(key)
                return
            kept = self._kept.setdefault(key, _Kept())
            kept.keep = min(kept.keep, run.keep, key=lambda one: one.until)
            self._kept.move_to_end(key)
            self._work -= kept.work
            kept.messages = run.continued(kept.messages, released)
            kept.trails = [*trails, *kept.trails][:MAX_TRAILS]
            kept.turn = kept.turn if released is None or run.turn is None else run.turn
            kept.tools = _replaced(kept.tools, tools) if tools else kept.tools
            kept.found = kept.found.union(run.found) if self._noting else kept.found
            self._work += kept.work
            while len(self._kept) > self._max_sessions or (self._kept and self._work > self._max_work):
                _, forgotten = self._kept.popitem(last=False)
                self._work -= forgotten.work

    # -- as a holder of content, for the sweep of retention -------------------------------------------------------

    name: Final = "conversations"

    def due(self, now: int, limit: int) -> Sequence[str]:
        """See `pipeline.decisions.retention.Holder`."""
        with self._lock:
            old = [_item(key) for key, kept in self._kept.items() if kept.keep.over(now)]
        return old[:limit]

    def erase(self, items: Sequence[str]) -> None:
        """See `pipeline.decisions.retention.Holder`."""
        with self._lock:
            for key in [key for key in self._kept if _item(key) in set(items)]:
                self._forget(key)

    def _forget(self, key: SessionKey) -> None:
        kept = self._kept.pop(key, _Kept())
        self._work -= kept.work


def _item(key: SessionKey) -> str:
    return f"{key.subject}/{key.session}"


def _replaced(known: Sequence[ToolDefinition], newer: Sequence[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """The tools, the newer in place of those of their name: a server lists its tools page by page."""
    names = {(tool.namespace, tool.name) for tool in newer}
    return (*(tool for tool in known if (tool.namespace, tool.name) not in names), *newer)[-MAX_TOOLS:]


def _alike(held: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages at the beginning have the same role and content; ids, times and labels may differ."""
    start = identical_start(held, messages)
    for place, (old, new) in enumerate(zip(held[start:], messages[start:], strict=False), start):
        if old is not new and (old.role is not new.role or old.content != new.content):
            return place
    return min(len(held), len(messages))


_HOLDING: Final = (ToolResultPart, PromptResultPart)  # parts that hold others
_CALLING: Final = (ToolCallPart, *_HOLDING)


def may_call(message: Message) -> bool:
    """Whether there can be a tool call in a message, by the kinds of its parts."""
    return any(isinstance(part, _CALLING) for part in message.content)


def calls_in(message: Message) -> Iterator[tuple[str, ToolCallPart]]:
    """The tool calls of a message, nested ones too, with the paths of their views."""
    if not any(isinstance(part, _HOLDING) for part in message.content):
        for place, part in enumerate(message.content):
            if isinstance(part, ToolCallPart):
                yield f"content[{place}]", part
    else:
        paths = (view.path for view in iter_views(message) if view.kind is ViewKind.TOOL_CALL)
        yield from ((path, part_at(message, path)) for path in paths)


@contextmanager
def _failing_closed() -> Iterator[None]:
    """A block that turns whatever the functions of the host raise into `ConfigError`, which refuses the run."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        hint = f"a function of the profiles, or the conversation, raised {type(error).__name__}"
        raise ConfigError("nobody can say where values come from", code="provenance.failed", hint=hint) from error
