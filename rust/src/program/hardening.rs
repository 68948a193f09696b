//! A compiled program whose operators and builtins fail as strictly as the interpreter's [ENG-7].
//!
//! The virtual machine of regorus treats any error in a rule body as "the body does not hold". So each arithmetic
//! instruction is replaced by a call of a builtin, and each builtin by its guarded version: both record
//! their failure where the machine cannot discard it. A rule that could have two values reports each value to a check.
#![forbid(unsafe_code)]

use crate::builtins::{self, Function};
use crate::evaluation::watch;
use crate::program::layout::{self, Inserts};
use crate::program::Program;
use anyhow::Result;
use regorus::rvm::instructions::{BuiltinCallParams, GuardMode};
use regorus::rvm::program::Program as Compiled;
use regorus::rvm::program::{BuiltinInfo, RuleInfo, RuleType};
use regorus::rvm::Instruction;
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const OPERATORS: [&str; 5] = ["cmf.plus", "cmf.minus", "cmf.times", "cmf.divide", "cmf.remainder"];

/// The same program with a guard at every step that can fail, and with `rules_to_check` reporting each value that they
/// give; None if a step cannot be guarded.
pub fn harden(program: &Compiled, rules_to_check: &BTreeSet<String>) -> Option<Program> {
    let mut program = program.clone();
    for (position, info) in program.builtin_info_table.iter().enumerate() {
        let entry = builtins::entries().get(info.name.as_str())?;
        program.resolved_builtins.get_mut(position)?.0 = entry.call;
    }
    guard_operators(&mut program)?;
    check_rules(&mut program, rules_to_check)?;
    let mut program = layout::rebuild(&program, &missing_guards(&program))?;
    let rules = starts(&program);
    drop_unused(&mut program);
    Some(Program::new(Arc::new(program), rules))
}

fn starts(program: &Compiled) -> BTreeMap<usize, String> {
    let bodies = |info: &RuleInfo| info.definitions.iter().flatten().copied().collect::<Vec<_>>();
    let all = program.rule_infos.iter().flat_map(|info| bodies(info).into_iter().map(|at| (at, info.name.clone())));
    all.filter_map(|(at, name)| Some((usize::try_from(at).ok()?, name))).collect()
}

/// Removes from the description of each rule what the machine does not need, since it copies that description at each
/// call of the rule. [`Program`] keeps the names.
fn drop_unused(program: &mut Compiled) {
    for info in &mut program.rule_infos {
        info.name = String::new();
        if let Some(function) = &mut info.function_info {
            function.param_names = Vec::new();
        } else {
            info.destructuring_blocks = Vec::new();
        }
        if !info.else_bodies.iter().flatten().any(|is_else| *is_else) {
            info.else_bodies = Vec::new();
        }
    }
}

/// Guards that this release's compiler leaves out, where it continues with an undefined value and Rego stops: it lets
/// `x := undefined` hold, loses a rule's value to it, makes it a member of comprehensions and partial objects, calls
/// functions with it, and takes `in` for false. Also early loads of `input` and `data`, and failures that let an `else`
/// be evaluated.
fn missing_guards(program: &Compiled) -> Inserts {
    let defined = |register: u8| Instruction::Guard { register, mode: GuardMode::NotUndefined };
    let mut inserts = Inserts::default();
    for (position, instruction) in program.instructions.iter().enumerate() {
        let registers = match *instruction {
            Instruction::Move { dest, .. } if dest != RESULT => {
                inserts.after.insert(position, vec![defined(dest)]);
                continue;
            }
            Instruction::Move { src, .. } => [Some(src), None],
            // The call that reports a value, in the place of a move to the result.
            Instruction::BuiltinCall { params_index } => {
                match program.instruction_data.get_builtin_call_params(params_index) {
                    Some(params) if params.dest == RESULT => [params.args.first().copied(), None],
                    _ => continue,
                }
            }
            Instruction::ComprehensionYield { value_reg, key_reg } => [Some(value_reg), key_reg],
            Instruction::ObjectSet { key, value, .. } => [Some(key), Some(value)],
            Instruction::Contains { dest, collection, value } if !is_condition(program, position, dest) => {
                [Some(collection), Some(value)]
            }
            _ => continue,
        };
        inserts.before.insert(position, registers.into_iter().flatten().map(defined).collect());
    }
    load_roots_first(program, &mut inserts);
    fail_before_else(program, &mut inserts);
    for info in &program.rule_infos {
        let arity =
            info.function_info.as_ref().and_then(|function| u8::try_from(function.num_params).ok()).unwrap_or(0);
        for start in info.destructuring_blocks.iter().flatten() {
            let Ok(start) = usize::try_from(*start) else { continue };
            inserts.before.insert(start, (1..=arity).map(defined).collect());
        }
    }
    inserts
}

