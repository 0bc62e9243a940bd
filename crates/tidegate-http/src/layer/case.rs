//! A request on its way to a decision, and what came of asking for one.

use http::{Method, Request};
use tidegate::{Decision, StoreError};

use super::limits::Charges;
use super::tiers::{Asking, Said};

/// A request on its way to a decision.
pub(super) struct Case {
    pub(super) charges: Charges,
    /// Who asks to be let in, if that is what is asked.
    pub(super) asking: Option<Asking>,
    /// Its answer has no content.
    pub(super) bodiless: bool,
}

impl Case {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let bodiless = *request.method() == Method::HEAD;
        Self { charges: Charges::new(), asking: None, bodiless }
    }
}

/// What came of asking.
pub(super) enum Answer {
    /// A list was decided.
    Decided(Decision),
    /// An admission has spoken.
    Said(Said),
    /// Nobody could decide.
    Failed(StoreError),
}

impl From<Result<Decision, StoreError>> for Answer {
    fn from(answer: Result<Decision, StoreError>) -> Self {
        answer.map_or_else(Self::Failed, Self::Decided)
    }
}

impl From<Result<Said, StoreError>> for Answer {
    fn from(answer: Result<Said, StoreError>) -> Self {
        answer.map_or_else(Self::Failed, Self::Said)
    }
}
