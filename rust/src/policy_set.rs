//! A compiled, immutable policy set: parsed, checked, and ready in both forms, interpreted and compiled.
#![forbid(unsafe_code)]

use crate::builtins::{self, collections};
use crate::evaluation::batch::INTERPRETER_INTERVAL;
use crate::evaluation::stack::on_large_stack;
use crate::evaluation::{loading, watch};
use crate::failure::PolicyFault;
use crate::json::{self, JsonFault};
use crate::parsing::rule_graph::Graph;
use crate::parsing::{bracket_limits, foreign, prescan};
use crate::program::{self, Program, Texts, Wanted};
use crate::rewriting::{for_compiler, for_interpreter, head_keys, object_patterns, print_calls};
use regorus::unstable::{Expr, Module, Ref, Source, Span};
use regorus::utils::limits::{ExecutionTimerConfig, PolicyLengthConfig};
use regorus::{Engine, Value};
use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one module: the parser's own limit.
const MAX_MODULE_BYTES: usize = 1 << 20;

/// What the parser takes. A module may be longer after it was rewritten, and so may its lines; the parser writes as many
/// blanks as a column has into its errors, of which the standard library allows 65,535.
const LENGTHS: PolicyLengthConfig = PolicyLengthConfig {
    max_col: NonZeroU32::MIN.saturating_add(64_999),
    max_file_bytes: NonZeroUsize::MIN.saturating_add(MAX_MODULE_BYTES * 16),
    max_lines: NonZeroUsize::MIN.saturating_add(MAX_MODULE_BYTES),
};

/// Time for evaluating, at load, the rules of one set that read no input.
const MAX_FOLDING: Duration = Duration::from_secs(1);

/// How a set is to be compiled and checked.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A builtin error makes the evaluation fail; otherwise its value is undefined, as in OPA without
    /// `strict-builtin-errors`.
    pub strict_builtin_errors: bool,
    /// Otherwise everything is interpreted.
    pub use_compiled: bool,
    /// One evaluation in this many is repeated by the interpreter and compared; 0 for none.
    pub check_every: u64,
    pub max_input_bytes: usize,
    pub max_result_bytes: usize,
    /// For a tool that shows what `print` prints; otherwise calls of it are removed.
    pub keeps_prints: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strict_builtin_errors: true,
            use_compiled: true,
            check_every: 1_000,
            max_input_bytes: 32 << 20,
            max_result_bytes: 8 << 20,
            keeps_prints: false,
        }
    }
}

pub(crate) struct Entrypoint {
    pub name: String,
    /// Why it is interpreted; None if it is compiled.
    pub interpreted_because: Option<String>,
    /// The position of its compiled program in the set.
    pub program: Option<usize>,
}

pub struct PolicySet {
    pub(crate) options: Options,
    pub(crate) entrypoints: Vec<Entrypoint>,
    /// With the guarded builtins. Each call clones it, which copies only the state of an evaluation.
    pub(crate) interpreter: Engine,
    pub(crate) programs: Vec<Program>,
    pub(crate) data: Value,
    pub(crate) decisions: AtomicU64,
    pub(crate) differences: AtomicU64,
    pub(crate) interpret_only: AtomicBool,
}

impl Drop for PolicySet {
    /// Values that machines still hold may be nested as deeply as an evaluation could make them, and are dropped by
    /// recursion: on a large stack, or never.
    fn drop(&mut self) {
        let mut held = Some(std::mem::take(&mut self.programs));
        on_large_stack(|| held = None);
        std::mem::forget(held);
    }
}

impl PolicySet {
    pub fn compile(
        modules: &[(String, String)],
        data: &[u8],
        entrypoints: &[String],
        options: Options,
    ) -> Result<Self, PolicyFault> {
        loading(options.strict_builtin_errors, || Self::compile_here(modules, data, entrypoints, options))
    }

