//! A first condition that consecutive definitions of a set share, evaluated once: if it fails, they are skipped
//! together [ENG-11].
//!
//! The machine skips a definition with all its bodies if its arguments do not match. So such definitions become the
//! bodies of one definition, and the condition is evaluated in the block where arguments are taken.
#![forbid(unsafe_code)]

use regorus::rvm::instructions::GuardMode;
use regorus::rvm::program::{RuleInfo, RuleType};
use regorus::rvm::{Instruction, Program};
use regorus::Rc;
use std::collections::BTreeMap;

/// The use of a rule as a condition: the number of the rule, how its value is tested, and the register that takes it.
#[derive(Clone, Copy)]
struct Condition(u16, GuardMode, u8);

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

/// Joins such definitions; gives the position of each shared condition, with the body that it is taken from.
pub fn evaluate_once(program: &mut Program) -> BTreeMap<usize, usize> {
    let mut added = BTreeMap::new();
    for rule in 0..program.rule_infos.len() {
        let info = &program.rule_infos[rule];
        let is_set = info.rule_type == RuleType::PartialSet && info.function_info.is_none();
        if !is_set || !info.else_bodies.is_empty() {
            continue;
        }
        let Some(groups) = grouped(program, info) else { continue };
        let mut blocks = Vec::new();
        for (bodies, condition) in &groups {
            let block = match (condition, bodies.as_slice()) {
                (Some(condition), [first, _, ..]) => add_block(program, *first, *condition),
                _ => None,
            };
            added.extend(block);
            blocks.push(block.and_then(|(start, _)| u32::try_from(start).ok()));
        }
        if blocks.iter().all(Option::is_none) {
            continue;
        }
        let info = &mut program.rule_infos[rule];
        info.destructuring_blocks = blocks;
        info.definitions = Rc::new(groups.into_iter().map(|(bodies, _)| bodies).collect());
    }
    added
}

/// The bodies of a rule's definitions, in groups of consecutive ones with the same first condition; None if a
/// definition has several bodies.
fn grouped(program: &Program, info: &RuleInfo) -> Option<Vec<(Vec<u32>, Option<Condition>)>> {
    let mut groups: Vec<(Vec<u32>, Option<Condition>)> = Vec::new();
    for bodies in info.definitions.iter() {
        let [body] = bodies.as_slice() else { return None };
        let condition = first_condition(program, *body);
        match groups.last_mut() {
            Some((group, before)) if condition.is_some() && *before == condition => group.push(*body),
            _ => groups.push((vec![*body], condition)),
        }
    }
    Some(groups)
}

/// The first condition of a body, if that is a rule by itself.
fn first_condition(program: &Program, body: u32) -> Option<Condition> {
    let steps = program.instructions.get(usize::try_from(body).ok()?..)?;
    let is_root = |step: &&Instruction| matches!(step, Instruction::LoadInput { .. } | Instruction::LoadData { .. });
    let roots = steps.iter().skip(1).take_while(is_root).count();
    match steps.get(..roots + 3)? {
        [Instruction::RuleInit { .. }, .., Instruction::CallRule { dest, rule_index }, Instruction::Guard { register, mode }]
            if dest == register =>
        {
            Some(Condition(*rule_index, *mode, *dest))
        }
        _ => None,
    }
}

/// Adds the condition at the end of the program; None if that would get longer than jumps can reach.
fn add_block(program: &mut Program, body: u32, Condition(rule_index, mode, dest): Condition) -> Option<(usize, usize)> {
    let body = usize::try_from(body).ok()?;
    let start = program.instructions.len();
    let steps = [
        *program.instructions.get(body)?,
        Instruction::CallRule { dest, rule_index },
        Instruction::Guard { register: dest, mode },
        Instruction::DestructuringSuccess {},
    ];
    if start + steps.len() > Program::MAX_INSTRUCTIONS {
        return None;
    }
    let span = program.instruction_spans.get(body).cloned().flatten();
    steps.into_iter().for_each(|step| program.add_instruction(step, span.clone()));
    Some((start, body))
}
