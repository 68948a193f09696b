"""One run from end to end: session, stages, judgement, commit, record. Spec: pipeline.md, stages.md."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from cmf.message import Message
from cmf.request import Request, Response
from cmf.value import replace
from pipeline.approvals.ref import ApprovalStatus
from pipeline.approvals.sealed_replies import SealedReplies
from pipeline.assembly import Config, EngineChoice, Policies, build_engine, build_runner, load_sources, vetted
from pipeline.audit.kept_content import KeepingContent
from pipeline.audit.recording import NOT_ON_RECORD, UNRECORDED, Recording, Records
from pipeline.cancellation import PROCESS_EXITS, is_cancelled, run_to_end
from pipeline.context import Context, as_context
from pipeline.errors import ApprovalError, ConfigError, PipelineError, PolicyError, SessionError, StoreError, where_from
from pipeline.events import Events, PoliciesChanged, PoliciesRefused
from pipeline.history import Histories, History
from pipeline.offload import Offload
from pipeline.outcome import Basis, Outcome, Ran
from pipeline.policies.overrides import Overrides
from pipeline.policies.serving import Serving
from pipeline.policies.watching import Watcher
from pipeline.policy_input import SessionFacts
from pipeline.policy_set import PolicySet
from pipeline.profiles import Profiles
from pipeline.retention import Holder
from pipeline.runner import Runner
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.changes import changes_of, publish_approvals, publish_labels
from pipeline.sessions.choice import SessionChoice
from pipeline.sessions.state import NO_CHANGES, Changes
from pipeline.stage import Stage, StageCall, Traffic

_AT_ONCE: Final = Offload(waits=False)  # for a run without a session, which reads no store
_log: Final = logging.getLogger("pipeline.pipeline")
_NEVER_RESTS: Final = "Other requests kept changing this session."
_NO_STORE: Final = "The session store could not be read or written."
_NO_FACTS: Final = "What policy needs to know could not be found out."
_FAILED: Final = "Something failed before policy could decide."
MAX_CONFLICTS: Final = 64  # times that a run is judged because other runs changed its session; then it is refused


@dataclass(slots=True)
class _Job:
    """One run under way.

    Attributes:
        begin: when it began, in nanoseconds of the performance counter.
        overtaken: decisions of it that are on record, and of which nothing comes if a further one is made.
    """

    value: Traffic
    context: Context
    approval_id: str | None
    begin: int
    overtaken: tuple[str, ...] = ()

    def so_far(self, ran: Ran) -> tuple[Ran, int]:
        """What is put on record of the run: what came of it, and how many nanoseconds it took."""
        ran = ran._replace(overtaken=self.overtaken) if self.overtaken else ran
        return ran, perf_counter_ns() - self.begin


class Pipeline:
    """A list of stages before a policy set; safe to share between threads and tasks.

    Judgement is no stage, so that it cannot be left out: whatever the stages return is judged before it goes out.

    Args:
        stages: callables `(value, context)`, in the order in which they run; see `pipeline.stage`.
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        sessions: where sessions are kept; by default in this process.
        engine: `embedded` (in this process) or `opa` (a server: `config.opa_url`), or one of your own with these
            policies in it.
        config: mode, deadline and the rest.
        profiles: what is known of tools and resources: how far their results are trusted, and what arguments are for.
        recorder: where every run is put on record before its outcome is given out; by default nowhere.
        overrides: what two people let pass for a while although policy denies it [EXC-10]; by default nothing.

    Raises:
        PolicyError: the policies cannot be used: file, line, column and why. ConfigError: two stages of one name, or a
            stage that can change content and whose failure is to be allowed.
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
        self._serving = Serving(build_runner(policies, engine, settings, stages=stages, events=self.events))
        self._sessions = sessions or MemorySessions()
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
        self._histories = Histories(known, self._sessions, trusted=trusted, noting=noting)

    def run(self, value: Traffic, context: Context | None = None) -> Outcome:
        """The outcome for a message, request or response; a refusal is a value here, never an exception."""
        return self._run(value, context or Context())

    @property
    def _runner(self) -> Runner:
        return self._serving.runner

    @property
    def revision(self) -> str:
        """The revision of `policies`, a SHA-256 in hex."""
        return self._runner.revision

    @property
    def policies(self) -> PolicySet:
        """The policy set that judges every run that begins now."""
        return self._runner.policies

    def reload(self, policies: Policies = None, *, by: str | None = None) -> str:
        """The revision that judges every run from now on; runs that are under way end under the one before.

        The new set is vetted in a process of its own (`pipeline.checks.vetting`); one that is refused changes nothing.

        Args:
            policies: as in the constructor; None reads again what was given last.
            by: the id of whoever wants it so, for the event, and the record of a gateway.

        Raises:
            PolicyError: the set is refused, and why. ConfigError: the pipeline was given an engine, not its name.
        """
        if not isinstance(self._engine_name, str):
            raise ConfigError(
                "this engine was made elsewhere", code="config.own-engine", hint="name the engine, to have it made anew"
            )
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
        """Reload whenever the policies' files change, until the watcher is stopped; refusals are events.

        Raises:
            ConfigError: the policies came from no files.
        """
        places = self._policies
        if places is None or isinstance(places, PolicySet):
            raise ConfigError("there is no file to watch", code="config.no-places", hint="give directories or bundles")

        def is_current() -> bool:
            return load_sources(places, self._settings.bundle_keys) == self.policies.sources

        return Watcher([places] if isinstance(places, str | Path) else list(places), self.reload, is_current)

    def release(self, approval_id: str, context: Context | None = None) -> Outcome:
        """The outcome for the reply of a model that was suspended, now that a person has approved it.

        The whole reply is judged again with the approval applied, so that any other refusal still counts. Once it went
        out, the approval is used up and the reply is no longer kept.

        Raises:
            ApprovalError: there is no such approval in the context's session (`approval.unknown`), it is not approved
                or was used (`approval.unusable`), it holds no reply (`approval.nothing-sealed`), or the reply was
                sealed under another key (`approval.unreadable`). StoreError: the store cannot be asked.
        """
        known = context or Context()
        return self._run(self._replies.open(approval_id, known), known, approval_id)

    async def arelease(self, approval_id: str, context: Context | None = None) -> Outcome:
        """`release`, awaiting stages and engine."""
        known = context or Context()
        reply = await self._offload(self._replies.open, approval_id, known)
        return await self._arun(reply, known, approval_id)

    def _run(self, value: Traffic, known: Context, approval_id: str | None = None) -> Outcome:
        begin = perf_counter_ns()
        known, refused = self._in_session(_traffic(value, known), known)
        job = _Job(value, known, approval_id, begin)
        ran = self._judged(job) if refused is None else self._recorded(job, refused)
        if ran.ends is not None:
            raise ran.ends
        if ran.staged is not None:
            self._runner.afterwards(ran.staged, known)
        return ran.outcome

    def _judged(self, job: _Job) -> Ran:
        """The outcome of the run, put on record."""
        try:
            for _ in range(MAX_CONFLICTS):
                facts, history = self._read(job)
                with self._serving.lease() as runner:
                    ran = runner.run(job.value, job.context, facts, history)
                ran, changes = self._changed(job, ran, facts, history)
                is_first = self._records_first and changes.touch_session
                if is_first and not self._kept(job, ran):
                    return self._unrecorded(job, ran)
                job.overtaken += (ran.outcome.decision.id,) if is_first else ()
                committed = self._committed(job, ran, changes, history)
                if committed is not None:
                    is_kept = self._after_commit(job, ran, committed, history) or is_first
                    return ran if is_kept else self._recorded(job, ran)
            ran = Ran(self._runner.closed(job.value, "session.conflict", _NEVER_RESTS))
        except BaseException as error:  # noqa: BLE001  (a store or registry of the host's own may raise anything)
            ran = self._outage(job.value, error)
        return self._recorded(job, ran)

    def _kept(self, job: _Job, ran: Ran) -> bool:
        recording = self._recording
        return recording is None or recording.keep(job.value, job.context, *job.so_far(ran))

    def _recorded(self, job: _Job, ran: Ran) -> Ran:
        """`ran`, put on record; a refusal if that failed."""
        return ran if self._kept(job, ran) else self._unrecorded(job, ran)

    def _unrecorded(self, job: _Job, ran: Ran) -> Ran:
        return Ran(self._runner.closed(job.value, UNRECORDED, NOT_ON_RECORD), ends=ran.ends)

    async def arun(self, value: Traffic, context: Context | None = None) -> Outcome:
        """`run`, awaiting stages and engine; concurrent stages run together."""
        return await self._arun(value, context or Context())

    async def _arun(self, value: Traffic, known: Context, approval_id: str | None = None) -> Outcome:
        begin = perf_counter_ns()
        known, refused = await self._choosing(self._in_session, _traffic(value, known), known)
        job = _Job(value, known, approval_id, begin)
        ran = await (self._ajudged(job) if refused is None else self._arecorded(job, refused))
        if ran.ends is not None:
            raise ran.ends
        if ran.staged is not None:
            self._runner.afterwards_in_background(ran.staged, known)
        return ran.outcome

    async def _ajudged(self, job: _Job) -> Ran:
        """The outcome of the run, put on record."""
        known = job.context
        offload = self._offload if known.session is not None or self._overrides_due else _AT_ONCE
        try:
            for _ in range(MAX_CONFLICTS):
                facts, history = await offload(self._read, job)
                with self._serving.lease() as runner:
                    ran = await runner.arun(job.value, known, facts, history, offload)
                ending = self._acommitted(offload, job, ran, facts, history)
                # Where a session may change, the run is brought to its end even if the caller is cancelled [REC-22].
                ended = await (ending if known.session is None else run_to_end(ending))
                if ended is not None:
                    return ended
            ran = Ran(self._runner.closed(job.value, "session.conflict", _NEVER_RESTS))
        except BaseException as error:
            if is_cancelled(error):
                raise
            ran = self._outage(job.value, error)
        return await self._arecorded(job, ran)

    async def _acommitted(
        self, offload: Offload, job: _Job, ran: Ran, facts: SessionFacts, history: History
    ) -> Ran | None:
        """The outcome, its changes committed to the session and put on record; None if another run committed first.

        The loop may end at each `await`, and what a thread does goes on: the record is there before what it is of.
        """
        try:
            is_first = False
            if self._records_first:
                ran, changes = await offload(self._changed, job, ran, facts, history)
                is_first = changes.touch_session
                if is_first and not await self._akept(job, ran):
                    return self._unrecorded(job, ran)
                job.overtaken += (ran.outcome.decision.id,) if is_first else ()
                committed = await offload(self._committed, job, ran, changes, history)
            else:
                ran, committed = await offload(self._changed_at_once, job, ran, facts, history)
            if committed is None:
                return None
            is_kept = self._after_commit(job, ran, committed, history) or is_first
        except BaseException as error:  # raised in its own task, SystemExit would end the loop at once
            if is_cancelled(error):
                raise
            ran, is_kept = self._outage(job.value, error), False
        return ran if is_kept else await self._arecorded(job, ran)

    async def _akept(self, job: _Job, ran: Ran) -> bool:
        recording = self._recording
        return recording is None or await recording.akeep(job.value, job.context, *job.so_far(ran))

    async def _arecorded(self, job: _Job, ran: Ran) -> Ran:
        """`ran`, put on record; a refusal if that failed."""
        return ran if await self._akept(job, ran) else self._unrecorded(job, ran)

    @property
    def _records_first(self) -> bool:
        return self._recording is not None and self._recording.goes_first

    def _read(self, job: _Job) -> tuple[SessionFacts, History]:
        """The session as it is now, and its conversation; ApprovalError if the approval is not usable in it."""
        context, approval_id = job.context, job.approval_id
        facts = self._sessions.read(context)
        overrides = () if self._overrides is None else self._overrides.holding()
        facts = replace(facts, overrides=overrides, spent=context.spent) if overrides or context.spent else facts
        if approval_id is not None and not any(
            one.asked.id == approval_id and one.status is ApprovalStatus.APPROVED for one in facts.asked
        ):
            raise ApprovalError("this approval cannot be used", code="approval.unusable", hint="look at its status")
        return facts, self._histories.open(context, facts.moment)

    @property
    def _overrides_due(self) -> bool:
        return self._overrides is not None and self._overrides.due

    def _in_session(self, value: Traffic, context: Context) -> tuple[Context, Ran | None]:
        """The context with the run's session; and a refusal, if the session cannot be told."""
        try:
            return self._choice.of(value, context), None
        except BaseException as error:  # noqa: BLE001  (as above)
            return context, self._outage(value, error)

    def _outage(self, value: Traffic, error: BaseException) -> Ran:
        """The refusal of a run that failed with `error`; an ApprovalError is raised to the caller instead."""
        if isinstance(error, ApprovalError):
            raise error
        if isinstance(error, SessionError):  # no outage: what the run asks of its session would fail again
            return Ran(self._runner.closed(value, error.code, error.message, rule="pipeline"))
        if isinstance(error, PipelineError):
            reason = _NO_STORE if isinstance(error, StoreError) else _NO_FACTS
            return Ran(self._runner.closed(value, error.code, reason))
        _log.error("a run could not be brought to its end: %s", where_from(error))
        ends = error if isinstance(error, PROCESS_EXITS) else None
        return Ran(self._runner.closed(value, "pipeline.failed", _FAILED), ends=ends)

    def _changed(self, job: _Job, ran: Ran, facts: SessionFacts, history: History) -> tuple[Ran, Changes]:
        """The run, with what it was judged by, and what its outcome changes in the session."""
        changes = NO_CHANGES
        if job.context.session is not None:
            changes = changes_of(job.value, job.context, facts, ran.outcome, history, self._replies)
        return ran._replace(basis=Basis(facts, frozenset(history.found), history.keep)), changes

    def _committed(self, job: _Job, ran: Ran, changes: Changes, history: History) -> Changes | None:
        """The changes, committed to the session; None if another run committed first [C5]."""
        if not changes.touch_session:
            return changes
        if self._recording is not None and self._recording.kept is not None:
            record = self._recording.record(job.value, job.context, *job.so_far(ran))
            changes = replace(changes, record=record)
        # Marks only grow, so they fit any version; the other changes hold for the version that was judged under.
        bound = changes.taints or changes.counts or changes.asked or changes.used
        version = ran.basis.session.version if bound and ran.basis is not None else None
        # An approval may have expired since it was read: judge again, which asks again.
        with suppress(ApprovalError):
            if self._sessions.commit(job.context, version, changes):
                return changes
        history.close(None)
        return None

    def _changed_at_once(
        self, job: _Job, ran: Ran, facts: SessionFacts, history: History
    ) -> tuple[Ran, Changes | None]:
        ran, changes = self._changed(job, ran, facts, history)
        return ran, self._committed(job, ran, changes, history)

    def _after_commit(self, job: _Job, ran: Ran, changes: Changes, history: History) -> bool:
        """Tell subscribers what the commit changed, and remember the conversation; whether it put the run on record."""
        if changes.record is not None and self._recording is not None and self._recording.kept is not None:
            job.overtaken += (changes.record.id,)  # unless all goes well from here
            self._recording.kept(changes.record)
        publish_approvals(self.events, job.context, changes)
        history.close(ran.outcome.value)
        if ran.basis is not None:
            publish_labels(self.events, ran.basis.session, ran.outcome)
        return changes.record is not None

    @property
    def conversations(self) -> Holder:
        """What this process holds of conversations, for `pipeline.retention.Sweep`."""
        return self._histories

    def close(self) -> None:
        """Let go of the engine's connections, if it has any."""
        self._runner.close()
        self._offload.close()

    async def aclose(self) -> None:
        """The same, and end what fire-and-forget stages still do."""
        await self._runner.aclose()
        self._offload.close()


def _keeping(settings: Config) -> KeepingContent | None:
    """How the content of what was judged is kept beside its record, by settings; None if it is not."""
    if settings.content == "none":
        return None
    mask = None
    if settings.content == "masked":
        from pipeline.replay.masking import Masking  # compiles policies of its own

        mask = Masking().masked
    return KeepingContent(settings.history, mask, settings.content_days)


def _traffic(value: Traffic, known: Context) -> Traffic:
    if not isinstance(value, Message | Request | Response):
        hint = (
            "`Request(messages=…)` takes several, `cmf.adapters.get(FORMAT).from_wire_request(body)` a provider's body"
        )
        raise TypeError(f"a message, request or response is judged, no {type(value).__name__}; {hint}")
    as_context(known)
    return value
