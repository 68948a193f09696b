//! Every evaluation runs on a stack of one stated size, whatever thread asks for it [ENG-8].
//!
//! A set may be 64 rules deep with 32 levels of expression each: the interpreter was measured to need just over 4 MB for
//! that, and a thread may have 128 KB. What a policy builds may be deeper still (each step can put a value into
//! another), and the engine walks values by recursion. The stack is address space, and memory only where it was used.
#![forbid(unsafe_code)]

use corosensei::on_stack;
use corosensei::stack::DefaultStack;
use std::cell::Cell;
use std::time::Duration;

/// Bytes of address space: five million values inside each other, more than [`MAX_TIMEOUT`] leaves time to build
/// (measured: 0.8 million a second compiled, 0.3 interpreted).
const STACK_BYTES: usize = 512 << 20;

/// The longest that one call may take, whatever is asked for.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(5);

pub const NO_STACK: &str = "engine.no-stack";

thread_local! {
    static SPARE: Cell<Option<DefaultStack>> = const { Cell::new(None) };
}

/// `work` on the large stack of this thread; None if there is no address space for one.
pub fn on_large_stack<T>(work: impl FnOnce() -> T) -> Option<T> {
    let mut stack = match SPARE.take() {
        Some(stack) => stack,
        None => DefaultStack::new(STACK_BYTES).ok()?,
    };
    let result = on_stack(&mut stack, work);
    SPARE.set(Some(stack));
    Some(result)
}
