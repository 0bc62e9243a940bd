//! The memory budget of buffered request bodies: one bound for all callers together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of the budget.
const KIBIBYTE: usize = 1_024;
/// All buffered bodies together: at most 512 MiB, in KiB.
const MOST: usize = 512 * 1_024;

/// The budget has no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many large bodies are under way")]
pub(crate) struct BufferBudgetExceeded;

/// The budget for buffered bodies.
#[derive(Debug)]
pub(crate) struct BufferBudget(Arc<Semaphore>);

/// The part of the budget that one body uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct BufferPermit(Option<OwnedSemaphorePermit>);

impl BufferPermit {
    /// No part of the budget, for an empty body.
    pub(crate) const fn none() -> Self {
        Self(None)
    }
}

impl Default for BufferBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl BufferBudget {
    /// Grows the permit of a body to `size` bytes. It never waits: bodies that hold a part of the
    /// budget would wait for each other.
    pub(crate) fn grow(
        &self,
        permit: &mut BufferPermit,
        size: usize,
    ) -> Result<(), BufferBudgetExceeded> {
        let has = permit.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(size.div_ceil(KIBIBYTE).saturating_sub(has))
            .map_err(|_| BufferBudgetExceeded)?;
        if more == 0 {
            return Ok(());
        }
        let more = self.0.clone().try_acquire_many_owned(more).map_err(|_| BufferBudgetExceeded)?;
        match &mut permit.0 {
            Some(all) => all.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_the_budget_and_give_it_back() {
        let budget = BufferBudget::default();
        let (mut one, mut other) = (BufferPermit::none(), BufferPermit::none());
        assert_eq!(budget.grow(&mut one, (MOST - 1) * KIBIBYTE), Ok(()));
        assert_eq!(budget.grow(&mut other, 1), Ok(()));
        assert_eq!(budget.grow(&mut other, KIBIBYTE), Ok(()), "it was counted already");
        assert_eq!(budget.grow(&mut other, KIBIBYTE + 1), Err(BufferBudgetExceeded));
        drop(one);
        assert_eq!(budget.grow(&mut other, 64 * KIBIBYTE * KIBIBYTE), Ok(()));
        assert_eq!(budget.grow(&mut other, usize::MAX), Err(BufferBudgetExceeded));
    }
}
