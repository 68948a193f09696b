"""The names that `pipeline` offers, with what they need."""

from __future__ import annotations

from pipeline.approvals.declassification import declassify as declassify
from pipeline.approvals.queue import Approvals as Approvals
from pipeline.decisions.context import Context as Context
from pipeline.decisions.decision import Action as Action
from pipeline.decisions.decision import Coverage as Coverage
from pipeline.decisions.decision import Decision as Decision
from pipeline.decisions.decision import Effect as Effect
from pipeline.decisions.decision import Hit as Hit
from pipeline.decisions.decision import Mode as Mode
from pipeline.decisions.decision import Verdict as Verdict
from pipeline.decisions.decision import ViewDecision as ViewDecision
from pipeline.decisions.errors import ApprovalRequired as ApprovalRequired
from pipeline.decisions.errors import BudgetExceeded as BudgetExceeded
from pipeline.decisions.errors import CallError as CallError
from pipeline.decisions.errors import ConfigError as ConfigError
from pipeline.decisions.errors import Denied as Denied
from pipeline.decisions.errors import EmissionError as EmissionError
from pipeline.decisions.errors import PipelineError as PipelineError
from pipeline.decisions.errors import PolicyError as PolicyError
from pipeline.decisions.errors import PolicyUnavailable as PolicyUnavailable
from pipeline.decisions.errors import ToolInputError as ToolInputError
from pipeline.decisions.errors import Unjudgeable as Unjudgeable
from pipeline.decisions.events import Events as Events
from pipeline.decisions.stage import Ask as Ask
from pipeline.decisions.stage import OnError as OnError
from pipeline.decisions.stage import Refuse as Refuse
from pipeline.decisions.stage import Stage as Stage
from pipeline.decisions.stage import StageMode as StageMode
from pipeline.decisions.stage import as_stage as as_stage
from pipeline.guard import Guard as Guard
from pipeline.policy.policy_set import PolicySet as PolicySet
from pipeline.provenance.profiles import Profiles as Profiles
from pipeline.run.assembly import Config as Config
from pipeline.run.emit import emit as emit
from pipeline.run.outcome import Outcome as Outcome
from pipeline.run.pipeline import Pipeline as Pipeline
from pipeline.sessions.budgets import Budgets as Budgets
from pipeline.sessions.budgets import Limit as Limit
from pipeline.sessions.budgets import Unit as Unit
from pipeline.sessions.state import BudgetScope as BudgetScope
