//! A provider's response and the headers that the gateway adds to it.

use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tidegate_llm::rate_limit::Reservation;
use tidegate_providers::ReportedLimits;

use crate::headers;
use crate::response::body::ResponseBody;
use crate::response::pending_call::PendingCall;
use crate::response::provider_body::ProviderBody;
use crate::response::usage_stripper::UsageStripper;
use crate::state::call_context::CallContext;

const WAIT_MS: HeaderName = HeaderName::from_static("x-tidegate-wait-ms");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-tidegate-attempts");
const PROVIDER: HeaderName = HeaderName::from_static("x-tidegate-provider");
const LIMITED_BY: HeaderName = HeaderName::from_static("x-tidegate-limited-by");
/// The parts of the wait in milliseconds, such as `tokens=200, requests=50`.
const WAITED_FOR: HeaderName = HeaderName::from_static("x-tidegate-waited-for");
/// Set if the tokens of the request were estimated by its size because it could not be parsed.
const TOKENS_ESTIMATED: HeaderName = HeaderName::from_static("x-tidegate-tokens-estimated");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-tidegate-request-id");

/// A response whose head has arrived and, for a stream, whose first event has arrived.
pub(crate) struct UpstreamResponse {
    pub(crate) head: Parts,
    pub(crate) reported_limits: ReportedLimits,
    /// Part of the body that was read ahead.
    pub(crate) first: Option<Bytes>,
    pub(crate) rest: ProviderBody,
    /// Removes usage that the caller did not request.
    pub(crate) stripper: Option<UsageStripper>,
    pub(crate) call: PendingCall,
}

impl UpstreamResponse {
    /// Attaches the reservation of the call, to be settled with the actual usage.
    pub(crate) fn attach_reservation(&mut self, mut reservation: Reservation) {
        reservation.response_started(&self.reported_limits);
        self.call.context.set_reserved(reservation.expected_tokens());
        self.call.attach_reservation(reservation);
    }

    /// Returns the response to the caller.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let Self { mut head, first, rest, stripper, call, .. } = self;
        headers::remove_hop_by_hop(&mut head.headers);
        add_call_headers(&mut head.headers, &call.context, &call.client.label);
        call.context.set_status(head.status);
        Response::from_parts(head, ResponseBody::streamed(first, rest, stripper, call))
    }
}

/// Adds the `x-tidegate-*` headers of a call.
pub(crate) fn add_call_headers(
    headers: &mut HeaderMap,
    context: &CallContext,
    provider: &HeaderValue,
) {
    let summary = context.summary();
    let wait = u64::try_from(summary.wait.as_millis()).unwrap_or(u64::MAX);
    headers.reserve(5);
    headers.insert(WAIT_MS, number(wait));
    headers.insert(ATTEMPTS, number(summary.attempts.into()));
    headers.insert(PROVIDER, provider.clone());
    if let Some(limit) = summary.limited_by {
        headers.insert(LIMITED_BY, HeaderValue::from_static(limit));
    }
    if let Some(parts) = waited_for(&summary.waited_for) {
        headers.insert(WAITED_FOR, parts);
    }
    if summary.has_estimated_tokens {
        headers.insert(TOKENS_ESTIMATED, HeaderValue::from_static("true"));
    }
    headers.insert(REQUEST_ID, context.id.header());
}

/// Returns the parts of a wait as a header value, or `None` if there are none.
fn waited_for(parts: &[(&'static str, Duration)]) -> Option<HeaderValue> {
    let part = |(limit, time): &(&str, Duration)| format!("{limit}={}", time.as_millis());
    let text = parts.iter().map(part).collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty())
}

/// Returns a number as a header value. Most calls do not wait and make one attempt, so 0 and 1 are
/// not allocated.
fn number(number: u64) -> HeaderValue {
    match number {
        0 => HeaderValue::from_static("0"),
        1 => HeaderValue::from_static("1"),
        number => number.into(),
    }
}
