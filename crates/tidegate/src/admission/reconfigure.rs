//! Changing the rules under live traffic: first the limits, then the one pointer that checks read.

use std::sync::{Arc, PoisonError};

use tidegate_core::{Limit, Policy, PolicyChange};

use crate::live_limit::{LimitWatcher, LiveLimit};

use super::Admission;
use super::active_rules::Tiers;
use super::rules::{AdmissionError, Rules};

impl Admission {
    /// Replaces the rules atomically: no check sees a mixture of old and new. Existing buckets are
    /// converted according to `change`.
    ///
    /// ```
    /// use tidegate::admission::{Admission, Rules};
    /// use tidegate::{Engine, Policy, PolicyChange};
    /// let admission = Admission::new(&Engine::new(), Rules::default())?;
    /// let faster = Policy::per_second(200).capacity(400).build()?;
    /// admission.reconfigure(admission.rules().client(faster), PolicyChange::KeepTokens)?;
    /// assert!(admission.reconfigure(Rules::default().backpressure(0), PolicyChange::KeepTokens).is_err());
    /// assert_eq!(admission.rules().client_policy(), Some(&faster));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the new rules are invalid. The old rules stay in force.
    pub fn reconfigure(&self, rules: Rules, change: PolicyChange) -> Result<(), AdmissionError> {
        rules.check()?;
        let mut tiers = self.shared.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = [&tiers.client, &tiers.organization];
        let policies = [rules.client, rules.organization];
        // All checks come before the first change.
        let mut new = [None, None];
        for (index, (known, policy)) in known.into_iter().zip(policies).enumerate() {
            match (known, policy) {
                (Some(live_limit), Some(policy)) => {
                    let limit = live_limit.limit();
                    if *limit.policy() != policy {
                        self.engine.store().check_limit(&limit.revise(policy, change)?)?;
                    }
                }
                (None, Some(policy)) => {
                    new[index] = Some(LiveLimit::new(Limit::named(&self.names[index], policy)?)?);
                }
                (_, None) => {}
            }
        }
        let shared: Arc<dyn LimitWatcher> = self.shared.clone();
        let registered = self.engine.registry().register_all(new, self.engine.store())?;
        let [client, organization] = registered.clone();
        for live_limit in [&client, &organization].into_iter().flatten() {
            live_limit.require_bucket();
            live_limit.watch(Arc::downgrade(&shared));
        }
        let next = Tiers {
            client: client.or_else(|| tiers.client.clone()),
            organization: organization.or_else(|| tiers.organization.clone()),
        };
        let revised = [(&next.client, rules.client), (&next.organization, rules.organization)];
        let revised =
            revised.map(|(live_limit, policy)| live_limit.clone().zip(policy).filter(differs));
        for (live_limit, policy) in revised.iter().flatten() {
            live_limit.replace_policy(*policy, change, self.engine.store())?;
        }
        self.shared.put(rules, &next);
        *tiers = next;
        drop(tiers);
        let revised = revised.iter().flatten().map(|(live_limit, _)| live_limit);
        revised
            .chain(registered.iter().flatten())
            .for_each(|live_limit| live_limit.notify_watchers());
        Ok(())
    }
}

fn differs((live_limit, policy): &(Arc<LiveLimit>, Policy)) -> bool {
    live_limit.limit().policy() != policy
}
