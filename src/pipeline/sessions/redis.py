"""Sessions in Redis or Valkey: one document per session, changed under a watch and put back at once [C5, E7].

Spec: docs/spec/sessions.md. A server that is to survive its own crash needs `appendfsync always`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

from cmf.json.codec import dumps, loads
from cmf.message.ids import Clock
from pipeline.decisions.approval import Approval, ApprovalScope, ApprovalUse, PersonsAnswer, already_requested
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.errors import StoreBusy, StoreError, needs
from pipeline.decisions.policy_input import SessionFacts
from pipeline.sessions.base import (
    Moments,
    SessionStore,
    in_order,
    rests,
    settle,
    standing,
    unknown_approval,
    waiting,
    wall_clock,
    with_decision,
)
from pipeline.sessions.state import Budget, BudgetScope, Changes, Grant, SessionState, Taint, budget_id, budget_of
from pipeline.sessions.turns import SessionTurns

with needs("redis"):
    import redis
    from redis.client import Pipeline
    from redis.exceptions import RedisError, WatchError

_T = TypeVar("_T")
TIMEOUT_SECONDS: Final = 2.0
MAX_TRIES: Final = 200  # of one commit whose budgets others keep changing; the session itself is never tried twice
_PENDING: Final = "pending"
_STANDING: Final = "standing"


class RedisSessions(SessionStore):
    """Sessions on a server that several gateways share.

    Args:
        url: `redis://host:port/0`, or `unix:///path`.
        prefix: what the keys begin with; two installations on one server need two.
        tries: how often a change is begun anew because others change the same budget; StoreBusy then.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "cmf",
        clock: Clock = wall_clock,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tries: int = MAX_TRIES,
    ) -> None:
        self.turns = SessionTurns()
        self._tries = tries
        self._redis = redis.Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)
        self._prefix = prefix
        self._moments = Moments(clock)

    def read(self, context: Context) -> SessionFacts:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None:
            return SessionFacts(moment=self._moments.now())
        with _answered():
            state = _state(self._redis.get(self._name("session", *key)))
        return state.facts(self._moments.now())

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        """See `SessionStore`."""
        key = session_key(context)
        kept = changes.for_key(key)
        return self._tried(lambda pipe: self._try(pipe, key, expected_version, kept, self._moments.now()), "budget")

    def _tried(self, change: Callable[[Pipeline], _T], what: str) -> _T:
        """What `change` comes to, begun anew whenever somebody changed meanwhile what it watches."""
        for _ in range(self._tries):
            with suppress(WatchError), _answered(), self._redis.pipeline() as pipe:
                return change(pipe)
        raise StoreBusy(f"too many change the same {what}", hint="try again shortly")

    def _try(self, pipe: Pipeline, key: SessionKey, expected_version: int | None, changes: Changes, now: int) -> bool:
        names = {budget_of(change, key): Budget() for change in changes.of_budgets}
        asked = (self._name("approval", asked.id) for asked in changes.asked)
        _watch(pipe, self._name("session", *key), *(self._name("budget", *name) for name in names), *asked)
        if not all(self._rests(pipe, use, now) for use in changes.rests):
            return False
        before = _state(pipe.get(self._name("session", *key)))
        if key.session is not None and expected_version not in (None, before.version):
            return False
        budgets = {name: _budget(pipe.get(self._name("budget", *name))) for name in names}
        settle(budgets, changes, key)
        after = None
        if changes.touch_session:
            # Marks only grow, and whoever adds some changes the session that is watched.
            counted = self._marked(pipe, key, changes.count_marks)
            if any(pipe.exists(self._name("approval", asked.id)) for asked in changes.asked):
                raise already_requested()
            after = before.after(changes, key, now, counted)
        pipe.multi()
        for name, budget in budgets.items():
            held = {hold: str(amount) for hold, amount in budget.held.items()}
            pipe.set(self._name("budget", *name), dumps({"spent": str(budget.spent), "held": held}))
        if after is not None:
            self._put(pipe, key, after, changes, now)
        pipe.execute()
        return True

    def _rests(self, pipe: Pipeline, use: ApprovalUse, now: int) -> bool:
        where: Any = pipe.get(self._name("approval", use.id))  # which never changes
        if where is None:
            return False
        home = self._name("session", *_key(where))
        _watch(pipe, home)
        return rests(_state(pipe.get(home)).approvals[use.id], use, now)

    def _put(self, pipe: Pipeline, key: SessionKey, after: SessionState, changes: Changes, now: int) -> None:
        pipe.set(self._name("session", *key), _state_bytes(after))
        marks = changes.seen | changes.count_marks
        if marks:
            pipe.sadd(self._name("marks", *key), *marks)
        for asked in changes.asked:
            pipe.set(self._name("approval", asked.id), dumps([*key]))
            pipe.sadd(self._name(_PENDING), asked.id)
        for asked, body in changes.sealed_with():
            # The server's clock forgets it; counted from now, so that the two clocks need not agree.
            pipe.set(self._name("sealed", asked.id), body, px=max(1, (asked.expires_at - now) // 1_000))
        if changes.unsealed:
            pipe.delete(*(self._name("sealed", approval_id) for approval_id in changes.unsealed))

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None:
            return frozenset()
        with _answered():
            return self._marked(self._redis, key, marks)

    def budget(self, context: Context, scope: BudgetScope, name: str) -> Budget:
        """See `SessionStore`."""
        wanted = budget_id(scope, name, session_key(context))
        with _answered():
            return _budget(self._redis.get(self._name("budget", *wanted)))

    def approval(self, approval_id: str) -> Approval | None:
        """See `SessionStore`."""
        with _answered():
            where = self._redis.get(self._name("approval", approval_id))
            if where is None:
                return None
            return _state(self._redis.get(self._name("session", *_key(where)))).approvals.get(approval_id)

    def sealed(self, approval_id: str) -> bytes | None:
        """See `SessionStore`."""
        approval = self.approval(approval_id)
        if approval is None or self._moments.now() >= approval.asked.expires_at:
            return None
        with _answered():
            body = self._redis.get(self._name("sealed", approval_id))
        return None if body is None else bytes(cast("bytes", body))

    def grants(self, context: Context) -> tuple[Grant, ...]:
        """See `SessionStore`."""
        key = session_key(context)
        with _answered():
            return () if key.session is None else in_order(_state(self._redis.get(self._name("session", *key))).grants)

    def pending_approvals(self) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        return self._listed(self._name(_PENDING), waiting)

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        place = self._name(_STANDING) if owner is None else self._name(_STANDING, owner)
        return self._listed(place, lambda approvals, now: standing(approvals, now, owner))

    def _listed(
        self, place: str, chosen: Callable[[Collection[Approval], int], tuple[Approval, ...]]
    ) -> tuple[Approval, ...]:
        """Those `chosen` of the approvals whose ids are at `place`; what became of the others is no longer asked."""
        with _answered():
            ids = [bytes(one).decode() for one in cast("set[bytes]", self._redis.smembers(place))]
            approvals = (self.approval(one) for one in ids)
            listed = chosen([one for one in approvals if one is not None], self._moments.now())
            stale = set(ids) - {one.asked.id for one in listed}
            if stale:
                self._redis.srem(place, *stale)
        return listed

    def answer_approval(self, approval_id: str, answer: PersonsAnswer, *, by: str) -> Approval:
        """See `SessionStore`."""
        with _answered():
            where = self._redis.get(self._name("approval", approval_id))
        if where is None:
            raise unknown_approval()
        key = _key(where)

        def change(pipe: Pipeline) -> Approval:
            _watch(pipe, self._name("session", *key))
            before = _state(pipe.get(self._name("session", *key)))
            after = with_decision(before, approval_id, by, answer, self._moments.now())
            answered = after.approvals[approval_id]
            pipe.multi()
            pipe.set(self._name("session", *key), _state_bytes(after))
            pipe.srem(self._name(_PENDING), approval_id)
            if answer.action == "deny":
                pipe.delete(self._name("sealed", approval_id))
            if answered.scope is not ApprovalScope.ONCE:
                pipe.sadd(self._name(_STANDING), approval_id)
            if answered.scope is ApprovalScope.VALUE:
                pipe.sadd(self._name(_STANDING, answered.asked.owner), approval_id)
            pipe.execute()
            return answered

        return self._tried(change, "session")

    def close(self) -> None:
        """See `SessionStore`."""
        self._redis.close()

    def _marked(self, client: redis.Redis, key: SessionKey, marks: Collection[str]) -> frozenset[str]:
        wanted = sorted(marks)
        if not wanted:
            return frozenset()
        found = cast("list[int]", client.smismember(self._name("marks", *key), wanted))
        return frozenset(mark for mark, there in zip(wanted, found, strict=True) if there)

    def _name(self, kind: str, *parts: str | None) -> str:
        # JSON keeps the parts apart, whatever is in them: no subject can spell another's key.
        return f"{self._prefix}:{kind}:{dumps(list(parts)).decode()}"


@contextmanager
def _answered() -> Iterator[None]:
    """Whatever the server or the way to it does comes out as StoreError; a missed watch stays what it is."""
    try:
        yield
    except WatchError:
        raise
    except RedisError as error:
        hint = f"the client reported {type(error).__name__}: does the server run, and may this user connect?"
        raise StoreError("the session store cannot be asked", hint=hint) from error


def _watch(pipe: Pipeline, *names: str) -> None:
    pipe.watch(*names)  # type: ignore[no-untyped-call]  # the client leaves it untyped


def _key(stored: Any) -> SessionKey:
    return SessionKey(*loads(bytes(stored)))


def _state(stored: Any) -> SessionState:
    if stored is None:
        return SessionState()
    plain = loads(bytes(stored))
    return SessionState(
        version=plain["version"],
        updated_at=plain["updated_at"],
        taints=frozenset(Taint(*pair) for pair in plain["taints"]),
        grants=tuple(map(Grant.from_json, plain["grants"])),
        counters={name: Decimal(amount) for name, amount in plain["counters"].items()},
        events=tuple(plain["events"]),
        tool_ids=plain["tool_ids"],
        approvals={name: Approval.from_json(approval) for name, approval in plain["approvals"].items()},
        active_model=plain.get("active_model"),
    )


def _state_bytes(state: SessionState) -> bytes:
    return dumps(
        {
            "version": state.version,
            "updated_at": state.updated_at,
            "taints": sorted([taint.label, taint.source] for taint in state.taints),
            "grants": [grant.to_json() for grant in state.grants],
            "counters": {name: str(amount) for name, amount in state.counters.items()},
            "events": [dict(event) for event in state.events],
            "tool_ids": {canonical: dict(names) for canonical, names in state.tool_ids.items()},
            "approvals": {name: approval.to_json() for name, approval in state.approvals.items()},
            "active_model": state.active_model,
        }
    )


def _budget(stored: Any) -> Budget:
    if stored is None:
        return Budget()
    plain = loads(bytes(stored))
    return Budget(Decimal(plain["spent"]), {name: Decimal(amount) for name, amount in plain["held"].items()})
