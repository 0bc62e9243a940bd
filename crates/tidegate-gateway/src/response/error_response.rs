//! What a caller gets whose call has no answer.
//!
//! The provider's own words come first, byte for byte; where there are none, ours are in its form.

use std::time::Duration;

use http::Response;
use tidegate::pacer::AcquireError;
use tidegate_llm::{Broken, CallError};
use tidegate_providers::{Class, Dialect};

use crate::call_observer::Outcome;
use crate::headers;
use crate::proxy::Visit;
use crate::request::body_reader::Untaken;
use crate::response::body::Body;
use crate::response::proxy_error::{self, Reason, Refusal};
use crate::response::upstream_response::sign;
use crate::state::call_context::{Original, is_long};

/// When to come back to a gateway that ends: by then another one is there.
const AFTER_DRAIN: Duration = Duration::from_secs(1);
/// When to come back if nobody knows.
const SOON: Duration = Duration::from_secs(1);

impl Visit<'_> {
    /// What a caller gets whose call has no answer: the provider's own words if there are any.
    pub(crate) fn fail(&self, dialect: Dialect, model: &str, error: &CallError) -> Response<Body> {
        let is_closed = matches!(error, CallError::Closed(_));
        let original = match error.failure() {
            Some(_) if is_closed => self.tab.closed_with(model),
            Some(_) => self.tab.original(),
            None => None,
        };
        let mut response = match original {
            Some(original) => self.pass_on(original, error),
            None => {
                let (refusal, outcome) = self.explain(error);
                self.refuse(dialect, &refusal, outcome)
            }
        };
        let is_ours =
            error.failure().is_none() && matches!(error.class(), Class::RateLimited { .. });
        let is_tried = matches!(error, CallError::Exhausted { .. });
        let may_heal = error.class().is_retryable() && !is_long(error.class());
        if !is_ours && (is_tried || !may_heal) {
            proxy_error::no_retry(response.headers_mut());
        }
        response
    }

    /// The provider's own error, as it came.
    fn pass_on(&self, original: Original, error: &CallError) -> Response<Body> {
        let Original { status, fields, body } = original;
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        let fields = response.headers_mut();
        headers::without_hops(fields);
        match (error, error.class(), error.retry_after()) {
            // Whoever waits for what does not come in a short time waits in vain. Where the provider
            // said when it does, time has passed since.
            (CallError::Closed(_), Class::ExhaustedQuota { .. }, after) => {
                proxy_error::come_back_as_told(fields, after);
            }
            (CallError::Closed(_), _, Some(after)) => proxy_error::come_back(fields, after),
            (_, Class::RateLimited { .. }, Some(after)) => {
                proxy_error::come_back_later(fields, after);
            }
            _ => {}
        }
        sign(fields, &self.tab, &self.route.side.label);
        self.tab.told(status);
        self.tab.ends(Outcome::Failed);
        response
    }

    /// An error in words of ours.
    fn explain(&self, error: &CallError) -> (Refusal, Outcome) {
        let name = &self.route.upstream.name;
        match error {
            CallError::Exhausted { last, .. } => self.explain(last),
            CallError::Unrescued { first, .. } => self.explain(first),
            CallError::NoPermit { source, limited_by, after, .. } => match source {
                AcquireError::TooLong { .. }
                | AcquireError::TimedOut(_)
                | AcquireError::WouldWait
                | AcquireError::QueueFull(_) => {
                    let limit = limited_by.or_else(|| self.route.desk.binding());
                    if let Some(limit) = limit {
                        self.tab.limited_by(limit);
                    }
                    (too_long(name.as_str(), limit, after.unwrap_or(SOON)), Outcome::Refused)
                }
                AcquireError::NeverFits(limit) => {
                    tracing::debug!(provider = %name, limit, "a call is too big");
                    let message = format!(
                        "Tidegate refused: the request has more tokens than {name} ever takes."
                    );
                    (Refusal::new(Reason::TooLarge, message), Outcome::Rejected)
                }
                _ => (internal(), Outcome::Rejected),
            },
            CallError::Closed(_) | CallError::Provider(_) => {
                let message = format!("Tidegate refused: a quota of {name} is used up.");
                (Refusal::new(Reason::Quota, message), Outcome::Refused)
            }
            CallError::Connection { broken: Broken::TimedOut, .. } => {
                let message = format!("Tidegate: {name} did not answer in time.");
                (Refusal::new(Reason::Silent, message), Outcome::Unreachable)
            }
            CallError::Connection { .. } | CallError::Unreadable { .. } => {
                let message = format!("Tidegate: {name} could not be reached.");
                (Refusal::new(Reason::Unreachable, message), Outcome::Unreachable)
            }
            _ => (internal(), Outcome::Rejected),
        }
    }

    /// Says why a body is not taken.
    pub(crate) fn refuse_body(&self, dialect: Dialect, untaken: &Untaken) -> Response<Body> {
        let reason = match untaken {
            Untaken::TooLarge { .. } => Reason::TooLarge,
            Untaken::TooSlow => Reason::TooSlow,
            Untaken::Broken(_) => Reason::Invalid,
            Untaken::Full(_) => Reason::Busy,
        };
        let message = format!("Tidegate refused: {untaken}. Nothing whole was sent on.");
        let after = (reason == Reason::Busy).then_some(SOON);
        let refusal = Refusal::new(reason, message).after(after);
        self.refuse(dialect, &refusal, Outcome::Rejected)
    }

    pub(crate) fn refuse(
        &self,
        dialect: Dialect,
        refusal: &Refusal,
        outcome: Outcome,
    ) -> Response<Body> {
        let mut response = refusal.response(dialect);
        sign(response.headers_mut(), &self.tab, &self.route.side.label);
        self.tab.told(response.status());
        self.tab.ends(outcome);
        response
    }
}

pub(crate) fn draining() -> Refusal {
    let message = "Tidegate is about to stop and sends nothing more; come back in a moment.";
    Refusal::new(Reason::Draining, message).after(Some(AFTER_DRAIN))
}

pub(crate) fn internal() -> Refusal {
    Refusal::new(Reason::Internal, "Tidegate cannot decide about this call.")
}

fn too_long(provider: &str, limit: Option<&str>, after: Duration) -> Refusal {
    let seconds = after.as_secs_f64();
    let by = limit.map(|limit| format!(" (limited by {limit})")).unwrap_or_default();
    let message = format!(
        "Tidegate refused: the wait for {provider} would be longer than accepted{by}. \
         Come back in {seconds:.3}s."
    );
    Refusal::new(Reason::RateLimit, message).after(Some(after))
}
