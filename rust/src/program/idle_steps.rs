//! Instructions without an effect, removed from a compiled program [ENG-11].
//!
//! The compiler and our guards are written for the general case: a value is tested twice for being defined, `input` is
//! loaded at each mention, the arguments of a function are taken in a block of their own. An instruction costs the
//! machine as much as a small builtin, so those that visibly have no effect are removed, body by body. A body with an
//! instruction that is not known here is left as it is.
#![forbid(unsafe_code)]

use crate::program::layout;
use crate::program::literals;
use regorus::rvm::instructions::{GuardMode, InstructionData, LiteralOrRegister};
use regorus::rvm::program::{RuleInfo, RuleType};
use regorus::rvm::{Instruction, Program};
use regorus::{Rc, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The program without idle steps, and the new position of each old one; None if it does not have the expected layout.
pub fn remove(program: &Program) -> Option<(Program, Vec<usize>)> {
    let mut program = program.clone();
    let mut removed = join_arguments(&mut program);
    join_members(&mut program, &mut removed);
    let targets = targets(&program);
    for body in bodies(&program, &removed) {
        let Some(uses) = uses(&program, &body) else { continue };
        load_roots_once(&program, &body, &uses, &mut removed);
        fold_paths(&mut program, &body, &uses, &targets, &mut removed);
        load_result_directly(&mut program, &body, &targets, &mut removed);
        test_once(&program, &body, &targets, &mut removed);
    }
    layout::without(&program, &removed)
}

/// A block that takes a function's arguments becomes the beginning of the body after it, if that is its only body: a
/// failure in either makes the definition fail.
fn join_arguments(program: &mut Program) -> BTreeSet<usize> {
    let mut removed = BTreeSet::new();
    let instructions = &program.instructions;
    for info in &mut program.rule_infos {
        let RuleInfo { definitions, destructuring_blocks, .. } = info;
        for (bodies, block) in Rc::make_mut(definitions).iter_mut().zip(destructuring_blocks.iter_mut()) {
            let ([body], Some(start)) = (bodies.as_mut_slice(), *block) else { continue };
            let Some(last) = usize::try_from(*body).ok().and_then(|at| at.checked_sub(1)) else { continue };
            let taking = usize::try_from(start).ok().and_then(|start| instructions.get(start..last));
            let is_plain = |step: &Instruction| matches!(step, Instruction::Guard { .. } | Instruction::Move { .. });
            let ends = matches!(instructions.get(last), Some(Instruction::DestructuringSuccess {}));
            if ends && taking.is_some_and(|steps| steps.iter().all(is_plain)) {
                *body = start;
                *block = None;
                removed.insert(last);
            }
        }
        if destructuring_blocks.iter().all(Option::is_none) {
            destructuring_blocks.clear();
        }
    }
    removed
}

/// Consecutive definitions of one set become one body, if none of them can fail: an undefined value is not added to a
/// set.
fn join_members(program: &mut Program, removed: &mut BTreeSet<usize>) {
    let instructions = &program.instructions;
    let end = |start: usize| {
        let is_safe = |step: &Instruction| {
            matches!(
                step,
                Instruction::Load { .. }
                    | Instruction::LoadInput { .. }
                    | Instruction::LoadData { .. }
                    | Instruction::IndexLiteral { .. }
                    | Instruction::ChainedIndex { .. }
                    | Instruction::SetAdd { .. }
            )
        };
        let end = start + 1 + instructions.get(start + 1..)?.iter().position(|step| !is_safe(step))?;
        matches!(instructions.get(end), Some(Instruction::RuleReturn {})).then_some(end)
    };
    for info in &mut program.rule_infos {
        let has_blocks = info.destructuring_blocks.iter().any(Option::is_some) || !info.else_bodies.is_empty();
        if info.rule_type != RuleType::PartialSet || has_blocks {
            continue;
        }
        let mut before = None;
        Rc::make_mut(&mut info.definitions).retain(|bodies| {
            let start = if let [start] = bodies.as_slice() { usize::try_from(*start).ok() } else { None };
            let last = start.and_then(end);
            let joined = start.zip(before).filter(|(start, before)| last.is_some() && *start == before + 1);
            if let Some((start, before)) = joined {
                removed.extend([before, start]);
            }
            before = last;
            joined.is_none()
        });
    }
}

fn starts(info: &RuleInfo) -> impl Iterator<Item = usize> + '_ {
    let all = info.definitions.iter().flatten().chain(info.destructuring_blocks.iter().flatten());
    all.filter_map(|at| usize::try_from(*at).ok())
}

