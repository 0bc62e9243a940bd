//! One request and its response.
//!
//! The order of checks is fixed: path, key, request, model, fault, limits, queue. A request that
//! fails a check is recorded in the ledger with the cause, and skips the rest.

mod perform;

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use crate::account_state::{AccountState, FaultDecision};
use crate::calendar::{Now, Zone, http_date, nanos};
use crate::dialect::{Codec, Dialect, Failure, ResponseContext, ResponseHeaders};
use crate::fault::{Fault, Hint};
use crate::ledger::{CallEnding, LedgerEntry, RefusalCause};
use crate::limits::PerDay;
use crate::limits::charging::{CallCharge, FailedCalls};
use crate::limits::pool::{AdmitError, Admitted, Pool};
use crate::limits::quota::{LimitSnapshot, Wait};
use crate::random::Random;
use crate::reporting::Reporting;
use crate::server::call::Call;
use crate::server::coding::Coding;
use crate::server::connection::ConnectionControl;
use crate::server::request::{CONTENT_CODING, Endpoint, Head, RequestSummary, Tokens};
use crate::server::response_stream::Body;
use crate::simulator::Shared;

/// Maximum size of a request body.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// Handles one request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    control: Arc<ConnectionControl>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers };
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).ok();
    let exchange = Exchange::new(shared, head, body.as_deref());
    let accepted = match exchange.parse(body.as_deref()) {
        Ok(accepted) => accepted,
        Err((failure, refusal)) => return Ok(exchange.reject_without_pool(&failure, refusal)),
    };
    Ok(exchange.process(accepted, control).await)
}

/// A request, possibly with an unknown key.
struct Exchange {
    shared: Arc<Shared>,
    head: Head,
    state: Option<usize>,
    codec: &'static dyn Codec,
    endpoint: Option<Endpoint>,
    now: Now,
    fingerprint: u64,
}

/// A well-formed request for an existing model.
struct AcceptedRequest {
    summary: RequestSummary,
    tokens: Tokens,
    model: Arc<str>,
    pool: Arc<Pool>,
}

impl Exchange {
    fn new(shared: Arc<Shared>, head: Head, body: Option<&[u8]>) -> Self {
        let state = shared.accounts.iter().position(|state| state.matches(&head));
        let codec = match state.and_then(|index| shared.accounts.get(index)) {
            Some(state) => state.account.dialect.codec(),
            None => codec_for_unknown_key(&shared.accounts, head.path()),
        };
        let endpoint = codec.route(head.path()).map(|(endpoint, _)| endpoint);
        let mut hasher = DefaultHasher::new();
        (state, head.path(), body).hash(&mut hasher);
        let (now, fingerprint) = (shared.now(), hasher.finish());
        Self { shared, head, state, codec, endpoint, now, fingerprint }
    }

    fn state(&self) -> Option<&AccountState> {
        self.shared.accounts.get(self.state?)
    }

    /// Returns what to report about limits; the default for an unknown key.
    fn reporting(&self) -> Reporting {
        self.state().map(|state| state.account.reporting).unwrap_or_default()
    }

