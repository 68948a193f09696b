//! The evaluation of a batch of views.
//!
//! One set serves any number of threads: what an evaluation changes is made for that call and dropped with it, so no
//! evaluation can see another's input [ENG-6].
#![forbid(unsafe_code)]

use crate::failure::{position, Failure, Outcome};
use crate::json::{self, JsonFault};
use crate::policy_set::PolicySet;
use crate::programs::Program;
use crate::stack::{on_large_stack, MAX_TIMEOUT, NO_STACK};
use crate::watch;
use crate::written::{self, Unwritable};
use regorus::rvm::vm::VmError;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Steps between two looks at the clock. The interpreter's own operators are not bounded in size, so it looks at every
/// step: what doubles with each step is then stopped within a few times the time it had.
const MACHINE_INTERVAL: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);
pub const INTERPRETER_INTERVAL: NonZeroU32 = NonZeroU32::MIN;

/// Bytes of a view with which a machine is kept for the next one.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Codes for the interpreter's own complaints, by how they begin; what follows may quote input and is never kept.
const INTERPRETER_CODES: &[(&str, &str)] = &[
    ("complete rules should not produce multiple outputs", "engine.conflict"),
    ("functions must not produce multiple outputs", "engine.conflict"),
    ("rules must not produce multiple outputs", "engine.conflict"),
    ("rules should not produce multiple outputs", "engine.conflict"),
    ("function produced multiple outputs", "engine.conflict"),
    ("rule conflicts with rule", "engine.conflict"),
    ("numeric overflow", "engine.builtin-error"),
    ("divide by zero", "engine.builtin-error"),
    ("modulo", "engine.builtin-error"),
    ("`add`", "engine.builtin-error"),
    ("`sub`", "engine.builtin-error"),
    ("`mul`", "engine.builtin-error"),
    ("`div`", "engine.builtin-error"),
    ("`mod`", "engine.builtin-error"),
    ("`difference`", "engine.builtin-error"),
    ("`intersection`", "engine.builtin-error"),
    ("`union`", "engine.builtin-error"),
    ("`some .. in collection` expects", NOT_A_COLLECTION),
];

/// `some … in` over what has no members: undefined in OPA and in the compiled form, an error in the interpreter.
const NOT_A_COLLECTION: &str = "engine.not-a-collection";

impl PolicySet {
    /// One outcome per view, in order. `timeout` covers the whole batch, from here.
    pub fn evaluate(&self, entrypoints: &[String], shared: &[u8], views: &[&[u8]], timeout: Duration) -> Vec<Outcome> {
        let deadline = Instant::now().checked_add(timeout.min(MAX_TIMEOUT));
        let outcomes = on_large_stack(|| {
            let bytes = shared.len();
            let shared = match json::parse_object(shared, self.options.max_input_bytes) {
                Ok(value) => value,
                Err(fault) => return vec![refused_input("shared", fault); views.len()],
            };
            let mut batch =
                Batch { set: self, deadline, interpreter: None, parsed: None, shared_bytes: bytes, is_small: false };
            let mut outcomes = Vec::with_capacity(views.len());
            for (position, view) in views.iter().enumerate() {
                let name = entrypoints.get(position).map_or("", String::as_str);
                outcomes.push(batch.view(name, &shared, view));
            }
            outcomes
        });
        outcomes.unwrap_or_else(|| vec![Outcome::Failed(Failure::new(NO_STACK, "")); views.len()])
    }
}

/// What one call of [`PolicySet::evaluate`] makes for itself.
struct Batch<'a> {
    set: &'a PolicySet,
    deadline: Option<Instant>,
    interpreter: Option<Engine>,
    /// The view before, merged: one view may be asked of several entrypoints.
    parsed: Option<(*const u8, usize, Value)>,
    shared_bytes: usize,
    /// Whether a machine may be kept with what it holds of the view.
    is_small: bool,
}

