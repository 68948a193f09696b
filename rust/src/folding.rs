//! Rules that read no input have one value for as long as the set lives: it is found once, when the set is loaded.
//!
//! The machine evaluates such a rule anew for each view, and looks up all that is known of a rule at each use of it. So
//! in the compiled program each use becomes the load of a literal [ENG-11].
#![forbid(unsafe_code)]

use regorus::rvm::program::RuleInfo;
use regorus::rvm::{Instruction, Program};
use regorus::Value;
use std::collections::BTreeMap;

/// Every use of a rule without input as the load of its value; `value_of` gives that of the rule whose first body
/// begins at an instruction, and None where it has none or cannot be told: then the machine asks as before.
pub fn fold(program: &mut Program, mut value_of: impl FnMut(usize) -> Option<Value>) {
    let mut known = Known { program, is_constant: BTreeMap::new() };
    let constants: Vec<bool> = (0..program.rule_infos.len()).map(|rule| known.rule(rule)).collect();
    let mut literals: BTreeMap<usize, Option<u16>> = BTreeMap::new();
    for position in 0..program.instructions.len() {
        let Instruction::CallRule { dest, rule_index } = program.instructions[position] else { continue };
        let rule = usize::from(rule_index);
        let Some(info) = program.rule_infos.get(rule).filter(|info| info.function_info.is_none()) else { continue };
        let Some(start) = bodies(info).next().filter(|_| constants[rule]) else { continue };
        let literal = *literals.entry(rule).or_insert_with(|| {
            let value = value_of(start).filter(|value| *value != Value::Undefined)?;
            u16::try_from(program.add_literal(value)).ok()
        });
        if let Some(literal_idx) = literal {
            program.instructions[position] = Instruction::Load { dest, literal_idx };
        }
    }
}

/// What is known of rules so far, by their places.
struct Known<'a> {
    program: &'a Program,
    is_constant: BTreeMap<usize, bool>,
}

impl Known<'_> {
    /// Whether neither the rule nor what it asks for reads the input. There is no recursion in a set.
    fn rule(&mut self, rule: usize) -> bool {
        if let Some(known) = self.is_constant.get(&rule) {
            return *known;
        }
        let program = self.program;
        let is_constant = program.rule_infos.get(rule).is_some_and(|info| {
            let starts = bodies(info).chain(info.destructuring_blocks.iter().flatten().map(|at| *at as usize));
            starts.into_iter().all(|start| self.body(program, start))
        });
        self.is_constant.insert(rule, is_constant);
        is_constant
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
