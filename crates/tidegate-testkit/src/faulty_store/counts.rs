//! Counts the submissions and operations of a faulty store.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::Operation;

/// The kind of an operation, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// [`Operation::Take`]
    Take,
    /// [`Operation::Peek`]
    Peek,
    /// [`Operation::Reserve`]
    Reserve,
    /// [`Operation::Settle`]
    Settle,
    /// [`Operation::Release`]
    Release,
    /// [`Operation::Renew`]
    Renew,
    /// [`Operation::Hold`]
    Hold,
    /// [`Operation::Reset`]
    Reset,
}

impl OperationKind {
    const COUNT: usize = 8;

    /// Returns the kind of an operation.
    ///
    /// # Panics
    /// For an operation that the testkit does not know.
    #[must_use]
    pub fn of(operation: &Operation<'_>) -> Self {
        match operation {
            Operation::Take(_) => Self::Take,
            Operation::Peek(_) => Self::Peek,
            Operation::Reserve { .. } => Self::Reserve,
            Operation::Settle { .. } => Self::Settle,
            Operation::Release { .. } => Self::Release,
            Operation::Renew { .. } => Self::Renew,
            Operation::Hold { .. } => Self::Hold,
            Operation::Reset { .. } => Self::Reset,
            other => panic!("{other:?} is not supported by the testkit"),
        }
    }
}

/// Submissions and operations by kind.
#[derive(Debug, Default)]
pub(super) struct Counts {
    submissions: AtomicUsize,
    submissions_with: [AtomicUsize; OperationKind::COUNT],
    operations: [AtomicUsize; OperationKind::COUNT],
}

impl Counts {
    pub(super) fn count(&self, operations: &[Operation<'_>]) {
        self.submissions.fetch_add(1, Ordering::SeqCst);
        let mut by_kind = [0; OperationKind::COUNT];
        for operation in operations {
            by_kind[OperationKind::of(operation) as usize] += 1;
        }
        for (kind, count) in by_kind.into_iter().enumerate() {
            self.operations[kind].fetch_add(count, Ordering::SeqCst);
            self.submissions_with[kind].fetch_add(count.min(1), Ordering::SeqCst);
        }
    }

    pub(super) fn submissions(&self) -> usize {
        self.submissions.load(Ordering::SeqCst)
    }

    pub(super) fn submissions_with(&self, kind: OperationKind) -> usize {
        self.submissions_with[kind as usize].load(Ordering::SeqCst)
    }

    pub(super) fn operations(&self) -> usize {
        self.operations.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    pub(super) fn operations_by_kind(&self, kind: OperationKind) -> usize {
        self.operations[kind as usize].load(Ordering::SeqCst)
    }
}
