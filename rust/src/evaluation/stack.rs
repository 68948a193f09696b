//! Every evaluation runs on a stack of one fixed size, on whatever thread [ENG-8].
//!
//! A set may be 64 rules deep with 32 levels of expression each: the interpreter was measured to need just over 4 MB
//! for that, and a thread may have 128 KB. Values that a policy builds may be nested more deeply still, and the engine
//! walks them by recursion. The stack is address space, and takes memory only where it is used.
#![forbid(unsafe_code)]

use corosensei::on_stack;
use corosensei::stack::DefaultStack;
use std::cell::Cell;
use std::time::Duration;

/// Bytes of address space: enough for five million nested values, more than can be built within [`MAX_TIMEOUT`]
/// (measured: 0.8 million a second compiled, 0.3 interpreted).
const STACK_BYTES: usize = 512 << 20;

/// The longest that one call may take, whatever timeout is given.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(5);

pub const NO_STACK: &str = "engine.no-stack";

thread_local! {
    static SPARE: Cell<Option<DefaultStack>> = const { Cell::new(None) };
}

/// Runs `work` on the large stack of this thread; None if there is no address space for one.
pub fn on_large_stack<T>(work: impl FnOnce() -> T) -> Option<T> {
    let mut stack = match SPARE.take() {
        Some(stack) => stack,
        None => DefaultStack::new(STACK_BYTES).ok()?,
    };
    let result = on_stack(&mut stack, work);
    SPARE.set(Some(stack));
    Some(result)
}
