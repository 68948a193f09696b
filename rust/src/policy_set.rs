//! A compiled, immutable policy set and the evaluation of a batch of views.
//!
//! One set serves any number of threads: what an evaluation changes is made for that call and dropped with it, so no
//! evaluation can see another's input [ENG-6].
#![forbid(unsafe_code)]

use crate::failure::{position, Failure, Outcome, PolicyFault};
use crate::json::{self, JsonFault, Unwritable};
use crate::vet::Graph;
use crate::{builtins, prescan, strict, watch};
use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::vm::VmError;
use regorus::rvm::{Program, RegoVM};
use regorus::unstable::{Expr, Ref, Source, Span};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Stack that must be left before an evaluation starts, and what it gets on a segment of its own otherwise: several
/// times what the deepest set that [`crate::vet`] admits was measured to use.
const STACK_NEEDED: usize = 4 << 20;
const STACK_SEGMENT: usize = 32 << 20;
/// Instructions of the compiled form in one evaluation; the clock stops it long before.
const MAX_INSTRUCTIONS: usize = 100_000_000;
/// Steps of either form between two looks at the clock.
const CLOCK_INTERVAL: NonZeroU32 = match NonZeroU32::new(128) {
    Some(n) => n,
    None => NonZeroU32::MIN,
};
/// Bytes of one module: the parser's own ceiling.
const MAX_MODULE_BYTES: usize = 1 << 20;

/// Codes for the interpreter's own complaints, by how they begin; what follows may quote input and is never kept.
const INTERPRETER_CODES: &[(&str, &str)] = &[
    ("complete rules should not produce multiple outputs", "engine.conflict"),
    ("functions must not produce multiple outputs", "engine.conflict"),
    ("rules must not produce multiple outputs", "engine.conflict"),
    ("rules should not produce multiple outputs", "engine.conflict"),
    ("function produced multiple outputs", "engine.conflict"),
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

/// How a set is to be compiled and checked.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A builtin error ends the evaluation as failed; otherwise it is undefined, as in ordinary OPA.
    pub strict_builtin_errors: bool,
    pub use_compiled: bool,
    /// One decision in this many is also made by the interpreter; 0 for none.
    pub check_every: u64,
    pub max_input_bytes: usize,
    pub max_result_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strict_builtin_errors: true,
            use_compiled: true,
            check_every: 1_000,
            max_input_bytes: 8 << 20,
            max_result_bytes: 8 << 20,
        }
    }
}

struct Entrypoint {
    name: String,
    /// Why it is interpreted, or None where the compiled form serves it.
    interpreted_because: Option<String>,
}

pub struct PolicySet {
    options: Options,
    entrypoints: Vec<Entrypoint>,
    /// Prepared, with the guarded builtins; cloned for each call, which shares all but the evaluation's own state.
    interpreter: Engine,
    program: Option<Arc<Program>>,
    data: Value,
    decisions: AtomicU64,
    differences: AtomicU64,
    interpret_only: AtomicBool,
}

/// Runs on a stack that is large enough whatever thread this is.
pub fn on_enough_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_NEEDED, STACK_SEGMENT, work)
}

/// `work`, with a panic as a value. Its message is kept from stderr: it may quote input [ENG-9].
pub fn shielded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

impl PolicySet {
    pub fn compile(
        modules: &[(String, String)],
        data: &[u8],
        entrypoints: &[String],
        options: Options,
    ) -> Result<Self, PolicyFault> {
        on_enough_stack(|| {
            watch::start(None, options.strict_builtin_errors);
            let compiled = shielded(|| Self::compile_here(modules, data, entrypoints, options));
            watch::finish();
            compiled
                .unwrap_or_else(|| Err(PolicyFault::new("policy.panic", "the engine panicked while it read the set")))
        })
    }

