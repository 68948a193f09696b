//! The evaluation that runs on this thread: its deadline, its memory budget, its first failure.
//!
//! The compiled form treats an error inside a rule body as "this body does not hold", so a deny that meets a builtin
//! error would disappear. So failures are recorded here, beside the engine, and take precedence over whatever it
//! returns [ENG-7].
#![forbid(unsafe_code)]

use crate::failure::Failure;
use regorus::Value;
use std::cell::{Cell, RefCell};
use std::collections::{btree_map::Entry, BTreeMap};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// Bytes and members that the builtins of one evaluation may produce together.
pub const MAX_PRODUCED: usize = 128 << 20;

#[derive(Clone, Copy)]
struct Watch {
    deadline: Option<Instant>,
    strict: bool,
    left: usize,
}

thread_local! {
    static WATCH: Cell<Watch> = const {
        Cell::new(Watch { deadline: None, strict: true, left: MAX_PRODUCED })
    };
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// The value of each checked rule for each list of arguments, in this evaluation.
    static VALUES: RefCell<BTreeMap<(usize, Vec<Value>), Value>> = const { RefCell::new(BTreeMap::new()) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LATE: Cell<bool> = const { Cell::new(false) };
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Starts an evaluation, and drops what the previous one left.
pub fn start(deadline: Option<Instant>, strict: bool) {
    WATCH.set(Watch { deadline, strict, left: MAX_PRODUCED });
    FAILURE.set(None);
    VALUES.with_borrow_mut(BTreeMap::clear);
    LATE.set(false);
    ACTIVE.set(true);
}

/// Ends it: gives the failure that was recorded, and whether the deadline has passed.
pub fn finish() -> (Option<Failure>, bool) {
    ACTIVE.set(false);
    VALUES.with_borrow_mut(BTreeMap::clear);
    (FAILURE.take(), LATE.get())
}

/// Whether a panic on this thread would be the engine's, whose message may quote input.
pub fn is_active() -> bool {
    ACTIVE.get()
}

pub fn is_strict() -> bool {
    WATCH.get().strict
}

pub fn is_late() -> bool {
    WATCH.get().deadline.is_some_and(|at| Instant::now() > at)
}

/// Counts steps of a loop inside a builtin; an error once the deadline has passed, which is looked at now and then.
pub fn step(count: usize) -> anyhow::Result<()> {
    const BETWEEN_LOOKS: usize = 1 << 16;
    let steps = STEPS.get() + count;
    STEPS.set(steps % BETWEEN_LOOKS);
    if steps >= BETWEEN_LOOKS && is_late() {
        return Err(late());
    }
    Ok(())
}

/// Takes `weight` from the memory budget; false if there is not enough left.
pub fn spend(weight: usize) -> bool {
    let mut watch = WATCH.get();
    let Some(left) = watch.left.checked_sub(weight) else {
        return false;
    };
    watch.left = left;
    WATCH.set(watch);
    true
}

/// Records a failure; gives the error to return, which both forms pass on.
pub fn fail(code: &'static str, detail: &str) -> anyhow::Error {
    FAILURE.with_borrow_mut(|slot| {
        slot.get_or_insert_with(|| Failure::new(code, detail));
    });
    anyhow::Error::new(regorus::LimitError::RegexSizeLimitExceeded { limit: 0 })
}

/// Records that the deadline has passed.
pub fn late() -> anyhow::Error {
    LATE.set(true);
    anyhow::Error::new(regorus::LimitError::TimeLimitExceeded { elapsed: Duration::ZERO, limit: Duration::ZERO })
}

/// Whether the rule in `slot` gave no other value before for these arguments: within one evaluation input and data do
/// not change, so two different values are a conflict.
pub fn agrees(slot: usize, arguments: &[Value], value: &Value) -> bool {
    VALUES.with_borrow_mut(|values| match values.entry((slot, arguments.to_vec())) {
        Entry::Occupied(before) => before.get() == value,
        Entry::Vacant(place) => {
            place.insert(value.clone());
            true
        }
    })
}

/// Runs `work`; None if it panics. The message of the panic is not printed while the evaluation is active [ENG-9].
pub fn shielded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
