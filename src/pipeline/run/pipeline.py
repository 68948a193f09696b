"""One run from start to end: session, stages, policy, commit, record. Spec: pipeline.md, stages.md."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from cmf.json.value import replace
from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline.approvals.sealing import SealedReplies
from pipeline.conversation.history import Histories, History
from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.cancellation import PROCESS_EXITS, Deadline
from pipeline.decisions.context import Context, as_context, session_key
from pipeline.decisions.errors import (
    ApprovalError,
    ConfigError,
    PipelineError,
    PolicyError,
    SessionError,
    StoreError,
    where_from,
)
from pipeline.decisions.events import Events, PoliciesChanged, PoliciesRefused
from pipeline.decisions.override import Overrides
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import Holder
from pipeline.decisions.stage import Stage, StageCall, Traffic
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.inference import OwnTool
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, EngineChoice, Policies, build_engine, build_runner, load_sources, vetted
from pipeline.run.offload import BLOCKING, Offload, Waiting, apart, completed, is_large
from pipeline.run.outcome import Basis, Outcome, Ran
from pipeline.run.recording import NOT_ON_RECORD, UNRECORDED, KeepingContent, Recording, Records
from pipeline.run.runner import Runner
from pipeline.run.serving import Serving, Watcher
from pipeline.run.session_changes import changes_of, publish_approvals, publish_labels
from pipeline.run.session_choice import SessionChoice
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import NO_CHANGES, Changes
from pipeline.sessions.turns import SessionTurns

_AT_ONCE: Final = Offload(waits=False)  # for a run without a session, which reads no store
_log: Final = logging.getLogger("pipeline.run.pipeline")
_CONFLICT: Final = "Other requests kept changing this session."
_NO_STORE: Final = "The session store could not be read or written."
_NO_FACTS: Final = "What policy needs to know could not be found out."
_FAILED: Final = "Something failed before policy could decide."


@dataclass(slots=True)
class _Job:
    """One run in progress.

    Attributes:
        begin: when it began, in nanoseconds of the performance counter.
        waiting: how it waits for stores, stages, engine and recorder.
        overtaken: its recorded decisions, which have no consequences if another one is made.
        deadline: of all its tries.
        holder: of a sealed reply that is released, the approval that it is sealed with.
    """

    value: Traffic
    context: Context
    approval_id: str | None
    holder: str | None
    begin: int
    waiting: Waiting
    deadline: Deadline
    overtaken: tuple[str, ...] = ()

    def so_far(self, ran: Ran) -> tuple[Ran, int]:
        """What is recorded of the run: its result, and its duration in nanoseconds."""
        ran = ran._replace(overtaken=self.overtaken) if self.overtaken else ran
        return ran, perf_counter_ns() - self.begin


class Pipeline:
    """A list of stages, followed by policy; safe to share between threads and tasks.

    Policy is not a stage, so it cannot be left out: whatever the stages return is judged before it goes out.

    Args:
        stages: callables `(value, context)`, in their order; see `pipeline.decisions.stage`.
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        sessions: the session store; by default in the memory of this process.
        engine: `embedded` (in this process), `opa` (a server at `config.opa_url`), or your own, with these policies.
        config: mode, deadline and other settings.
        profiles: facts about tools and resources: how far to trust their results, and what arguments are for.
        recorder: records every run before its outcome is returned; by default nothing is recorded.
        overrides: temporary permits that two people agreed on [EXC-10]; by default none.

    Raises:
        PolicyError: the policies cannot be used; it names file, line, column and reason. ConfigError: two stages have
            one name, or a stage that can change content allows its own failure.
    """

    def __init__(
        self,
        stages: Sequence[Stage | StageCall] = (),
        *,
        policies: Policies = None,
        engine: EngineChoice = "embedded",
        config: Config | None = None,
        sessions: SessionStore | None = None,
        profiles: Profiles | None = None,
        recorder: Records | None = None,
        overrides: Overrides | None = None,
    ) -> None:
        settings = config or Config()
        if not isinstance(settings, Config):
            raise ConfigError("this is no Config", path="config", hint="write Config(…)", code="config.word")
        if not isinstance(profiles, Profiles | None):
            raise ConfigError("these are no Profiles", path="profiles", hint="Profiles.load(file)", code="config.word")
        self.events = Events()
        self._settings = settings
        self._policies, self._engine_name = policies, engine
        self._reloading = threading.RLock()
        self._serving = Serving(build_runner(policies, engine, settings, stages=stages, events=self.events))
        self._sessions = sessions or MemorySessions()
        self._turns: SessionTurns = getattr(self._sessions, "turns", None) or SessionTurns()
        self._offload = Offload(waits=self._sessions.waits)
        self._overrides = overrides
        self._choosing = self._offload if settings.sessions == "by_prefix" else _AT_ONCE
        self._choice = SessionChoice(settings.sessions, self._sessions)
        self._replies = SealedReplies(self._sessions, settings.seal_key)
        release = settings.on_record_failure == "release"
        content = _keeping(settings)
        known = profiles or Profiles()
        self._recording = (
            None
            if recorder is None
            else Recording(
                recorder, self.events, self._sessions, release=release, content=content, profiles=known.revision
            )
        )
        trusted, noting = settings.history == "trusted", content is not None
        self._histories = Histories(known, self._sessions, trusted=trusted, noting=noting, inference=settings.inference)

    def own_tools(self, find: OwnTool) -> None:
        """Have the definitions of the host's own functions looked up by `find`, where traffic brings none."""
        self._histories.own_tool = find

    def run(self, value: Traffic, context: Context | None = None) -> Outcome:
        """Judge a message, request or response, and return the outcome; a refusal is returned too, never raised."""
        return completed(self._run(value, context or Context(), waits=False))

    async def arun(self, value: Traffic, context: Context | None = None) -> Outcome:
        """`run` as a coroutine; concurrent stages run together. What is large is judged on a thread."""
        if is_large():
            return await apart(self.run, value, context)
        return await self._run(value, context or Context(), waits=True)

    @property
    def _runner(self) -> Runner:
        return self._serving.runner

    @property
    def revision(self) -> str:
        """The revision of `policies`: a SHA-256 in hexadecimal."""
        return self._runner.policies.revision

    @property
    def policies(self) -> PolicySet:
        """The policy set that runs starting now use."""
        return self._runner.policies

    def reload(self, policies: Policies = None, *, by: str | None = None) -> str:
        """Replace the policy set for all runs that start from now on, and return its revision.

        The new set is first tried out in a separate process (`pipeline.run.vetting`). Runs in progress finish with
        the set they started with.

        Args:
            policies: as in the constructor; None reads the current files again.
            by: the id of the person or program that asked for it, for the event and a gateway's record.

        Raises:
            PolicyError: the new set cannot be used; the current one stays in use. ConfigError: the pipeline was given
                an engine object, not a name.
        """
        if not isinstance(self._engine_name, str):
            raise ConfigError(
                "an engine object cannot be reloaded", code="config.own-engine", hint="give the engine by its name"
            )
        with self._reloading:  # one that began earlier read older files, and must not be the last to swap
            wanted = self._policies if policies is None else policies
            try:
                loaded = vetted(wanted, self._engine_name, self._settings)
                engine = build_engine(loaded, self._engine_name, self._settings)
            except PolicyError as error:
                self.events.publish(PoliciesRefused(code=error.code, message=error.message, place=error.place))
                raise
            before = self._serving.swap(loaded, engine)
            self._policies = wanted
        self.events.publish(PoliciesChanged(before=before, after=loaded.revision, by=by))
        return loaded.revision

    def watch(self) -> Watcher:
        """Reload whenever a policy file changes, until the watcher is stopped; sets that cannot be used are events.

        Raises:
            ConfigError: the policies did not come from files.
        """
        places = self._policies
        if places is None or isinstance(places, PolicySet):
            raise ConfigError("there is no file to watch", code="config.no-places", hint="give directories or bundles")

        def is_current() -> bool:
            return load_sources(places, self._settings.bundle_keys) == self.policies.sources

        return Watcher([places] if isinstance(places, str | Path) else list(places), self.reload, is_current)

    def release(self, approval_id: str, context: Context | None = None) -> Outcome:
        """Release a model's reply that was suspended, after a person approved it, and return the outcome.

        The whole reply is judged again with the approval, so other refusals still apply. After it was sent, the
        approval is used and the reply is deleted.

        Raises:
            ApprovalError: the context's session has no such approval (`approval.unknown`), it is not approved, already
                used or not asked for by these policies (`approval.unusable`), it has no reply
                (`approval.nothing-sealed`), or the reply was encrypted with another key (`approval.unreadable`).
                StoreError: the store cannot be read.
        """
        known = context or Context()
        reply, holder = self._replies.open(approval_id, known)
        return completed(self._run(reply, known, approval_id, holder, waits=False))

    async def arelease(self, approval_id: str, context: Context | None = None) -> Outcome:
        """`release` as a coroutine."""
        known = context or Context()
        reply, holder = await self._offload(self._replies.open, approval_id, known)
        return await self._run(reply, known, approval_id, holder, waits=True)

    async def _run(
        self,
        value: Traffic,
        known: Context,
        approval_id: str | None = None,
        holder: str | None = None,
        *,
        waits: bool,
    ) -> Outcome:
        begin = perf_counter_ns()
        value, refused = _traffic(value, known), None
        choosing = Waiting(self._choosing) if waits else BLOCKING
        try:
            known = await choosing.call(self._choice.of, value, known)
        except BaseException as error:  # a store of the host's own may raise anything
            if choosing.is_cancelled(error):
                raise
            refused = self._outage(value, error)
        due = self._overrides is not None and self._overrides.due
        offload = self._offload if known.session is not None or due else _AT_ONCE
        deadline = Deadline(self._settings.timeout_seconds)
        job = _Job(value, known, approval_id, holder, begin, Waiting(offload) if waits else BLOCKING, deadline)
        ran = await (self._judged(job) if refused is None else self._recorded(job, refused))
        if ran.ends is not None:
            raise ran.ends
        if ran.staged is not None:
            stages = self._runner.stages
            (stages.afterwards_in_background if waits else stages.afterwards)(ran.staged, known)
        return ran.outcome

    async def _judged(self, job: _Job) -> Ran:
        """The outcome of the run, recorded."""
        known, waiting = job.context, job.waiting
        try:
            with self._turns.tries(None if known.session is None else session_key(known)) as tries:
                while await waiting.either(tries.again, tries.aagain):
                    facts, history = await waiting.call(self._read, job)
                    runner = self._serving.acquire()
                    try:
                        job.deadline.begin_try()
                        ran = await runner.run(job.value, known, facts, history, job.deadline, waiting)
                        job.deadline.stop()
                    finally:
                        self._serving.release(runner)
                    ending = self._ended(job, ran, facts, history)
                    # A run that may change a session is completed even if the caller is cancelled [REC-22].
                    ended = await (ending if known.session is None else waiting.to_end(ending))
                    if ended is not None:
                        return ended
            ran = Ran(self._runner.closed(job.value, "session.conflict", _CONFLICT))
        except BaseException as error:  # a store or registry of the host's own may raise anything
            if waiting.is_cancelled(error):
                raise
            ran = self._outage(job.value, error)
        return await self._recorded(job, ran)

    async def _ended(self, job: _Job, ran: Ran, facts: SessionFacts, history: History) -> Ran | None:
        """The outcome, recorded and its changes committed to the session; None if another run committed first.

        An event loop may end at each `await` while a thread continues: the record is written before what it is about.
        """
        waiting, changes, is_kept = job.waiting, None, False
        try:
            if self._recording is not None and self._recording.goes_first:
                ran, changes = await waiting.call(self._changed, job, ran, facts, history)
                if changes.touch_session:
                    recorded, is_kept = await self._recorded(job, ran), True
                    if recorded is not ran:
                        return recorded
                    job.overtaken += (ran.outcome.decision.id,)
            ran, committed = await waiting.call(self._committed, job, ran, facts, history, changes)
            if committed is None:
                return None
            if committed.record is not None and self._recording is not None and self._recording.kept is not None:
                job.overtaken += (committed.record.id,)  # kept only if the run has to be recorded again
                self._recording.kept(committed.record)
                is_kept = True
            publish_approvals(self.events, job.context, committed)
            history.close(ran.outcome.value)
            if ran.basis is not None:
                publish_labels(self.events, ran.basis.session, ran.outcome)
        except BaseException as error:  # raised in a task, SystemExit would end the loop at once
            if waiting.is_cancelled(error):
                raise
            ran, is_kept = self._outage(job.value, error), False
        return ran if is_kept else await self._recorded(job, ran)

    async def _recorded(self, job: _Job, ran: Ran) -> Ran:
        """`ran`, recorded; a refusal if recording failed."""
        recording = self._recording
        if recording is None or await recording.keep(job.value, job.context, *job.so_far(ran), job.waiting):
            return ran
        return Ran(self._runner.closed(job.value, UNRECORDED, NOT_ON_RECORD), ends=ran.ends)

    def _read(self, job: _Job) -> tuple[SessionFacts, History]:
        """The session's state, and its conversation. Raises ApprovalError: the approval cannot be used in it."""
        context, approval_id = job.context, job.approval_id
        facts = self._sessions.read(context)
        overrides = () if self._overrides is None else self._overrides.holding()
        facts = replace(facts, overrides=overrides, spent=context.spent) if overrides or context.spent else facts
        if approval_id is not None and not any(
            one.asked.id == approval_id and one.status is ApprovalStatus.APPROVED for one in facts.asked
        ):
            raise ApprovalError("this approval cannot be used", code="approval.unusable", hint="look at its status")
        if job.holder is not None:  # asked again in each try: whoever releases it changes the session
            self._replies.check_held(job.holder)
        return facts, self._histories.open(context, facts.moment, job.value)

    def _outage(self, value: Traffic, error: BaseException) -> Ran:
        """The refusal of a run that failed with `error`. Raises ApprovalError: `error` itself."""
        if isinstance(error, ApprovalError):
            raise error
        if isinstance(error, SessionError):  # not an outage: it would fail again
            return Ran(self._runner.closed(value, error.code, error.message, rule="pipeline"))
        if isinstance(error, PipelineError):
            reason = _NO_STORE if isinstance(error, StoreError) else _NO_FACTS
            return Ran(self._runner.closed(value, error.code, reason))
        _log.error("a run could not be completed: %s", where_from(error))
        ends = error if isinstance(error, PROCESS_EXITS) else None
        return Ran(self._runner.closed(value, "pipeline.failed", _FAILED), ends=ends)

    def _changed(self, job: _Job, ran: Ran, facts: SessionFacts, history: History) -> tuple[Ran, Changes]:
        """The run with the facts that it was judged by, and the changes that its outcome makes to the session."""
        changes = NO_CHANGES
        if job.context.session is not None:
            changes = changes_of(job.value, job.context, facts, ran.outcome, history, self._replies)
            changes = changes if job.holder is None else replace(changes, released=job.holder)
        unused = job.approval_id is not None and job.approval_id not in {one.id for one in changes.used}
        if unused and ran.outcome.value is not None:  # other policies than those that asked for it
            raise ApprovalError("no rule asks for this approval", code="approval.unusable", hint="ask the model again")
        return ran._replace(basis=Basis(facts, frozenset(history.found), history.keep)), changes

    def _committed(
        self, job: _Job, ran: Ran, facts: SessionFacts, history: History, changes: Changes | None
    ) -> tuple[Ran, Changes | None]:
        """The run and its changes, committed to the session; no changes if another run committed first [C5]."""
        if changes is None:
            ran, changes = self._changed(job, ran, facts, history)
        if not changes.touch_session:
            return ran, changes
        if self._recording is not None and self._recording.kept is not None:
            record = self._recording.record(job.value, job.context, *job.so_far(ran))
            changes = replace(changes, record=record)
        # References seen only grow, so they fit any version; other changes are for the version that the run read.
        bound = changes.taints or changes.counts or changes.asked or changes.used or changes.rests
        version = ran.basis.session.version if bound and ran.basis is not None else None
        # An approval may have expired since it was read: judge again, which requests a new one.
        with suppress(ApprovalError):
            if self._sessions.commit(job.context, version, changes):
                return ran, changes
        history.close(None)
        return ran, None

    @property
    def conversations(self) -> Holder:
        """The conversations in this process's memory, for `pipeline.store.retention_sweep.Sweep`."""
        return self._histories

    def close(self) -> None:
        """Close the engine's connections, if it has any."""
        self._runner.close()
        self._offload.close()

    async def aclose(self) -> None:
        """`close` as a coroutine; fire-and-forget stages are ended."""
        await self._runner.aclose()
        self._offload.close()


def _keeping(settings: Config) -> KeepingContent | None:
    """How content is kept besides records, by the settings; None if it is not kept."""
    if settings.content == "none":
        return None
    mask = None
    if settings.content == "masked":
        from pipeline.run.masking import Masking  # compiles policies of its own

        mask = Masking().masked
    return KeepingContent(settings.history, mask, settings.content_days)


def _traffic(value: Traffic, known: Context) -> Traffic:
    if not isinstance(value, Message | Request | Response):
        hint = (
            "`Request(messages=…)` takes several, `cmf.adapters.get(FORMAT).from_wire_request(body)` a provider's body"
        )
        raise TypeError(f"a message, request or response is judged, not a {type(value).__name__}; {hint}")
    as_context(known)
    return value
