//! Paths and verbs. Each verb reads its request, calls the engine once, and answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use tidegate::{Charge, Correction};

use super::HttpDoor;
use super::admission;
use super::answer::{self, Extra};
use super::bounds::MAX_BODY;
use super::guard::require_json;
use super::problem::Problem;
use super::request::{self, List, Reader};

/// The verbs of the engine.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Take,
    Peek,
    Reserve,
    Settle,
    Hold,
    Reset,
    Admit,
    SetPending,
}

/// All paths of the door, behind its guard.
pub(crate) fn router(door: Arc<HttpDoor>) -> Router {
    Router::new()
        .route("/v1/take", verb(Verb::Take))
        .route("/v1/peek", verb(Verb::Peek))
        .route("/v1/reserve", verb(Verb::Reserve))
        .route("/v1/settle", verb(Verb::Settle))
        .route("/v1/hold", verb(Verb::Hold))
        .route("/v1/reset", verb(Verb::Reset))
        .route("/v1/admit", verb(Verb::Admit))
        .route("/v1/pending", verb(Verb::SetPending).get(pending))
        .route("/healthz", get(async || answer::healthy()))
        .fallback(async || Problem::NotFound)
        .method_not_allowed_fallback(async || Problem::Method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(door.clone(), admit))
        .with_state(door)
}

async fn admit(State(door): State<Arc<HttpDoor>>, request: Request, next: Next) -> Response {
    match door.guard.admit(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn verb(verb: Verb) -> MethodRouter<Arc<HttpDoor>> {
    let method = match verb {
        Verb::SetPending => MethodFilter::PUT,
        _ => MethodFilter::POST,
    };
    on(method, move |State(door): State<Arc<HttpDoor>>, request: Request| async move {
        door.carry_out(verb, request).await.unwrap_or_else(|problem| door.refuse(problem))
    })
}

async fn pending(State(door): State<Arc<HttpDoor>>) -> Response {
    admission::pending(&door.admission)
}

impl HttpDoor {
    fn refuse(&self, problem: Problem) -> Response {
        if let Some(trouble) = problem.trouble() {
            self.troubles.log(trouble);
        }
        problem.into_response()
    }

    async fn carry_out(&self, verb: Verb, request: Request) -> Result<Response, Problem> {
        require_json(request.headers())?;
        let denials_are_ok = request::denials_are_ok(request.uri().query())?;
        let body = tokio::time::timeout(self.bounds.body, Bytes::from_request(request, &()));
        let body = body.await.map_err(|_| Problem::SlowBody)?.map_err(|error| refused(&error))?;
        let body = request::parse(&body)?;
        let wall = || self.engine.wall_time();
        let reader = Reader { served: &self.served, wall: &wall };
        let engine = &self.engine;
        match verb {
            Verb::Take => {
                let asked = reader.take(&body)?;
                let decision = engine.take(&charges(&asked.list)).await?;
                let extra = if asked.receipt { Extra::Receipt } else { Extra::Nothing };
                Ok(answer::decided(&decision, &asked.list, extra, denials_are_ok))
            }
            Verb::Peek => {
                let asked = reader.peek(&body)?;
                let decision = engine.peek(&charges(&asked.list)).await?;
                Ok(answer::decided(&decision, &asked.list, Extra::Nothing, denials_are_ok))
            }
            Verb::Reserve => {
                let asked = reader.reserve(&body)?;
                let decision = engine.reserve(&charges(&asked.list), asked.max_wait).await?;
                let extra = Extra::WaitAndReceipt;
                Ok(answer::decided(&decision, &asked.list, extra, denials_are_ok))
            }
            Verb::Settle => {
                let asked = reader.settle(&body)?;
                let corrections = corrections(&asked.list);
                let settlement = engine.settle(&corrections, asked.receipt.as_ref()).await?;
                Ok(answer::settled(&settlement, &asked.list))
            }
            Verb::Hold => {
                let asked = reader.hold(&body)?;
                Ok(answer::held(engine.hold(asked.target(), asked.amount).await?))
            }
            Verb::Reset => {
                let asked = reader.reset(&body)?;
                Ok(answer::reset(engine.reset(asked.target()).await?))
            }
            Verb::Admit => admission::admit(&self.admission, &body, denials_are_ok).await,
            Verb::SetPending => admission::set_pending(&self.admission, &body),
        }
    }
}

fn charges<'l>(list: &'l List<'_, u64>) -> Vec<Charge<'l>> {
    list.items.iter().map(|item| Charge { target: item.target(), cost: item.amount }).collect()
}

fn corrections<'l>(list: &'l List<'_, i64>) -> Vec<Correction<'l>> {
    let items = list.items.iter();
    items.map(|item| Correction { target: item.target(), delta: item.amount }).collect()
}

/// A body that was not read to its end: too large, or the caller went away.
fn refused(error: &BytesRejection) -> Problem {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::TooLarge
    } else {
        Problem::Incomplete
    }
}
