//! One request, from its first byte to its answer: who asks, what for, may they, and what happens.
//!
//! The order is fixed: path, key, model, request, fault, limits, queue, answer. A request that fails
//! at one step is in the ledger with the reason, and no later step hears of it.

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

use crate::account_state::{AccountState, Fate};
use crate::calendar::{Now, Zone, http_date, nanos};
use crate::dialect::{Dialect, Failure, Fields, Scene, Voice};
use crate::fault::{Fault, Hint};
use crate::ledger::{Ending, Entry, RefusalCause};
use crate::limits::PerDay;
use crate::limits::charging::{CallCharge, FailedCalls};
use crate::limits::pool::{Admitted, Pool, Refused};
use crate::limits::quota::{Standing, Wait};
use crate::random::Random;
use crate::reporting::Reporting;
use crate::server::ask::{Ask, CONTENT_CODING, Endpoint, Head, Tokens};
use crate::server::call::Call;
use crate::server::coding::Coding;
use crate::server::response_stream::Body;
use crate::server::wire::Link;
use crate::simulator::Shared;

/// The largest body that is read.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// Answers one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    link: Arc<Link>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers };
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).ok();
    let visit = Visit::new(shared, head, body.as_deref());
    let asked = match visit.examine(body.as_deref()) {
        Ok(asked) => asked,
        Err((failure, refusal)) => return Ok(visit.turn_away(&failure, refusal)),
    };
    Ok(visit.serve(asked, link).await)
}

/// A request whose sender may not be known.
struct Visit {
    shared: Arc<Shared>,
    head: Head,
    state: Option<usize>,
    voice: &'static dyn Voice,
    endpoint: Option<Endpoint>,
    now: Now,
    fingerprint: u64,
}

/// A request that was understood.
struct Asked {
    ask: Ask,
    tokens: Tokens,
    model: Arc<str>,
    pool: Arc<Pool>,
}

impl Visit {
    fn new(shared: Arc<Shared>, head: Head, body: Option<&[u8]>) -> Self {
        let state = shared.accounts.iter().position(|state| state.knows(&head));
        let voice = match state.and_then(|index| shared.accounts.get(index)) {
            Some(state) => state.account.dialect.voice(),
            None => voice_for_strangers(&shared.accounts, head.path()),
        };
        let endpoint = voice.route(head.path()).map(|(endpoint, _)| endpoint);
        let mut hasher = DefaultHasher::new();
        (state, head.path(), body).hash(&mut hasher);
        let (now, fingerprint) = (shared.now(), hasher.finish());
        Self { shared, head, state, voice, endpoint, now, fingerprint }
    }

    fn state(&self) -> Option<&AccountState> {
        self.shared.accounts.get(self.state?)
    }

    /// What the sender is told of limits; a stranger has none.
    fn reporting(&self) -> Reporting {
        self.state().map(|state| state.account.reporting).unwrap_or_default()
    }

