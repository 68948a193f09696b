//! The part of a compiled program that one entrypoint reaches [ENG-11].
//!
//! Before each evaluation the machine clears the memory of every rule of its program, and at each call of a rule as many
//! registers as it is said to have. So each entrypoint gets a program of its own, of the rules that it can come to, each
//! with the registers that its steps name.
#![forbid(unsafe_code)]

use crate::{layout, lean};
use regorus::rvm::program::RuleInfo;
use regorus::rvm::{Instruction, Program};
use std::collections::{BTreeMap, BTreeSet};

/// What the entrypoint reaches, and where each step is now; None if that cannot be told, or not be laid out anew.
pub fn part(program: &Program, entrypoint: &str) -> Option<(Program, Vec<usize>)> {
    let start = program.entry_points.get(entrypoint).copied()?;
    let reached = reached(program, start)?;
    let gone = (0..program.instructions.len()).filter(|at| !reached.steps.contains(at)).collect();
    let (mut part, moved) = layout::without(program, &gone)?;
    part.entry_points.retain(|name, _| name == entrypoint);
    // Texts for those who debug, once in the whole program already.
    part.sources.clear();
    let places: BTreeMap<u16, u16> = reached.rules.iter().copied().zip(0..).collect();
    for step in &mut part.instructions {
        if let Instruction::CallRule { rule_index, .. } | Instruction::RuleInit { rule_index, .. } = step {
            *rule_index = *places.get(rule_index)?;
        }
    }
    for params in &mut part.instruction_data.function_call_params {
        // Calls that are gone keep their parameters, which nothing reads.
        params.func_rule_index = places.get(&params.func_rule_index).copied().unwrap_or_default();
    }
    let infos = std::mem::take(&mut part.rule_infos).into_iter().zip(0..);
    part.rule_infos = infos.filter(|(_, rule)| places.contains_key(rule)).map(|(info, _)| info).collect();
    for rule in 0..part.rule_infos.len() {
        let needed = part.rule_infos.get(rule).and_then(|info| registers(&part, info));
        if let (Some(info), Some(needed)) = (part.rule_infos.get_mut(rule), needed) {
            info.num_registers = info.num_registers.min(needed);
        }
    }
    Some((part, moved))
}

#[derive(Default)]
struct Reached {
    rules: BTreeSet<u16>,
    steps: BTreeSet<usize>,
}

/// None where a rule may be asked for by its path: that could be any.
fn reached(program: &Program, entrypoint: usize) -> Option<Reached> {
    let mut reached = Reached::default();
    let mut left = vec![entrypoint];
    while let Some(start) = left.pop() {
        for at in run(program, start)? {
            reached.steps.insert(at);
            let rule = match *program.instructions.get(at)? {
                Instruction::CallRule { rule_index, .. } => rule_index,
                Instruction::FunctionCall { params_index } => {
                    program.instruction_data.get_function_call_params(params_index)?.func_rule_index
                }
                Instruction::VirtualDataDocumentLookup { .. } => return None,
                _ => continue,
            };
            if reached.rules.insert(rule) {
                left.extend(lean::starts(program.rule_infos.get(usize::from(rule))?));
            }
        }
    }
    Some(reached)
}

/// From the first step of a body, a block of arguments or an entrypoint to its last.
fn run(program: &Program, start: usize) -> Option<std::ops::RangeInclusive<usize>> {
    let is_end = |step: &Instruction| {
        matches!(step, Instruction::RuleReturn {} | Instruction::DestructuringSuccess {} | Instruction::Return { .. })
    };
    Some(start..=start + program.instructions.get(start..)?.iter().position(is_end)?)
}

/// How many registers the steps of a rule name, with its value and its arguments; None if a step is not known.
fn registers(program: &Program, info: &RuleInfo) -> Option<u8> {
    let arguments = info.function_info.as_ref().map_or(0, |function| function.num_params);
    let mut last = u8::try_from(arguments).ok()?.max(info.result_reg);
    for start in lean::starts(info) {
        for step in program.instructions.get(run(program, start)?)? {
            let (reads, writes) = lean::registers(step, &program.instruction_data)?;
            last = reads.into_iter().chain(writes).fold(last, u8::max);
        }
    }
    last.checked_add(1)
}
