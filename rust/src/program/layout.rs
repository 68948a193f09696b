//! Instructions inserted into a compiled program, with every jump adjusted; and comprehensions corrected.
//!
//! In this release a condition that fails directly inside a comprehension, outside of any loop in it, ends an iteration
//! of the loop *around* the comprehension or, if there is none, leaves the comprehension open. Such a comprehension
//! gets a loop of its own, over one element: a condition that fails then ends that loop.
#![forbid(unsafe_code)]

use regorus::rvm::instructions::{LoopMode, LoopStartParams};
use regorus::rvm::{Instruction, Program};
use regorus::{Rc, Value};
use std::collections::BTreeMap;

/// Instructions to insert, by the position before or after which they go. A jump to a position lands on what is
/// inserted before it, and never on what is inserted after the position above.
#[derive(Default)]
pub struct Inserts {
    pub before: BTreeMap<usize, Vec<Instruction>>,
    pub after: BTreeMap<usize, Vec<Instruction>>,
}

/// A comprehension that gets a loop, by old positions.
struct Wrapped {
    begin: usize,
    end: usize,
    /// Two registers that the compiler reserves for each comprehension and Rego never uses.
    unused: (u8, u8),
}

/// The new position of each old one.
struct Moved(Vec<usize>);

impl Moved {
    fn u16(&self, position: u16) -> Option<u16> {
        u16::try_from(*self.0.get(usize::from(position))?).ok()
    }

    fn u32(&self, position: u32) -> Option<u32> {
        u32::try_from(*self.0.get(usize::try_from(position).ok()?)?).ok()
    }
}

/// The program with `inserts`; None if it gets longer than jumps can reach, or does not have the expected layout.
pub fn rebuild(program: &Program, inserts: &Inserts) -> Option<Program> {
    let wrapped = to_wrap(program)?;
    let begins: BTreeMap<usize, usize> = wrapped.iter().enumerate().map(|(number, w)| (w.begin, number)).collect();
    let ends: BTreeMap<usize, usize> = wrapped.iter().enumerate().map(|(number, w)| (w.end, number)).collect();
    let first_loop = program.instruction_data.loop_params.len();
    let mut new = program.clone();
    new.instructions.clear();
    new.instruction_spans.clear();
    let once = u16::try_from(new.add_literal(Value::from(vec![Value::Null]))).ok()?;
    let mut moved = Moved(Vec::with_capacity(program.instructions.len() + 1));
    let mut nexts = vec![0; wrapped.len()];
    for (position, instruction) in program.instructions.iter().enumerate() {
        let span = program.instruction_spans.get(position).cloned().flatten();
        moved.0.push(new.instructions.len());
        if let Some(number) = ends.get(&position) {
            nexts[*number] = new.instructions.len();
            new.add_instruction(Instruction::LoopNext { body_start: 0, loop_end: 0 }, span.clone());
        }
        for extra in inserts.before.get(&position).into_iter().flatten() {
            new.add_instruction(*extra, span.clone());
        }
        new.add_instruction(*instruction, span.clone());
        if let Some(number) = begins.get(&position) {
            let (collection, result_reg) = wrapped[*number].unused;
            new.add_instruction(Instruction::Load { dest: collection, literal_idx: once }, span.clone());
            let params_index = u16::try_from(first_loop + number).ok()?;
            new.add_instruction(Instruction::LoopStart { params_index }, span.clone());
            new.instruction_data.add_loop_params(LoopStartParams {
                mode: LoopMode::ForEach,
                collection,
                key_reg: collection,
                value_reg: collection,
                result_reg,
                body_start: 0,
                loop_end: 0,
            });
        }
        for extra in inserts.after.get(&position).into_iter().flatten() {
            new.add_instruction(*extra, span.clone());
        }
    }
    moved.0.push(new.instructions.len());
    if new.instructions.len() > Program::MAX_INSTRUCTIONS {
        return None;
    }
    move_jumps(&mut new, &moved, first_loop)?;
    // The loops were added in the order of `wrapped`.
    for (number, wrapped) in wrapped.iter().enumerate() {
        let body_start = u16::try_from(moved.0.get(wrapped.begin)? + 3).ok()?;
        let loop_end = u16::try_from(nexts.get(number)? + 1).ok()?;
        new.instructions[nexts[number]] = Instruction::LoopNext { body_start, loop_end };
        let params = new.instruction_data.loop_params.get_mut(first_loop + number)?;
        params.body_start = body_start;
        params.loop_end = loop_end;
    }
    Some(new)
}

/// The comprehensions in which a condition can fail outside of any loop in them.
fn to_wrap(program: &Program) -> Option<Vec<Wrapped>> {
    let mut wrapped = Vec::new();
    for (begin, instruction) in program.instructions.iter().enumerate() {
        let Instruction::ComprehensionBegin { params_index } = instruction else { continue };
        let params = program.instruction_data.get_comprehension_begin_params(*params_index)?;
        let end = usize::from(params.comprehension_end).checked_sub(1)?;
        if !matches!(program.instructions.get(end)?, Instruction::ComprehensionEnd {}) {
            return None;
        }
        if fails_directly(program, begin + 1, end)? {
            wrapped.push(Wrapped { begin, end, unused: (params.value_reg, params.key_reg) });
        }
    }
    Some(wrapped)
}

fn fails_directly(program: &Program, start: usize, end: usize) -> Option<bool> {
    let mut position = start;
    while position < end {
        position = match program.instructions.get(position)? {
            Instruction::LoopStart { params_index } => {
                usize::from(program.instruction_data.get_loop_params(*params_index)?.loop_end)
            }
            Instruction::ComprehensionBegin { params_index } => {
                let params = program.instruction_data.get_comprehension_begin_params(*params_index)?;
                usize::from(params.comprehension_end)
            }
            // Moves and yields get a guard.
            Instruction::Guard { .. }
            | Instruction::AssertEq { .. }
            | Instruction::Move { .. }
            | Instruction::ComprehensionYield { .. } => return Some(true),
            _ => position + 1,
        };
    }
    Some(false)
}

fn move_jumps(program: &mut Program, moved: &Moved, loops: usize) -> Option<()> {
    for instruction in &mut program.instructions {
        match instruction {
            Instruction::LoopNext { body_start, loop_end } => {
                *body_start = moved.u16(*body_start)?;
                *loop_end = moved.u16(*loop_end)?;
            }
            Instruction::LogicalBlockStart { end_pc, .. }
            | Instruction::AllOfNext { end_pc, .. }
            | Instruction::AnyOfNext { end_pc, .. } => *end_pc = moved.u16(*end_pc)?,
            _ => {}
        }
    }
    for params in program.instruction_data.loop_params.iter_mut().take(loops) {
        params.body_start = moved.u16(params.body_start)?;
        params.loop_end = moved.u16(params.loop_end)?;
    }
    for params in &mut program.instruction_data.comprehension_begin_params {
        params.body_start = moved.u16(params.body_start)?;
        params.comprehension_end = moved.u16(params.comprehension_end)?;
    }
    for info in &mut program.rule_infos {
        for start in Rc::make_mut(&mut info.definitions).iter_mut().flatten() {
            *start = moved.u32(*start)?;
        }
        for start in info.destructuring_blocks.iter_mut().flatten() {
            *start = moved.u32(*start)?;
        }
    }
    for start in program.entry_points.values_mut() {
        *start = *moved.0.get(*start)?;
    }
    program.main_entry_point = moved.u32(program.main_entry_point)?;
    Some(())
}
