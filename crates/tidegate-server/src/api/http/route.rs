//! Paths. Each request is read, calls the engine once, and is answered.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use tokio::time::Instant;

use super::HttpApi;
use super::admission;
use super::operation::{Operation, Verb};
use super::request::{self, Reader};
use crate::api::body;
use crate::api::body::{Declared, require_json};
use crate::api::health;
use crate::api::problem::Problem;
use crate::listener::bounds::MAX_BODY;

/// What is asked at a path with a body.
#[derive(Clone, Copy, Debug)]
enum Task {
    One(Verb),
    Batch,
    Admit,
    SetPending,
}

/// All paths of the HTTP API, behind the host check.
pub(crate) fn router(api: Arc<HttpApi>) -> Router {
    let verbs = Verb::ALL.into_iter().fold(Router::new(), |router, verb| {
        router.route(&format!("/v1/{}", verb.name()), task(Task::One(verb)))
    });
    verbs
        .route("/v1/batch", task(Task::Batch))
        .route("/v1/admit", task(Task::Admit))
        .route("/v1/pending", task(Task::SetPending).get(pending))
        .route("/healthz", get(async || health::alive()))
        .fallback(async || Problem::NotFound)
        .method_not_allowed_fallback(async || Problem::Method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(api.clone(), admit))
        .with_state(api)
}

async fn admit(State(api): State<Arc<HttpApi>>, request: Request, next: Next) -> Response {
    match api.host_check.admit(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn task(task: Task) -> MethodRouter<Arc<HttpApi>> {
    let method = match task {
        Task::SetPending => MethodFilter::PUT,
        _ => MethodFilter::POST,
    };
    on(method, move |State(api): State<Arc<HttpApi>>, request: Request| async move {
        let begun = Instant::now();
        let answer = api.carry_out(task, request).await;
        api.metrics.took(begun.elapsed());
        answer.unwrap_or_else(|problem| {
            api.note(&problem);
            problem.into_response()
        })
    })
}

async fn pending(State(api): State<Arc<HttpApi>>) -> Response {
    admission::pending(&api.admission)
}

impl HttpApi {
    /// Notes a problem that somebody is told of, if it is one of the store.
    pub(super) fn note(&self, problem: &Problem) {
        if let Some(trouble) = problem.trouble() {
            self.store_errors.log(trouble);
        }
    }

    async fn carry_out(&self, task: Task, request: Request) -> Result<Response, Problem> {
        require_json(request.headers(), Declared::Json)?;
        let deny = request::deny_status(request.uri().query())?;
        let body = body::whole(request, self.bounds.body).await?;
        let body = request::parse(&body)?;
        // One time and one configuration for all of the request, whatever changes meanwhile.
        let read_at = OnceLock::new();
        let wall = || *read_at.get_or_init(|| self.engine.wall_time());
        let current = self.config.current();
        let limits = &current.limits;
        let reader = Reader { limits, inline: &self.inline, wall: &wall, beside: &[] };
        match task {
            Task::One(verb) => {
                let asked = Operation::read(verb, reader, &body)?;
                let lines = asked.lines();
                let answer = asked.request(&lines, &self.engine).await;
                Ok(asked.answered(answer, deny)?.into_response())
            }
            Task::Batch => self.batch(reader, &body, deny).await,
            Task::Admit => admission::admit(&self.admission, limits, &body, deny).await,
            Task::SetPending => admission::set_pending(&self.admission, &body),
        }
    }
}
