//! Values that are put into a compiled program as literals, and how large they may be.
//!
//! A value may hold another many times over at the price of one, so what it comes to written out can be exponential in
//! the text of a policy: `s1 := [s0, s0]`, and so on. Whoever walks a value is to ask first.
#![forbid(unsafe_code)]

use regorus::rvm::Program;
use regorus::Value;

/// Values inside each other that one may have: more cannot be written as a result.
const MAX_DEPTH: usize = crate::json::MAX_DEPTH as usize;
/// Members of a value that is found ahead, counted at each place where it has them: what an input may have.
const MAX_MEMBERS: usize = 1 << 20;
/// Members of a value that is looked for among the literals there are.
const MAX_COMPARED: usize = 64;
/// Bytes of text that count as a member.
const TEXT_BYTES: usize = 32;

/// Whether the value may be walked as a whole.
pub fn is_bounded(value: &Value) -> bool {
    fits(value, MAX_DEPTH, &mut { MAX_MEMBERS })
}

/// The place of a literal; None where the program has no more of them. Only small ones are looked for among those there
/// are: it would take time that grows with the square of what is put in.
pub fn place(program: &mut Program, value: Value) -> Option<u16> {
    if fits(&value, MAX_DEPTH, &mut { MAX_COMPARED }) {
        return u16::try_from(program.add_literal(value)).ok();
    }
    let place = u16::try_from(program.literals.len()).ok()?;
    program.literals.push(value);
    Some(place)
}

/// Whether there is no more in it than is left, nor deeper; takes from what is left.
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
