//! What happens to a call that was let in: it waits, it is answered, or it fails.
//!
//! All of its length and its delays is drawn before the first of them passes.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::Instant;

use super::{Asked, Visit, full};
use crate::account::Delay;
use crate::calendar::nanos;
use crate::dialect::{Failure, Fields, Finish, Reply, Scene};
use crate::fault::Fault;
use crate::ledger::Ending;
use crate::limits::pool::Place;
use crate::random::Random;
use crate::reporting::ReportTime;
use crate::server::ask::{Ask, Endpoint};
use crate::server::call::Call;
use crate::server::response_stream::{
    Body, Pace, ResponseStream, Stage, cut_after, first_half, rest_until, stall_after,
};
use crate::server::wire::Link;

impl Visit {
    /// Does what was asked for, or fails at it.
    pub(super) async fn perform(
        &self,
        mut call: Call,
        asked: Asked,
        place: Place,
        fault: Option<Fault>,
        mut random: Random,
        link: Arc<Link>,
    ) -> Response<Body> {
        if fault == Some(Fault::Reset) {
            call.end(Ending::Failed);
            link.reset();
            return pending().await;
        }
        if let Some(failure) = fault.and_then(|fault| failing(fault, &asked.ask)) {
            call.end(Ending::Failed);
            let standing = call.pool.standing(self.shared.now());
            return self.refuse(&failure, call.number, Ending::Failed, &asked.model, standing);
        }
        if fault == Some(Fault::Silent) {
            return withhold(call, place).await;
        }
        let (pace, reply) = self.plan(call.number, &asked, fault, &mut random);
        let mut turn = None;
        match place {
            Place::Begin(permit) => call.permit = permit,
            Place::Queue(place) if self.voice.keep_alive(asked.ask.streams).is_some() => {
                turn = Some(place);
            }
            Place::Queue(mut place) => call.permit = place.come().await,
        }
        let begin = Instant::now();
        let stage = match turn {
            Some(_) => Stage::Queue { since: begin },
            None => Stage::Open,
        };
        let streams = asked.ask.streams;
        if turn.is_none() && !streams {
            rest_until(begin + pace.total(reply.output)).await;
            call.sent = reply.output;
            return self.whole(call, &reply, fault, link);
        }
        if turn.is_none() {
            rest_until(begin + pace.first).await;
        }
        let kind = if streams { self.voice.stream_type(&asked.ask) } else { "application/json" };
        let fields = self.announce(&call, &reply.model);
        self.shared.ledger.answered(call.number, 200);
        let due = begin + pace.first;
        let voice = self.voice;
        let stream =
            ResponseStream { call, voice, reply, streams, pace, fault, link, turn, due, stage };
        self.response(StatusCode::OK, fields, kind, stream.into_body())
    }

    /// An answer in one piece.
    fn whole(
        &self,
        mut call: Call,
        reply: &Reply,
        fault: Option<Fault>,
        link: Arc<Link>,
    ) -> Response<Body> {
        let text = self.voice.whole(reply).to_string();
        self.shared.ledger.answered(call.number, 200);
        if let Some(Fault::Cut { .. } | Fault::Stall { .. }) = fault {
            let fields = self.announce(&call, &reply.model);
            let half = first_half(&text).to_owned();
            let body = match fault {
                Some(Fault::Cut { .. }) => cut_after(half, call, link),
                _ => stall_after(half, call),
            };
            return self.response(StatusCode::OK, fields, "application/json", body);
        }
        call.end(Ending::Complete);
        let fields = self.announce(&call, &reply.model);
        let malformed = fault == Some(Fault::Malformed);
        let text = if malformed { first_half(&text).to_owned() } else { text };
        self.response(StatusCode::OK, fields, "application/json", full(text))
    }

    /// What is answered, and how fast.
    fn plan(
        &self,
        number: u64,
        asked: &Asked,
        fault: Option<Fault>,
        random: &mut Random,
    ) -> (Pace, Reply) {
        let Asked { ask, tokens, .. } = asked;
        let account = self.state().map(|state| &state.account);
        // Every number is drawn, so that a header changes nothing but what it says.
        let drawn = account.map_or(0, |account| account.output.draw(random));
        let mut first = account.map(|account| account.first_token.draw(random)).unwrap_or_default();
        if let Some(Fault::SlowStart(later)) = fault {
            first += Duration::from_nanos(nanos(later));
        }
        let per_token = account.map_or(Delay::NONE, |account| account.per_token);
        let pace = Pace { first, per_token, random: random.clone() };
        let wanted = match ask.endpoint {
            Endpoint::Embeddings => 0,
            Endpoint::Chat | Endpoint::ChatStream => tokens.output.unwrap_or(drawn),
        };
        let output = wanted.min(ask.max_output.unwrap_or(u64::MAX));
        let reply = Reply {
            number,
            model: asked.model.to_string(),
            created: self.now.unix_seconds(),
            endpoint: ask.endpoint,
            inputs: ask.inputs,
            input: tokens.input,
            cached: tokens.cached,
            output,
            finish: if output < wanted { Finish::Length } else { Finish::Stop },
            include_usage: ask.include_usage,
            sse: ask.sse,
            timing: (nanos(pace.first), nanos(pace.total(output))),
        };
        (pace, reply)
    }

    /// The headers of an answer that succeeds, as of the time that the account reports.
    fn announce(&self, call: &Call, model: &str) -> Fields {
        let time = self.state().map(|state| state.account.report_time).unwrap_or_default();
        let (now, standing, charge) = match time {
            ReportTime::Admission => (call.taken, call.standing, call.admitted),
            ReportTime::Answer => {
                let now = self.shared.now();
                let charge = if call.ended { call.charge() } else { call.admitted };
                (now, call.pool.standing(now), charge)
            }
        };
        let reporting = self.reporting();
        let standing = reporting.report(standing);
        let (number, endpoint) = (call.number, self.endpoint);
        let scene = Scene { now, number, model, reporting, standing, charge, endpoint };
        let mut fields = Fields::default();
        self.voice.announce(&scene, &mut fields);
        fields
    }
}

/// Keeps a call unanswered. It takes its place, in its turn, and has it until its caller leaves.
async fn withhold(mut call: Call, place: Place) -> Response<Body> {
    call.stall();
    call.permit = match place {
        Place::Begin(permit) => permit,
        Place::Queue(mut turn) => turn.come().await,
    };
    pending().await
}

/// The faults that fail a call that was let in.
fn failing(fault: Fault, ask: &Ask) -> Option<Failure> {
    match fault {
        Fault::ServerError => Some(Failure::ServerError),
        Fault::StreamError { .. } if !ask.streams => Some(Failure::ServerError),
        Fault::Unavailable => Some(Failure::Unavailable),
        Fault::Overloaded => Some(Failure::Overloaded),
        _ => None,
    }
}
