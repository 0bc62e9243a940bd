//! Changing the rules of an admission under live traffic: the limits first, and then the one
//! pointer that checks go by.

use std::sync::{Arc, PoisonError};

use tidegate_core::{Change, Policy, Store};

use crate::terms::{Terms, Watch};

use super::Admission;
use super::live::Tiers;
use super::rules::{AdmissionError, Rules};

impl<S: Store + ?Sized> Admission<S> {
    /// Puts other rules in place, whole: no check sees some of the old and some of the new.
    /// Buckets keep their tokens, or what `change` says.
    ///
    /// ```
    /// use tidegate::admission::{Admission, Rules};
    /// use tidegate::{Change, Engine, Policy};
    /// let admission = Admission::new(&Engine::new(), Rules::default())?;
    /// let faster = Policy::per_second(200).capacity(400).build()?;
    /// admission.reconfigure(admission.rules().client(faster), Change::KeepTokens)?;
    /// assert!(admission.reconfigure(Rules::default().backpressure(0), Change::KeepTokens).is_err());
    /// assert_eq!(admission.rules().client_policy(), Some(&faster));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the new rules cannot be put in place. The old ones stay, all of them.
    pub fn reconfigure(&self, rules: Rules, change: Change) -> Result<(), AdmissionError> {
        rules.check()?;
        let mut tiers = self.shared.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let client = self.terms(&tiers.client, &self.names[0], rules.client, change)?;
        let organization =
            self.terms(&tiers.organization, &self.names[1], rules.organization, change)?;
        let next = Tiers { client, organization };
        let revised = [(&next.client, rules.client), (&next.organization, rules.organization)];
        let revised = revised.map(|(terms, policy)| terms.clone().zip(policy).filter(differs));
        for (terms, policy) in revised.iter().flatten() {
            terms.put(*policy, change)?;
        }
        self.shared.put(rules, &next);
        let new = [(&next.client, &tiers.client), (&next.organization, &tiers.organization)];
        let new = new.map(|(next, old)| next.clone().filter(|_| old.is_none()));
        *tiers = next;
        drop(tiers);
        let shared: Arc<dyn Watch> = self.shared.clone();
        new.iter().flatten().for_each(|terms| terms.watch(Arc::downgrade(&shared)));
        revised.iter().flatten().for_each(|(terms, _)| terms.tell_watchers());
        Ok(())
    }

    /// The terms of a tier, made if there were none, and sure to take the policy.
    fn terms(
        &self,
        known: &Option<Arc<Terms>>,
        name: &str,
        policy: Option<Policy>,
        change: Change,
    ) -> Result<Option<Arc<Terms>>, AdmissionError> {
        match (known, policy) {
            (known, None) => Ok(known.clone()),
            (None, Some(policy)) => Ok(Some(self.engine.limiter(name, policy)?.terms().clone())),
            (Some(terms), Some(policy)) => {
                terms.limit().revise(policy, change)?;
                Ok(Some(terms.clone()))
            }
        }
    }
}

fn differs((terms, policy): &(Arc<Terms>, Policy)) -> bool {
    terms.limit().policy() != policy
}
