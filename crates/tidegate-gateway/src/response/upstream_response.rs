//! Answers of providers on their way to the caller.

use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tidegate_llm::Answered;
use tidegate_llm::rate_limit::Reservation;
use tidegate_providers::ReportedLimits;

use crate::call_observer::Outcome;
use crate::headers;
use crate::request::body::Inbound;
use crate::response::body::{Body, Hold};
use crate::response::usage_reader::Tap;
use crate::state::call_context::Tab;
use crate::upstream::attempt::Side;

const WAIT: HeaderName = HeaderName::from_static("x-tidegate-wait-ms");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-tidegate-attempts");
const PROVIDER: HeaderName = HeaderName::from_static("x-tidegate-provider");
const LIMITED_BY: HeaderName = HeaderName::from_static("x-tidegate-limited-by");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-tidegate-request-id");

/// An answer that has begun.
pub(crate) struct Reply {
    pub(crate) side: Arc<Side>,
    pub(crate) head: Parts,
    pub(crate) told: ReportedLimits,
    pub(crate) body: Inbound,
    /// What of the body was waited for.
    pub(crate) first: Option<Bytes>,
    pub(crate) tap: Tap,
    pub(crate) tab: Arc<Tab>,
    pub(crate) reservation: Option<Reservation>,
}

impl Answered for Reply {
    fn told(&self) -> &ReportedLimits {
        &self.told
    }

    fn keep(&mut self, mut reservation: Reservation) {
        if let Some((limit, _)) = reservation.waited_for().first() {
            self.tab.limited_by(limit);
        }
        self.tap.tell(Some(&mut reservation));
        self.reservation = Some(reservation);
    }
}

impl Reply {
    /// What the caller gets.
    pub(crate) fn into_response(self, outcome: Outcome) -> Response<Body> {
        let Self { side, mut head, body, first, tap, tab, reservation, .. } = self;
        headers::without_hops(&mut head.headers);
        sign(&mut head.headers, &tab, &side.label);
        tab.told(head.status);
        let hold = Hold { tap, reservation, provider: side.provider.clone(), tab, outcome };
        Response::from_parts(head, Body::passing(body, first, hold))
    }
}

/// Adds what there is to tell of a call.
pub(crate) fn sign(fields: &mut HeaderMap, tab: &Tab, provider: &HeaderValue) {
    let summary = tab.summary();
    let wait = u64::try_from(summary.wait.as_millis()).unwrap_or(u64::MAX);
    fields.insert(WAIT, wait.into());
    fields.insert(ATTEMPTS, summary.attempts.into());
    fields.insert(PROVIDER, provider.clone());
    if let Some(limit) = summary.limited_by {
        fields.insert(LIMITED_BY, HeaderValue::from_static(limit));
    }
    fields.insert(REQUEST_ID, tab.id.clone());
}
