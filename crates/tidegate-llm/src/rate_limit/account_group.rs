//! What the accounts of one provider share.

use super::slot_groups::SlotGroups;
use super::waits::WaitLog;

/// What several accounts share, such as those of other keys at the same provider: limits on the calls
/// under way of models and endpoints hold over all of them, and waits are warned of once a minute for
/// a scope, with their number and the worst. Cheap to clone; clones are the same group.
///
/// ```
/// use tidegate_llm::Credential;
/// use tidegate_llm::rate_limit::{Account, AccountGroup};
/// let group = AccountGroup::new();
/// let one = Account::builder("openai", &Credential::new("key-1")).group(&group).build()?;
/// let other = Account::builder("openai", &Credential::new("key-2")).group(&group).build()?;
/// # let _ = (one, other);
/// # Ok::<(), tidegate_llm::rate_limit::AccountError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccountGroup {
    pub(super) slots: SlotGroups,
    pub(super) waits: WaitLog,
}

impl AccountGroup {
    /// A group without accounts.
    #[must_use]
    pub fn new() -> Self {
        Self { slots: SlotGroups::default(), waits: WaitLog::each_minute() }
    }
}

impl Default for AccountGroup {
    fn default() -> Self {
        Self::new()
    }
}
