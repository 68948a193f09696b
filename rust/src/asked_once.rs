//! What all definitions of a set ask first is asked once: where the answer is no, they are passed over together [ENG-11].
//!
//! The machine can pass over a definition whose arguments do not fit, with all bodies that it has. So definitions that
//! begin with the same rule become the bodies of one, and the question is asked where arguments are taken.
#![forbid(unsafe_code)]

use regorus::rvm::instructions::GuardMode;
use regorus::rvm::program::{RuleInfo, RuleType};
use regorus::rvm::{Instruction, Program};
use regorus::Rc;
use std::collections::BTreeMap;

/// A rule that is asked for, and how its value is looked at; behind them the register that takes it.
#[derive(Clone, Copy)]
struct Question(u16, GuardMode, u8);

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

/// Puts such definitions together; gives where each question begins now, with the body that it is taken from.
pub fn ask_once(program: &mut Program) -> BTreeMap<usize, usize> {
    let mut asked = BTreeMap::new();
    for rule in 0..program.rule_infos.len() {
        let info = &program.rule_infos[rule];
        let is_set = info.rule_type == RuleType::PartialSet && info.function_info.is_none();
        if !is_set || !info.else_bodies.is_empty() {
            continue;
        }
        let Some(groups) = grouped(program, info) else { continue };
        let mut blocks = Vec::new();
        for (bodies, question) in &groups {
            let block = match (question, bodies.as_slice()) {
                (Some(question), [first, _, ..]) => add_block(program, *first, *question),
                _ => None,
            };
            asked.extend(block);
            blocks.push(block.and_then(|(start, _)| u32::try_from(start).ok()));
        }
        if blocks.iter().all(Option::is_none) {
            continue;
        }
        let info = &mut program.rule_infos[rule];
        info.destructuring_blocks = blocks;
        info.definitions = Rc::new(groups.into_iter().map(|(bodies, _)| bodies).collect());
    }
    asked
}

/// The bodies of a rule's definitions, those together that stand behind each other and ask the same; None where a
/// definition has several by itself.
fn grouped(program: &Program, info: &RuleInfo) -> Option<Vec<(Vec<u32>, Option<Question>)>> {
    let mut groups: Vec<(Vec<u32>, Option<Question>)> = Vec::new();
    for bodies in info.definitions.iter() {
        let [body] = bodies.as_slice() else { return None };
        let question = question(program, *body);
        match groups.last_mut() {
            Some((together, before)) if question.is_some() && *before == question => together.push(*body),
            _ => groups.push((vec![*body], question)),
        }
    }
    Some(groups)
}

/// What a body begins with, if that is nothing but a look at a rule.
fn question(program: &Program, body: u32) -> Option<Question> {
    let steps = program.instructions.get(usize::try_from(body).ok()?..)?;
    let is_root = |step: &&Instruction| matches!(step, Instruction::LoadInput { .. } | Instruction::LoadData { .. });
    let roots = steps.iter().skip(1).take_while(is_root).count();
    match steps.get(..roots + 3)? {
        [Instruction::RuleInit { .. }, .., Instruction::CallRule { dest, rule_index }, Instruction::Guard { register, mode }]
            if dest == register =>
        {
            Some(Question(*rule_index, *mode, *dest))
        }
        _ => None,
    }
}

/// The question by itself, behind all else; None where the program would get longer than jumps can reach.
fn add_block(program: &mut Program, body: u32, Question(asked, mode, dest): Question) -> Option<(usize, usize)> {
    let body = usize::try_from(body).ok()?;
    let start = program.instructions.len();
    let steps = [
        *program.instructions.get(body)?,
        Instruction::CallRule { dest, rule_index: asked },
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
