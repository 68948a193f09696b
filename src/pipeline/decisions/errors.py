"""What can go wrong in the pipeline, as one tree.

A deny is not an error. Each error has a stable `code` and a `hint` that says what to do. Texts name files, fields and
types, never the content of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import cmf.errors

if TYPE_CHECKING:
    from pipeline.decisions.decision import Decision


class PipelineError(cmf.errors.LocatedError):
    """Root of all errors of this package."""

    default_code = "pipeline.error"

    def __str__(self) -> str:
        return self._located(self.message.removesuffix("."))  # a rule's reason is a sentence


class PolicyError(PipelineError, ValueError):
    """A policy set that cannot be loaded: `path` is the file, `line` and `column` count from 1; 0 is the whole file."""

    default_code = "policy.invalid"

    def __init__(
        self, message: str, *, path: str = "", line: int = 0, column: int = 0, hint: str = "", code: str = ""
    ) -> None:
        super().__init__(message, path=path, hint=hint, code=code)
        self.line = line
        self.column = column

    @property
    def place(self) -> str:
        """`path:line:column`, as far as it is known."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint} [{self.code}]"


class CaseError(PipelineError, ValueError):
    """A file of test cases that is not valid: `path` is the file, and the place within it."""

    default_code = "case.invalid"


class ReplayError(PipelineError, ValueError):
    """A recorded input that cannot be read, written or judged again."""

    default_code = "replay.invalid"


class EngineError(PipelineError):
    """An engine cannot answer. Evaluations of views never raise it: they return `Failed`."""

    default_code = "engine.error"


class EffectError(PipelineError, ValueError):
    """An effect cannot be applied to its target; the part is refused [EFF-4]."""

    default_code = "effect.impossible"


class DeadlinePassed(PipelineError):
    """The time of a run is over; the run ends as a refusal [PIPE-20]."""

    default_code = "pipeline.deadline"


class EmissionError(PipelineError):
    """An output that was refused, or has no complete, fresh and matching certificate [PIPE-6]."""

    default_code = "emit.refused"


class DecisionError(PipelineError):
    """A decision that refuses or suspends, raised. `user_message` is safe to show; `decision` has the details.

    Attributes:
        decision_id: the id of the record, for questions about this decision.
        retryable: whether the same request may be allowed later without changes.
        approval_ids: the approvals that it waits for; empty if it does not wait for any.
    """

    retryable: bool = False

    def __init__(self, decision: Decision, approval_ids: Sequence[str] = ()) -> None:
        self.decision = decision
        self.decision_id = decision.id
        self.approval_ids = tuple(approval_ids)
        first = decision.reasons[0] if decision.reasons else None
        self.user_message = first.reason if first is not None else "This was not judged in full."
        where = next((view.path for view in decision.views if first is not None and first in view.hits), "")
        code = first.code if first is not None else self.default_code
        super().__init__(self.user_message, path=where, hint=f"decision {decision.id}", code=code)


class Denied(DecisionError):
    """Policy refused."""

    default_code = "policy.denied"


class Unjudgeable(Denied):
    """The input is too large to be judged, or there is too much of something in it: the sender has to change it."""

    default_code = "input.unjudgeable"


class ApprovalRequired(DecisionError):
    """A person must approve first."""

    default_code = "policy.approval-required"


class PolicyUnavailable(DecisionError):
    """Policy could not decide: an outage, not a verdict. A retry may help, unless the policies are wrong."""

    default_code = "policy.unavailable"

    def __init__(self, decision: Decision, approval_ids: Sequence[str] = ()) -> None:
        super().__init__(decision, approval_ids)
        self.retryable = not any(hit.code in _OF_THE_POLICIES for hit in decision.reasons)


_OF_THE_POLICIES: Final = frozenset(
    {
        "engine.builtin-error",
        "engine.conflict",
        "engine.not-a-collection",
    }
)
"""What the same input always meets under the same policies, because of a mistake in them."""


class CallError(PipelineError, ValueError):
    """A guarded function's arguments or result cannot be judged, or cannot be used as they were judged [GRD-9]."""

    default_code = "guard.call"
    retryable: ClassVar[bool] = False


class ToolInputError(CallError):
    """The arguments of a guarded tool do not match its schema [A8]."""

    default_code = "tool_input_invalid"


class SessionError(PipelineError, ValueError):
    """A change to a session that cannot be made; no part of it was stored [SES-4]."""

    default_code = "session.invalid"


class ApprovalError(SessionError):
    """An approval that cannot be given or used [C10]."""

    default_code = "approval.unusable"


class DeclassificationError(SessionError):
    """A label that may not be lifted, or not by this subject, or not for so long [C3]."""

    default_code = "declassify.refused"


class UnpricedError(SessionError):
    """The cost of a request is unknown, and the setting refuses such requests [BUD-4]."""

    default_code = "budget.unpriced"


class BudgetExceeded(SessionError):
    """A reservation that exceeds the budget."""

    default_code = "session.budget-exceeded"


class StoreError(PipelineError):
    """The store cannot read or write. Fail closed: nothing may be released. Trying again may help."""

    default_code = "store.unavailable"
    retryable: ClassVar[bool] = True


class StoreBusy(StoreError):
    """The store has too much to do [E2]; an HTTP host answers 503."""

    default_code = "store.busy"


class AuditError(PipelineError, ValueError):
    """Evidence that cannot be read or written. What evidence proves to be wrong is a finding, not an error."""

    default_code = "audit.unreadable"


class LedgerError(PipelineError, ValueError):
    """A conversation that does not exist, cannot be read, or cannot be changed in this way."""

    default_code = "ledger.invalid"


class ConfigError(PipelineError, ValueError):
    """A setting that is missing or not valid."""

    default_code = "config.invalid"


class MissingExtraError(ConfigError, ImportError):  # type: ignore[misc]  # as in `cmf.errors`
    """A package that an extra installs is not there."""

    default_code = "extra.missing"


needs: Final = partial(cmf.errors.needs, error=MissingExtraError)
"""A block of imports from packages of an extra; where it is not installed, MissingExtraError says what to install."""


def where_from(error: BaseException) -> str:
    """An error as logs name it: its type and the line of code that raised it; its text may quote content."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return type(error).__name__
    return f"{type(error).__name__} at {place.tb_frame.f_globals.get('__name__', '?')}:{place.tb_lineno}"
