//! Bodies that cannot hold with the data of the set, whatever the input is, removed from the compiled program [ENG-17].
//!
//! Many rules look into a list that an operator left empty. A rule without any body left has the value that it has when
//! no body holds.
#![forbid(unsafe_code)]

use crate::program::literals;
use regorus::rvm::instructions::{GuardMode, LiteralOrRegister};
use regorus::rvm::program::{RuleInfo, RuleType};
use regorus::rvm::{Instruction, Program};
use regorus::{Rc, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Register of a rule's value.
const RESULT: u8 = 0;

/// Removes them, until no more are found: the known value of one rule may rule out bodies of others.
pub fn remove(program: &mut Program, data: &Value) {
    let mut known = BTreeSet::new();
    loop {
        let before = known.len();
        for rule in 0..program.rule_infos.len() {
            let info = &program.rule_infos[rule];
            if known.contains(&rule) || info.function_info.is_some() || !info.else_bodies.is_empty() {
                continue;
            }
            let is_dead = |bodies: &Vec<u32>| matches!(bodies[..], [start] if is_ruled_out(program, data, start));
            let left: Vec<Vec<u32>> = info.definitions.iter().filter(|bodies| !is_dead(bodies)).cloned().collect();
            if !left.is_empty() {
                program.rule_infos[rule].definitions = Rc::new(left);
            } else if !info.definitions.is_empty() {
                let value = value_without_bodies(program, info);
                known.insert(rule);
                replace_uses(program, rule, value);
            }
        }
        if known.len() == before {
            return;
        }
    }
}

fn value_without_bodies(program: &Program, info: &RuleInfo) -> Value {
    let default = || program.literals.get(usize::from(info.default_literal_index?)).cloned();
    match info.rule_type {
        RuleType::PartialSet => Value::new_set(),
        RuleType::PartialObject => Value::new_object(),
        RuleType::Complete => default().unwrap_or(Value::Undefined),
    }
}

/// Replaces each use of the rule by the load of its value. Its bodies stay, for lookups by its path.
fn replace_uses(program: &mut Program, rule: usize, value: Value) {
    let Some(literal_idx) = literals::place(program, value) else { return };
    for instruction in &mut program.instructions {
        if let Instruction::CallRule { dest, rule_index } = *instruction {
            if usize::from(rule_index) == rule {
                *instruction = Instruction::Load { dest, literal_idx };
            }
        }
    }
}

/// Whether the body fails at a condition on data alone, before any step that could fail in another way.
fn is_ruled_out(program: &Program, data: &Value, start: u32) -> bool {
    let mut known: BTreeMap<u8, Value> = BTreeMap::new();
    let steps = usize::try_from(start).ok().and_then(|start| program.instructions.get(start..)).unwrap_or_default();
    for step in steps {
        let (dest, value) = match *step {
            Instruction::RuleInit { .. } => continue,
            Instruction::Guard { register, mode } => match known.get(&register) {
                Some(value) if !passes(mode, value) => return true,
                _ => continue,
            },
            Instruction::LoopStart { params_index } => {
                let Some(params) = program.instruction_data.get_loop_params(params_index) else { return false };
                let next = program.instructions.get(usize::from(params.loop_end));
                let ends = matches!(next, Some(Instruction::RuleReturn {}));
                return ends && known.get(&params.collection).and_then(members) == Some(0);
            }
            _ => match value_of(program, data, &known, step) {
                Some(given) => given,
                None => return false,
            },
        };
        if dest == RESULT {
            return false;
        }
        match value {
            Some(value) => known.insert(dest, value),
            None => known.remove(&dest),
        };
    }
    false
}

/// The register that a step writes, and the value if data alone determines it; None for a step that is not known to
/// have no other effect.
fn value_of(
    program: &Program,
    data: &Value,
    known: &BTreeMap<u8, Value>,
    step: &Instruction,
) -> Option<(u8, Option<Value>)> {
    let literal = |place: u16| program.literals.get(usize::from(place));
    let held = |register: u8| known.get(&register);
    Some(match *step {
        Instruction::LoadInput { dest } => (dest, None),
        Instruction::LoadData { dest } => (dest, Some(data.clone())),
        Instruction::Load { dest, literal_idx } => (dest, literal(literal_idx).cloned()),
        Instruction::LoadBool { dest, value } => (dest, Some(Value::Bool(value))),
        Instruction::Move { dest, src } => (dest, held(src).cloned()),
        Instruction::IndexLiteral { dest, container, literal_idx } => {
            (dest, held(container).zip(literal(literal_idx)).map(|(held, key)| held[key].clone()))
        }
        Instruction::ChainedIndex { params_index } => {
            let params = program.instruction_data.get_chained_index_params(params_index)?;
            let value =
                params.path_components.iter().try_fold(held(params.root).cloned(), |value, step| match step {
                    LiteralOrRegister::Literal(key) => {
                        Some(value.zip(literal(*key)).map(|(held, key)| held[key].clone()))
                    }
                    LiteralOrRegister::Register(_) => None,
                })?;
            (params.dest, value)
        }
        Instruction::Contains { dest, collection, value } => {
            let found = held(collection).zip(held(value)).and_then(|(held, value)| contains(held, value));
            (dest, found.map(Value::Bool))
        }
        Instruction::Not { dest, operand } => {
            (dest, held(operand).map(|value| Value::Bool(!passes(GuardMode::Condition, value))))
        }
        Instruction::Gt { dest, left, right } => {
            let order = held(left).zip(held(right)).and_then(|(left, right)| order_of(left, right));
            (dest, order.map(|order| Value::Bool(order == Ordering::Greater)))
        }
        Instruction::BuiltinCall { params_index } => {
            let params = program.instruction_data.get_builtin_call_params(params_index)?;
            let name = &program.get_builtin_info(params.builtin_index)?.name;
            let [counted] = params.arg_registers() else { return None };
            let count = held(*counted).filter(|_| name == "count").and_then(members)?;
            (params.dest, Some(Value::from(u64::try_from(count).ok()?)))
        }
        _ => return None,
    })
}

fn passes(mode: GuardMode, value: &Value) -> bool {
    let holds = !matches!(value, Value::Undefined | Value::Bool(false));
    match mode {
        GuardMode::Not => !holds,
        GuardMode::Condition => holds,
        GuardMode::NotUndefined => *value != Value::Undefined,
    }
}

fn members(value: &Value) -> Option<usize> {
    match value {
        Value::Array(items) => Some(items.len()),
        Value::Set(items) => Some(items.len()),
        Value::Object(members) => Some(members.len()),
        _ => None,
    }
}

fn contains(collection: &Value, value: &Value) -> Option<bool> {
    match collection {
        Value::Array(items) => Some(items.contains(value)),
        Value::Set(items) => Some(items.contains(value)),
        _ => None,
    }
}

fn order_of(left: &Value, right: &Value) -> Option<Ordering> {
    let are_numbers = matches!((left, right), (Value::Number(_), Value::Number(_)));
    are_numbers.then(|| left.cmp(right))
}
