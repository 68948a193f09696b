"""The library's front door: judge a message, a request or a response. Spec: docs/spec/guard.md.

guard = Guard()
outcome = guard.check(request, subject={"id": "ann", "roles": ["agent"]})

with guard.session("s1", subject={"id": "ann"}):
    send_mail(to="bob@example.com", body="hi")  # a function under @guard.tool
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from cmf.capabilities import ModelCapabilities
from cmf.message import Message
from cmf.security import SubjectExtension
from cmf.tools import ToolDefinition
from pipeline.ambient import Block, ambient, within
from pipeline.assembly import Config, EngineChoice, Policies
from pipeline.audit.recording import Records
from pipeline.context import Context, as_subject
from pipeline.decision import Decision
from pipeline.errors import CallError, ConfigError, SessionError
from pipeline.events import Events
from pipeline.guarded.model import ModelCall, ModelFunction
from pipeline.guarded.tool import ToolCall, ToolFunction
from pipeline.guarded.wrapping import Begin, P, R, wrapped
from pipeline.model_swap import Declared, ModelSession, declared, swap_model
from pipeline.outcome import Outcome, is_outage, raised
from pipeline.pipeline import Pipeline
from pipeline.policies.overrides import Overrides
from pipeline.policies.watching import Watcher
from pipeline.policy_set import PolicySet
from pipeline.profiles import Profiles
from pipeline.references import Referred, mark, same_content
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes
from pipeline.stage import Stage, StageCall, Traffic

if TYPE_CHECKING:
    from pipeline.store.database import Store

Subject = SubjectExtension | Mapping[str, Any]


class Guard:
    """Judges traffic under a policy set; safe to share between threads and tasks.

    Args:
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        engine: `embedded` (in this process), `opa` (a server: `config.opa_url`), or your own with these policies.
        config: mode, deadline and the rest.
        stages: what runs before policy is asked; see `pipeline.stage`.
        sessions: where sessions are kept; by default in this process.
        profiles: what is known of tools and resources.
        recorder: where every run is put on record before its outcome is given out; by default nowhere.
        overrides: what two people let pass for a while although policy denies it [EXC-10]; by default nothing.
        store: the database of sessions, records and overrides, as far as these are not given on their own.

    Raises PolicyError: the policies cannot be used: file, line, column and why.
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
            from pipeline.audit.recorder import Recorder  # it takes SQLAlchemy, which nobody else here needs

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
        self._own = object()  # tells the blocks of this guard from another's

    def __repr__(self) -> str:
        return f"<Guard: {len(self.policies.rules)} rules, revision {self.revision[:12]}, {len(self._tools)} tools>"

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def events(self) -> Events:
        """Where to subscribe to what happens: `guard.events.subscribe(print)`."""
        return self._pipeline.events

    @property
    def revision(self) -> str:
        """The revision of `policies`, a SHA-256 in hex."""
        return self._pipeline.revision

    @property
    def policies(self) -> PolicySet:
        """The policy set that judges every run that begins now."""
        return self._pipeline.policies

    def reload(self, policies: Policies = None, *, by: str | None = None) -> str:
        """The revision of the new policy set, which judges every run from now on; None reads the present files again.

        The set is vetted in a process of its own first. Runs that are under way end under the set they began with.
        `by` is the id of whoever wants it so: the event names it.

        Raises PolicyError: the set is refused, and everything stays as it is.
        """
        return self._pipeline.reload(policies, by=by)

    def watch(self) -> Watcher:
        """Reload whenever the policies' files change, until the watcher is stopped: `with guard.watch(): …`."""
        return self._pipeline.watch()

    async def __aenter__(self) -> Guard:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Let go of the engine's connections, if it has any; `with Guard(...) as guard:` does so at its end."""
        self._pipeline.close()

    async def aclose(self) -> None:
        """The same in a running loop; `async with Guard(...) as guard:` does so at its end."""
        await self._pipeline.aclose()

    def check(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """The outcome, with what may be sent on.

        Args:
            value: a message, request or response.
            subject: who asks, authenticated by the host; None is anonymous.
            session: the session's id, so that labels hold from call to call.
            context: further facts of the run; `subject` and `session` given here win over those in it.

        Raises:
            Denied: policy refused. ApprovalRequired: a person must approve first.
            PolicyUnavailable: policy could not be asked.
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
        """`check`, awaiting the engine."""
        return raised(await self.arun(value, subject=subject, session=session, context=context))

    def decide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """The decision; a refusal is a value here, never an exception."""
        return self.run(value, subject=subject, session=session, context=context).decision

    async def adecide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """`decide`, awaiting the engine."""
        return (await self.arun(value, subject=subject, session=session, context=context)).decision

    def run(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """The outcome, whatever it is: for hosts that turn refusals into answers of their own."""
        return self._pipeline.run(value, self._context(context, subject, session))

    async def arun(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`run`, awaiting the engine."""
        return await self._pipeline.arun(value, self._context(context, subject, session))

    # -- around code ---------------------------------------------------------------------------------------------------

    def session(self, id: str, *, subject: Subject | None = None, context: Context | None = None) -> Block:
        """A block, for `with` or `async with`, in which everything that this guard judges belongs to session `id`.

        Blocks nest: an inner one has the subject of the outer one where it names none. Tasks inherit theirs, a thread
        begun by hand has none. A generator runs in the block of the code that asks it for its first item.

        Args:
            id: the session's id; two subjects with one id share nothing.
            subject: who asks, authenticated by the host.
            context: further facts; they hold for the block.
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
        """The function as a tool: each call is judged before it is made, and its result before it is given on.

        The function gets the arguments as policy left them, held to its schema; the caller gets what policy left of the
        result, in the function's own type. What a generator yields is held until it was judged. What the function
        raises passes through as it is, and is an event.

        Args:
            function: plain, `async`, a generator or an async generator.
            name: the tool's name for policy; by default the function's.
            namespace: the tool's namespace (`tool://<namespace>/<name>`).
            schema: JSON Schema of the arguments; by default made from the annotations.
            private: parameters that are no input (`self`, a connection): passed on, and neither judged nor shown.

        Raises (when called):
            Denied, ApprovalRequired, PolicyUnavailable: as `check` does; before the call, nothing was done; after it,
                the result is withheld.
            ToolInputError: the arguments do not fit the schema. CallError: a value cannot be judged.
        """

        def made(function: Callable[..., Any]) -> Callable[..., Any]:
            tool = ToolFunction(function, name=name, namespace=namespace, schema=schema, private=private)
            self._tools = [one for one in self._tools if one.uri != tool.uri] + [tool]  # a notebook's cell, run again
            return self._wrapped(
                function, lambda args, kwargs: ToolCall(tool, self._context(), self.events, args, kwargs)
            )

        return made if function is None else made(function)

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The functions under `tool`, as definitions to offer to a model, in order; the last one of each name."""
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
        """The function as a model: each request is judged before it is asked, and its response before it is given on.

        The function takes one request and nothing else: a `Request`, and gives a `Response`; or with `dialect` a body
        of that wire format, or its fields by name, and gives a body. A generator yields canonical stream events, or
        with `dialect` the format's; they are held until the whole was judged, and made anew from what policy left.

        Args:
            function: plain, `async`, a generator or an async generator.
            model: `<provider>:<model>` that is asked, whatever the request says; by default the request's.
            dialect: a wire format (`openai_chat`, `anthropic_messages` …), or None.

        Raises (when called): as `tool` does; CmfError where a body cannot be read.
        """

        def made(function: Callable[..., Any]) -> Callable[..., Any]:
            asks = ModelFunction(function, model=model, dialect=dialect)
            return self._wrapped(
                function, lambda args, kwargs: ModelCall(asks, self._context(), self.events, args, kwargs)
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
        """The outcome of judging what a provider keeps under `id`; requests of this session may then refer to it.

        For what reaches the provider outside of requests (an upload, say): a reference to it is refused until then.

        Args:
            kind: what it is: `file`, `cache`, `prompt` …
            id: as requests will name it.
            content: all that is kept under it.
            subject: by default that of the block around it.
            session: the same.

        Raises:
            Denied, ApprovalRequired, PolicyUnavailable: as `check`; CallError: policy changed the content, so that what
                is kept is not what was let through. SessionError: there is no session. StoreError: as elsewhere.
        """
        context = self._context(None, subject, session)
        if context.session is None:
            raise SessionError("this needs a session", code="session.none", hint="give a session id")
        outcome = self.check(content, context=context)
        if outcome.value is None or not same_content(content, outcome.value):
            hint = "keep what policy left of it instead"
            raise CallError("policy changed what is kept under the id", code="reference.changed", hint=hint)
        self._sessions.commit(context, None, Changes(seen=frozenset({mark(Referred(kind), id)})))
        return outcome

    # -- replies that waited for a person ----------------------------------------------------------------------------

    def release(
        self,
        approval_id: str,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """The outcome for a model's reply that was suspended and is approved now: see `Pipeline.release`.

        Raises ApprovalError: not approved, used, unknown here, or no reply was kept. StoreError: no store.
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
        """`release`, awaiting stages and engine."""
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
        """The capabilities of `model`, now the session's active model: see `pipeline.model_swap.swap_model`.

        Args:
            model: `<provider>:<model>`.
            messages: what the session holds.
            subject: by default that of the block around it.
            session: the same.
            capabilities: what a model declares; by default the shipped table.
            name: what to call the model to the user.

        Raises UnsupportedError: it cannot take what the session holds; nothing changed. Others: as there.
        """
        known = self._context(None, subject, session)
        own = ModelSession(context=known, messages=messages, sessions=self._sessions, events=self.events)
        return swap_model(own, model, capabilities=capabilities, name=name)

    def active_model(self, *, subject: Subject | None = None, session: str | None = None) -> str | None:
        """The model that the session goes on with; None where it was never swapped."""
        return self._sessions.read(self._context(None, subject, session)).active_model

    def _wrapped(self, function: Callable[P, R], begin: Begin) -> Callable[P, R]:
        def judge(value: Traffic, context: Context) -> Outcome:
            return raised(self._pipeline.run(value, context))

        async def ajudge(value: Traffic, context: Context) -> Outcome:
            return raised(await self._pipeline.arun(value, context))

        return wrapped(function, begin, judge, ajudge)

    def _context(
        self, context: Context | None = None, subject: Subject | None = None, session: str | None = None
    ) -> Context:
        """What holds for a run: what is given, else what the block around it says."""
        known = within(context, ambient(self._own))
        given: dict[str, Any] = {}
        if subject is not None:
            given["subject"] = as_subject(subject)
        if session is not None:
            given["session"] = session
        return known.model_copy(update=given)


__all__ = ["Config", "Guard", "is_outage", "raised"]
