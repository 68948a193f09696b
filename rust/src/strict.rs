//! A compiled program whose operators and builtins fail as strictly as the interpreter's [ENG-7].
//!
//! The crate's virtual machine turns any error in a rule body into "the body does not hold". So each arithmetic
//! instruction is replaced, one for one, by a call of a function of ours, and each builtin by its guarded self: both
//! record their failure where no body can swallow it.
#![forbid(unsafe_code)]

use crate::builtins::{self, Function};
use crate::watch;
use anyhow::Result;
use regorus::rvm::instructions::BuiltinCallParams;
use regorus::rvm::program::BuiltinInfo;
use regorus::rvm::{Instruction, Program};
use regorus::unstable::{numbers, ArithOp, Expr, Ref, Span};
use regorus::Value;

/// Bits of an integer: well above any amount, time or token count, far below what takes time.
const MAX_INTEGER_BITS: u64 = 4_096;

const OPERATORS: [(&str, Function); 5] = [
    ("cmf.plus", |s, p, a, _| arithmetic(&ArithOp::Add, s, p, a)),
    ("cmf.minus", |s, p, a, _| arithmetic(&ArithOp::Sub, s, p, a)),
    ("cmf.times", |s, p, a, _| arithmetic(&ArithOp::Mul, s, p, a)),
    ("cmf.divide", |s, p, a, _| arithmetic(&ArithOp::Div, s, p, a)),
    ("cmf.remainder", |s, p, a, _| arithmetic(&ArithOp::Mod, s, p, a)),
];

/// The same program with every fallible step guarded; None if a step cannot be.
pub fn harden(program: &Program) -> Option<Program> {
    let mut program = program.clone();
    for (position, info) in program.builtin_info_table.iter().enumerate() {
        let entry = builtins::entries().get(info.name.as_str())?;
        program.resolved_builtins.get_mut(position)?.0 = entry.call;
    }
    let first_operator = u16::try_from(program.builtin_info_table.len()).ok()?;
    for (name, call) in OPERATORS {
        program.builtin_info_table.push(BuiltinInfo { name: name.to_owned(), num_args: 2 });
        program.resolved_builtins.push((call, 2));
    }
    for position in 0..program.instructions.len() {
        let (operator, dest, left, right) = match program.instructions[position] {
            Instruction::Add { dest, left, right } => (0, dest, left, right),
            Instruction::Sub { dest, left, right } => (1, dest, left, right),
            Instruction::Mul { dest, left, right } => (2, dest, left, right),
            Instruction::Div { dest, left, right } => (3, dest, left, right),
            Instruction::Mod { dest, left, right } => (4, dest, left, right),
            // Its errors would be swallowed too; the Rego compiler of this release does not emit them.
            Instruction::And { .. } | Instruction::Or { .. } | Instruction::HostAwait { .. } => return None,
            _ => continue,
        };
        let params_index = u16::try_from(program.instruction_data.builtin_call_params.len()).ok()?;
        program.instruction_data.add_builtin_call_params(BuiltinCallParams {
            dest,
            builtin_index: first_operator.checked_add(operator)?,
            num_args: 2,
            args: [left, right, 0, 0, 0, 0, 0, 0],
        });
        program.instructions[position] = Instruction::BuiltinCall { params_index };
    }
    Some(program)
}

fn arithmetic(op: &ArithOp, span: &Span, params: &[Ref<Expr>], args: &[Value]) -> Result<Value> {
    let strict = watch::is_strict();
    let outcome = match (op, args, params) {
        (ArithOp::Sub, [Value::Set(left), Value::Set(right)], _) => Ok(Value::from(left.difference(right))),
        (_, [left, right], [first, second, ..]) => {
            numbers::arithmetic_operation(span, op, first, second, left.clone(), right.clone(), strict)
        }
        _ => return Err(watch::fail("engine.internal", "operator")),
    };
    match outcome {
        Ok(value) if is_small(&value) => Ok(value),
        Ok(_) => Err(watch::fail("engine.builtin-limit", "arithmetic")),
        Err(_) if strict => Err(watch::fail("engine.builtin-error", "arithmetic")),
        Err(_) => Ok(Value::Undefined),
    }
}

fn is_small(value: &Value) -> bool {
    match value {
        Value::Number(number) if value.as_i64().is_err() && value.as_u64().is_err() => {
            number.as_big().is_none_or(|big| big.bits() <= MAX_INTEGER_BITS)
        }
        _ => true,
    }
}
