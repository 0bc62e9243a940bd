//! A bound on the memory of what callers make by naming it: accounts of keys, queues and what was
//! learned of models.
//!
//! Each of these is charged to a [`MemoryBudget`] by its measured size, and gives that back when it is
//! dropped. Before something new is made the budget is asked for room; if there is none, those who
//! [registered](MemoryBudget::register) with it forget what is of the least use ([`Loss`]). What owes something is
//! never forgotten: whoever names a lot of new things must not be rid of a limit by that.

mod budget;
mod second_chance;

pub use budget::MemoryBudget;
pub(crate) use budget::MemoryCharge;
pub(crate) use second_chance::SecondChanceMap;

/// What is lost when something is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionCost {
    /// Nothing: it is made anew as it was.
    None,
    /// What was learned, which the next answer tells again.
    Learned,
    /// A debt: something is spent, held, exhausted, slowed down, under way or waited for.
    MustKeep,
}