/// Whether the result of a step is only a condition of its body, or of a negation: then undefined and false are the
/// same.
fn is_condition(program: &Compiled, position: usize, register: u8) -> bool {
    match program.instructions.get(position + 1) {
        Some(Instruction::Guard { register: tested, mode: GuardMode::Condition }) => *tested == register,
        Some(Instruction::Not { operand, .. }) => *operand == register,
        _ => false,
    }
}

/// The compiler loads `input` and `data` where a body first names them, and uses that register from then on, even if
/// that first place is inside a loop or comprehension that may not run. So each body loads them when it begins.
fn load_roots_first(program: &Compiled, inserts: &mut Inserts) {
    let mut body = None;
    for (position, instruction) in program.instructions.iter().enumerate() {
        match (instruction, body) {
            (Instruction::RuleInit { .. }, _) => body = Some(position),
            (Instruction::RuleReturn {}, _) => body = None,
            (Instruction::LoadInput { .. } | Instruction::LoadData { .. }, Some(start)) => {
                inserts.after.entry(start).or_default().push(*instruction);
            }
            _ => {}
        }
    }
}

/// A body whose loop finds nothing, or whose value is undefined, ends normally and without a value, and its `else` is
/// not evaluated. So a body with another after it fails instead.
fn fail_before_else(program: &Compiled, inserts: &mut Inserts) {
    let firsts = program.rule_infos.iter().filter(|info| info.rule_type == RuleType::Complete);
    let bodies = firsts.flat_map(|info| info.definitions.iter()).flat_map(|bodies| bodies.iter().rev().skip(1));
    for start in bodies.filter_map(|start| usize::try_from(*start).ok()) {
        let end = program.instructions.iter().skip(start).position(|i| matches!(i, Instruction::RuleReturn {}));
        if let Some(length) = end {
            let guard = Instruction::Guard { register: RESULT, mode: GuardMode::NotUndefined };
            inserts.before.insert(start + length, vec![guard]);
        }
    }
}

fn add_builtin(program: &mut Compiled, name: &str, call: Function, num_args: u8) -> Option<u16> {
    let index = u16::try_from(program.builtin_info_table.len()).ok()?;
    program.builtin_info_table.push(BuiltinInfo { name: name.to_owned(), num_args: u16::from(num_args) });
    program.resolved_builtins.push((call, num_args));
    Some(index)
}

/// An instruction that calls a builtin, in the place of one that does the same without a guard.
fn call_of(program: &mut Compiled, builtin_index: u16, dest: u8, registers: &[u8]) -> Option<Instruction> {
    let params_index = u16::try_from(program.instruction_data.builtin_call_params.len()).ok()?;
    let mut args = [0; 8];
    args.get_mut(..registers.len())?.copy_from_slice(registers);
    let num_args = u8::try_from(registers.len()).ok()?;
    let params = BuiltinCallParams { dest, builtin_index, num_args, args };
    program.instruction_data.add_builtin_call_params(params);
    Some(Instruction::BuiltinCall { params_index })
}

