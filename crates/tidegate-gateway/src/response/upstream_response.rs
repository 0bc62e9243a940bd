//! The answer of a provider, and the headers that the gateway adds to it.

use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tidegate_llm::Answered;
use tidegate_llm::rate_limit::Reservation;
use tidegate_providers::ReportedLimits;

use crate::call_observer::Outcome;
use crate::headers;
use crate::request::body::IncomingBody;
use crate::response::body::{Hold, ResponseBody};
use crate::response::usage_reader::UsageReader;
use crate::state::call_context::CallContext;
use crate::upstream::attempt::UpstreamClient;

const WAIT: HeaderName = HeaderName::from_static("x-tidegate-wait-ms");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-tidegate-attempts");
const PROVIDER: HeaderName = HeaderName::from_static("x-tidegate-provider");
const LIMITED_BY: HeaderName = HeaderName::from_static("x-tidegate-limited-by");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-tidegate-request-id");

/// An answer whose head has arrived, and of a stream the first event.
pub(crate) struct UpstreamResponse {
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) head: Parts,
    pub(crate) told: ReportedLimits,
    pub(crate) body: IncomingBody,
    /// The part of the body that was read already.
    pub(crate) first: Option<Bytes>,
    pub(crate) usage_reader: UsageReader,
    pub(crate) context: Arc<CallContext>,
    pub(crate) reservation: Option<Reservation>,
}

impl Answered for UpstreamResponse {
    fn told(&self) -> &ReportedLimits {
        &self.told
    }

    fn keep(&mut self, mut reservation: Reservation) {
        if let Some((limit, _)) = reservation.waited_for().first() {
            self.context.set_limited_by(limit);
        }
        self.usage_reader.report_to(Some(&mut reservation));
        self.reservation = Some(reservation);
    }
}

impl UpstreamResponse {
    /// The response to the caller.
    pub(crate) fn into_response(self, outcome: Outcome) -> Response<ResponseBody> {
        let Self { client, mut head, body, first, usage_reader, context, reservation, .. } = self;
        headers::without_hops(&mut head.headers);
        add_call_headers(&mut head.headers, &context, &client.label);
        context.set_status(head.status);
        let hold =
            Hold { usage_reader, reservation, provider: client.provider.clone(), context, outcome };
        Response::from_parts(head, ResponseBody::passing(body, first, hold))
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
    headers.insert(WAIT, wait.into());
    headers.insert(ATTEMPTS, summary.attempts.into());
    headers.insert(PROVIDER, provider.clone());
    if let Some(limit) = summary.limited_by {
        headers.insert(LIMITED_BY, HeaderValue::from_static(limit));
    }
    headers.insert(REQUEST_ID, context.id.clone());
}