impl Batch<'_> {
    fn left(&self) -> Option<Duration> {
        let left = self.deadline?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then_some(left)
    }

    fn view(&mut self, name: &str, shared: &Value, view: &[u8]) -> Outcome {
        let Some(entrypoint) = self.set.entrypoints.iter().find(|entrypoint| entrypoint.name == name) else {
            return Outcome::Failed(Failure::new("engine.no-entrypoint", name));
        };
        if self.left().is_none() {
            return Outcome::TimedOut;
        }
        self.is_small = self.shared_bytes + view.len() <= MAX_KEPT_BYTES;
        let input = match self.input(shared, view) {
            Ok(input) => input,
            Err(fault) => return refused_input("view", fault),
        };
        let program = entrypoint.program.and_then(|place| self.set.programs.get(place));
        let Some(program) = program.filter(|_| !self.set.interpret_only.load(Ordering::Relaxed)) else {
            return self.interpret(name, input);
        };
        let count = self.set.decisions.fetch_add(1, Ordering::Relaxed);
        let every = self.set.options.check_every;
        if every == 0 || count % every != 0 {
            return self.execute(program, name, input);
        }
        let outcome = self.execute(program, name, input.clone());
        let other = self.interpret(name, input.clone());
        if self.agree(program, &outcome, &other, name, input) {
            return outcome;
        }
        self.set.differences.fetch_add(1, Ordering::Relaxed);
        self.set.interpret_only.store(true, Ordering::Relaxed);
        Outcome::Failed(Failure::new("engine.forms-differ", name))
    }

    /// The very same bytes are parsed once: for one call they stay where they are.
    fn input(&mut self, shared: &Value, view: &[u8]) -> Result<Value, JsonFault> {
        match &self.parsed {
            Some((start, length, input)) if *start == view.as_ptr() && *length == view.len() => Ok(input.clone()),
            _ => {
                let mut input = json::parse_object(view, self.set.options.max_input_bytes)?;
                json::merge_under(shared, &mut input);
                self.parsed = Some((view.as_ptr(), view.len(), input.clone()));
                Ok(input)
            }
        }
    }

    /// Whether the compiled form's outcome and the interpreter's are the same in kind and value [ENG-10].
    ///
    /// The interpreter asks the definitions of a rule on, behind one that holds with their one constant. Where that is
    /// why it alone failed, the compiled form fails too when it is made to ask them all.
    fn agree(&mut self, program: &Program, one: &Outcome, other: &Outcome, name: &str, input: Value) -> bool {
        match (one, other) {
            (Outcome::TimedOut, _) | (_, Outcome::TimedOut) | (Outcome::Failed(_), Outcome::Failed(_)) => true,
            (_, Outcome::Failed(failure)) if failure.code == NOT_A_COLLECTION => true,
            // An operator: builtins are guarded, and undefined then in either form.
            (_, Outcome::Failed(failure)) if self.is_lax() && failure.code == "engine.builtin-error" => true,
            (_, Outcome::Failed(_)) => {
                matches!(self.execute(&program.asking_all(), name, input), Outcome::Failed(_) | Outcome::TimedOut)
            }
            (one, other) => one == other,
        }
    }

    fn is_lax(&self) -> bool {
        !self.set.options.strict_builtin_errors
    }

    fn timer(&self, check_interval: NonZeroU32) -> ExecutionTimerConfig {
        ExecutionTimerConfig { limit: self.left().unwrap_or(Duration::ZERO), check_interval }
    }

    fn execute(&mut self, program: &Program, name: &str, input: Value) -> Outcome {
        let timer = self.timer(MACHINE_INTERVAL);
        let Some(mut machine) = program.machine(&self.set.data) else {
            return Outcome::Failed(Failure::new("engine.internal", "data"));
        };
        machine.set_execution_timer_config(Some(timer));
        machine.set_input(input);
        watch::start(self.deadline, self.set.options.strict_builtin_errors);
        let result = watch::shielded(|| machine.execute_entry_point_by_name(name));
        let (failure, late) = watch::finish();
        let Some(result) = result else {
            // The machine's state is unknown: it goes.
            return Outcome::Failed(Failure::new("engine.panic", name));
        };
        let rule = program.rule_at(machine.get_pc());
        if result.is_ok() && self.is_small {
            program.take_back(machine);
        }
        match (failure, result) {
            _ if late => Outcome::TimedOut,
            (Some(failure), _) => Outcome::Failed(Failure::new(failure.code, format!("{} in {rule}", failure.detail))),
            (None, Ok(value)) => self.written(&value, name),
            (None, Err(VmError::TimeLimitExceeded { .. })) => Outcome::TimedOut,
            (None, Err(VmError::InstructionLimitExceeded { .. })) => {
                Outcome::Failed(Failure::new("engine.too-many-steps", rule))
            }
            (None, Err(VmError::NumericOverflow { .. })) => Outcome::Failed(Failure::new("engine.builtin-error", rule)),
            (None, Err(_)) => Outcome::Failed(Failure::new("engine.error", rule)),
        }
    }

    fn interpret(&mut self, name: &str, input: Value) -> Outcome {
        let timer = self.timer(INTERPRETER_INTERVAL);
        let mut engine = self.interpreter.take().unwrap_or_else(|| self.set.interpreter.clone());
        engine.set_execution_timer_config(timer);
        engine.set_input(input);
        watch::start(self.deadline, self.set.options.strict_builtin_errors);
        let result = watch::shielded(|| engine.eval_rule(name.to_owned()));
        let (failure, late) = watch::finish();
        let Some(result) = result else {
            return Outcome::Failed(Failure::new("engine.panic", name));
        };
        let outcome = match (failure, result) {
            _ if late => Outcome::TimedOut,
            (Some(failure), Ok(_)) => Outcome::Failed(failure),
            (Some(failure), Err(error)) => {
                let place = place(&error.to_string());
                Outcome::Failed(Failure::new(failure.code, format!("{} at {place}", failure.detail)))
            }
            (None, Ok(value)) => self.written(&value, name),
            (None, Err(error)) => self.interpreter_failure(&error),
        };
        // Only after an evaluation that ended as it should is the state known to be clean.
        if matches!(outcome, Outcome::Decided(_) | Outcome::Undefined) {
            engine.set_input(Value::Undefined);
            self.interpreter = Some(engine);
        }
        outcome
    }

    fn interpreter_failure(&self, error: &anyhow::Error) -> Outcome {
        // The interpreter rewraps some errors as text, so the clock is asked too.
        let timed = matches!(error.downcast_ref(), Some(LimitError::TimeLimitExceeded { .. }));
        if timed || self.left().is_none() {
            return Outcome::TimedOut;
        }
        let text = error.to_string();
        let message = text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_default();
        let code =
            INTERPRETER_CODES.iter().find(|(start, _)| message.starts_with(start)).map_or("engine.error", |(_, c)| c);
        Outcome::Failed(Failure::new(code, place(&text)))
    }

    fn written(&self, value: &Value, name: &str) -> Outcome {
        if *value == Value::Undefined {
            return Outcome::Undefined;
        }
        match written::write(value, self.set.options.max_result_bytes) {
            Ok(bytes) => Outcome::Decided(bytes),
            Err(Unwritable::TooLarge) => Outcome::Failed(Failure::new("engine.result-too-large", name)),
            Err(Unwritable::Undefined) => Outcome::Failed(Failure::new("engine.bad-result", name)),
        }
    }
}

/// Where in the policy an engine error is.
fn place(text: &str) -> String {
    position(text).map(|(path, line, column)| format!("{path}:{line}:{column}")).unwrap_or_default()
}

fn refused_input(part: &str, fault: JsonFault) -> Outcome {
    Outcome::Failed(Failure::new(fault.code, format!("{part}, byte {}", fault.offset)))
}
