//! `POST /v1/batch`: several operations in one request, each decided by itself.
//!
//! An operation is the body of its verb with `op` beside it, and its answer is the body of that
//! verb's answer with `status` beside it. All go to the store in one call, in their order. A
//! mistake in one is the answer of that one; a mistake in the batch itself spends nothing. Nor does a
//! batch whose answer could be too long: each operation has at least an answer of its own, and a list
//! has one for each charge, or for each mistake in it.

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

/// The most operations of one batch.
const MAX_OPERATIONS: usize = 256;

/// The most bytes of an answer.
const MAX_ANSWER: usize = 128 * 1024;

/// The key that says which verb an operation is of.
const OP: &str = "op";

/// Rules of a batch, besides those of its operations.
#[derive(Debug, thiserror::Error)]
enum BatchRule {
    #[error("must be a list of 1 to {MAX_OPERATIONS} operations")]
    Number,
    #[error(
        "would have an answer of up to {0} bytes, and at most {MAX_ANSWER} are allowed: send fewer \
         operations, or fewer charges in each"
    )]
    LongAnswer(usize),
    #[error("must be one of {}", verbs())]
    UnknownVerb,
    #[error(
        "cannot be acquire: that waits for its turn, and a batch keeps nobody waiting; take is \
         denied at once, and reserve says when to go ahead"
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

/// The answer to one operation, as it is told.
struct Told<'a>(Result<&'a Reply<Body<'a>>, &'a Problem>);

impl Serialize for Told<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Ok(Reply { status, body, .. }) => {
                Numbered { status: status.as_u16(), body }.serialize(serializer)
            }
            // A problem tells its status by itself.
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
    /// Carries a batch out.
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
        // What was understood goes to the store; the others have their answers already.
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

/// Refuses a batch whose answer could be too long, before anything is spent.
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

/// The operations themselves, which are looked at one by one.
fn list<'v>(value: &'v Value<'v>) -> Result<&'v [Value<'v>], Rule> {
    match value.to_list()? {
        [] => Err(BatchRule::Number.into()),
        list if list.len() > MAX_OPERATIONS => Err(BatchRule::Number.into()),
        list => Ok(list),
    }
}

/// Which verb an operation is of. Its other keys are read when that is known.
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
