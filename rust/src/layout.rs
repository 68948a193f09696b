//! Instructions put into a compiled program, with every jump moved along.
#![forbid(unsafe_code)]

use regorus::rvm::{Instruction, Program};
use regorus::Rc;
use std::collections::BTreeMap;

/// Where each old position is now. A jump to a position lands on what was put before it.
struct Moved(Vec<usize>);

impl Moved {
    fn u16(&self, position: u16) -> Option<u16> {
        u16::try_from(*self.0.get(usize::from(position))?).ok()
    }

    fn u32(&self, position: u32) -> Option<u32> {
        u32::try_from(*self.0.get(usize::try_from(position).ok()?)?).ok()
    }
}

/// The program with `inserts`, by the position they go before; None if it gets longer than jumps can reach.
pub fn insert(program: &Program, inserts: &BTreeMap<usize, Vec<Instruction>>) -> Option<Program> {
    let mut new = program.clone();
    new.instructions.clear();
    new.instruction_spans.clear();
    let mut moved = Moved(Vec::with_capacity(program.instructions.len() + 1));
    for (position, instruction) in program.instructions.iter().enumerate() {
        moved.0.push(new.instructions.len());
        let span = program.instruction_spans.get(position).cloned().flatten();
        for extra in inserts.get(&position).into_iter().flatten() {
            new.add_instruction(*extra, span.clone());
        }
        new.add_instruction(*instruction, span);
    }
    moved.0.push(new.instructions.len());
    if new.instructions.len() > Program::MAX_INSTRUCTIONS {
        return None;
    }
    move_instructions(&mut new.instructions, &moved)?;
    for params in &mut new.instruction_data.loop_params {
        params.body_start = moved.u16(params.body_start)?;
        params.loop_end = moved.u16(params.loop_end)?;
    }
    for params in &mut new.instruction_data.comprehension_begin_params {
        params.body_start = moved.u16(params.body_start)?;
        params.comprehension_end = moved.u16(params.comprehension_end)?;
    }
    for info in &mut new.rule_infos {
        for start in Rc::make_mut(&mut info.definitions).iter_mut().flatten() {
            *start = moved.u32(*start)?;
        }
        for start in info.destructuring_blocks.iter_mut().flatten() {
            *start = moved.u32(*start)?;
        }
    }
    for start in new.entry_points.values_mut() {
        *start = *moved.0.get(*start)?;
    }
    new.main_entry_point = moved.u32(new.main_entry_point)?;
    Some(new)
}

fn move_instructions(instructions: &mut [Instruction], moved: &Moved) -> Option<()> {
    for instruction in instructions {
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
    Some(())
}
