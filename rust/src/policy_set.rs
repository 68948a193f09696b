//! A compiled, immutable policy set: read, vetted, and made ready in both forms.
#![forbid(unsafe_code)]

use crate::batch::INTERPRETER_INTERVAL;
use crate::failure::PolicyFault;
use crate::json::{self, JsonFault};
use crate::programs::{self, Program, Texts, Wanted};
use crate::stack::{on_large_stack, NO_STACK};
use crate::vet::Graph;
use crate::{brackets, builtins, corrected, exact, hoist, prescan, prints, repair, watch};
use regorus::unstable::{Expr, Module, Ref, Source, Span};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one module: the parser's own ceiling.
const MAX_MODULE_BYTES: usize = 1 << 20;

/// For all values that are found ahead, of one set.
const MAX_FOLDING: Duration = Duration::from_secs(1);

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
    /// For a tool that shows what `print` says; else it is taken out of what is read.
    pub keeps_prints: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strict_builtin_errors: true,
            use_compiled: true,
            check_every: 1_000,
            max_input_bytes: 8 << 20,
            max_result_bytes: 8 << 20,
            keeps_prints: false,
        }
    }
}

pub(crate) struct Entrypoint {
    pub name: String,
    /// Why it is interpreted, or None where the compiled form serves it.
    pub interpreted_because: Option<String>,
    /// Which of the set's programs serves it otherwise.
    pub program: Option<usize>,
}

pub struct PolicySet {
    pub(crate) options: Options,
    pub(crate) entrypoints: Vec<Entrypoint>,
    /// Prepared, with the guarded builtins; cloned for each call, which shares all but the evaluation's own state.
    pub(crate) interpreter: Engine,
    pub(crate) programs: Vec<Program>,
    pub(crate) data: Value,
    pub(crate) decisions: AtomicU64,
    pub(crate) differences: AtomicU64,
    pub(crate) interpret_only: AtomicBool,
}