/// The positions of each body, and of each block that takes arguments.
fn bodies(program: &Program, removed: &BTreeSet<usize>) -> Vec<RangeInclusive<usize>> {
    let is_end = |position: &usize| match program.instructions[*position] {
        Instruction::RuleReturn {} | Instruction::DestructuringSuccess {} => !removed.contains(position),
        _ => false,
    };
    let from = |start: usize| Some(start..=(start..program.instructions.len()).find(is_end)?);
    program.rule_infos.iter().flat_map(starts).collect::<BTreeSet<_>>().into_iter().filter_map(from).collect()
}

/// The positions that may be reached other than from the step above.
fn targets(program: &Program) -> BTreeSet<usize> {
    let data = &program.instruction_data;
    let loops = data.loop_params.iter().flat_map(|params| [params.body_start, params.loop_end]);
    let inner = data.comprehension_begin_params.iter().flat_map(|params| [params.body_start, params.comprehension_end]);
    let mut targets: BTreeSet<usize> = loops.chain(inner).map(usize::from).collect();
    targets.extend(program.rule_infos.iter().flat_map(starts));
    targets.extend(program.entry_points.values());
    targets
}

/// How often a body reads and writes each register.
struct Uses {
    reads: BTreeMap<u8, usize>,
    writes: BTreeMap<u8, usize>,
}

/// None if a step is not known.
fn uses(program: &Program, body: &RangeInclusive<usize>) -> Option<Uses> {
    let mut uses = Uses { reads: BTreeMap::new(), writes: BTreeMap::new() };
    for step in program.instructions.get(body.clone())? {
        let (reads, writes) = registers(step, &program.instruction_data)?;
        reads.into_iter().for_each(|register| *uses.reads.entry(register).or_default() += 1);
        writes.into_iter().for_each(|register| *uses.writes.entry(register).or_default() += 1);
    }
    Some(uses)
}