    fn compile_here(
        modules: &[(String, String)],
        data: &[u8],
        entrypoints: &[String],
        options: Options,
    ) -> Result<Self, PolicyFault> {
        check_modules(modules)?;
        let mut modules = modules.to_vec();
        let mut engine = engine_of(&modules, options)?;
        foreign::refuse(engine.get_modules())?;
        if replace(&mut modules, each(head_keys::with_named_keys)(engine.get_modules())) {
            engine = engine_of(&modules, options)?;
        }
        let data = json::parse_object(data, usize::MAX).map_err(data_fault)?;
        let graph = Graph::of(engine.get_modules(), true)?;
        bracket_limits::refuse(engine.get_modules())?;
        object_patterns::refuse(engine.get_modules())?;
        graph.refuse_data_conflicts(&data)?;
        engine.add_data(data.clone()).map_err(|error| PolicyFault::from_engine("policy.data", &error))?;
        let nodes = entrypoints.iter().map(|name| graph.entrypoint(name)).collect::<Result<Vec<_>, _>>()?;
        prepare(&mut engine)?;
        let entrypoint = |(name, node): (&String, &usize)| Entrypoint {
            name: name.clone(),
            program: None,
            interpreted_because: match options.use_compiled {
                true => graph.interpreted_because(*node),
                false => Some("asked for".to_owned()),
            },
        };
        let mut set = Self {
            options,
            entrypoints: entrypoints.iter().zip(&nodes).map(entrypoint).collect(),
            programs: Vec::new(),
            data,
            decisions: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            interpret_only: AtomicBool::new(false),
            interpreter: Engine::new(),
        };
        let parsed = Parsed { engine, modules, options };
        let parsed = parsed.rewritten(&set.data, object_patterns::with_exact_patterns)?;
        // Without these two the compiler refuses more, or its programs evaluate more than they need.
        let parsed = parsed.rewritten_if_possible(&set.data, each(for_compiler::with_full_names));
        let mut for_compiler = parsed.clone().rewritten_if_possible(&set.data, each(for_compiler::with_separate_loops));
        set.compile_programs(&mut for_compiler, &graph, &nodes);
        let parsed = parsed.rewritten(&set.data, each(for_interpreter::with_value_conditions))?;
        let parsed = parsed.rewritten(&set.data, each(for_interpreter::with_calls_of_operators))?;
        set.interpreter = parsed.engine;
        add_guards(&mut set.interpreter)?;
        set.fold_constants();
        Ok(set)
    }

    /// Evaluates rules that read no input now, and not for each view. Those that fail or take long are left as they
    /// are.
    fn fold_constants(&mut self) {
        let (interpreter, strict) = (&self.interpreter, self.options.strict_builtin_errors);
        let deadline = Instant::now() + MAX_FOLDING;
        let mut spare = None;
        for program in &mut self.programs {
            program.fold_constants(|name| {
                let limit = deadline.checked_duration_since(Instant::now())?;
                let mut engine: Engine = spare.take().unwrap_or_else(|| interpreter.clone());
                let check_interval = INTERPRETER_INTERVAL;
                engine.set_execution_timer_config(ExecutionTimerConfig { limit, check_interval });
                watch::start(Some(deadline), strict);
                let value = watch::shielded(|| engine.eval_rule(name.to_owned()));
                let (None, false) = watch::finish() else { return None };
                let value = value?.ok()?;
                spare = Some(engine);
                Some(value)
            });
        }
    }

