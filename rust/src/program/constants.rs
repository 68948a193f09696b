//! Rules that read no input, evaluated once, when a set is loaded [ENG-11].
//!
//! The machine would evaluate such a rule for each view, and copy the description of the rule at each use. So each use
//! becomes the load of a literal.
//!
//! A value may hold another several times and share it, so its size when written out can be exponential in the length
//! of a policy: `s1 := [s0, s0]`, and so on. So its size is checked before it is walked.
#![forbid(unsafe_code)]

use regorus::rvm::program::RuleInfo;
use regorus::rvm::{Instruction, Program};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Levels of nesting: more cannot be written as a result.
const MAX_DEPTH: usize = crate::json::MAX_DEPTH as usize;
/// Members of a value that is evaluated at load, counted wherever they occur: as many as an input may have.
const MAX_MEMBERS: usize = 1 << 20;
/// Members of a value that is looked up among the existing literals.
const MAX_COMPARED: usize = 64;
/// Bytes of text that count as a member.
const TEXT_BYTES: usize = 32;

/// Replaces each use of a rule that reads no input by the load of its value. `value_of` gives the value of the rule
/// whose first body begins at an instruction; None if it has none or it is not known: then the rule is evaluated as
/// before.
pub fn fold(program: &mut Program, value_of: impl FnMut(usize) -> Option<Value>) {
    let is_used = program.instructions.iter().filter_map(|step| match step {
        Instruction::CallRule { rule_index, .. } => Some(usize::from(*rule_index)),
        _ => None,
    });
    let is_used: BTreeSet<usize> = is_used.collect();
    let mut known = Known { program, value_of, is_constant: BTreeMap::new(), values: BTreeMap::new() };
    is_used.into_iter().for_each(|rule| {
        known.rule(rule);
    });
    let places: BTreeMap<usize, u16> =
        known.values.into_iter().filter_map(|(rule, value)| Some((rule, place(program, value)?))).collect();
    for step in &mut program.instructions {
        let Instruction::CallRule { dest, rule_index } = *step else { continue };
        if let Some(literal_idx) = places.get(&usize::from(rule_index)) {
            *step = Instruction::Load { dest, literal_idx: *literal_idx };
        }
    }
}

/// What is known of rules so far, by their numbers.
struct Known<'a, F> {
    program: &'a Program,
    value_of: F,
    is_constant: BTreeMap<usize, bool>,
    values: BTreeMap<usize, Value>,
}

impl<F: FnMut(usize) -> Option<Value>> Known<'_, F> {
    /// Whether neither the rule nor any rule that it uses reads the input or is too large. A set has no recursion.
    fn rule(&mut self, rule: usize) -> bool {
        if let Some(known) = self.is_constant.get(&rule) {
            return *known;
        }
        let program = self.program;
        let is_constant = program.rule_infos.get(rule).is_some_and(|info| {
            let starts = bodies(info).chain(info.destructuring_blocks.iter().flatten().map(|at| *at as usize));
            starts.into_iter().all(|start| self.body(program, start)) && self.is_bounded(rule, info)
        });
        self.is_constant.insert(rule, is_constant);
        is_constant
    }

    /// Evaluates the rule and keeps its value. False for one that is too large: it is left to the machine, as are the
    /// rules that use it.
    fn is_bounded(&mut self, rule: usize, info: &RuleInfo) -> bool {
        let Some(start) = bodies(info).next().filter(|_| info.function_info.is_none()) else { return true };
        match (self.value_of)(start).filter(|value| *value != Value::Undefined) {
            Some(value) if !is_bounded(&value) => return false,
            Some(value) => {
                self.values.insert(rule, value);
            }
            None => {}
        }
        true
    }

    fn body(&mut self, program: &Program, start: usize) -> bool {
        for instruction in program.instructions.iter().skip(start) {
            match instruction {
                Instruction::RuleReturn {} | Instruction::DestructuringSuccess {} => return true,
                Instruction::LoadInput { .. }
                | Instruction::LoadContext { .. }
                | Instruction::LoadMetadata { .. }
                | Instruction::HostAwait { .. }
                | Instruction::VirtualDataDocumentLookup { .. } => return false,
                Instruction::CallRule { rule_index, .. } if !self.rule(usize::from(*rule_index)) => return false,
                Instruction::FunctionCall { params_index } => {
                    let params = program.instruction_data.get_function_call_params(*params_index);
                    if !params.is_some_and(|params| self.rule(usize::from(params.func_rule_index))) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        false
    }
}

fn bodies(info: &RuleInfo) -> impl Iterator<Item = usize> + '_ {
    info.definitions.iter().flatten().map(|at| *at as usize)
}

/// Whether the value is small enough to be walked.
fn is_bounded(value: &Value) -> bool {
    fits(value, MAX_DEPTH, &mut { MAX_MEMBERS })
}

/// The index of a literal; None if the program has no more room. Only small ones are looked up among the existing
/// literals: with large ones the time would grow with the square of what is added.
fn place(program: &mut Program, value: Value) -> Option<u16> {
    if fits(&value, MAX_DEPTH, &mut { MAX_COMPARED }) {
        return u16::try_from(program.add_literal(value)).ok();
    }
    let place = u16::try_from(program.literals.len()).ok()?;
    program.literals.push(value);
    Some(place)
}

/// Whether the value has no more members than `left` and no more levels than `depth`; subtracts its members from
/// `left`.
fn fits(value: &Value, depth: usize, left: &mut usize) -> bool {
    let size = 1 + match value {
        Value::String(text) => text.len() / TEXT_BYTES,
        _ => 0,
    };
    let (Some(rest), Some(depth)) = (left.checked_sub(size), depth.checked_sub(1)) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, depth, left)),
        Value::Set(items) => items.iter().all(|item| fits(item, depth, left)),
        Value::Object(members) => {
            members.iter_sorted().all(|(key, member)| fits(key, depth, left) && fits(member, depth, left))
        }
        _ => true,
    }
}
