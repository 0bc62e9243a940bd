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
use super::answer::{Body, Deny, Reply};
use super::hints::Hints;
use super::operation::{Lines, Operation, Verb};
use super::request::{Reader, read};
use crate::api::body::json;
use crate::api::problem::Problem;

/// Maximum number of operations in a batch.
const MAX_OPERATIONS: usize = 256;

/// Maximum length of a response, in bytes.
const MAX_ANSWER: usize = 128 * 1024;

/// Key of the verb of an operation.
const OP: &str = "op";

/// Validation rules of a batch, in addition to those of its operations.
#[derive(Debug, thiserror::Error)]
enum BatchRule {
    #[error("must be a list of 1 to {MAX_OPERATIONS} operations")]
    Number,
    #[error(
        "could have a response of {0} bytes, but at most {MAX_ANSWER} are allowed; send fewer \
         operations, or fewer charges in each"
    )]
    LongAnswer(usize),
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
    answers: Vec<Told<'a>>,
}

/// The serialized answer to one operation.
struct Told<'a>(Result<&'a Reply<Body<'a>>, &'a Problem>);

impl Serialize for Told<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Ok(Reply { status, body, .. }) => {
                Numbered { status: status.as_u16(), body }.serialize(serializer)
            }
            // A problem document contains its status.
            Err(problem) => problem.document().serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct Numbered<'a> {
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
        (deny, peer): (Deny, IpAddr),
        hints: Hints<'_>,
    ) -> Result<Response, Problem> {
        let operations = read(body, &["operations"], |top| top.require("operations", list))?;
        let reader = Reader { beside: &[OP], ..reader };
        let read = |operation| Operation::read(verb(operation)?, reader, operation);
        let asked: Vec<Result<Operation<'_>, Problem>> = operations.iter().map(read).collect();
        check_answer(&asked)?;
        // Only valid operations go to the store; the others already have their answers.
        let lines: Vec<Lines<'_>> = asked.iter().flatten().map(Operation::lines).collect();
        let batch: Batch<'_, _> = std::iter::zip(asked.iter().flatten(), &lines)
            .map(|(asked, lines)| asked.request(lines, &self.config.parts().engine))
            .collect();
        let answers = batch.await;
        for asked in asked.iter().flatten() {
            self.permits.queues().nudge(&asked.opened());
        }
        let answered: Vec<_> = std::iter::zip(asked.iter().flatten(), answers)
            .map(|(asked, answer)| self.answered(asked, answer, (deny, peer), hints))
            .collect();
        answered.iter().filter_map(|answer| answer.as_ref().err()).for_each(|why| self.note(why));
        let mut answered = answered.iter();
        let told = asked.iter().filter_map(|asked| match asked {
            Ok(_) => answered.next().map(|answer| Told(answer.as_ref())),
            Err(problem) => Some(Told(Err(problem))),
        });
        Ok(json(StatusCode::OK, &Answers { answers: told.collect() }))
    }
}

/// Rejects a batch whose response could be too long, before anything is spent.
fn check_answer(asked: &[Result<Operation<'_>, Problem>]) -> Result<(), Problem> {
    let longest = |one: &Result<Operation<'_>, Problem>| match one {
        Ok(operation) => operation.longest_answer(),
        Err(problem) => serde_json::to_vec(&problem.document()).map_or(0, |text| text.len() + 1),
    };
    let bytes = asked.iter().map(longest).sum();
    if bytes <= MAX_ANSWER {
        return Ok(());
    }
    let rule = BatchRule::LongAnswer(bytes).to_string();
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
    let mut faults = Vec::new();
    let fields = Fields::any(operation, Path::Root, &mut faults);
    let verb = fields.and_then(|mut fields| fields.require(OP, named));
    verb.ok_or_else(|| faults.into())
}

fn named(value: &Value<'_>) -> Result<Verb, Rule> {
    let name = value.to_text()?;
    Verb::named(name).ok_or_else(|| match name {
        "acquire" => BatchRule::Waits.into(),
        _ => BatchRule::UnknownVerb.into(),
    })
}
