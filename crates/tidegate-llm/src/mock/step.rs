//! How a mock responds to one call.

use std::time::Duration;

use http::StatusCode;
use tidegate_providers::{Class, Failure, Provider, Reply, ReportedLimits};

use crate::call::{CallError, ConnectionFailure};

/// How a mock responds to one call: a reply or a failure, and its timing.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::mock::Step;
/// use tidegate_llm::ConnectionFailure;
/// use tidegate_llm::Class;
/// let late = Step::reply("one two three").after(Duration::from_secs(2));
/// let slow = Step::reply("one two three").pause(Duration::from_millis(50));
/// let half = Step::reply("one two three").then_disconnects(ConnectionFailure::Closed);
/// let dead = Step::fail(Class::CredentialRejected);
/// # let _ = (late, slow, half, dead);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a step does nothing until it is added to a mock"]
pub struct Step {
    pub(super) outcome: Outcome,
    pub(super) delay: Duration,
    pub(super) pause: Duration,
    pub(super) reported: ReportedLimits,
}

#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Reply(Reply, Ending),
    Fail(Fail),
}

/// How a response ends.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Complete,
    Interrupted(Fail),
}

/// Description of an error, from which a new [`CallError`] is made for each call.
#[derive(Clone, Debug)]
pub(super) enum Fail {
    Class(Class),
    Failure(Box<Failure>),
    ConnectionFailure(ConnectionFailure),
}

impl Step {
    /// Responds with a text.
    pub fn reply(text: impl Into<String>) -> Self {
        Self::from_reply(Reply::text(text))
    }

    /// Responds with this reply. Usage and stop reason are filled in if they are not set.
    pub fn from_reply(reply: Reply) -> Self {
        Self::of(Outcome::Reply(reply, Ending::Complete))
    }

    /// Fails with an error of this class, with the status most providers use for it.
    pub fn fail(class: Class) -> Self {
        Self::of(Outcome::Fail(Fail::Class(class)))
    }

    /// Fails with exactly this failure.
    pub fn failure(failure: Failure) -> Self {
        Self::of(Outcome::Fail(Fail::Failure(Box::new(failure))))
    }

    /// Fails with a broken connection.
    pub fn connection_failure(kind: ConnectionFailure) -> Self {
        Self::of(Outcome::Fail(Fail::ConnectionFailure(kind)))
    }

    fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            reported: ReportedLimits::new(),
        }
    }

    /// Delays the response or failure.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Pauses before every event of a streamed response.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Reports these limits with the response, as providers do in headers.
    pub fn reported_limits(mut self, limits: ReportedLimits) -> Self {
        self.reported = limits;
        self
    }

    /// Breaks the connection after the text. A response that is not streamed fails instead.
    pub fn then_disconnects(self, kind: ConnectionFailure) -> Self {
        self.then_ends(Ending::Interrupted(Fail::ConnectionFailure(kind)))
    }

    /// Reports an error of this class after the text. A response that is not streamed fails
    /// instead.
    pub fn then_fails(self, class: Class) -> Self {
        self.then_ends(Ending::Interrupted(Fail::Class(class)))
    }

    fn then_ends(mut self, ending: Ending) -> Self {
        if let Outcome::Reply(_, end) = &mut self.outcome {
            *end = ending;
        }
        self
    }
}

impl Fail {
    /// Returns the error for a call that fails before its response begins.
    pub(super) fn error(self, provider: Provider) -> CallError {
        match self {
            Self::Class(class) => {
                CallError::Provider(Box::new(Failure::new(provider, class, status(class))))
            }
            Self::Failure(failure) => CallError::Provider(failure),
            Self::ConnectionFailure(kind) => CallError::Connection { provider, kind, source: None },
        }
    }

    /// Returns the error for a stream that fails: the status was already sent as success.
    pub(super) fn in_stream(self, provider: Provider) -> CallError {
        match self {
            Self::Class(class) => {
                CallError::Provider(Box::new(Failure::new(provider, class, StatusCode::OK)))
            }
            other => other.error(provider),
        }
    }
}

/// Returns the status that most providers use for a class.
const fn status(class: Class) -> StatusCode {
    match class {
        Class::Transient => StatusCode::INTERNAL_SERVER_ERROR,
        Class::Overloaded | Class::SlowDown => StatusCode::SERVICE_UNAVAILABLE,
        Class::RateLimited { .. } | Class::ExhaustedQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
        Class::CredentialRejected => StatusCode::UNAUTHORIZED,
        Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}
