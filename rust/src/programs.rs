//! The compiled form of a set: one program, or several where it is too large for one.
//!
//! The crate's limits (256 modules, 65,535 instructions) are those of one program, and a machine is made for one. A
//! machine that ended as it should is kept for the next call: making one looks at every rule of the program.
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::policy_set::{engine_of, prepare, Options};
use crate::strict::{self, Hardened};
use crate::{asked_once, folding, lean, ruled_out};
use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::RegoVM;
use regorus::{Engine, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Modules of one program for several entrypoints. The crate takes 256; each evaluation clears the memory of all rules in
/// its program, so those for other entrypoints should not be many.
const MAX_MODULES: usize = 100;
/// Machines kept for each program: more than there are threads that evaluate at once on most machines.
const MAX_SPARE: usize = 16;
/// Instructions of the compiled form in one evaluation; the clock stops it long before.
const MAX_INSTRUCTIONS: usize = 100_000_000;

pub struct Program {
    hardened: Hardened,
    spare: Mutex<Vec<RegoVM>>,
}

impl Program {
    fn new(hardened: Hardened) -> Self {
        Self { hardened, spare: Mutex::new(Vec::new()) }
    }

    /// Puts in what does not depend on input, and leaves out the steps that are idle then; `value_of` gives the value of
    /// a rule by its path.
    pub fn fold(&mut self, data: &Value, mut value_of: impl FnMut(&str) -> Option<Value>) {
        let Hardened { program, rules } = &mut self.hardened;
        folding::fold(Arc::make_mut(program), |start| value_of(rules.get(&start)?));
        ruled_out::leave_out(Arc::make_mut(program), data);
        if let Some((leaner, moved)) = lean::lean(program) {
            *program = Arc::new(leaner);
            let places = std::mem::take(rules).into_iter();
            *rules = places.filter_map(|(at, name)| Some((*moved.get(at)?, name))).collect();
        }
        for (question, body) in asked_once::ask_once(Arc::make_mut(program)) {
            rules.extend(rules.get(&body).cloned().map(|name| (question, name)));
        }
    }

    /// The same program, but that it asks all definitions of a rule: also those behind one that holds with their constant.
    pub fn asking_all(&self) -> Self {
        let mut hardened = self.hardened.clone();
        for rule in &mut Arc::make_mut(&mut hardened.program).rule_infos {
            rule.early_exit_on_first_success = false;
        }
        Self::new(hardened)
    }

    /// A machine that shows nothing of another evaluation; None if the data cannot be put into it.
    pub fn machine(&self, data: &Value) -> Option<RegoVM> {
        if let Some(machine) = self.spare.lock().ok().and_then(|mut spare| spare.pop()) {
            return Some(machine);
        }
        let mut machine = RegoVM::new();
        machine.load_program(Arc::clone(&self.hardened.program));
        machine.set_max_instructions(MAX_INSTRUCTIONS);
        machine.set_data(data.clone()).ok()?;
        Some(machine)
    }

    /// Takes back a machine that ended as it should. What it still holds it drops when it starts again, unseen.
    pub fn take_back(&self, mut machine: RegoVM) {
        machine.set_input(Value::Undefined);
        if let Ok(mut spare) = self.spare.lock() {
            if spare.len() < MAX_SPARE {
                spare.push(machine);
            }
        }
    }

    /// The rule whose body an instruction belongs to.
    pub fn rule_at(&self, counter: usize) -> &str {
        self.hardened.rule_at(counter)
    }
}

/// An entrypoint that may be compiled, and the modules that it can reach, by their place in the set.
pub struct Wanted {
    pub name: String,
    pub modules: BTreeSet<usize>,
}

/// What came of compiling: programs, the program of each entrypoint, and why others have none.
#[derive(Default)]
pub struct Compiled {
    pub programs: Vec<Program>,
    pub served: BTreeMap<String, usize>,
    pub refused: BTreeMap<String, String>,
}

/// What is compiled from.
pub struct Texts<'a> {
    pub modules: &'a [(String, String)],
    pub data: &'a Value,
    pub options: Options,
    /// Rules whose definitions could disagree.
    pub to_check: &'a BTreeSet<String>,
}

/// Compiles the entrypoints in as few programs as they fit into; `engine` has read all modules.
pub fn compile(engine: &mut Engine, texts: &Texts<'_>, wanted: Vec<Wanted>) -> Compiled {
    let mut compiled = Compiled::default();
    if texts.modules.len() <= MAX_MODULES {
        let names: Vec<String> = wanted.iter().map(|entry| entry.name.clone()).collect();
        if let Ok(hardened) = program(engine, &names, texts.to_check) {
            compiled.add(hardened, names);
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
        apart(texts, group, &mut compiled);
    }
    compiled
}

/// One program for the group, or one for each half of it; what is refused alone says why.
fn apart(texts: &Texts<'_>, mut group: Vec<Wanted>, compiled: &mut Compiled) {
    let names: Vec<String> = group.iter().map(|entry| entry.name.clone()).collect();
    match alone(texts, &group, &names) {
        Ok(hardened) => compiled.add(hardened, names),
        Err(_) if group.len() > 1 => {
            let rest = group.split_off(group.len() / 2);
            apart(texts, group, compiled);
            apart(texts, rest, compiled);
        }
        Err(reason) => {
            compiled.refused.extend(names.into_iter().map(|name| (name, format!("the compiler refused: {reason}"))));
        }
    }
}

/// A program of the modules that a group needs, and no others.
fn alone(texts: &Texts<'_>, group: &[Wanted], names: &[String]) -> Result<Hardened, String> {
    let needed: BTreeSet<usize> = group.iter().flat_map(|entry| &entry.modules).copied().collect();
    let modules: Vec<_> = needed.iter().filter_map(|place| texts.modules.get(*place).cloned()).collect();
    let explain = |fault: PolicyFault| fault.message;
    let mut engine = engine_of(&modules, texts.options).map_err(explain)?;
    engine.add_data(texts.data.clone()).map_err(|error| one_line(&error.to_string()))?;
    prepare(&mut engine).map_err(explain)?;
    program(&mut engine, names, texts.to_check)
}

fn program(engine: &mut Engine, names: &[String], to_check: &BTreeSet<String>) -> Result<Hardened, String> {
    let first = names.first().ok_or("no entrypoint")?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let policy =
        engine.compile_with_entrypoint(&first.as_str().into()).map_err(|error| one_line(&error.to_string()))?;
    let program = Compiler::compile_from_policy(&policy, &names).map_err(|error| one_line(&error.to_string()))?;
    strict::harden(&program, to_check).ok_or_else(|| "a step that cannot be guarded".to_owned())
}

fn one_line(text: &str) -> String {
    PolicyFault::from_engine("", &anyhow::anyhow!(text.to_owned())).message
}

impl Compiled {
    fn add(&mut self, hardened: Hardened, names: Vec<String>) {
        let place = self.programs.len();
        self.programs.push(Program::new(hardened));
        self.served.extend(names.into_iter().map(|name| (name, place)));
    }
}
