//! Builder for accounts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tidegate::clock::TokioClock;
use tidegate::pacer::{PoolSize, SlotPool};
use tidegate::{Engine, LimitError};
use tidegate_providers::{Credential, Dialect, Dimension, Endpoint, Provider};

use super::account::{Account, Settings, default_concurrency};
use super::account_group::AccountGroup;
use super::all_keys::AllKeys;
use super::bucket::local_engine;
use super::limits::AccountLimits;
use super::model_limits::ModelParams;
use super::send_rate::{MARGIN, Ramp};
use super::slot_groups::SlotGroups;
use super::token_accounting::TokenAccounting;
use super::wait_log::WaitLog;
use crate::call::LimitScope;
use crate::memory::MemoryBudget;
use crate::plan::{Constraint, ConstraintSource};
use crate::telemetry::{Observer, Observers};

/// Builder for an [`Account`].
#[derive(Debug)]
#[must_use = "call `build` to create the account"]
pub struct AccountBuilder {
    scope: LimitScope,
    dialect: Dialect,
    engine: Option<Engine>,
    limits: AccountLimits,
    concurrency: Option<PoolSize>,
    pool: Option<SlotPool>,
    groups: SlotGroups,
    accounting: Option<TokenAccounting>,
    margin: u32,
    ramp: Option<Ramp>,
    observers: Observers,
    waits: WaitLog,
    all_keys: Option<AllKeys>,
    memory: MemoryBudget,
}

impl AccountBuilder {
    pub(super) fn new(provider: Provider, credential: &Credential) -> Self {
        Self {
            dialect: Dialect::of(&provider),
            scope: LimitScope::new(provider, credential),
            engine: None,
            limits: AccountLimits::default(),
            concurrency: None,
            pool: None,
            groups: SlotGroups::default(),
            accounting: None,
            margin: MARGIN,
            ramp: None,
            observers: Observers::default(),
            waits: WaitLog::each_call(),
            all_keys: None,
            memory: MemoryBudget::unlimited(),
        }
    }

    /// Sets the dialect. Default: derived from the provider's name.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the engine whose store keeps the limits. Default: an in-process engine on tokio's
    /// clock.
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets limits for all models together. [`ConstraintSource::Override`] limits are never
    /// exceeded; others are replaced by what the provider reports. Default: none; limits are
    /// learned per model.
    pub fn limits(mut self, constraint: Constraint, source: ConstraintSource) -> Self {
        self.limits = self.limits.all(constraint, source);
        self
    }

    /// Adds limits of one endpoint, within those of the account.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.limits = self.limits.endpoint(endpoint, constraint);
        self
    }

    /// Adds limits shared by all models that match `pattern` ([`AccountLimits::model`]), within
    /// those of the account.
    pub fn model(mut self, pattern: &str, constraint: Constraint) -> Self {
        self.limits = self.limits.model(pattern, constraint);
        self
    }

    /// Replaces all limits given so far.
    pub fn account_limits(mut self, limits: AccountLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the concurrency over all models and endpoints. Default: [`default_concurrency`] of the
    /// dialect.
    pub fn concurrency(mut self, size: PoolSize) -> Self {
        self.concurrency = Some(size);
        self
    }

    /// Shares a concurrency pool with other accounts, such as those of other keys at the same
    /// provider. Default: a pool of its own.
    pub fn pool(mut self, pool: &SlotPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Adds the account to a group: it shares the concurrency limits of models and endpoints, the
    /// logging of waits, and the group's ceiling if there is one, which must be on the same engine.
    /// Default: no group; every wait is logged.
    pub fn group<T>(mut self, group: &AccountGroup<T>) -> Self {
        self.groups = group.slots.clone();
        self.waits = group.waits.clone();
        self.all_keys = group.all_keys.clone();
        self
    }

    /// Sets the initial token accounting. Default: that of the dialect.
    #[cfg(test)]
    pub(crate) fn accounting(mut self, accounting: TokenAccounting) -> Self {
        self.accounting = Some(accounting);
        self
    }

    /// Sends at exactly the configured rates instead of 1.5 % below. Meant for rates that the
    /// program chooses itself: a provider that counts each second separately refuses some calls at
    /// exactly its limit. After the first refusal the margin is kept.
    pub fn without_margin(mut self) -> Self {
        self.margin = 0;
        self
    }

    /// Ramps the request rate up from `floor` per minute to the limit within `over`, at first and
    /// after a pause. For providers that refuse sharp rises. Default: no ramp.
    pub fn ramp_up(mut self, floor: u64, over: Duration) -> Self {
        self.ramp = Some(Ramp { floor, over });
        self
    }

    /// Adds an observer. Default: [`tracing_observer`](crate::telemetry::tracing_observer), if none
    /// is added.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.add(observer);
        self
    }

    /// Logs waits at most once a minute per scope, with their number and the longest, instead of
    /// each one. For servers.
    pub fn log_waits_per_minute(mut self) -> Self {
        self.waits = WaitLog::each_minute();
        self
    }

    /// Charges the account's memory to `budget`. Models for which it has no room share one queue.
    /// Default: no limit.
    pub fn memory(mut self, budget: &MemoryBudget) -> Self {
        self.memory = budget.clone();
        self
    }

    /// Builds the account.
    ///
    /// # Errors
    /// If a limit is invalid, or the engine has a different limit for the same scope.
    pub fn build(self) -> Result<Account, LimitError> {
        let accounting = self.accounting.unwrap_or_else(|| TokenAccounting::of(self.dialect));
        let model_params = ModelParams {
            engine: self.engine.unwrap_or_else(local_engine),
            tokens: tokens_of(self.dialect),
            initial_rule: accounting.initial_rule(),
            clock: TokioClock::new(),
        };
        let settings = Settings {
            accounting,
            model_params,
            margin: self.margin,
            ramp: ArcSwapOption::from(self.ramp.map(Arc::new)),
            observer: self.observers.get().clone(),
            waits: self.waits,
            groups: self.groups,
            all_keys: self.all_keys,
            memory: self.memory,
            known_models: Mutex::default(),
        };
        let pool = self.pool.unwrap_or_else(|| {
            let size = self.concurrency.unwrap_or_else(|| default_concurrency(self.dialect));
            log_pool(self.scope.provider(), size);
            SlotPool::new(&settings.model_params.engine, size)
        });
        Account::open(self.scope, settings, self.limits, pool.member())
    }
}

/// Logs the creation of a provider's concurrency pool with its initial size.
pub(crate) fn log_pool(provider: &Provider, size: PoolSize) {
    let limit = match size {
        PoolSize::Fixed(limit) => limit,
        PoolSize::Adaptive(tuning) => tuning.start,
        _ => return,
    };
    tracing::info!("Created concurrency semaphore for provider '{provider}' with limit={limit}");
}

/// Token limits that a provider is known to have.
pub(super) const fn tokens_of(dialect: Dialect) -> &'static [Dimension] {
    match dialect {
        Dialect::Anthropic => &[Dimension::InputTokens, Dimension::OutputTokens],
        Dialect::Gemini => &[Dimension::InputTokens],
        Dialect::DeepSeek | Dialect::Ollama | Dialect::Mock => &[],
        _ => &[Dimension::Tokens],
    }
}
