//! Manual operations on keys, for the admin API. Bodies and responses are those of the HTTP API.
//! Every operation is audited. A denial has status 200, since an operator does not retry it.

use std::sync::OnceLock;

use axum::response::{IntoResponse as _, Response};
use tidegate::Jitter;

use super::audit::{ActionOutcome, Auditor};
use super::hints::RetryHints;
use super::operation::{Operation, Verb};
use super::request::{self, Reader};
use super::response::DenyStatus;
use crate::api::problem::Problem;
use crate::configuration::{ActiveConfig, Parts};
use crate::database::ChangeOrigin;

/// A manual operation on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyAction(Verb);

impl KeyAction {
    /// Returns the action with this name: `peek`, `hold`, `reset` or `settle`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let verb = Verb::from_name(name)?;
        let is_manual = matches!(verb, Verb::Peek | Verb::Hold | Verb::Reset | Verb::Settle);
        is_manual.then_some(Self(verb))
    }

    /// Executes the action on behalf of the author named in `note`.
    pub(crate) async fn execute(
        self,
        config: &ActiveConfig,
        body: &[u8],
        note: &ChangeOrigin,
    ) -> Result<Response, Problem> {
        let body = request::parse(body)?;
        let Parts { engine, metrics, .. } = config.parts();
        let read_at = OnceLock::new();
        let wall = || *read_at.get_or_init(|| engine.wall_time());
        let (current, inline) = (config.current(), metrics.listener("http").inline());
        let limits = &current.limits;
        let reader = Reader { limits, inline: &inline, wall: &wall, extra_keys: &[] };
        let operation = Operation::read(self.0, reader, &body)?;
        let items = operation.items();
        let answer = operation.request(&items, engine).await;
        let exact = RetryHints { jitter: &Jitter::new(), percent: 0 };
        let response = operation.respond(answer, DenyStatus::Ok, exact);
        Auditor::of(note).log(&operation, ActionOutcome::of(&response));
        Ok(response?.into_response())
    }
}