    fn compile_here(
        modules: &[(String, String)],
        data: &[u8],
        entrypoints: &[String],
        options: Options,
    ) -> Result<Self, PolicyFault> {
        let mut engine = Engine::new();
        engine.set_strict_builtin_errors(options.strict_builtin_errors);
        engine.set_gather_prints(true);
        let mut seen = BTreeSet::new();
        for (path, text) in modules {
            if !seen.insert(path) {
                return Err(PolicyFault::at("policy.duplicate-module", path, 0, 0, "two modules have this path"));
            }
            if text.len() > MAX_MODULE_BYTES {
                return Err(PolicyFault::at(
                    "policy.too-large",
                    path,
                    0,
                    0,
                    format!("a module has more than {MAX_MODULE_BYTES} bytes"),
                ));
            }
            prescan::check(path, text)?;
            engine
                .add_policy(path.clone(), text.clone())
                .map_err(|error| PolicyFault::from_engine("policy.parse", &error))?;
        }
        let data = json::parse_object(data, usize::MAX).map_err(data_fault)?;
        let graph = Graph::of(engine.get_modules())?;
        graph.refuse_data_conflicts(&data)?;
        engine.add_data(data.clone()).map_err(|error| PolicyFault::from_engine("policy.data", &error))?;
        let mut nodes = Vec::new();
        for name in entrypoints {
            nodes.push(graph.entrypoint(name)?);
        }
        prepare(&mut engine)?;
        let mut set = Self {
            options,
            entrypoints: Vec::new(),
            program: None,
            data,
            decisions: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            interpret_only: AtomicBool::new(false),
            interpreter: Engine::new(),
        };
        for (name, node) in entrypoints.iter().zip(nodes) {
            set.entrypoints.push(Entrypoint {
                name: name.clone(),
                interpreted_because: if options.use_compiled {
                    graph.unfit(node)
                } else {
                    Some("asked for".to_owned())
                },
            });
        }
        set.compile_program(&mut engine, &graph.to_check());
        add_guards(&mut engine)?;
        set.interpreter = engine;
        Ok(set)
    }

    /// Compiles the entrypoints that may be; if the compiler refuses, they are interpreted and say why.
    fn compile_program(&mut self, engine: &mut Engine, to_check: &BTreeSet<String>) {
        let fit: Vec<&str> = self
            .entrypoints
            .iter()
            .filter(|entrypoint| entrypoint.interpreted_because.is_none())
            .map(|entrypoint| entrypoint.name.as_str())
            .collect();
        let Some(first) = fit.first() else { return };
        let outcome = engine
            .compile_with_entrypoint(&(*first).into())
            .map_err(|error| one_line(&error.to_string()))
            .and_then(|policy| {
                Compiler::compile_from_policy(&policy, &fit).map_err(|error| one_line(&error.to_string()))
            })
            .and_then(|program| {
                strict::harden(&program, to_check).ok_or_else(|| "a step that cannot be guarded".to_owned())
            });
        match outcome {
            Ok(program) => self.program = Some(Arc::new(program)),
            Err(reason) => {
                for entrypoint in &mut self.entrypoints {
                    entrypoint.interpreted_because.get_or_insert_with(|| format!("the compiler refused: {reason}"));
                }
            }
        }
    }

    /// Each entrypoint and why it is interpreted, or None where the compiled form serves it.
    pub fn forms(&self) -> Vec<(String, Option<String>)> {
        let demoted = self.interpret_only.load(Ordering::Relaxed);
        self.entrypoints
            .iter()
            .map(|entrypoint| {
                let reason = entrypoint.interpreted_because.clone();
                let reason = reason.or_else(|| demoted.then(|| "the two forms differed".to_owned()));
                (entrypoint.name.clone(), reason)
            })
            .collect()
    }

    pub(crate) fn interpreter(&self) -> &Engine {
        &self.interpreter
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.options.strict_builtin_errors
    }

    pub(crate) fn max_input_bytes(&self) -> usize {
        self.options.max_input_bytes
    }

    /// How often the two forms gave different answers.
    pub fn differences(&self) -> u64 {
        self.differences.load(Ordering::Relaxed)
    }