impl Drop for PolicySet {
    /// What machines still hold may be as deep as an evaluation could make it, and goes by recursion: on such a stack, or
    /// not at all.
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
        let compiled = on_large_stack(|| {
            watch::start(None, options.strict_builtin_errors);
            let compiled = watch::shielded(|| Self::compile_here(modules, data, entrypoints, options));
            watch::finish();
            compiled.ok_or_else(|| PolicyFault::new("policy.panic", "the engine panicked while it read the set"))
        });
        compiled.ok_or_else(|| PolicyFault::new(NO_STACK, "no address space is left for a stack"))??
    }

    fn compile_here(
        modules: &[(String, String)],
        data: &[u8],
        entrypoints: &[String],
        options: Options,
    ) -> Result<Self, PolicyFault> {
        check_modules(modules)?;
        let mut engine = engine_of(modules, options)?;
        let data = json::parse_object(data, usize::MAX).map_err(data_fault)?;
        let graph = Graph::of(engine.get_modules())?;
        brackets::refuse(engine.get_modules())?;
        exact::refuse(engine.get_modules())?;
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
            programs: Vec::new(),
            data,
            decisions: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            interpret_only: AtomicBool::new(false),
            interpreter: Engine::new(),
        };
        for (name, node) in entrypoints.iter().zip(&nodes) {
            set.entrypoints.push(Entrypoint {
                name: name.clone(),
                program: None,
                interpreted_because: if options.use_compiled {
                    graph.unfit(*node)
                } else {
                    Some("asked for".to_owned())
                },
            });
        }
        let exact = rewritten(&mut engine, modules, &set.data, options, exact::made_exact)?;
        let (mut engine, modules) = exact.unwrap_or_else(|| (engine, modules.to_vec()));
        let written_out =
            rewritten(&mut engine, &modules, &set.data, options, each(hoist::written_out)).unwrap_or(None);
        let (mut engine, modules) = written_out.unwrap_or((engine, modules));
        // What could not be read again is interpreted.
        let mut hoisted = rewritten(&mut engine, &modules, &set.data, options, each(hoist::hoisted)).unwrap_or(None);
        let (compiler, texts) = match &mut hoisted {
            Some((engine, modules)) => (engine, modules.as_slice()),
            None => (&mut engine, modules.as_slice()),
        };
        set.compile_programs(compiler, texts, &graph, &nodes);
        let repaired = rewritten(&mut engine, &modules, &set.data, options, each(repair::repaired))?;
        let (mut engine, modules) = repaired.unwrap_or((engine, modules));
        let called = rewritten(&mut engine, &modules, &set.data, options, each(repair::called))?;
        set.interpreter = called.map_or(engine, |(engine, _)| engine);
        add_guards(&mut set.interpreter)?;
        set.fold();
        Ok(set)
    }

    /// Evaluates what reads no input now instead of for each view. What fails, or takes long, is left to the evaluations.
    fn fold(&mut self) {
        let (interpreter, data, strict) = (&self.interpreter, &self.data, self.options.strict_builtin_errors);
        let deadline = Instant::now() + MAX_FOLDING;
        let mut spare = None;
        for program in &mut self.programs {
            program.fold(data, |name| {
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

    /// Compiles the entrypoints that may be; those the compiler refuses are interpreted and say why.
    fn compile_programs(&mut self, engine: &mut Engine, modules: &[(String, String)], graph: &Graph, nodes: &[usize]) {
        let fit = self.entrypoints.iter().zip(nodes).filter(|(entrypoint, _)| entrypoint.interpreted_because.is_none());
        let wanted: Vec<Wanted> = fit
            .map(|(entrypoint, node)| Wanted { name: entrypoint.name.clone(), modules: graph.modules(*node) })
            .collect();
        if wanted.is_empty() {
            return;
        }
        let texts = Texts { modules, data: &self.data, options: self.options, to_check: &graph.to_check() };
        let compiled = programs::compile(engine, &texts, wanted);
        self.programs = compiled.programs;
        for entrypoint in &mut self.entrypoints {
            entrypoint.program = compiled.served.get(&entrypoint.name).copied();
            if let Some(reason) = compiled.refused.get(&entrypoint.name) {
                entrypoint.interpreted_because.get_or_insert_with(|| reason.clone());
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

    /// How often the two forms gave different answers.
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

/// An engine that has read the modules, without what they `print`.
pub(crate) fn engine_of(modules: &[(String, String)], options: Options) -> Result<Engine, PolicyFault> {
    let mut engine = read_as_written(modules, options.strict_builtin_errors)?;
    if options.keeps_prints {
        return Ok(engine);
    }
    match prints::taken_out(engine.get_modules(), modules) {
        Some(silent) => read_as_written(&silent, options.strict_builtin_errors),
        None => Ok(engine),
    }
}

pub(crate) fn read_as_written(
    modules: &[(String, String)],
    strict_builtin_errors: bool,
) -> Result<Engine, PolicyFault> {
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(strict_builtin_errors);
    engine.set_gather_prints(true);
    for (path, text) in modules {
        engine
            .add_policy(path.clone(), text.clone())
            .map_err(|error| PolicyFault::from_engine("policy.parse", &error))?;
    }
    Ok(engine)
}

/// What rewrites each module for itself.
fn each(rewrite: fn(&Module) -> Option<String>) -> impl Fn(&[Ref<Module>]) -> Vec<Option<String>> {
    move |modules| modules.iter().map(|module| rewrite(module)).collect()
}

/// An engine, and the modules that it has read.
type Rewritten = (Engine, Vec<(String, String)>);

/// An engine that reads the modules as `rewrite` gives them, or None if that changes nothing.
fn rewritten(
    engine: &mut Engine,
    modules: &[(String, String)],
    data: &Value,
    options: Options,
    rewrite: impl Fn(&[Ref<Module>]) -> Vec<Option<String>>,
) -> Result<Option<Rewritten>, PolicyFault> {
    let texts = rewrite(engine.get_modules());
    if texts.iter().all(Option::is_none) {
        return Ok(None);
    }
    let modules: Vec<_> =
        modules.iter().zip(texts).map(|((path, text), new)| (path.clone(), new.unwrap_or(text.clone()))).collect();
    let mut engine = engine_of(&modules, options)?;
    engine.add_data(data.clone()).map_err(|error| PolicyFault::from_engine("policy.data", &error))?;
    prepare(&mut engine)?;
    Ok(Some((engine, modules)))
}

fn data_fault(fault: JsonFault) -> PolicyFault {
    PolicyFault::new("policy.data", format!("data is refused: {} at byte {}", fault.code, fault.offset))
}

/// Makes the analyser run now: its complaints belong to load, not to the first request.
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
        let arity = regorus::unstable::BUILTINS.get(name).map(|(_, arity)| *arity).or_else(|| corrected::arity(name));
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
