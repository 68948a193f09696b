//! The evaluation of views, and what bounds it: time, memory, stack.

pub mod batch;
pub mod stack;
pub mod tooling;
pub mod watch;

use crate::failure::PolicyFault;

/// Runs the loading of a policy set on a large stack. A panic is a fault of the set.
pub fn loading<T>(
    strict_builtin_errors: bool,
    work: impl FnOnce() -> Result<T, PolicyFault>,
) -> Result<T, PolicyFault> {
    let result = stack::on_large_stack(|| {
        watch::start(None, strict_builtin_errors);
        let result = watch::shielded(work);
        watch::finish();
        result.ok_or_else(|| PolicyFault::new("policy.panic", "the engine panicked while it read the set"))
    });
    result.ok_or_else(|| PolicyFault::new(stack::NO_STACK, "no address space is left for a stack"))??
}