    fn parse(&self, body: Option<&[u8]>) -> Result<AcceptedRequest, (Failure, RefusalCause)> {
        let endpoint = self.endpoint.filter(|_| self.head.method == Method::POST);
        let endpoint = endpoint.ok_or((Failure::NoPath, RefusalCause::Path))?;
        let state = self.state().ok_or((Failure::BadKey, RefusalCause::Credential))?;
        let bad = |failure| (failure, RefusalCause::Request);
        let body = body
            .and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok())
            .filter(Value::is_object)
            .ok_or_else(|| bad(Failure::BadRequest("the body is not a JSON object")))?;
        let summary = self.codec.parse_request(&self.head, endpoint, &body).map_err(bad)?;
        let tokens = summary.tokens(&self.head).map_err(bad)?;
        let (model, pool) = state
            .pool(&summary.model, &self.shared.pool_ids)
            .ok_or_else(|| (Failure::NoModel(summary.model.clone()), RefusalCause::Model))?;
        Ok(AcceptedRequest { summary, tokens, model, pool })
    }

    /// Rejects a request that belongs to no pool.
    fn reject_without_pool(&self, failure: &Failure, refusal: RefusalCause) -> Response<Body> {
        let number = self.shared.ledger.open(self.entry(None, CallCharge::default()));
        self.shared.ledger.update(number, |entry| entry.refusal = Some(refusal));
        self.refuse(failure, number, CallEnding::Refused, "", LimitSnapshot::default())
    }

    async fn process(
        self,
        accepted: AcceptedRequest,
        control: Arc<ConnectionControl>,
    ) -> Response<Body> {
        let Some(state) = self.state() else {
            return self.reject_without_pool(&Failure::BadKey, RefusalCause::Credential);
        };
        let charging = state.account.charging;
        let pool = &accepted.pool;
        let number = self.shared.ledger.open(self.entry(Some(&accepted), CallCharge::default()));
        let mut random = Random::new(self.shared.seed, number);
        let fault = match state.next_fault(self.now, &mut random) {
            FaultDecision::LockedOut { left, hint } => {
                let wait = (hint == Hint::Sent).then_some(left);
                let failure = Failure::Throttled { wait };
                return self.refuse_unadmitted(
                    &failure,
                    RefusalCause::LockedOut,
                    number,
                    &accepted,
                );
            }
            FaultDecision::Proceed(fault) => fault,
        };
        if let Some(failure) = fault.and_then(|fault| self.pre_admission_failure(fault, pool)) {
            return self.refuse_unadmitted(&failure, RefusalCause::Fault, number, &accepted);
        }
        let charge = charging.admission(&accepted.summary.estimate(&accepted.tokens));
        let Admitted { slot, snapshot } = match pool.admit(self.now, charge, charging.failed) {
            Ok(admitted) => admitted,
            Err(denied) => return self.refuse_limited(&denied, number, &accepted),
        };
        self.shared.ledger.update(number, |entry| {
            entry.charged = charge;
            entry.in_flight = pool.in_flight();
        });
        let call = Call {
            shared: Arc::clone(&self.shared),
            pool: Arc::clone(pool),
            number,
            charging,
            taken: self.now,
            admitted: charge,
            snapshot,
            tokens: accepted.tokens,
            sent: 0,
            permit: None,
            ending_if_dropped: CallEnding::Abandoned,
            ended: false,
        };
        self.perform(call, accepted, slot, fault, random, control).await
    }

    /// Returns the failure of a fault that applies before limits are checked.
    fn pre_admission_failure(&self, fault: Fault, pool: &Pool) -> Option<Failure> {
        match fault {
            Fault::RateLimited { retry_after } => {
                Some(Failure::Throttled { wait: retry_after.map(nanos) })
            }
            Fault::DayQuota => {
                let day = pool.limits.day.unwrap_or(PerDay::UntilMidnight(200, Zone::UTC));
                Some(Failure::DayQuota { limit: day.limit(), left: day.left(self.now) })
            }
            Fault::InsufficientQuota => Some(Failure::OutOfCredit),
            _ => None,
        }
    }

    fn refuse_unadmitted(
        &self,
        failure: &Failure,
        refusal: RefusalCause,
        number: u64,
        accepted: &AcceptedRequest,
    ) -> Response<Body> {
        let failed = self.state().map_or(FailedCalls::Free, |state| state.account.charging.failed);
        let counted = accepted.pool.count_refused(self.now, failed);
        self.record_refusal(number, refusal, counted);
        let snapshot = accepted.pool.snapshot(self.now);
        self.refuse(failure, number, CallEnding::Refused, &accepted.model, snapshot)
    }

    fn refuse_limited(
        &self,
        denied: &AdmitError,
        number: u64,
        accepted: &AcceptedRequest,
    ) -> Response<Body> {
        let (failure, refusal, counted) = match *denied {
            AdmitError::Limited(blocked, counted) => {
                let refusal = match blocked.wait {
                    Wait::Never => RefusalCause::TooLarge(blocked.dimension),
                    Wait::Now | Wait::For(_) => RefusalCause::Limit(blocked.dimension),
                };
                (Failure::Limited(blocked), refusal, counted)
            }
            AdmitError::Busy { limit, counted } => {
                (Failure::Busy { limit }, RefusalCause::Concurrency, counted)
            }
        };
        self.record_refusal(number, refusal, counted);
        let snapshot = accepted.pool.snapshot(self.now);
        self.refuse(&failure, number, CallEnding::Refused, &accepted.model, snapshot)
    }

    fn record_refusal(&self, number: u64, refusal: RefusalCause, counted: CallCharge) {
        self.shared.ledger.update(number, |entry| {
            entry.refusal = Some(refusal);
            entry.charged = counted;
        });
    }

    fn refuse(
        &self,
        failure: &Failure,
        number: u64,
        ending: CallEnding,
        model: &str,
        snapshot: LimitSnapshot,
    ) -> Response<Body> {
        let now = self.shared.now();
        let endpoint = self.endpoint;
        let charge = CallCharge::default();
        let reporting = self.reporting();
        let snapshot = reporting.report(snapshot);
        let context = ResponseContext { now, number, model, reporting, snapshot, charge, endpoint };
        let response = self.codec.error_response(failure, &context);
        self.shared.ledger.record_status(number, response.status.as_u16());
        self.shared.ledger.close(number, self.shared.elapsed(now), ending);
        let body = full(response.body.to_string());
        self.response(response.status, response.headers, "application/json", body)
    }

    fn response(
        &self,
        status: StatusCode,
        headers: ResponseHeaders,
        content_type: &'static str,
        body: Body,
    ) -> Response<Body> {
        let coding = self.head.header(CONTENT_CODING).and_then(Coding::of);
        let body = match coding {
            Some(coding) => coding.encode(body),
            None => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers.0;
        if let Some(coding) = coding {
            let name = HeaderValue::from_static(coding.name());
            response.headers_mut().insert(CONTENT_ENCODING, name);
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let date = http_date(self.shared.now().unix_seconds());
        if let Ok(date) = HeaderValue::from_str(&date) {
            response.headers_mut().insert(DATE, date);
        }
        response
    }

    fn entry(&self, accepted: Option<&AcceptedRequest>, charged: CallCharge) -> LedgerEntry {
        LedgerEntry {
            number: 0,
            at: self.shared.elapsed(self.now),
            account: self.state().map(|state| Arc::clone(&state.label)),
            model: accepted.map(|accepted| Arc::clone(&accepted.model)),
            endpoint: self.endpoint,
            charged,
            used: CallCharge::default(),
            status: None,
            refusal: None,
            in_flight: accepted.map_or(0, |accepted| accepted.pool.in_flight()),
            is_retry: false,
            ending: CallEnding::Open,
            ended: None,
            pool: accepted.map(|accepted| accepted.pool.id),
            fingerprint: self.fingerprint,
        }
    }
}

/// Returns the codec for requests with an unknown key: that of the first account with the path,
/// else of the first account.
fn codec_for_unknown_key(accounts: &[AccountState], path: &str) -> &'static dyn Codec {
    let mut codecs = accounts.iter().map(|state| state.account.dialect.codec());
    let first = codecs.clone().next().unwrap_or_else(|| Dialect::OpenAi.codec());
    codecs.find(|codec| codec.route(path).is_some()).unwrap_or(first)
}

fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).boxed_unsync()
}