/// The registers that a step reads and those that it writes, at whatever time; None for a step that is not known.
fn registers(step: &Instruction, data: &InstructionData) -> Option<(Vec<u8>, Vec<u8>)> {
    Some(match *step {
        Instruction::Load { dest, .. }
        | Instruction::LoadTrue { dest }
        | Instruction::LoadFalse { dest }
        | Instruction::LoadNull { dest }
        | Instruction::LoadBool { dest, .. }
        | Instruction::LoadData { dest }
        | Instruction::LoadInput { dest }
        | Instruction::ArrayNew { dest }
        | Instruction::SetNew { dest }
        | Instruction::CallRule { dest, .. } => (vec![], vec![dest]),
        Instruction::RuleInit { result_reg, .. } => (vec![], vec![result_reg]),
        Instruction::Move { dest, src } => (vec![src], vec![dest]),
        Instruction::Not { dest, operand } => (vec![operand], vec![dest]),
        Instruction::Eq { dest, left, right }
        | Instruction::Ne { dest, left, right }
        | Instruction::Lt { dest, left, right }
        | Instruction::Le { dest, left, right }
        | Instruction::Gt { dest, left, right }
        | Instruction::Ge { dest, left, right } => (vec![left, right], vec![dest]),
        Instruction::Index { dest, container, key } => (vec![container, key], vec![dest]),
        Instruction::IndexLiteral { dest, container, .. } => (vec![container], vec![dest]),
        Instruction::Contains { dest, collection, value } => (vec![collection, value], vec![dest]),
        Instruction::Count { dest, collection } => (vec![collection], vec![dest]),
        Instruction::AssertEq { left, right } => (vec![left, right], vec![]),
        Instruction::Guard { register, .. } => (vec![register], vec![]),
        Instruction::ObjectSet { obj, key, value } => (vec![obj, key, value], vec![obj]),
        Instruction::ArrayPush { arr, value } => (vec![arr, value], vec![arr]),
        Instruction::SetAdd { set, value } => (vec![set, value], vec![set]),
        Instruction::ComprehensionYield { value_reg, key_reg } => {
            (std::iter::once(value_reg).chain(key_reg).collect(), vec![])
        }
        Instruction::LoopNext { .. }
        | Instruction::ComprehensionEnd {}
        | Instruction::DestructuringSuccess {}
        | Instruction::RuleReturn {} => (vec![], vec![]),
        Instruction::BuiltinCall { params_index } => {
            let params = data.get_builtin_call_params(params_index)?;
            (params.arg_registers().to_vec(), vec![params.dest])
        }
        Instruction::FunctionCall { params_index } => {
            let params = data.get_function_call_params(params_index)?;
            (params.arg_registers().to_vec(), vec![params.dest])
        }
        Instruction::ObjectCreate { params_index } => {
            let params = data.get_object_create_params(params_index)?;
            let values = params.literal_key_field_pairs().iter().map(|(_, value)| *value);
            let pairs = params.field_pairs().iter().flat_map(|(key, value)| [*key, *value]);
            (values.chain(pairs).collect(), vec![params.dest])
        }
        Instruction::ArrayCreate { params_index } => {
            let params = data.get_array_create_params(params_index)?;
            (params.element_registers().to_vec(), vec![params.dest])
        }
        Instruction::SetCreate { params_index } => {
            let params = data.get_set_create_params(params_index)?;
            (params.element_registers().to_vec(), vec![params.dest])
        }
        Instruction::ChainedIndex { params_index } => {
            let params = data.chained_index_params.get(usize::from(params_index))?;
            (std::iter::once(params.root).chain(params.register_numbers()).collect(), vec![params.dest])
        }
        Instruction::LoopStart { params_index } => {
            let params = data.get_loop_params(params_index)?;
            (vec![params.collection], vec![params.key_reg, params.value_reg, params.result_reg])
        }
        Instruction::ComprehensionBegin { params_index } => {
            let params = data.get_comprehension_begin_params(params_index)?;
            let all = vec![params.collection_reg, params.result_reg, params.key_reg, params.value_reg];
            (all.clone(), all)
        }
        _ => return None,
    })
}

/// `input` and `data` are loaded when a body begins, see [`hardening`](crate::program::hardening). Where nothing else
/// is written to the same register, later loads have no effect.
fn load_roots_once(program: &Program, body: &RangeInclusive<usize>, uses: &Uses, removed: &mut BTreeSet<usize>) {
    let mut loads: BTreeMap<(u8, bool), Vec<usize>> = BTreeMap::new();
    for position in body.clone() {
        match program.instructions[position] {
            Instruction::LoadInput { dest } => loads.entry((dest, true)).or_default().push(position),
            Instruction::LoadData { dest } => loads.entry((dest, false)).or_default().push(position),
            _ => {}
        }
    }
    for ((register, _), positions) in loads {
        if uses.writes.get(&register) == Some(&positions.len()) {
            removed.extend(positions.into_iter().skip(1));
        }
    }
}

