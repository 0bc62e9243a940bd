//! Processing of an admitted call: it waits, gets a response, or fails.
//!
//! Length and delays of the response are drawn in advance.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::Instant;

use super::{AcceptedRequest, Exchange, full};
use crate::account::Delay;
use crate::calendar::nanos;
use crate::dialect::{Failure, Finish, ResponseContent, ResponseContext, ResponseHeaders};
use crate::fault::Fault;
use crate::ledger::CallEnding;
use crate::limits::pool::SlotGrant;
use crate::random::Random;
use crate::reporting::ReportTime;
use crate::server::call::Call;
use crate::server::connection::ConnectionControl;
use crate::server::request::{Endpoint, RequestSummary};
use crate::server::response_stream::{
    Body, ResponseStream, StreamState, Timing, cut_after, first_half, stall_after, wait_until,
};

impl Exchange {
    /// Produces the response, or applies the fault.
    pub(super) async fn perform(
        &self,
        mut call: Call,
        accepted: AcceptedRequest,
        slot: SlotGrant,
        fault: Option<Fault>,
        mut random: Random,
        control: Arc<ConnectionControl>,
    ) -> Response<Body> {
        if fault == Some(Fault::Reset) {
            call.end(CallEnding::Failed);
            control.reset();
            return pending().await;
        }
        if let Some(failure) =
            fault.and_then(|fault| post_admission_failure(fault, &accepted.summary))
        {
            call.end(CallEnding::Failed);
            let snapshot = call.pool.snapshot(self.shared.now());
            return self.refuse(
                &failure,
                call.number,
                CallEnding::Failed,
                &accepted.model,
                snapshot,
            );
        }
        if fault == Some(Fault::Silent) {
            return never_respond(call, slot).await;
        }
        let (timing, content) = self.plan_response(call.number, &accepted, fault, &mut random);
        let mut queue_entry = None;
        match slot {
            SlotGrant::Begin(permit) => call.permit = permit,
            SlotGrant::Queue(slot) if self.codec.keep_alive(accepted.summary.streams).is_some() => {
                queue_entry = Some(slot);
            }
            SlotGrant::Queue(mut slot) => call.permit = slot.granted().await,
        }
        let begin = Instant::now();
        let state = match queue_entry {
            Some(_) => StreamState::Queue { since: begin },
            None => StreamState::Begin,
        };
        let streams = accepted.summary.streams;
        if queue_entry.is_none() && !streams {
            wait_until(begin + timing.total(content.output)).await;
            call.sent = content.output;
            return self.complete_response(call, &content, fault, control);
        }
        if queue_entry.is_none() {
            wait_until(begin + timing.first).await;
        }
        let content_type = if streams {
            self.codec.stream_content_type(&accepted.summary)
        } else {
            "application/json"
        };
        let headers = self.success_headers(&call, &content.model);
        self.shared.ledger.record_status(call.number, 200);
        let due = begin + timing.first;
        let codec = self.codec;
        let stream = ResponseStream {
            call,
            codec,
            content,
            streams,
            timing,
            fault,
            control,
            queue_entry,
            due,
            state,
        };
        self.response(StatusCode::OK, headers, content_type, stream.into_body())
    }

    /// Sends a response that is not streamed.
    fn complete_response(
        &self,
        mut call: Call,
        content: &ResponseContent,
        fault: Option<Fault>,
        control: Arc<ConnectionControl>,
    ) -> Response<Body> {
        let text = self.codec.response_body(content).to_string();
        self.shared.ledger.record_status(call.number, 200);
        if let Some(Fault::Cut { .. } | Fault::Stall { .. }) = fault {
            let headers = self.success_headers(&call, &content.model);
            let half = first_half(&text).to_owned();
            let body = match fault {
                Some(Fault::Cut { .. }) => cut_after(half, call, control),
                _ => stall_after(half, call),
            };
            return self.response(StatusCode::OK, headers, "application/json", body);
        }
        call.end(CallEnding::Complete);
        let headers = self.success_headers(&call, &content.model);
        let malformed = fault == Some(Fault::Malformed);
        let text = if malformed { first_half(&text).to_owned() } else { text };
        self.response(StatusCode::OK, headers, "application/json", full(text))
    }

    /// Determines content and timing of the response.
    fn plan_response(
        &self,
        number: u64,
        accepted: &AcceptedRequest,
        fault: Option<Fault>,
        random: &mut Random,
    ) -> (Timing, ResponseContent) {
        let AcceptedRequest { summary, tokens, .. } = accepted;
        let account = self.state().map(|state| &state.account);
        // Always draw every number, so that a header does not change later draws.
        let drawn = account.map_or(0, |account| account.output.draw(random));
        let mut first = account.map(|account| account.first_token.draw(random)).unwrap_or_default();
        if let Some(Fault::SlowStart(later)) = fault {
            first += Duration::from_nanos(nanos(later));
        }
        let per_token = account.map_or(Delay::NONE, |account| account.per_token);
        let timing = Timing { first, per_token, random: random.clone() };
        let wanted = match summary.endpoint {
            Endpoint::Embeddings => 0,
            Endpoint::Chat | Endpoint::ChatStream => tokens.output.unwrap_or(drawn),
        };
        let output = wanted.min(summary.max_output.unwrap_or(u64::MAX));
        let content = ResponseContent {
            number,
            model: accepted.model.to_string(),
            created: self.now.unix_seconds(),
            endpoint: summary.endpoint,
            inputs: summary.inputs,
            input: tokens.input,
            cached: tokens.cached,
            output,
            finish: if output < wanted { Finish::Length } else { Finish::Stop },
            include_usage: summary.include_usage,
            sse: summary.sse,
            timing: (nanos(timing.first), nanos(timing.total(output))),
        };
        (timing, content)
    }

    /// Returns the headers of a successful response, as of the account's report time.
    fn success_headers(&self, call: &Call, model: &str) -> ResponseHeaders {
        let time = self.state().map(|state| state.account.report_time).unwrap_or_default();
        let (now, snapshot, charge) = match time {
            ReportTime::Admission => (call.taken, call.snapshot, call.admitted),
            ReportTime::Response => {
                let now = self.shared.now();
                let charge = if call.ended { call.charge() } else { call.admitted };
                (now, call.pool.snapshot(now), charge)
            }
        };
        let reporting = self.reporting();
        let snapshot = reporting.report(snapshot);
        let (number, endpoint) = (call.number, self.endpoint);
        let context = ResponseContext { now, number, model, reporting, snapshot, charge, endpoint };
        let mut headers = ResponseHeaders::default();
        self.codec.limit_headers(&context, &mut headers);
        headers
    }
}

/// Never responds. The call waits for its slot and holds it until the caller disconnects.
async fn never_respond(mut call: Call, slot: SlotGrant) -> Response<Body> {
    call.stall();
    call.permit = match slot {
        SlotGrant::Begin(permit) => permit,
        SlotGrant::Queue(mut queue_entry) => queue_entry.granted().await,
    };
    pending().await
}

/// Returns the failure of a fault that applies after admission.
fn post_admission_failure(fault: Fault, summary: &RequestSummary) -> Option<Failure> {
    match fault {
        Fault::ServerError => Some(Failure::ServerError),
        Fault::StreamError { .. } if !summary.streams => Some(Failure::ServerError),
        Fault::Unavailable => Some(Failure::Unavailable),
        Fault::Overloaded => Some(Failure::Overloaded),
        _ => None,
    }
}