    /// One outcome per view, in order. `timeout` covers the whole batch, from here.
    pub fn evaluate(&self, entrypoints: &[String], shared: &[u8], views: &[&[u8]], timeout: Duration) -> Vec<Outcome> {
        let deadline = Instant::now().checked_add(timeout);
        on_enough_stack(|| {
            let shared = match json::parse_object(shared, self.options.max_input_bytes) {
                Ok(value) => value,
                Err(fault) => return vec![refused_input("shared", fault); views.len()],
            };
            let mut batch = Batch { set: self, deadline, machine: None, interpreter: None };
            let mut outcomes = Vec::with_capacity(views.len());
            for (position, view) in views.iter().enumerate() {
                let name = entrypoints.get(position).map_or("", String::as_str);
                outcomes.push(batch.view(name, &shared, view));
            }
            outcomes
        })
    }
}

/// What one call of [`PolicySet::evaluate`] makes for itself.
struct Batch<'a> {
    set: &'a PolicySet,
    deadline: Option<Instant>,
    machine: Option<RegoVM>,
    interpreter: Option<Engine>,
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
        let mut input = match json::parse_object(view, self.set.options.max_input_bytes) {
            Ok(value) => value,
            Err(fault) => return refused_input("view", fault),
        };
        json::merge_under(shared, &mut input);
        let compiled = entrypoint.interpreted_because.is_none() && !self.set.interpret_only.load(Ordering::Relaxed);
        let Some(program) = self.set.program.as_ref().filter(|_| compiled) else {
            return self.interpret(name, input);
        };
        let count = self.set.decisions.fetch_add(1, Ordering::Relaxed);
        let every = self.set.options.check_every;
        if every == 0 || count % every != 0 {
            return self.execute(program, name, input);
        }
        let outcome = self.execute(program, name, input.clone());
        let other = self.interpret(name, input);
        self.compare(outcome, &other, name)
    }

    /// The compiled form's outcome if the interpreter's is the same in kind and value [ENG-10].
    fn compare(&self, outcome: Outcome, other: &Outcome, name: &str) -> Outcome {
        let same = match (&outcome, other) {
            (Outcome::TimedOut, _) | (_, Outcome::TimedOut) | (Outcome::Failed(_), Outcome::Failed(_)) => true,
            (_, Outcome::Failed(failure)) if failure.code == NOT_A_COLLECTION => true,
            (one, two) => one == two,
        };
        if same {
            return outcome;
        }
        self.set.differences.fetch_add(1, Ordering::Relaxed);
        self.set.interpret_only.store(true, Ordering::Relaxed);
        Outcome::Failed(Failure::new("engine.forms-differ", name))
    }

    fn timer(&self) -> Option<ExecutionTimerConfig> {
        Some(ExecutionTimerConfig { limit: self.left().unwrap_or(Duration::ZERO), check_interval: CLOCK_INTERVAL })
    }

    fn execute(&mut self, program: &Arc<Program>, name: &str, input: Value) -> Outcome {
        let timer = self.timer();
        let mut machine = match self.machine.take() {
            Some(machine) => machine,
            None => match new_machine(program, &self.set.data) {
                Some(machine) => machine,
                None => return Outcome::Failed(Failure::new("engine.internal", "data")),
            },
        };
        machine.set_execution_timer_config(timer);
        machine.set_input(input);
        watch::start(self.deadline, self.set.options.strict_builtin_errors);
        let result = shielded(|| machine.execute_entry_point_by_name(name));
        let (failure, late) = watch::finish();
        let Some(result) = result else {
            // The machine's state is unknown: it goes.
            return Outcome::Failed(Failure::new("engine.panic", name));
        };
        let counter = machine.get_pc();
        machine.set_input(Value::Undefined);
        self.machine = Some(machine);
        let error = match (failure, result) {
            _ if late => return Outcome::TimedOut,
            (Some(failure), _) => return Outcome::Failed(failure),
            (None, Ok(value)) => return self.written(&value, name),
            (None, Err(error)) => error,
        };
        match error {
            VmError::TimeLimitExceeded { .. } => Outcome::TimedOut,
            VmError::InstructionLimitExceeded { .. } => Outcome::Failed(Failure::new("engine.too-many-steps", name)),
            VmError::NumericOverflow { .. } => {
                Outcome::Failed(Failure::new("engine.builtin-error", rule_at(program, counter)))
            }
            _ => Outcome::Failed(Failure::new("engine.error", rule_at(program, counter))),
        }
    }

    fn interpret(&mut self, name: &str, input: Value) -> Outcome {
        let Some(timer) = self.timer() else { return Outcome::TimedOut };
        let mut engine = self.interpreter.take().unwrap_or_else(|| self.set.interpreter.clone());
        engine.set_execution_timer_config(timer);
        engine.set_input(input);
        watch::start(self.deadline, self.set.options.strict_builtin_errors);
        let result = shielded(|| engine.eval_rule(name.to_owned()));
        let (failure, late) = watch::finish();
        let Some(result) = result else {
            return Outcome::Failed(Failure::new("engine.panic", name));
        };
        let outcome = match (failure, result) {
            _ if late => Outcome::TimedOut,
            (Some(failure), _) => Outcome::Failed(failure),
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
        let place = position(&text).map(|(path, line, column)| format!("{path}:{line}:{column}"));
        Outcome::Failed(Failure::new(code, place.unwrap_or_default()))
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

fn refused_input(part: &str, fault: JsonFault) -> Outcome {
    Outcome::Failed(Failure::new(fault.code, format!("{part}, byte {}", fault.offset)))
}

fn data_fault(fault: JsonFault) -> PolicyFault {
    PolicyFault::new("policy.data", format!("data is refused: {} at byte {}", fault.code, fault.offset))
}

fn one_line(text: &str) -> String {
    PolicyFault::from_engine("", &anyhow::anyhow!(text.to_owned())).message
}

fn new_machine(program: &Arc<Program>, data: &Value) -> Option<RegoVM> {
    let mut machine = RegoVM::new();
    machine.load_program(Arc::clone(program));
    machine.set_max_instructions(MAX_INSTRUCTIONS);
    machine.set_data(data.clone()).ok()?;
    Some(machine)
}

/// The rule whose body an instruction belongs to.
fn rule_at(program: &Program, counter: usize) -> String {
    let start = |bodies: &Vec<Vec<u32>>| -> Option<u32> {
        bodies.iter().flatten().copied().filter(|at| usize::try_from(*at).is_ok_and(|at| at <= counter)).max()
    };
    program
        .rule_infos
        .iter()
        .filter_map(|info| Some((start(&info.definitions)?, info)))
        .max_by_key(|(at, _)| *at)
        .map(|(_, info)| info.name.clone())
        .unwrap_or_default()
}

/// Makes the analyser run now: its complaints belong to load, not to the first request.
fn prepare(engine: &mut Engine) -> Result<(), PolicyFault> {
    engine
        .eval_query("true".to_owned(), false)
        .map(|_| ())
        .map_err(|error| PolicyFault::from_engine("policy.analysis", &error))
}

/// Puts the guarded builtins where the interpreter looks first.
fn add_guards(engine: &mut Engine) -> Result<(), PolicyFault> {
    let refuse = |_| PolicyFault::new("policy.internal", "a builtin could not be guarded");
    let source = Source::from_contents("builtin".to_owned(), String::new()).map_err(refuse)?;
    let span = Span { source, line: 1, col: 1, start: 0, end: 0 };
    let null = || Expr::Null { span: span.clone(), value: Value::Null, eidx: 0 };
    let params: Arc<[Ref<Expr>]> = (0..8).map(|_| Ref::new(null())).collect();
    for (name, entry) in builtins::entries() {
        let Some((_, arity)) = regorus::unstable::BUILTINS.get(name) else { continue };
        let (span, params, call) = (span.clone(), Arc::clone(&params), entry.call);
        let extension = move |args: Vec<Value>| {
            let params = params.get(..args.len()).unwrap_or_default();
            call(&span, params, &args, true)
        };
        engine.add_extension((*name).to_owned(), *arity, Box::new(extension)).map_err(refuse)?;
    }
    Ok(())
}
