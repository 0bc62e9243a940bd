//! `POST /v1/batch`: several operations in one request, each decided independently.
//!
//! An operation is the body of its verb plus `op`, and its answer is the body of that verb's
//! response plus `status`. All operations go to the store in one call, in order. An error in one
//! operation is the answer to that operation; an error in the batch itself spends nothing. A batch
//! whose response could exceed the maximum length also spends nothing: each operation has an
//! answer, and a list has an entry for each charge or error.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Serialize, Serializer};
use tidegate::Batch;
use tidegate_config::{Fields, Path, Rule, Value};
use tidegate_http::problem::FieldError;

use super::HttpApi;
use super::hints::RetryHints;
use super::operation::{Operation, OperationItems, Verb};
use super::request::{Reader, read};
use super::response::{ApiResponse, Body, DenyStatus};
use crate::api::body::json;
use crate::api::problem::Problem;

/// Maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 256;

/// Maximum length of a response, in bytes.
const MAX_RESPONSE: usize = 128 * 1024;

/// Key of the verb of an operation.
const VERB_KEY: &str = "op";

/// Validation rules of a batch, in addition to those of its operations.
#[derive(Debug, thiserror::Error)]
enum BatchRule {
    #[error("must be a list of 1 to {MAX_OPERATIONS} operations")]
    Number,
    #[error(
        "could have a response of {0} bytes, but at most {MAX_RESPONSE} are allowed; send fewer \
         operations, or fewer charges in each"
    )]
    LongResponse(usize),
    #[error("must be one of {}", verbs())]
    UnknownVerb,
    #[error(
        "cannot be acquire, because a batch never waits; use take, which is denied at once, or \
         reserve, which returns how long to wait"
    )]
    Waits,
}

fn verbs() -> String {
    Verb::ALL.map(Verb::name).join(", ")
}

impl From<BatchRule> for Rule {
    fn from(rule: BatchRule) -> Self {
        Self::Other(Box::new(rule))
    }
}

#[derive(Serialize)]
struct Answers<'a> {
    answers: Vec<BatchAnswer<'a>>,
}

/// The serialized answer to one operation.
struct BatchAnswer<'a>(Result<&'a ApiResponse<Body<'a>>, &'a Problem>);

impl Serialize for BatchAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Ok(ApiResponse { status, body, .. }) => {
                WithStatus { status: status.as_u16(), body }.serialize(serializer)
            }
            // A problem document contains its status.
            Err(problem) => problem.document().serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct WithStatus<'a> {
    status: u16,
    #[serde(flatten)]
    body: &'a Body<'a>,
}

impl HttpApi {
    /// `POST /v1/batch`.
    pub(super) async fn batch(
        &self,
        reader: Reader<'_>,
        body: &Value<'_>,
        (deny, peer): (DenyStatus, IpAddr),
        hints: RetryHints<'_>,
    ) -> Result<Response, Problem> {
        let operations = read(body, &["operations"], |top| top.require("operations", list))?;
        let reader = Reader { extra_keys: &[VERB_KEY], ..reader };
        let read = |operation| Operation::read(verb(operation)?, reader, operation);
        let parsed: Vec<Result<Operation<'_>, Problem>> = operations.iter().map(read).collect();
        check_response_len(&parsed)?;
        // Only valid operations go to the store; the others already have their answers.
        let items: Vec<OperationItems<'_>> =
            parsed.iter().flatten().map(Operation::items).collect();
        let batch: Batch<'_, _> = std::iter::zip(parsed.iter().flatten(), &items)
            .map(|(operation, items)| operation.request(items, &self.config.parts().engine))
            .collect();
        let answers = batch.await;
        for operation in parsed.iter().flatten() {
            self.permits.queues().nudge(&operation.refunded_buckets());
        }
        let responses: Vec<_> = std::iter::zip(parsed.iter().flatten(), answers)
            .map(|(operation, answer)| self.respond(operation, answer, (deny, peer), hints))
            .collect();
        responses
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .for_each(|problem| self.log_store_error(problem));
        let mut responses = responses.iter();
        let answers = parsed.iter().filter_map(|operation| match operation {
            Ok(_) => responses.next().map(|answer| BatchAnswer(answer.as_ref())),
            Err(problem) => Some(BatchAnswer(Err(problem))),
        });
        Ok(json(StatusCode::OK, &Answers { answers: answers.collect() }))
    }
}

/// Rejects a batch whose response could be too long, before anything is spent.
fn check_response_len(parsed: &[Result<Operation<'_>, Problem>]) -> Result<(), Problem> {
    let longest = |one: &Result<Operation<'_>, Problem>| match one {
        Ok(operation) => operation.max_response_len(),
        Err(problem) => serde_json::to_vec(&problem.document()).map_or(0, |text| text.len() + 1),
    };
    let bytes = parsed.iter().map(longest).sum();
    if bytes <= MAX_RESPONSE {
        return Ok(());
    }
    let rule = BatchRule::LongResponse(bytes).to_string();
    Err(Problem::Invalid(vec![FieldError { field: "operations".to_owned(), rule }]))
}

/// Returns the operations, which are then parsed one by one.
fn list<'v>(value: &'v Value<'v>) -> Result<&'v [Value<'v>], Rule> {
    match value.to_list()? {
        [] => Err(BatchRule::Number.into()),
        list if list.len() > MAX_OPERATIONS => Err(BatchRule::Number.into()),
        list => Ok(list),
    }
}

/// Returns the verb of an operation, which determines its other keys.
fn verb(operation: &Value<'_>) -> Result<Verb, Problem> {
    let mut violations = Vec::new();
    let fields = Fields::open_any(operation, Path::Root, &mut violations);
    let verb = fields.and_then(|mut fields| fields.require(VERB_KEY, parse_verb));
    verb.ok_or_else(|| violations.into())
}

fn parse_verb(value: &Value<'_>) -> Result<Verb, Rule> {
    let name = value.to_text()?;
    Verb::from_name(name).ok_or_else(|| match name {
        "acquire" => BatchRule::Waits.into(),
        _ => BatchRule::UnknownVerb.into(),
    })
}
