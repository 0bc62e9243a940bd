//! The access log: one line for each call to a provider, written when the call ends.
//!
//! It is controlled by `gateway.access_log`, which is off by default and can be changed at run
//! time. Lines have the target `tidegate::access` so that log filters can select them. No line
//! contains a key, a prompt or a response. Text chosen by the caller is truncated and quoted, so
//! that it cannot forge another line or field.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_config::GatewayConfig;
use tidegate_gateway::FinishedCall;

/// Maximum number of characters logged of a text chosen by the caller.
const MAX_TEXT_CHARS: usize = 128;

/// Switch for the access log. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessLog(Arc<AtomicBool>);

impl AccessLog {
    pub(crate) fn configure(&self, plan: &GatewayConfig) {
        self.0.store(plan.access_log.value, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Logs a finished call. Does nothing if the log was off when the call began.
    pub(crate) fn write(&self, call: &FinishedCall<'_>) {
        let Some(details) = call.details else { return };
        let reserved = details.reserved;
        tracing::info!(
            target: "tidegate::access",
            request_id = details.request_id,
            provider = %call.provider,
            used_at = call.served_by.map(tidegate_providers::Provider::as_str),
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
            input_tokens = call.usage.map(|usage| usage.input),
            input_source = call.usage.map(|usage| usage.input_source()),
            output_tokens = call.usage.map(|usage| usage.output),
            output_source = call.usage.map(|usage| usage.output_source()),
            failure = call.response_failure.map(tidegate_providers::Class::name),
            "call finished"
        );
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Text chosen by the caller, shown truncated and escaped like a Rust string literal.
struct Quoted<'a>(&'a str);

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_TEXT_CHARS) {
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
    fn text_from_callers_is_truncated_and_quoted() {
        let text = format!("{:?}", Quoted("a\nb=\"c\""));
        assert_eq!(text, r#""a\nb=\"c\"""#);
        let long = format!("{:?}", Quoted(&"é".repeat(1_000)));
        assert_eq!(long.chars().count(), MAX_TEXT_CHARS + 3);
    }
}