/// A path into a literal becomes a literal, if its value is defined.
fn fold_paths(
    program: &mut Program,
    body: &RangeInclusive<usize>,
    uses: &Uses,
    targets: &BTreeSet<usize>,
    removed: &mut BTreeSet<usize>,
) {
    for position in body.clone().skip(1).filter(|position| !targets.contains(position)) {
        let Instruction::Load { dest: loaded, literal_idx } = program.instructions[position - 1] else { continue };
        let (dest, root, keys) = match program.instructions[position] {
            Instruction::IndexLiteral { dest, container, literal_idx } => (dest, container, vec![literal_idx]),
            Instruction::ChainedIndex { params_index } => {
                let data = &program.instruction_data;
                let Some(params) = data.chained_index_params.get(usize::from(params_index)) else { continue };
                let key = |part: &LiteralOrRegister| match part {
                    LiteralOrRegister::Literal(key) => Some(*key),
                    LiteralOrRegister::Register(_) => None,
                };
                let Some(keys) = params.path_components.iter().map(key).collect::<Option<Vec<_>>>() else { continue };
                (params.dest, params.root, keys)
            }
            _ => continue,
        };
        let is_only_use = uses.reads.get(&loaded) == Some(&1) && uses.writes.get(&loaded) == Some(&1);
        if root != loaded || !is_only_use || removed.contains(&(position - 1)) {
            continue;
        }
        let literal = |place: u16| program.literals.get(usize::from(place));
        let Some(mut value) = literal(literal_idx) else { continue };
        for key in keys {
            value = literal(key).map_or(&Value::Undefined, |key| &value[key]);
        }
        if *value == Value::Undefined {
            continue;
        }
        let value = value.clone();
        let Some(literal_idx) = literals::place(program, value) else { continue };
        program.instructions[position] = Instruction::Load { dest, literal_idx };
        removed.insert(position - 1);
    }
}

/// Register of a rule's value.
const RESULT: u8 = 0;

/// A constant with which a body ends is loaded directly into the register of the rule's value.
fn load_result_directly(
    program: &mut Program,
    body: &RangeInclusive<usize>,
    targets: &BTreeSet<usize>,
    removed: &mut BTreeSet<usize>,
) {
    let last = *body.end();
    let Some(from) = last.checked_sub(3).filter(|from| body.contains(from)) else { return };
    if (from + 1..=last).any(|position| targets.contains(&position)) {
        return;
    }
    let [load, Instruction::Guard { register, mode: GuardMode::NotUndefined }, Instruction::Move { dest: RESULT, src }] =
        program.instructions[from..last]
    else {
        return;
    };
    let direct = match load {
        Instruction::LoadBool { dest, value } if dest == src => Instruction::LoadBool { dest: RESULT, value },
        Instruction::Load { dest, literal_idx } if dest == src && is_defined(program, literal_idx) => {
            Instruction::Load { dest: RESULT, literal_idx }
        }
        _ => return,
    };
    if register == src {
        program.instructions[from] = direct;
        removed.extend([from + 1, from + 2]);
    }
}

fn is_defined(program: &Program, literal: u16) -> bool {
    program.literals.get(usize::from(literal)).is_some_and(|value| *value != Value::Undefined)
}

/// A value that was tested for being defined is not tested again before the next position that may be jumped to.
fn test_once(
    program: &Program,
    body: &RangeInclusive<usize>,
    targets: &BTreeSet<usize>,
    removed: &mut BTreeSet<usize>,
) {
    let mut defined: BTreeSet<u8> = BTreeSet::new();
    for position in body.clone() {
        if targets.contains(&position) {
            defined.clear();
        }
        if removed.contains(&position) {
            continue;
        }
        match program.instructions[position] {
            Instruction::Guard { register, mode: GuardMode::NotUndefined } if defined.contains(&register) => {
                removed.insert(position);
            }
            Instruction::Guard { register, mode: GuardMode::NotUndefined | GuardMode::Condition } => {
                defined.insert(register);
            }
            Instruction::Guard { .. } | Instruction::AssertEq { .. } => {}
            Instruction::LoadBool { dest, .. } => {
                defined.insert(dest);
            }
            Instruction::Load { dest, literal_idx } if is_defined(program, literal_idx) => {
                defined.insert(dest);
            }
            Instruction::Move { dest, src } if defined.contains(&src) => {
                defined.insert(dest);
            }
            Instruction::LoopNext { .. } | Instruction::LoopStart { .. } => defined.clear(),
            ref step => match registers(step, &program.instruction_data) {
                Some((_, writes)) => writes.iter().for_each(|register| {
                    defined.remove(register);
                }),
                None => defined.clear(),
            },
        }
    }
}
