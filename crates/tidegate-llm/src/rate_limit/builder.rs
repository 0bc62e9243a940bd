//! Accounts in the making.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tidegate::Engine;
use tidegate::clock::TokioClock;
use tidegate::pacer::{PoolSize, SlotPool};
use tidegate_providers::{Credential, Dialect, Dimension, Endpoint, Provider};

use super::account::{Account, AccountError, Settings, default_concurrency};
use super::account_group::AccountGroup;
use super::all_keys::AllKeys;
use super::bucket::own_engine;
use super::charging::Charging;
use super::limits::AccountLimits;
use super::pace::{MARGIN, Ramp};
use super::quota::QuotaTerms;
use super::slot_groups::SlotGroups;
use super::waits::WaitLog;
use crate::call::Scope;
use crate::memory::MemoryBudget;
use crate::plan::{Constraint, Source};
use crate::telemetry::{Observer, tracing_observer};

/// An [`Account`] in the making.
#[derive(Debug)]
#[must_use = "an account is made by `build`"]
pub struct AccountBuilder {
    scope: Scope,
    dialect: Dialect,
    engine: Option<Engine>,
    limits: AccountLimits,
    concurrency: Option<PoolSize>,
    pool: Option<SlotPool>,
    groups: SlotGroups,
    charging: Option<Charging>,
    margin: u32,
    ramp: Option<Ramp>,
    observer: Option<Arc<dyn Observer>>,
    waits: WaitLog,
    all_keys: Option<AllKeys>,
    memory: MemoryBudget,
}

impl AccountBuilder {
    pub(super) fn new(provider: Provider, credential: &Credential) -> Self {
        Self {
            dialect: Dialect::of(&provider),
            scope: Scope::new(provider, credential),
            engine: None,
            limits: AccountLimits::default(),
            concurrency: None,
            pool: None,
            groups: SlotGroups::default(),
            charging: None,
            margin: MARGIN,
            ramp: None,
            observer: None,
            waits: WaitLog::each_call(),
            all_keys: None,
            memory: MemoryBudget::unlimited(),
        }
    }

    /// The dialect, if the provider's name does not tell.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// The engine whose store keeps the limits. Default: one of its own, in this process, on tokio's
    /// time.
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// The limits of the account, for all models together. A wish ([`Source::Override`]) is never
    /// exceeded; anything else is replaced by what the provider tells. Default: none; limits are
    /// learned, for each model by itself.
    pub fn limits(mut self, constraint: Constraint, source: Source) -> Self {
        self.limits = self.limits.all(constraint, source);
        self
    }

    /// Limits of one endpoint, inside those of the account.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.limits = self.limits.endpoint(endpoint, constraint);
        self
    }

    /// Limits of the models that match a pattern together ([`AccountLimits::model`]), inside those of
    /// the account.
    pub fn model(mut self, pattern: &str, constraint: Constraint) -> Self {
        self.limits = self.limits.model(pattern, constraint);
        self
    }

    /// All limits, in place of those that were given before.
    pub fn configured(mut self, limits: AccountLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How many calls may be under way, over all models and endpoints. Default:
    /// [`default_concurrency`] of the dialect.
    pub fn concurrency(mut self, size: PoolSize) -> Self {
        self.concurrency = Some(size);
        self
    }

    /// Shares the calls under way with other accounts, such as those of other keys at the same
    /// provider. The pool says how many there may be. Default: a pool of its own.
    pub fn pool(mut self, pool: &SlotPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Shares the limits on calls under way of models and endpoints, and the warnings of waits, with
    /// the other accounts of a group, and its ceiling if it has one, which must be on the same engine.
    /// Default: no group; each wait is warned of.
    pub fn group(mut self, group: &AccountGroup) -> Self {
        self.groups = group.slots.clone();
        self.waits = group.waits.clone();
        self.all_keys = group.all_keys.clone();
        self
    }

    /// How the provider charges, before anything was learned. Default: the rule of the dialect.
    #[cfg(test)]
    pub(crate) fn charging(mut self, charging: Charging) -> Self {
        self.charging = Some(charging);
        self
    }

    /// Sends at exactly the rates that were set, instead of 1.5 % below. For rates that are the
    /// program's own choice; a provider that counts each second by itself refuses now and then at
    /// exactly its limit. After the first such refusal the margin is kept.
    pub fn exact(mut self) -> Self {
        self.margin = 0;
        self
    }

    /// Grows to the limit from a floor, in requests per minute, within a time, at first and after a
    /// pause: for providers that refuse sharp rises. Default: no ramp.
    pub fn ramp_up(mut self, floor: u64, over: Duration) -> Self {
        self.ramp = Some(Ramp { floor, over });
        self
    }

    /// Who is told what happens. Default: [`tracing_observer`].
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Warns of waits once a minute for a scope, with their number and the worst, instead of each.
    /// For servers.
    pub fn warn_each_minute(mut self) -> Self {
        self.waits = WaitLog::each_minute();
        self
    }

    /// Charges what the account takes of memory to a budget. Models for which that has no room share one
    /// queue. Default: no bound.
    pub fn memory(mut self, budget: &MemoryBudget) -> Self {
        self.memory = budget.clone();
        self
    }

    /// The account.
    ///
    /// # Errors
    /// When its limits cannot be kept, or its engine has other limits of the same scope.
    pub fn build(self) -> Result<Account, AccountError> {
        let charging = self.charging.unwrap_or_else(|| Charging::of(self.dialect));
        let quota = QuotaTerms {
            engine: self.engine.unwrap_or_else(own_engine),
            tokens: tokens_of(self.dialect),
            first_rule: charging.first_rule(),
            clock: TokioClock::new(),
        };
        let settings = Settings {
            charging,
            quota,
            margin: self.margin,
            ramp: ArcSwapOption::from(self.ramp.map(Arc::new)),
            observer: self.observer.unwrap_or_else(tracing_observer),
            waits: self.waits,
            groups: self.groups,
            all_keys: self.all_keys,
            memory: self.memory,
            quotas: Mutex::default(),
        };
        let pool = self.pool.unwrap_or_else(|| {
            let size = self.concurrency.unwrap_or_else(|| default_concurrency(self.dialect));
            log_pool(self.scope.provider(), size);
            SlotPool::new(&settings.quota.engine, size)
        });
        Account::open(self.scope, settings, self.limits, pool.member())
    }
}

/// Logs that a pool of calls under way was made for a provider, and its size to begin with.
pub fn log_pool(provider: &Provider, size: PoolSize) {
    let limit = match size {
        PoolSize::Fixed(limit) => limit,
        PoolSize::Adaptive(tuning) => tuning.start,
        _ => return,
    };
    tracing::info!("Created concurrency semaphore for provider '{provider}' with limit={limit}");
}

/// The limits on tokens that a provider is known to have.
pub(super) const fn tokens_of(dialect: Dialect) -> &'static [Dimension] {
    match dialect {
        Dialect::Anthropic => &[Dimension::InputTokens, Dimension::OutputTokens],
        Dialect::Gemini => &[Dimension::InputTokens],
        Dialect::DeepSeek | Dialect::Ollama | Dialect::Mock => &[],
        _ => &[Dimension::Tokens],
    }
}
