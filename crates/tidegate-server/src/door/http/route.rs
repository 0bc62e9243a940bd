//! Paths and verbs. Each verb reads its request, calls the engine once, and answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use tidegate::{Charge, Correction};
use tokio::time::Instant;

use super::HttpDoor;
use super::admission;
use super::answer::{self, Extra};
use super::request::{self, List, Reader};
use super::tally;
use crate::door::body;
use crate::door::bounds::MAX_BODY;
use crate::door::guard::{Declared, require_json};
use crate::door::problem::Problem;
use crate::health;

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
        .route("/healthz", get(async || health::alive()))
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
        let begun = Instant::now();
        let answer = door.carry_out(verb, request).await;
        door.metrics.took(begun.elapsed());
        answer.unwrap_or_else(|problem| door.refuse(problem))
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
        require_json(request.headers(), Declared::Json)?;
        let denials_are_ok = request::denials_are_ok(request.uri().query())?;
        let body = body::whole(request, self.bounds.body).await?;
        let body = request::parse(&body)?;
        let wall = || self.engine.wall_time();
        // One configuration for all of the request, whatever changes meanwhile.
        let current = self.live.current();
        let reader = Reader { served: &current.served, inline: &self.inline, wall: &wall };
        let engine = &self.engine;
        match verb {
            Verb::Take => {
                let asked = reader.take(&body)?;
                let decision = tally::of(engine.take(&charges(&asked.list)).await, &asked.list)?;
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
                let decision = engine.reserve(&charges(&asked.list), asked.max_wait).await;
                let decision = tally::of(decision, &asked.list)?;
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
            Verb::Admit => {
                let served = &current.served;
                admission::admit(&self.admission, served, &body, denials_are_ok).await
            }
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
