"""The names that `pipeline` offers, with what they need."""

from __future__ import annotations

from pipeline.approvals.queue import Approvals as Approvals
from pipeline.assembly import Config as Config
from pipeline.budgets import Budgets as Budgets
from pipeline.budgets import Limit as Limit
from pipeline.budgets import Unit as Unit
from pipeline.context import Context as Context
from pipeline.coverage import Coverage as Coverage
from pipeline.decision import Action as Action
from pipeline.decision import Decision as Decision
from pipeline.decision import Effect as Effect
from pipeline.decision import Hit as Hit
from pipeline.decision import Mode as Mode
from pipeline.decision import Verdict as Verdict
from pipeline.decision import ViewDecision as ViewDecision
from pipeline.declassification import declassify as declassify
from pipeline.emission import emit as emit
from pipeline.errors import ApprovalRequired as ApprovalRequired
from pipeline.errors import BudgetExceeded as BudgetExceeded
from pipeline.errors import CallError as CallError
from pipeline.errors import ConfigError as ConfigError
from pipeline.errors import Denied as Denied
from pipeline.errors import EmissionError as EmissionError
from pipeline.errors import PipelineError as PipelineError
from pipeline.errors import PolicyError as PolicyError
from pipeline.errors import PolicyUnavailable as PolicyUnavailable
from pipeline.errors import ToolInputError as ToolInputError
from pipeline.errors import Unjudgeable as Unjudgeable
from pipeline.events import Events as Events
from pipeline.guard import Guard as Guard
from pipeline.outcome import Outcome as Outcome
from pipeline.pipeline import Pipeline as Pipeline
from pipeline.policy_set import PolicySet as PolicySet
from pipeline.profiles import Profiles as Profiles
from pipeline.sessions.state import BudgetScope as BudgetScope
from pipeline.stage import Ask as Ask
from pipeline.stage import OnError as OnError
from pipeline.stage import Refuse as Refuse
from pipeline.stage import Stage as Stage
from pipeline.stage import StageMode as StageMode
from pipeline.stage import as_stage as as_stage