fn guard_operators(program: &mut Compiled) -> Option<()> {
    let mut operators = [0_u16; 5];
    for (slot, name) in operators.iter_mut().zip(OPERATORS) {
        *slot = add_builtin(program, name, builtins::entries().get(name)?.call, 2)?;
    }
    for position in 0..program.instructions.len() {
        let (operator, dest, left, right) = match program.instructions[position] {
            Instruction::Add { dest, left, right } => (0, dest, left, right),
            Instruction::Sub { dest, left, right } => (1, dest, left, right),
            Instruction::Mul { dest, left, right } => (2, dest, left, right),
            Instruction::Div { dest, left, right } => (3, dest, left, right),
            Instruction::Mod { dest, left, right } => (4, dest, left, right),
            // Their errors would be discarded too; this release's compiler for Rego does not emit them.
            Instruction::And { .. } | Instruction::Or { .. } | Instruction::HostAwait { .. } => return None,
            _ => continue,
        };
        program.instructions[position] = call_of(program, operators[operator], dest, &[left, right])?;
    }
    Some(())
}

/// The register of a rule's value; its arguments follow.
const RESULT: u8 = 0;

/// Makes each of `rules_to_check` report a value where it moves that to the result register.
fn check_rules(program: &mut Compiled, rules_to_check: &BTreeSet<String>) -> Option<()> {
    let start_of = |info: &RuleInfo| {
        let bodies = info.definitions.iter().flatten().copied();
        bodies.chain(info.destructuring_blocks.iter().flatten().copied()).min()
    };
    let mut starts: Vec<usize> =
        program.rule_infos.iter().filter_map(start_of).filter_map(|at| at.try_into().ok()).collect();
    starts.push(program.instructions.len());
    starts.sort_unstable();
    let mut slot = 0;
    for info in program.rule_infos.clone() {
        if !rules_to_check.contains(&info.name) {
            continue;
        }
        let Some(start) = start_of(&info).and_then(|at| usize::try_from(at).ok()) else { continue };
        let end = *starts.iter().find(|at| **at > start)?;
        let arity = info.function_info.as_ref().map_or(0, |function| function.num_params);
        let call = *CHECKS.iter().flatten().nth(slot)?;
        let builtin = add_builtin(program, "cmf.agrees", call, u8::try_from(arity).ok()?.checked_add(1)?)?;
        slot += 1;
        for position in start..end {
            let Instruction::Move { dest: RESULT, src } = program.instructions[position] else { continue };
            let arguments = 1..=u8::try_from(arity).ok()?;
            let registers: Vec<u8> = std::iter::once(src).chain(arguments).collect();
            program.instructions[position] = call_of(program, builtin, RESULT, &registers)?;
        }
    }
    Some(())
}

macro_rules! checks {
    ($($row:literal)*) => {
        [$([
            check::<$row, 0>, check::<$row, 1>, check::<$row, 2>, check::<$row, 3>,
            check::<$row, 4>, check::<$row, 5>, check::<$row, 6>, check::<$row, 7>,
            check::<$row, 8>, check::<$row, 9>, check::<$row, 10>, check::<$row, 11>,
            check::<$row, 12>, check::<$row, 13>, check::<$row, 14>, check::<$row, 15>,
        ]),*]
    };
}

/// One function for each rule of a program that is checked: a function pointer has no state that could tell which rule
/// it is.
static CHECKS: [[Function; 16]; 16] = checks!(0 16 32 48 64 80 96 112 128 144 160 176 192 208 224 240);

fn check<const ROW: usize, const COLUMN: usize>(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    match args.split_first() {
        Some((value, arguments)) if watch::agrees(ROW + COLUMN, arguments, value) => Ok(value.clone()),
        _ => Err(watch::fail("engine.conflict", "a rule with two values")),
    }
}
