//! Three tiers in front of a write.

use std::error::Error;
use std::time::Duration;

use tidegate::admission::{Admission, AdmissionDecision, AdmittedRequest, Caller, InFlight, Rules};
use tidegate::{Engine, Policy, StoreError};

/// At most 100 pending, 100 tokens and 50/s per client, 1,000 tokens and 500/s per organization.
/// `Rules::default()` is the same.
pub fn admission() -> Result<Admission, Box<dyn Error>> {
    let rules = Rules::none()
        .backpressure(100)
        .client(Policy::per_second(50).capacity(100).build()?)
        .organization(Policy::per_second(500).capacity(1_000).build()?);
    Ok(Admission::new(&Engine::new(), rules)?)
}

pub enum Checked {
    /// The write counts as pending until the guard is dropped.
    Admitted(Option<InFlight>),
    Exhausted {
        level: &'static str,
        reason: &'static str,
        retry_after: Option<Duration>,
    },
}

/// Call this before the write is queued.
pub fn check(
    admission: &Admission,
    organization: &str,
    client: &str,
) -> Result<Checked, StoreError> {
    let caller = Caller::new().organization(organization).client(client);
    Ok(match admission.admit(caller).now()? {
        AdmissionDecision::Rejected(rejection) => Checked::Exhausted {
            level: rejection.tier.as_str(),
            reason: rejection.tier.reason(),
            retry_after: rejection.retry.after(),
        },
        admitted => {
            let admitted = admitted.admitted();
            Checked::Admitted(admitted.and_then(AdmittedRequest::into_in_flight))
        }
    })
}
