//! The compiled form of a set: one program, or several if it is too large for one.
//!
//! regorus limits a program to 256 modules and 65,535 instructions. A virtual machine is made for one program, and
//! looks at every rule of it then: one that ended normally is kept for the next call.
//!
//! A program is compiled and made as strict as the interpreter ([`hardening`], by means of [`layout`]). Then rules that
//! read no input are replaced by their values ([`constants`]).
#![forbid(unsafe_code)]

pub mod constants;
pub mod hardening;
pub mod layout;

use crate::failure::PolicyFault;
use crate::policy_set::{engine_of, prepare, Options};
use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::RegoVM;
use regorus::{Engine, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Modules of one program for several entrypoints. regorus takes 256, but each evaluation clears the memory of all
/// rules of its program, so there should not be many that only other entrypoints use.
const MAX_MODULES: usize = 100;
/// Idle machines kept for each program: more than the threads that evaluate at once on most computers.
const MAX_SPARE: usize = 16;
/// Instructions of one evaluation; its deadline is reached long before.
const MAX_INSTRUCTIONS: usize = 100_000_000;

/// A program that fails as strictly as the interpreter.
pub struct Program {
    compiled: Arc<regorus::rvm::Program>,
    /// The first instruction of each body, and its rule.
    rules: BTreeMap<usize, String>,
    spare: Mutex<Vec<RegoVM>>,
}

impl Program {
    fn new(compiled: Arc<regorus::rvm::Program>, rules: BTreeMap<usize, String>) -> Self {
        Self { compiled, rules, spare: Mutex::default() }
    }

    /// Replaces rules that read no input by their values; `value_of` gives the value of a rule by its path.
    pub fn fold_constants(&mut self, mut value_of: impl FnMut(&str) -> Option<Value>) {
        let rules = &self.rules;
        constants::fold(Arc::make_mut(&mut self.compiled), |start| value_of(rules.get(&start)?));
    }

    /// The same program, evaluating all definitions of a rule, also after one that holds with a constant that all of
    /// them give.
    pub fn without_early_exit(&self) -> Self {
        let mut compiled = Arc::clone(&self.compiled);
        for rule in &mut Arc::make_mut(&mut compiled).rule_infos {
            rule.early_exit_on_first_success = false;
        }
        Self::new(compiled, self.rules.clone())
    }

    /// A machine for one evaluation; None if the data cannot be loaded into it.
    pub fn machine(&self, data: &Value) -> Option<RegoVM> {
        if let Some(machine) = self.spare.lock().ok().and_then(|mut spare| spare.pop()) {
            return Some(machine);
        }
        let mut machine = RegoVM::new();
        machine.load_program(Arc::clone(&self.compiled));
        machine.set_max_instructions(MAX_INSTRUCTIONS);
        machine.set_data(data.clone()).ok()?;
        Some(machine)
    }

    /// Takes back a machine that ended normally. What it still holds is dropped, unread, when it starts again.
    pub fn take_back(&self, mut machine: RegoVM) {
        machine.set_input(Value::Undefined);
        if let Ok(mut spare) = self.spare.lock() {
            if spare.len() < MAX_SPARE {
                spare.push(machine);
            }
        }
    }

    /// The rule to whose body an instruction belongs.
    pub fn rule_at(&self, counter: usize) -> &str {
        self.rules.range(..=counter).next_back().map_or("", |(_, name)| name)
    }
}

/// An entrypoint that may be compiled, and the modules that it can reach, by their position in the set.
pub struct Wanted {
    pub name: String,
    pub modules: BTreeSet<usize>,
}

/// The result of compiling: programs, the program of each entrypoint, and why others have none.
#[derive(Default)]
pub struct Compiled {
    pub programs: Vec<Program>,
    pub program_of: BTreeMap<String, usize>,
    pub refused: BTreeMap<String, String>,
}

/// What is compiled.
pub struct Texts<'a> {
    pub modules: &'a [(String, String)],
    pub data: &'a Value,
    pub options: Options,
    /// Rules whose definitions could give different values.
    pub rules_to_check: &'a BTreeSet<String>,
}

/// Compiles the entrypoints into as few programs as possible; `engine` has parsed all modules.
pub fn compile(engine: &mut Engine, texts: &Texts<'_>, wanted: Vec<Wanted>) -> Compiled {
    let mut compiled = Compiled::default();
    if texts.modules.len() <= MAX_MODULES {
        let names: Vec<String> = wanted.iter().map(|entry| entry.name.clone()).collect();
        if let Ok(program) = hardened_program(engine, &names, texts.rules_to_check) {
            compiled.add(program, names);
            return compiled;
        }
    }
    let mut groups: Vec<Vec<Wanted>> = Vec::new();
    for entry in wanted {
        let fits = |group: &Vec<Wanted>| {
            let all: BTreeSet<usize> = group.iter().chain([&entry]).flat_map(|one| &one.modules).copied().collect();
            all.len() <= MAX_MODULES
        };
        match groups.iter().position(fits) {
            Some(place) => groups[place].push(entry),
            None => groups.push(vec![entry]),
        }
    }
    for group in groups {
        compile_group(texts, group, &mut compiled);
    }
    compiled
}

/// One program for the group, or one for each half of it if the compiler refuses it as a whole.
fn compile_group(texts: &Texts<'_>, mut group: Vec<Wanted>, compiled: &mut Compiled) {
    let names: Vec<String> = group.iter().map(|entry| entry.name.clone()).collect();
    match compile_modules(texts, &group, &names) {
        Ok(program) => compiled.add(program, names),
        Err(_) if group.len() > 1 => {
            let rest = group.split_off(group.len() / 2);
            compile_group(texts, group, compiled);
            compile_group(texts, rest, compiled);
        }
        Err(reason) => {
            compiled.refused.extend(names.into_iter().map(|name| (name, format!("the compiler refused: {reason}"))));
        }
    }
}

/// A program of only the modules that a group needs.
fn compile_modules(texts: &Texts<'_>, group: &[Wanted], names: &[String]) -> Result<Program, String> {
    let needed: BTreeSet<usize> = group.iter().flat_map(|entry| &entry.modules).copied().collect();
    let modules: Vec<_> = needed.iter().filter_map(|place| texts.modules.get(*place).cloned()).collect();
    let explain = |fault: PolicyFault| fault.message;
    let mut engine = engine_of(&modules, texts.options).map_err(explain)?;
    engine.add_data(texts.data.clone()).map_err(|error| one_line(&error.to_string()))?;
    prepare(&mut engine).map_err(explain)?;
    hardened_program(&mut engine, names, texts.rules_to_check)
}

fn hardened_program(
    engine: &mut Engine,
    names: &[String],
    rules_to_check: &BTreeSet<String>,
) -> Result<Program, String> {
    let first = names.first().ok_or("no entrypoint")?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let policy =
        engine.compile_with_entrypoint(&first.as_str().into()).map_err(|error| one_line(&error.to_string()))?;
    let program = Compiler::compile_from_policy(&policy, &names).map_err(|error| one_line(&error.to_string()))?;
    hardening::harden(&program, rules_to_check).ok_or_else(|| "a step that cannot be guarded".to_owned())
}

fn one_line(text: &str) -> String {
    PolicyFault::from_engine("", &anyhow::anyhow!(text.to_owned())).message
}

impl Compiled {
    fn add(&mut self, program: Program, names: Vec<String>) {
        let place = self.programs.len();
        self.programs.push(program);
        self.program_of.extend(names.into_iter().map(|name| (name, place)));
    }
}
