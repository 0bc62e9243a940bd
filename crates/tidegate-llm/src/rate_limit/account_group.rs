//! What the accounts of one provider share.

use tidegate::{Engine, LimitError};
use tidegate_providers::Provider;

use super::all_keys::AllKeys;
use super::limit_view::LimitView;
use super::limits::AccountLimits;
use super::slot_groups::SlotGroups;
use super::waits::WaitLog;

/// What several accounts share, such as those of other keys at the same provider: limits on the calls
/// under way of models and endpoints hold over all of them, and waits are warned of once a minute for
/// a scope, with their number and the worst. Accounts of callers' keys may also share a
/// [ceiling](Self::with_ceiling). Cheap to clone; clones are the same group.
///
/// ```
/// use tidegate_llm::Credential;
/// use tidegate_llm::rate_limit::{Account, AccountGroup};
/// let group = AccountGroup::new();
/// let one = Account::builder("openai", &Credential::new("key-1")).group(&group).build()?;
/// let other = Account::builder("openai", &Credential::new("key-2")).group(&group).build()?;
/// # let _ = (one, other);
/// # Ok::<(), tidegate::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccountGroup {
    pub(super) slots: SlotGroups,
    pub(super) waits: WaitLog,
    /// What all keys of callers may use together.
    pub(super) all_keys: Option<AllKeys>,
}

impl AccountGroup {
    /// A group without accounts.
    #[must_use]
    pub fn new() -> Self {
        Self { slots: SlotGroups::default(), waits: WaitLog::each_minute(), all_keys: None }
    }

    /// The same group for accounts of keys that callers bring: besides all else they share a ceiling,
    /// as [`AccountLimits::all_keys`] sets it, in the store of an engine that all of them are on.
    /// Somebody with many keys would have as many limits without it.
    ///
    /// # Errors
    /// When the limits cannot be kept.
    pub fn with_ceiling(
        &self,
        provider: &Provider,
        engine: &Engine,
        limits: &AccountLimits,
    ) -> Result<Self, LimitError> {
        let all_keys = Some(AllKeys::new(provider, engine, limits)?);
        Ok(Self { all_keys, ..self.clone() })
    }

    /// Sets other limits for the ceiling, if there is one. What was spent counts on; whoever waits
    /// goes by the new ones at once.
    ///
    /// # Errors
    /// When the limits cannot be kept. Some of them may be in force then.
    pub fn configure(&self, limits: &AccountLimits) -> Result<(), LimitError> {
        self.all_keys.as_ref().map_or(Ok(()), |all_keys| all_keys.configure(limits))
    }

    /// The limits of the ceiling, as they are shown; none without one.
    pub async fn inspect(&self) -> Vec<LimitView> {
        match &self.all_keys {
            Some(all_keys) => all_keys.inspect().await,
            None => Vec::new(),
        }
    }
}

impl Default for AccountGroup {
    fn default() -> Self {
        Self::new()
    }
}
