//! The access log: one line for each call to a provider, when the call is over.
//!
//! It is off unless `gateway.access_log` says otherwise, and follows that while the program runs. Its
//! lines have the target `tidegate::access`, so that a filter can tell them apart. No line has a key,
//! a prompt or an answer in it. What a caller chose is cut and quoted, so that it cannot look like
//! another line or another field.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_config::GatewayPlan;
use tidegate_gateway::FinishedCall;

/// How much is shown of a text that a caller chose, in characters.
const LONGEST_TEXT: usize = 128;

/// Whether calls are logged. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessLog(Arc<AtomicBool>);

impl AccessLog {
    pub(crate) fn follow(&self, plan: &GatewayPlan) {
        self.0.store(plan.access_log.value, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes the line of a call that began while the log was on.
    pub(crate) fn write(&self, call: &FinishedCall<'_>) {
        let Some(details) = call.details else { return };
        let reserved = details.reserved;
        let used = call.usage.map(|measured| measured.usage);
        tracing::info!(
            target: "tidegate::access",
            request_id = details.request_id,
            provider = %call.provider,
            used_at = call.used_at.map(tidegate_providers::Provider::as_str),
            tenant = details.tenant.map(|tenant| tracing::field::debug(Quoted(tenant))),
            model = details.model.map(|model| tracing::field::debug(Quoted(model))),
            endpoint = call.endpoint.map(tidegate_providers::Endpoint::as_str),
            outcome = call.outcome.name(),
            status = call.status.map(|status| status.as_u16()),
            attempts = call.attempts,
            wait_ms = millis(call.wait),
            limited_by = call.limited_by,
            duration_ms = millis(call.duration),
            reserved_input = reserved.map(|(input, _)| input),
            reserved_output = reserved.map(|(_, output)| output),
            input_tokens = used.map(|used| used.input),
            input_source = call.usage.map(|measured| measured.input_source()),
            output_tokens = used.map(|used| used.output),
            output_source = call.usage.map(|measured| measured.output_source()),
            failure = call.answer_failure.map(tidegate_providers::Class::name),
            "call finished"
        );
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A text that a caller chose: cut, and escaped as in a program.
struct Quoted<'a>(&'a str);

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(LONGEST_TEXT) {
            Some((end, _)) => {
                write!(f, "{:?}", [self.0.get(..end).unwrap_or_default(), "…"].concat())
            }
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_chose_is_cut_and_quoted() {
        let text = format!("{:?}", Quoted("a\nb=\"c\""));
        assert_eq!(text, r#""a\nb=\"c\"""#);
        let long = format!("{:?}", Quoted(&"é".repeat(1_000)));
        assert_eq!(long.chars().count(), LONGEST_TEXT + 3);
    }
}
