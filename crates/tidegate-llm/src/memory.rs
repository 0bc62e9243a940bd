//! Memory limit for state that callers create by naming it: accounts of keys, call queues, and
//! learned limits of models.
//!
//! Each item is charged to a [`MemoryBudget`] by its measured size and refunds the charge when
//! dropped. Code that is about to create an item asks the budget for room first. If there is none,
//! the registered owners evict the items that are cheapest to lose. State that still limits calls
//! is never evicted, so a caller cannot escape a limit by naming many new models or keys.

mod budget;
mod second_chance;

pub use budget::MemoryBudget;
pub(crate) use budget::MemoryCharge;
pub(crate) use second_chance::SecondChanceMap;

/// What evicting an item would lose, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionCost {
    /// Nothing: the item can be recreated as it was.
    None,
    /// Learned limits, which the next response reports again.
    Learned,
    /// State that must be kept: tokens are spent, calls are in flight or waiting, or the item is
    /// held, exhausted or slowed down.
    MustKeep,
}
