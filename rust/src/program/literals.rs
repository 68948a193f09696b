//! Values that are added to a compiled program as literals, and their limits.
//!
//! A value may hold another several times and share it, so its size when written out can be exponential in the length
//! of a policy: `s1 := [s0, s0]`, and so on. So its size is checked before it is walked.
#![forbid(unsafe_code)]

use regorus::rvm::Program;
use regorus::Value;

/// Levels of nesting: more cannot be written as a result.
const MAX_DEPTH: usize = crate::json::MAX_DEPTH as usize;
/// Members of a value that is evaluated at load, counted wherever they occur: as many as an input may have.
const MAX_MEMBERS: usize = 1 << 20;
/// Members of a value that is looked up among the existing literals.
const MAX_COMPARED: usize = 64;
/// Bytes of text that count as a member.
const TEXT_BYTES: usize = 32;

/// Whether the value is small enough to be walked.
pub fn is_bounded(value: &Value) -> bool {
    fits(value, MAX_DEPTH, &mut { MAX_MEMBERS })
}

/// The index of a literal; None if the program has no more room. Only small ones are looked up among the existing
/// literals: with large ones the time would grow with the square of what is added.
pub fn place(program: &mut Program, value: Value) -> Option<u16> {
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