    /// Compiles the entrypoints that may be compiled; those that the compiler refuses are interpreted, with its reason.
    fn compile_programs(&mut self, parsed: &mut Parsed, graph: &Graph, nodes: &[usize]) {
        let fit = self.entrypoints.iter().zip(nodes).filter(|(entrypoint, _)| entrypoint.interpreted_because.is_none());
        let wanted: Vec<Wanted> = fit
            .map(|(entrypoint, node)| Wanted { name: entrypoint.name.clone(), modules: graph.modules(*node) })
            .collect();
        if wanted.is_empty() {
            return;
        }
        let texts = Texts {
            modules: &parsed.modules,
            data: &self.data,
            options: self.options,
            rules_to_check: &graph.rules_to_check(),
        };
        let compiled = program::compile(&mut parsed.engine, &texts, wanted);
        self.programs = compiled.programs;
        for entrypoint in &mut self.entrypoints {
            entrypoint.program = compiled.program_of.get(&entrypoint.name).copied();
            if let Some(reason) = compiled.refused.get(&entrypoint.name) {
                entrypoint.interpreted_because.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// Each entrypoint, and why it is interpreted; None if it is compiled.
    pub fn forms(&self) -> Vec<(String, Option<String>)> {
        let all_interpreted = self.interpret_only.load(Ordering::Relaxed);
        self.entrypoints
            .iter()
            .map(|entrypoint| {
                let reason = entrypoint.interpreted_because.clone();
                let reason = reason.or_else(|| all_interpreted.then(|| "the two forms differed".to_owned()));
                (entrypoint.name.clone(), reason)
            })
            .collect()
    }

    /// How often the two forms gave different results.
    pub fn differences(&self) -> u64 {
        self.differences.load(Ordering::Relaxed)
    }
}

pub(crate) fn check_modules(modules: &[(String, String)]) -> Result<(), PolicyFault> {
    let mut seen = BTreeSet::new();
    for (path, text) in modules {
        if !seen.insert(path) {
            return Err(PolicyFault::at("policy.duplicate-module", path, 0, 0, "two modules have this path"));
        }
        if text.len() > MAX_MODULE_BYTES {
            let message = format!("a module has more than {MAX_MODULE_BYTES} bytes");
            return Err(PolicyFault::at("policy.too-large", path, 0, 0, message));
        }
        prescan::check(path, text)?;
    }
    Ok(())
}

/// An engine that has parsed the modules, without their calls of `print`.
pub(crate) fn engine_of(modules: &[(String, String)], options: Options) -> Result<Engine, PolicyFault> {
    let mut engine = read_as_written(modules, options.strict_builtin_errors)?;
    if options.keeps_prints {
        return Ok(engine);
    }
    match print_calls::removed(engine.get_modules(), modules) {
        Some(modules) => read_as_written(&modules, options.strict_builtin_errors),
        None => Ok(engine),
    }
}

pub(crate) fn read_as_written(
    modules: &[(String, String)],
    strict_builtin_errors: bool,
) -> Result<Engine, PolicyFault> {
    let mut engine = Engine::new();
    engine.set_policy_length_config(LENGTHS);
    engine.set_strict_builtin_errors(strict_builtin_errors);
    engine.set_gather_prints(true);
    for (path, text) in modules {
        engine
            .add_policy(path.clone(), text.clone())
            .map_err(|error| PolicyFault::from_engine("policy.parse", &error))?;
    }
    Ok(engine)
}

/// A rewriting of the whole set that rewrites each module by itself.
fn each(rewrite: fn(&Module) -> Option<String>) -> impl Fn(&[Ref<Module>]) -> Vec<Option<String>> {
    move |modules| modules.iter().map(|module| rewrite(module)).collect()
}

/// Puts new texts in the place of those that have one; whether any has.
fn replace(modules: &mut [(String, String)], texts: Vec<Option<String>>) -> bool {
    let mut any = false;
    for ((_, text), new) in modules.iter_mut().zip(texts) {
        any |= new.is_some();
        *text = new.unwrap_or_else(|| std::mem::take(text));
    }
    any
}

/// Modules, and an engine that has parsed them.
#[derive(Clone)]
struct Parsed {
    engine: Engine,
    modules: Vec<(String, String)>,
    options: Options,
}

impl Parsed {
    /// The modules as `rewrite` gives them, parsed again; `self` if nothing changes.
    fn rewritten(
        mut self,
        data: &Value,
        rewrite: impl Fn(&[Ref<Module>]) -> Vec<Option<String>>,
    ) -> Result<Self, PolicyFault> {
        if !replace(&mut self.modules, rewrite(self.engine.get_modules())) {
            return Ok(self);
        }
        self.engine = engine_of(&self.modules, self.options)?;
        self.engine.add_data(data.clone()).map_err(|error| PolicyFault::from_engine("policy.data", &error))?;
        prepare(&mut self.engine)?;
        Ok(self)
    }

    /// The same; `self` also if the engine refuses the new text.
    fn rewritten_if_possible(self, data: &Value, rewrite: impl Fn(&[Ref<Module>]) -> Vec<Option<String>>) -> Self {
        self.clone().rewritten(data, rewrite).unwrap_or(self)
    }
}

fn data_fault(fault: JsonFault) -> PolicyFault {
    PolicyFault::new("policy.data", format!("data is refused: {} at byte {}", fault.code, fault.offset))
}

/// Runs the analyser now: what it refuses is to be refused at load, not at the first request.
pub(crate) fn prepare(engine: &mut Engine) -> Result<(), PolicyFault> {
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
        let arity = regorus::unstable::BUILTINS
            .get(name)
            .map(|(_, arity)| *arity)
            .or_else(|| collections::internal_arity(name));
        let Some(arity) = arity else { continue };
        let (span, params, call) = (span.clone(), Arc::clone(&params), entry.call);
        let extension = move |args: Vec<Value>| {
            let params = params.get(..args.len()).unwrap_or_default();
            call(&span, params, &args, true)
        };
        engine.add_extension((*name).to_owned(), arity, Box::new(extension)).map_err(refuse)?;
    }
    Ok(())
}