    fn examine(&self, body: Option<&[u8]>) -> Result<Asked, (Failure, RefusalCause)> {
        let endpoint = self.endpoint.filter(|_| self.head.method == Method::POST);
        let endpoint = endpoint.ok_or((Failure::NoPath, RefusalCause::Path))?;
        let state = self.state().ok_or((Failure::BadKey, RefusalCause::Credential))?;
        let bad = |failure| (failure, RefusalCause::Request);
        let body = body
            .and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok())
            .filter(Value::is_object)
            .ok_or_else(|| bad(Failure::BadRequest("the body is not a JSON object")))?;
        let ask = self.voice.ask(&self.head, endpoint, &body).map_err(bad)?;
        let tokens = ask.tokens(&self.head).map_err(bad)?;
        let (model, pool) = state
            .pool(&ask.model, &self.shared.pool_ids)
            .ok_or_else(|| (Failure::NoModel(ask.model.clone()), RefusalCause::Model))?;
        Ok(Asked { ask, tokens, model, pool })
    }

    /// Refuses a request that belongs to no pool.
    fn turn_away(&self, failure: &Failure, refusal: RefusalCause) -> Response<Body> {
        let number = self.shared.ledger.open(self.entry(None, CallCharge::default()));
        self.shared.ledger.revise(number, |entry| entry.refusal = Some(refusal));
        self.refuse(failure, number, Ending::Refused, "", Standing::default())
    }

    async fn serve(self, asked: Asked, link: Arc<Link>) -> Response<Body> {
        let Some(state) = self.state() else {
            return self.turn_away(&Failure::BadKey, RefusalCause::Credential);
        };
        let charging = state.account.charging;
        let pool = &asked.pool;
        let number = self.shared.ledger.open(self.entry(Some(&asked), CallCharge::default()));
        let mut random = Random::new(self.shared.seed, number);
        let fault = match state.fate(self.now, &mut random) {
            Fate::LockedOut { left, hint } => {
                let wait = (hint == Hint::Told).then_some(left);
                let failure = Failure::Throttled { wait };
                return self.refuse_unadmitted(&failure, RefusalCause::LockedOut, number, &asked);
            }
            Fate::Proceed(fault) => fault,
        };
        if let Some(failure) = fault.and_then(|fault| self.refusing(fault, pool)) {
            return self.refuse_unadmitted(&failure, RefusalCause::Fault, number, &asked);
        }
        let charge = charging.admission(&asked.ask.estimate(&asked.tokens));
        let Admitted { place, standing } = match pool.admit(self.now, charge, charging.failed) {
            Ok(admitted) => admitted,
            Err(refused) => return self.refuse_limited(&refused, number, &asked),
        };
        self.shared.ledger.revise(number, |entry| {
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
            standing,
            tokens: asked.tokens,
            sent: 0,
            permit: None,
            if_left: Ending::Abandoned,
            ended: false,
        };
        self.perform(call, asked, place, fault, random, link).await
    }

    /// The faults that refuse a call before its limits are looked at.
    fn refusing(&self, fault: Fault, pool: &Pool) -> Option<Failure> {
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
        asked: &Asked,
    ) -> Response<Body> {
        let failed =
            self.state().map_or(FailedCalls::AreFree, |state| state.account.charging.failed);
        let counted = asked.pool.count_refused(self.now, failed);
        self.note_refusal(number, refusal, counted);
        let standing = asked.pool.standing(self.now);
        self.refuse(failure, number, Ending::Refused, &asked.model, standing)
    }

    fn refuse_limited(&self, refused: &Refused, number: u64, asked: &Asked) -> Response<Body> {
        let (failure, refusal, counted) = match *refused {
            Refused::Limited(blocked, counted) => {
                let refusal = match blocked.wait {
                    Wait::Never => RefusalCause::TooLarge(blocked.dimension),
                    Wait::Now | Wait::For(_) => RefusalCause::Limit(blocked.dimension),
                };
                (Failure::Limited(blocked), refusal, counted)
            }
            Refused::Busy { limit, counted } => {
                (Failure::Busy { limit }, RefusalCause::Concurrency, counted)
            }
        };
        self.note_refusal(number, refusal, counted);
        let standing = asked.pool.standing(self.now);
        self.refuse(&failure, number, Ending::Refused, &asked.model, standing)
    }

    fn note_refusal(&self, number: u64, refusal: RefusalCause, counted: CallCharge) {
        self.shared.ledger.revise(number, |entry| {
            entry.refusal = Some(refusal);
            entry.charged = counted;
        });
    }

    fn refuse(
        &self,
        failure: &Failure,
        number: u64,
        ending: Ending,
        model: &str,
        standing: Standing,
    ) -> Response<Body> {
        let now = self.shared.now();
        let endpoint = self.endpoint;
        let charge = CallCharge::default();
        let reporting = self.reporting();
        let standing = reporting.report(standing);
        let scene = Scene { now, number, model, reporting, standing, charge, endpoint };
        let refused = self.voice.refuse(failure, &scene);
        self.shared.ledger.answered(number, refused.status.as_u16());
        self.shared.ledger.close(number, self.shared.elapsed(now), ending);
        let body = full(refused.body.to_string());
        self.response(refused.status, refused.fields, "application/json", body)
    }

    fn response(
        &self,
        status: StatusCode,
        fields: Fields,
        kind: &'static str,
        body: Body,
    ) -> Response<Body> {
        let coding = self.head.header(CONTENT_CODING).and_then(Coding::of);
        let body = match coding {
            Some(coding) => coding.encode(body),
            None => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = fields.0;
        if let Some(coding) = coding {
            let name = HeaderValue::from_static(coding.name());
            response.headers_mut().insert(CONTENT_ENCODING, name);
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let date = http_date(self.shared.now().unix_seconds());
        if let Ok(date) = HeaderValue::from_str(&date) {
            response.headers_mut().insert(DATE, date);
        }
        response
    }

    fn entry(&self, asked: Option<&Asked>, charged: CallCharge) -> Entry {
        Entry {
            number: 0,
            at: self.shared.elapsed(self.now),
            account: self.state().map(|state| Arc::clone(&state.label)),
            model: asked.map(|asked| Arc::clone(&asked.model)),
            endpoint: self.endpoint,
            charged,
            used: CallCharge::default(),
            status: None,
            refusal: None,
            in_flight: asked.map_or(0, |asked| asked.pool.in_flight()),
            is_retry: false,
            ending: Ending::Open,
            ended: None,
            pool: asked.map(|asked| asked.pool.id),
            fingerprint: self.fingerprint,
        }
    }
}

/// In whose words a caller is refused that no account knows: those of the first account with such a
/// path, else of the first account.
fn voice_for_strangers(accounts: &[AccountState], path: &str) -> &'static dyn Voice {
    let mut voices = accounts.iter().map(|state| state.account.dialect.voice());
    let first = voices.clone().next().unwrap_or_else(|| Dialect::OpenAi.voice());
    voices.find(|voice| voice.route(path).is_some()).unwrap_or(first)
}

fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).boxed_unsync()
}
