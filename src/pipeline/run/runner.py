"""The loop that decides on traffic: run stages, judge every view, carry out edits, judge again until nothing changes.

Order and deadlines live here and nowhere else. Spec: docs/spec/pipeline.md.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from copy import copy
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, TypeAlias

from cmf.errors import CmfError
from cmf.json.value import replace, to_bytes, trusted
from cmf.message.request import Request
from cmf.message.transform import messages_of
from cmf.views.iterate import iter_views
from pipeline.approvals.needs import (
    DENIED_BY_PERSON,
    ApprovalAnswer,
    approval_needs,
    needs_approval,
    resolve,
    with_approval,
)
from pipeline.conversation.history import History
from pipeline.conversation.intake import Ingested, LabelSources, stamp, take_in
from pipeline.conversation.references import refusals
from pipeline.conversation.turn_cache import TurnMemory
from pipeline.decisions.approval import ApprovalScope
from pipeline.decisions.cancellation import PROCESS_EXITS, Deadline
from pipeline.decisions.certificate import mint
from pipeline.decisions.context import Context
from pipeline.decisions.decision import (
    INPUT_RULE,
    SESSION_RULE,
    TIMED_OUT,
    TOO_MUCH,
    TOO_MUCH_WORK,
    Action,
    Coverage,
    Decision,
    Effect,
    Hit,
    Mode,
    RuleFacts,
    Skipped,
    StageRecord,
    Verdict,
    ViewDecision,
    overall,
    with_stages,
)
from pipeline.decisions.engine import Engine, EngineResult, Failed
from pipeline.decisions.errors import DeadlinePassed, EffectError, where_from
from pipeline.decisions.events import Events
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import keep as keep_until
from pipeline.decisions.stage import Stage, StageCall, Traffic
from pipeline.decisions.timestamps import new_ulid
from pipeline.decisions.traffic import labels_of
from pipeline.policy.exceptions import Excuses
from pipeline.policy.policy_set import PolicySet
from pipeline.run.effects import Replacer
from pipeline.run.hits import DecisionLines, HitFinder
from pipeline.run.judge import Awaited, Batch, Judge
from pipeline.run.offload import Waiting
from pipeline.run.outcome import Outcome, Ran, bound, is_outage
from pipeline.run.stages import Staged, Stages
from pipeline.run.tool_schemas import SchemaChecks, UnreadableCalls

_log: Final = logging.getLogger("pipeline.run.runner")
APPROVAL_SECONDS: Final = 3_600.0  # how long an approval can be given and used, from when it was asked for
LARGE_BYTES: Final = 1 << 20  # of the views of a batch: so much is work, and no time-out is the engine's fault
SMALL_BYTES: Final = 16 << 10  # of an input as JSON: what takes so long with less is a slow policy
MAX_PASSES: Final = 4  # passes of judging and editing; traffic that still changes on the last one is refused


_Steps: TypeAlias = Generator[Awaited, Any, Outcome]


class _Account(NamedTuple):
    """What a decision reports: a line for each view, the lines that have hits, coverage, and the records of stages."""

    views: tuple[ViewDecision, ...]
    hit: tuple[ViewDecision, ...]
    coverage: Coverage
    stages: tuple[StageRecord, ...]


def _unjudged(value: Traffic, stages: tuple[StageRecord, ...]) -> _Account:
    """The account of a value that policy was not asked about: all its views count as skipped."""
    try:
        paths = [view.path for view in iter_views(value)]
    except CmfError as error:
        paths = [error.path]
    skipped = tuple(Skipped(path=path, reason="stage.stopped") for path in paths)
    return _Account((), (), Coverage(produced=len(paths), evaluated=0, skipped=skipped), stages)


class Runner:
    """Judges traffic under one policy set with one engine."""

    def __init__(
        self,
        policies: PolicySet,
        engine: Engine,
        *,
        mode: Mode,
        timeout_seconds: float,
        replacer_key: bytes,
        stages: Sequence[Stage | StageCall] = (),
        events: Events | None = None,
        approval_seconds: float = APPROVAL_SECONDS,
        reuses: bool = False,
        unreadable: UnreadableCalls = "refuse",
    ) -> None:
        self._mode = mode
        self._use(policies, engine)
        self._reuses = reuses
        self._unreadable = unreadable
        self._timeout_seconds = timeout_seconds
        self._replacer_key = replacer_key
        self._approval_time = int(approval_seconds * 1_000_000)
        self._events = events or Events()
        self.stages = Stages(stages, self._events, mode)

    def _use(self, policies: PolicySet, engine: Engine) -> None:
        self.policies = policies
        self._engine = engine
        self._judge = Judge(policies, self._mode)
        self._rules = {rule.id: RuleFacts(severity=rule.severity, mode=rule.mode) for rule in policies.rules}

    def with_policies(self, policies: PolicySet, engine: Engine) -> Runner:
        """A runner like this one, with the same stages, for another policy set."""
        other = copy(self)
        other._use(policies, engine)
        return other

    def close(self) -> None:
        """Release what the engine holds."""
        self._engine.close()

    async def aclose(self) -> None:
        """`close`, after ending the stages that still run in the background."""
        await self.stages.aclose()
        self._engine.close()

    async def run(
        self,
        traffic: Traffic,
        context: Context,
        session: SessionFacts,
        history: History,
        deadline: Deadline,
        waiting: Waiting,
    ) -> Ran:
        """The outcome for `traffic`, and the value to give to `afterwards`; `waiting` calls stages, engine and store.

        All but the stages has one deadline [PIPE-20], for all tries. No failure of stages, policies or engine raises:
        each ends as a decision that refuses.

        Raises:
            StoreError, ConfigError: the origins of its tool calls cannot be found (`History.origins`).
        """
        history.deadline = deadline
        staged: Staged | None = None
        try:
            # If profiles call functions of the host, their answers may have changed since the last turn.
            before = history.turn if self._reuses and not history.profiles.asks else None
            memory = TurnMemory(before, self.policies.revision, context.request)
            taken = deadline.timed(take_in, traffic, context, session, history.profiles, history.before, memory.taken)
            memory.taken = taken.taken
            history.keep = keep_until(taken.retention, session.moment)
            begin = perf_counter_ns()
            deadline.stop()
            staged = await self.stages.run(taken.value, context, waiting)
            deadline.go_on()
            stages_ns = perf_counter_ns() - begin
            if not staged.stopped:  # the labels of data that stages brought
                taken = deadline.timed(taken.after, staged.value)
            steps = self._steps(staged, taken, context, session, history, memory, deadline)
            asked = deadline.timed(_sent, steps, None)
            evaluate_ns = 0
            while not isinstance(asked, Outcome):
                begin = perf_counter_ns()
                if isinstance(asked, Batch):
                    answer: Any = await self._evaluated(asked, deadline, waiting)
                    evaluate_ns += perf_counter_ns() - begin
                else:
                    answer = await waiting.work(deadline.timed, asked)
                asked = deadline.timed(_sent, steps, answer)
        except DeadlinePassed:
            return Ran(self._late(traffic, deadline))
        except CmfError as error:  # no view can show the value in full
            problem = f"{error.message}; {error.hint}" if error.hint else error.message
            records = (*([] if staged is None else staged.records), _closing(error.code, problem, rule=INPUT_RULE))
            coverage = Coverage(produced=1, evaluated=0, skipped=(Skipped(path=error.path, reason=error.code),))
            return Ran(self._outcome(_Account((), (), coverage, records)))
        finally:
            history.deadline = None
        outcome = replace(asked, events=asked.events | taken.events) if taken.events else asked
        timings = {"stages_ns": stages_ns, "evaluate_ns": evaluate_ns}
        outcome = replace(self._told(outcome, traffic, deadline), session=context.session, timings=timings)
        return Ran(_certified(outcome, session, history, memory), staged.value)

    def _told(self, outcome: Outcome, traffic: Traffic, deadline: Deadline) -> Outcome:
        """The outcome; if the engine had no time left because of the input, one that says so."""
        decision = outcome.decision
        is_late = decision.action is Action.REFUSE and any(hit.code == TIMED_OUT for hit in decision.reasons)
        is_late = is_late and is_outage(decision) and _is_at_fault(traffic, deadline)
        return self._late(traffic, deadline) if is_late else outcome

    def _late(self, traffic: Traffic, deadline: Deadline) -> Outcome:
        """The refusal of a run that did not end in time: for being too much, or because of what it waited for."""
        if _is_at_fault(traffic, deadline):
            return self.closed(traffic, TOO_MUCH_WORK, TOO_MUCH[TOO_MUCH_WORK], rule=INPUT_RULE)
        return self.closed(traffic, DeadlinePassed.default_code, "Policy did not decide in time.")

    async def _evaluated(self, batch: Batch, deadline: Deadline, waiting: Waiting) -> list[EngineResult]:
        def evaluate() -> list[EngineResult]:
            ask = partial(self._engine.evaluate, *batch, timeout_seconds=deadline.left)
            return deadline.timed(ask)

        async def aevaluate() -> list[EngineResult]:
            before = deadline.left
            results = await self._engine.aevaluate(*batch, timeout_seconds=before)
            if sum(map(len, batch.views)) >= LARGE_BYTES:  # on another thread: it works, more than it waits
                deadline.worked(before - deadline.left)
            return results

        try:
            return await waiting.either(evaluate, aevaluate)
        except PROCESS_EXITS:
            raise
        except BaseException as error:  # an engine of the host's own that does not keep its word
            if waiting.is_cancelled(error):
                raise
            _log.error("the engine raised %s", where_from(error))
            return [Failed("engine.failed")] * len(batch.views)

    def _steps(
        self,
        staged: Staged,
        taken: Ingested,
        context: Context,
        session: SessionFacts,
        history: History,
        memory: TurnMemory,
        deadline: Deadline,
    ) -> _Steps:
        """The passes of judging and editing. They call no engine: they yield what to evaluate and get the results."""
        value, stages = taken.value, tuple(staged.records)
        unjudged = yield from _stopped_before(staged, value, history, memory)
        if unjudged is not None:
            return self._outcome(unjudged)
        # Labels that stages added are the session's too. The last message has them all, since labels carry forward.
        labels = session.labels.union(*map(labels_of, messages_of(value)[-1:]))
        if labels != session.labels:
            session = replace(session, labels=labels)
        excuses = Excuses((*self.policies.exceptions, *session.overrides), context, session.moment)
        finder = HitFinder(self._rules, excuses, taken.rule())
        keep = context.session is not None  # without a session there is no next turn to keep anything for
        replacer = Replacer(self._replacer_key)
        lines = DecisionLines()
        passes: list[tuple[Traffic, tuple[ViewDecision, ...]]] = []
        label_sources: LabelSources = frozenset()
        schemas = SchemaChecks(value, history, self._events, self._unreadable)
        for number in range(MAX_PASSES):
            same = None if number else memory.same(value)
            previous = memory.before(number)
            judged = yield from self._judge(value, session, history, finder, schemas, previous, same, keeps=keep)
            lines.add(judged.views, judged.hit, judged.coverage.reused)
            account = _Account(lines.lines, lines.hit, judged.coverage, stages)
            passes.append((value, judged.views))
            if schemas.broken is not None:
                return self._refused(account, _edit_failed("effect.tool-input-invalid"), schemas.broken)
            if judged.stops:
                return self._outcome(account)
            deadline.check()
            try:
                removed: list[str] = []
                edited = judged.edited(self._mode, replacer, removed)
                lines.removed(removed)
            except EffectError as error:
                return self._refused(account, _edit_failed(error.code), error.path)
            if keep and isinstance(edited, Request):
                memory.passes.append(partial(judged.settle, edited, removed))
            relabelled = stamp(edited, judged.labels)
            label_sources |= judged.label_sources
            added = frozenset[str]().union(*judged.labels.values())
            is_new = not added <= session.labels
            session = replace(session, labels=session.labels | added) if is_new else session
            if relabelled is value and not is_new:
                outcome = yield from self._answered(account, value, session, history, passes, schemas, keep=keep)
                return replace(outcome, events=label_sources) if label_sources else outcome
            value = relabelled
        return self._refused(account, _edit_failed("pipeline.no-fixed-point"), "")

    def _answered(
        self,
        account: _Account,
        value: Traffic,
        session: SessionFacts,
        history: History,
        passes: Sequence[tuple[Traffic, Sequence[ViewDecision]]],
        schemas: SchemaChecks,
        *,
        keep: bool,
    ) -> _Steps:
        """The outcome of what judgement lets through, once people have approved what rules require them to.

        Forward if all approvals are given, refuse if one is denied, else suspend.
        """
        if not needs_approval(account.hit, account.stages, self._mode):
            return self._outcome(account, value, session.labels)
        needs = approval_needs(value, passes, account.stages, self._mode, schemas.definition_of)
        known = partial(
            resolve,
            needs,
            revision=self.policies.revision,
            expires_at=session.moment + self._approval_time,
            keep=keep,
            asker=history.asker,
        )
        answer = known(session)
        if any(ApprovalScope.VALUE in asked.scopes for asked in answer.asked):  # only what is missing is looked up
            answer = known(replace(session, standing=(yield history.standing)))
        if answer.action is Action.REFUSE:
            return self._refused(account, DENIED_BY_PERSON, answer.refs[0].path, answer)
        if answer.action is Action.FORWARD:
            approved = tuple(with_approval(view, self._mode) if view.hits else view for view in account.views)
            hit = tuple(view for view in approved if view.hits)
            return self._outcome(account._replace(views=approved, hit=hit), value, session.labels, answer)
        return self._outcome(account, answer=answer)

    def _outcome(
        self,
        account: _Account,
        value: Traffic | None = None,
        labels: frozenset[str] = frozenset(),
        answer: ApprovalAnswer | None = None,
    ) -> Outcome:
        """The outcome of a run; without `value`, one that lets nothing through."""
        views, hit, coverage, stages = account
        approved = answer is not None and answer.action is Action.FORWARD
        # A view without hits is allowed, so one of them can represent all of them.
        verdict, action = with_stages(*overall(hit or views[:1], coverage), stages, self._mode, approved=approved)
        decision = trusted(
            Decision,
            id=f"dec_{new_ulid()}",
            verdict=verdict,
            action=action,
            mode=self._mode,
            revision=self.policies.revision,
            views=views,
            coverage=coverage,
            stages=stages,
            approvals=() if answer is None else answer.refs,
            marked=hit,
        )
        return trusted(Outcome, decision=decision, value=value, labels=labels, answer=answer, timings={})

    def closed(self, value: Traffic, code: str, reason: str, *, rule: str = SESSION_RULE) -> Outcome:
        """The refusal of a value that could not be judged because something that judgement needs failed."""
        return self._outcome(_unjudged(value, (_closing(code, reason, rule=rule),)))

    def _refused(self, account: _Account, hit: Hit, path: str, answer: ApprovalAnswer | None = None) -> Outcome:
        """A refusal that follows from no rule: an edit failed, edits never settled, or a person denied an approval.

        `hit` is added to the line of the view at `path`; if there is none, to the first line.
        """
        denied = {"verdict": Verdict.DENY, "outcome": Action.REFUSE}
        at = next((index for index, view in enumerate(account.views) if view.path == path), 0)
        views = [
            replace(view, hits=(*view.hits, hit), **denied) if index == at else view
            for index, view in enumerate(account.views)
        ]
        hit_views = tuple(view for view in views if view.hits)
        return self._outcome(account._replace(views=tuple(views), hit=hit_views), answer=answer)


def _stopped_before(
    staged: Staged, value: Traffic, history: History, memory: TurnMemory
) -> Generator[Awaited, Any, _Account | None]:
    """The account of a run that ends before judgement, by a stage or by what `value` refers to; None if it goes on."""
    if staged.stopped:
        return _unjudged(staged.value, tuple(staged.records))
    referred = memory.references(value)
    unseen = (yield partial(refusals, referred, history.seen)) if referred else ()
    return _unjudged(value, (*staged.records, *unseen)) if unseen else None


def _certified(outcome: Outcome, session: SessionFacts, history: History, memory: TurnMemory) -> Outcome:
    """The outcome with its certificate, if its value may go out. The one place where certificates are made [C6]."""
    keep = outcome.session is not None
    outcome = replace(outcome, session_version=session.version if keep else None)
    if outcome.value is None:
        return outcome
    digests = memory.digests if keep else None
    full = outcome.decision.coverage.full
    certificate = mint(outcome.value, bound(outcome), complete=full, digests=digests)
    history.turn = memory.turn() if keep else history.turn
    return replace(outcome, certificate=certificate)


def _sent(steps: _Steps, answer: Any) -> Awaited | Outcome:
    """What the steps wait for next, or come to."""
    try:
        return steps.send(answer)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome


def _is_at_fault(traffic: Traffic, deadline: Deadline) -> bool:
    """Whether a run took too long because of its input: it worked, rather than waited, and the input is not small."""
    return deadline.spent_working and len(to_bytes(traffic)) >= SMALL_BYTES


def _closing(code: str, reason: str, *, rule: str) -> StageRecord:
    hit = Hit(rule=rule, code=code, effect=Effect.DENY, reason=reason, severity="critical")
    return StageRecord(stage="session", mode="sequential", hit=hit, closed=True)


def _edit_failed(code: str) -> Hit:
    reason = "What policy asked for could not be carried out."
    return Hit(rule="pipeline", code=code, effect=Effect.DENY, reason=reason, severity="critical")
