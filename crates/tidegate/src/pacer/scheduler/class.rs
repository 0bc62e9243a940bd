//! Priority classes, and the shares that lower classes are guaranteed.

/// Priority of a request, relative to others of the same pacer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Goes first.
    High,
    /// Goes next. Guaranteed 20 % by default.
    #[default]
    Normal,
    /// Goes last. Guaranteed 5 % by default.
    Low,
}

impl Priority {
    #[cfg(test)]
    pub(in crate::pacer) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

/// Guaranteed shares of the classes, in percent.
pub(crate) type GuaranteedShares = [u8; 3];

/// What classes are owed of their guaranteed shares, in hundredths of cost.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct ClassCredit([u128; 3]);

impl ClassCredit {
    /// Chooses the next class, given the cost of the first waiter of each: the lowest class that is
    /// owed enough for it, else the highest.
    pub(in crate::pacer) fn choose(&self, firsts: [Option<u64>; 3]) -> Option<usize> {
        let is_owed = |class: &usize| {
            firsts[*class].is_some_and(|cost| self.0[*class] >= u128::from(cost) * 100)
        };
        (0..3).rev().find(is_owed).or_else(|| firsts.iter().position(Option::is_some))
    }

    /// Records a grant to a class. A class accrues credit only while it could go, and not more than
    /// a few turns' worth.
    pub(in crate::pacer) fn record_grant(
        &mut self,
        own: usize,
        cost: u64,
        can_run: [bool; 3],
        (shares, quantum): (&GuaranteedShares, u64),
    ) {
        let most = u128::from(quantum) * 400;
        for (class, credit) in self.0.iter_mut().enumerate() {
            let due = u128::from(cost) * u128::from(shares[class]);
            *credit = if can_run[class] { (*credit + due).min(most.max(*credit)) } else { 0 };
        }
        self.0[own] = self.0[own].saturating_sub(u128::from(cost) * 100);
    }
}
