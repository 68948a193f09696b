"""The library's front door: judge a message, a request or a response. Spec: docs/spec/guard.md.

guard = Guard()
outcome = guard.check(request, subject={"id": "ann", "roles": ["agent"]})

with guard.session("s1", subject={"id": "ann"}):
    send_mail(to="bob@example.com", body="hi")  # a function under @guard.tool
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar, Token
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, overload

from cmf.message.message import Message
from cmf.message.security import SubjectExtension
from cmf.message.tools import ToolDefinition
from cmf.models.capabilities import ModelCapabilities
from pipeline.conversation.references import Referred, mark, same_content
from pipeline.decisions.context import Context, as_context, as_subject
from pipeline.decisions.decision import Decision
from pipeline.decisions.errors import CallError, ConfigError, SessionError
from pipeline.decisions.events import Events
from pipeline.decisions.override import Overrides
from pipeline.decisions.stage import Stage, StageCall, Traffic
from pipeline.guarded.model import ModelCall, ModelFunction
from pipeline.guarded.tool import ToolCall, ToolFunction
from pipeline.guarded.wrapping import Begin, P, R, wrapped
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, EngineChoice, Policies
from pipeline.run.model_swap import Declared, ModelSession, declared, swap_model
from pipeline.run.outcome import Outcome, raised
from pipeline.run.pipeline import Pipeline
from pipeline.run.recording import Records
from pipeline.run.serving import Watcher
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes

if TYPE_CHECKING:
    from pipeline.store.database import Store

Subject = SubjectExtension | Mapping[str, Any]


class Guard:
    """Evaluates policy on traffic; safe to share between threads and tasks.

    Args:
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        engine: `embedded` (in this process), `opa` (a server at `config.opa_url`), or your own, with these policies.
        config: mode, deadline and other settings.
        stages: functions that run before policy is evaluated; see `pipeline.decisions.stage`.
        sessions: the session store; by default in the memory of this process.
        profiles: facts about tools and resources that policy can use.
        recorder: records every run before its outcome is returned; by default nothing is recorded.
        overrides: temporary permits that two people agreed on [EXC-10]; by default none.
        store: the database for sessions, records and overrides; an argument above replaces its part.

    Raises PolicyError: the policies cannot be used; it names file, line, column and reason.
    """

    def __init__(
        self,
        policies: Policies = None,
        *,
        engine: EngineChoice = "embedded",
        config: Config | None = None,
        stages: Sequence[Stage | StageCall] = (),
        sessions: SessionStore | None = None,
        profiles: Profiles | None = None,
        recorder: Records | None = None,
        overrides: Overrides | None = None,
        store: Store | None = None,
    ) -> None:
        if isinstance(store, str | PathLike):
            raise ConfigError("a store is no path", code="config.store", hint="write Store.at(file), and close it")
        if store is not None:
            from pipeline.store.recorder import Recorder  # imports SQLAlchemy, which nothing else here needs

            sessions, recorder = sessions or store.sessions(), recorder or Recorder(store)
            overrides = overrides or store.overrides()
        self._sessions = sessions or MemorySessions()
        self._pipeline = Pipeline(
            stages,
            policies=policies,
            engine=engine,
            config=config,
            sessions=self._sessions,
            profiles=profiles,
            recorder=recorder,
            overrides=overrides,
        )
        self._tools: list[ToolFunction] = []
        self._pipeline.own_tools(self._own_tool)
        self._own = object()  # identifies the blocks of this guard

    def __repr__(self) -> str:
        return f"<Guard: {self.policies!r}, tools: {len(self._tools)}>"

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def events(self) -> Events:
        """The events of this guard: `guard.events.subscribe(print)`."""
        return self._pipeline.events

    @property
    def revision(self) -> str:
        """The revision of `policies`: a SHA-256 in hexadecimal."""
        return self._pipeline.revision

    @property
    def policies(self) -> PolicySet:
        """The policy set that runs starting now use."""
        return self._pipeline.policies

    def reload(self, policies: Policies = None, *, by: str | None = None) -> str:
        """Replace the policy set for all runs that start from now on, and return its revision.

        The new set is first tried out in a separate process. Runs in progress finish with the set they started with.

        Args:
            policies: the new set; None reads the current files again.
            by: the id of the person or program that asked for it; the event names it.

        Raises PolicyError: the new set cannot be used; the current one stays in use.
        """
        return self._pipeline.reload(policies, by=by)

    def watch(self) -> Watcher:
        """Reload whenever a policy file changes, until the watcher is stopped: `with guard.watch(): …`."""
        return self._pipeline.watch()

    async def __aenter__(self) -> Guard:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the engine's connections, if it has any; `with Guard(...) as guard:` does so at its end."""
        self._pipeline.close()

    async def aclose(self) -> None:
        """`close` in a running event loop; `async with Guard(...) as guard:` does so at its end."""
        await self._pipeline.aclose()

    def check(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """Evaluate policy on `value`, and return the outcome with the value that may be sent.

        Args:
            value: a message, request or response.
            subject: the caller, authenticated by the host; None is anonymous.
            session: the session's id; labels and counters of a session last from call to call.
            context: further facts of the run; `subject` and `session` given here replace those in it.

        Raises:
            Denied: policy refused it. ApprovalRequired: a person must approve it first.
            PolicyUnavailable: policy could not be evaluated.
        """
        return raised(self.run(value, subject=subject, session=session, context=context))

    async def acheck(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`check` as a coroutine."""
        return raised(await self.arun(value, subject=subject, session=session, context=context))

    def decide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """Evaluate policy on `value`, and return the decision; a refusal is returned too, never raised."""
        return self.run(value, subject=subject, session=session, context=context).decision

    async def adecide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """`decide` as a coroutine."""
        return (await self.arun(value, subject=subject, session=session, context=context)).decision

    def run(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`check` that returns refusals too: for hosts that turn them into answers of their own."""
        return self._pipeline.run(value, self._context(context, subject, session))

    async def arun(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`run` as a coroutine."""
        return await self._pipeline.arun(value, self._context(context, subject, session))

    # -- around code ---------------------------------------------------------------------------------------------------

    def session(self, id: str, *, subject: Subject | None = None, context: Context | None = None) -> Block:
        """A block for `with` or `async with`: what this guard judges inside it belongs to session `id`.

        Blocks nest: an inner block without a subject has that of the outer one. Tasks inherit the block in which they
        were created, threads do not. A generator runs in the block of the code that asks for its first item.

        Args:
            id: the session's id; the same id for two subjects is two sessions.
            subject: the caller, authenticated by the host.
            context: further facts, for everything in the block.
        """
        return Block(self._own, self._context(context, subject, id))

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        namespace: str | None = None,
        schema: Mapping[str, Any] | None = None,
        private: Collection[str] = (),
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        namespace: str | None = None,
        schema: Mapping[str, Any] | None = None,
        private: Collection[str] = (),
    ) -> Any:
        """Make the function a tool: each call is judged before it is made, and its result before it is returned.

        The function gets the arguments after policy's edits, validated against its schema; the caller gets the result
        after policy's edits, in the function's own type. What a generator yields is held until it was judged. The
        function's exceptions are events; they pass through if policy leaves what they say, judged as a result.

        Args:
            function: a function, coroutine function, generator or async generator.
            name: the tool's name for policy; by default that of the function.
            namespace: the tool's namespace (`tool://<namespace>/<name>`).
            schema: the JSON Schema of the arguments; by default generated from the annotations.
            private: parameters that are not input (`self`, a connection): passed on, not judged.

        Raises (when called):
            Denied, ApprovalRequired, PolicyUnavailable: as `check` does. If the call was refused, it was not made; if
                its result was refused, the result is withheld.
            ToolInputError: the arguments do not match the schema. CallError: a value cannot be judged.
        """

        def made(function: Callable[..., Any]) -> Callable[..., Any]:
            tool = ToolFunction(function, name=name, namespace=namespace, schema=schema, private=private)
            self._tools = [one for one in self._tools if one.uri != tool.uri] + [tool]  # a notebook cell may run again
            return self._wrapped(
                function, lambda args, kwargs: ToolCall(tool, self._context(), self.events, args, kwargs)
            )

        return made if function is None else made(function)

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The definitions of all functions made tools, to offer to a model; the latest of each name."""
        return tuple(tool.definition for tool in self._tools)

    @overload
    def model(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def model(
        self, /, *, model: str | None = None, dialect: str | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def model(
        self, function: Callable[..., Any] | None = None, /, *, model: str | None = None, dialect: str | None = None
    ) -> Any:
        """Make the function a model: each request is judged before the call, and its response before it is returned.

        The function takes one `Request` and returns a `Response`. With `dialect`, it takes a body of that wire format,
        whole or as keyword arguments, and returns a body. A generator yields canonical stream events, or with `dialect`
        those of the format; they are held until all were judged, and then generated anew from the judged response.

        Args:
            function: a function, coroutine function, generator or async generator.
            model: the `<provider>:<model>` that is called, whatever the request says; by default that of the request.
            dialect: a wire format (`openai_chat`, `anthropic_messages` …), or None.

        Raises (when called): as `tool` does; CmfError: a body cannot be read.
        """

        def made(function: Callable[..., Any]) -> Callable[..., Any]:
            model_function = ModelFunction(function, model=model, dialect=dialect)
            return self._wrapped(
                function, lambda args, kwargs: ModelCall(model_function, self._context(), self.events, args, kwargs)
            )

        return made if function is None else made(function)

    # -- content by reference ------------------------------------------------------------------------------------------

    def refer(
        self,
        kind: Referred | str,
        id: str,
        content: Message,
        *,
        subject: Subject | None = None,
        session: str | None = None,
    ) -> Outcome:
        """Judge content that the provider stores under `id`; requests of this session may then refer to it.

        For content that reaches the provider in other ways than by requests (an upload, for example). Without this, a
        reference to it is refused.

        Args:
            kind: `file`, `cache`, `prompt` …
            id: the id that requests will use.
            content: everything that is stored under it.
            subject: by default that of the block around the call.
            session: likewise.

        Raises:
            Denied, ApprovalRequired, PolicyUnavailable: as `check` does. CallError: policy changed the content, so what
                is stored is not what policy allowed. SessionError: there is no session. StoreError: the store failed.
        """
        context = self._context(None, subject, session)
        if context.session is None:
            raise SessionError("this needs a session", code="session.none", hint="give a session id")
        outcome = self.check(content, context=context)
        if outcome.value is None or not same_content(content, outcome.value):
            hint = "store the content as policy changed it instead"
            raise CallError("policy changed the content under this id", code="reference.changed", hint=hint)
        self._sessions.commit(context, None, Changes(seen=frozenset({mark(Referred(kind), id)})))
        return outcome

    # -- replies that waited for an approval ---------------------------------------------------------------------------

    def release(
        self,
        approval_id: str,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """Release a model's reply that was suspended and is approved now: see `Pipeline.release`.

        Raises ApprovalError: not approved, already used, unknown, or no reply was kept. StoreError: there is no store.
        """
        return self._pipeline.release(approval_id, self._context(context, subject, session))

    async def arelease(
        self,
        approval_id: str,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`release` as a coroutine."""
        return await self._pipeline.arelease(approval_id, self._context(context, subject, session))

    # -- the session's model -------------------------------------------------------------------------------------------

    def swap_model(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        subject: Subject | None = None,
        session: str | None = None,
        capabilities: Declared = declared,
        name: str | None = None,
    ) -> ModelCapabilities:
        """Make `model` the session's active model, and return its capabilities; see `pipeline.run.model_swap`.

        Args:
            model: `<provider>:<model>`.
            messages: the messages of the session.
            subject: by default that of the block around the call.
            session: likewise.
            capabilities: looks up what a model supports; by default in the shipped table.
            name: the model's name in messages to the user.

        Raises UnsupportedError: the model does not support what the session contains. Others: as there.
        """
        known = self._context(None, subject, session)
        own = ModelSession(context=known, messages=messages, sessions=self._sessions, events=self.events)
        return swap_model(own, model, capabilities=capabilities, name=name)

    def active_model(self, *, subject: Subject | None = None, session: str | None = None) -> str | None:
        """The session's active model; None if it was never swapped."""
        return self._sessions.read(self._context(None, subject, session)).active_model

    def _own_tool(self, name: str, namespace: str | None) -> ToolDefinition | None:
        named = (tool.definition for tool in self._tools if (tool.name, tool.namespace) == (name, namespace))
        return next(named, None)

    def _wrapped(self, function: Callable[P, R], begin: Begin) -> Callable[P, R]:
        async def judge(value: Traffic, context: Context) -> Outcome:
            return raised(self._pipeline.run(value, context))

        async def ajudge(value: Traffic, context: Context) -> Outcome:
            return raised(await self._pipeline.arun(value, context))

        return wrapped(function, begin, judge, ajudge)

    def _context(
        self, context: Context | None = None, subject: Subject | None = None, session: str | None = None
    ) -> Context:
        """The context of a run: what is given, otherwise that of the block around the call."""
        known = within(context, _KNOWN.get({}).get(self._own))
        given = {"subject": None if subject is None else as_subject(subject), "session": session}
        return known.model_copy(update={name: value for name, value in given.items() if value is not None})


_KNOWN: Final[ContextVar[Mapping[object, Context]]] = ContextVar("pipeline.guard")
"""The context of each guard's innermost block. Tasks inherit it from where they were made, and never see each other's.

A thread that is started by hand begins without one. Spec: guard.md [GRD-6].
"""


def within(context: Context | None, outer: Context | None) -> Context:
    """`context`, with subject and session of the enclosing block where it has none, and the labels of both."""
    if context is None:
        return outer or Context()
    if outer is None:
        return as_context(context)
    return as_context(context).model_copy(
        update={
            "subject": outer.subject if context.subject is None else context.subject,
            "session": outer.session if context.session is None else context.session,
            "labels": context.labels | outer.labels,
        }
    )


class Block:
    """A context manager, also asynchronous, to be entered once: its context applies to all runs inside the block."""

    def __init__(self, owner: object, context: Context) -> None:
        self._owner = owner
        self._context = context
        self._token: Token[Mapping[object, Context]] | None = None
        self._used = False

    def __enter__(self) -> Context:
        """The context that holds from here on."""
        if self._used:
            raise RuntimeError("this block was entered before: make another")
        self._used = True
        known = {**_KNOWN.get({}), self._owner: self._context}
        self._token = _KNOWN.set(known)
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _KNOWN.reset(self._token)
            self._token = None

    async def __aenter__(self) -> Context:
        """The same."""
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


__all__ = ["Guard", "Subject"]
