//! The evaluation of a batch of views.
//!
//! Any number of threads may use one set. What an evaluation changes belongs to that call and is dropped with it, so no
//! evaluation can see another's input [ENG-6].
#![forbid(unsafe_code)]

use crate::evaluation::stack::{on_large_stack, MAX_TIMEOUT, NO_STACK};
use crate::evaluation::watch;
use crate::failure::{position, Failure, Outcome};
use crate::json::{self, JsonFault, Unwritable};
use crate::policy_set::PolicySet;
use crate::program::Program;
use regorus::rvm::vm::VmError;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Steps between two looks at the clock. The interpreter's operators do not bound the size of their results, so it
/// looks at every step: a value that doubles with each step is stopped soon after the deadline.
const MACHINE_INTERVAL: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);
pub const INTERPRETER_INTERVAL: NonZeroU32 = NonZeroU32::MIN;

/// The largest input, in bytes, with which a machine is kept for the next evaluation.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Codes for the interpreter's error messages, by how they begin; what follows may quote input and is never kept.
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
    /// One outcome per view, in order. `timeout` is for the whole batch, from this call on.
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

/// The state of one call of [`PolicySet::evaluate`].
struct Batch<'a> {
    set: &'a PolicySet,
    deadline: Option<Instant>,
    interpreter: Option<Engine>,
    /// The previous view, by address and length, and its input: one view may be evaluated for several entrypoints.
    parsed: Option<(*const u8, usize, Value)>,
    shared_bytes: usize,
    /// Whether the input is small enough for a machine to be kept with it.
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

    /// Bytes at the same address are parsed once: during one call they do not move.
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

    /// Whether the outcome of the compiled form and that of the interpreter are the same in kind and value [ENG-10].
    ///
    /// The interpreter evaluates all definitions of a rule, also after one that holds with a constant that all of them
    /// give. If only it failed for that reason, the compiled form fails too when it evaluates them all.
    fn agree(&mut self, program: &Program, one: &Outcome, other: &Outcome, name: &str, input: Value) -> bool {
        match (one, other) {
            (Outcome::TimedOut, _) | (_, Outcome::TimedOut) | (Outcome::Failed(_), Outcome::Failed(_)) => true,
            (_, Outcome::Failed(failure)) if failure.code == NOT_A_COLLECTION => true,
            // An operator failed: builtins are guarded, and undefined in both forms then.
            (_, Outcome::Failed(failure))
                if !self.set.options.strict_builtin_errors && failure.code == "engine.builtin-error" =>
            {
                true
            }
            (_, Outcome::Failed(_)) => {
                matches!(
                    self.execute(&program.without_early_exit(), name, input),
                    Outcome::Failed(_) | Outcome::TimedOut
                )
            }
            (one, other) => one == other,
        }
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
            // The machine is dropped: its state is unknown.
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
        // Only after an evaluation that ended normally is the state known to be clean.
        if matches!(outcome, Outcome::Decided(_) | Outcome::Undefined) {
            engine.set_input(Value::Undefined);
            self.interpreter = Some(engine);
        }
        outcome
    }

    fn interpreter_failure(&self, error: &anyhow::Error) -> Outcome {
        // The interpreter turns some errors into text, so the clock decides too.
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
        match json::write(value, self.set.options.max_result_bytes) {
            Ok(bytes) => Outcome::Decided(bytes),
            Err(Unwritable::TooLarge) => Outcome::Failed(Failure::new("engine.result-too-large", name)),
            Err(Unwritable::Undefined) => Outcome::Failed(Failure::new("engine.bad-result", name)),
        }
    }
}

/// Where in the policy an engine error occurred.
fn place(text: &str) -> String {
    position(text).map(|(path, line, column)| format!("{path}:{line}:{column}")).unwrap_or_default()
}

fn refused_input(part: &str, fault: JsonFault) -> Outcome {
    Outcome::Failed(Failure::new(fault.code, format!("{part}, byte {}", fault.offset)))
}
