//! What a mock does with one call.

use std::time::Duration;

use http::StatusCode;
use tidegate_providers::{Class, Failure, Provider, Reply, ReportedLimits};

use crate::call::{Broken, CallError};

/// What a mock does with one call: an answer or a failure, and how long it takes.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::mock::Step;
/// use tidegate_llm::Broken;
/// use tidegate_llm::Class;
/// let late = Step::reply("one two three").after(Duration::from_secs(2));
/// let slow = Step::reply("one two three").pause(Duration::from_millis(50));
/// let half = Step::reply("one two three").then_breaks(Broken::Cut);
/// let dead = Step::fail(Class::CredentialRejected);
/// # let _ = (late, slow, half, dead);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a step does nothing until a mock has it"]
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

/// How an answer ends.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Whole,
    BrokenOff(Fail),
}

/// An error that can be made more than once.
#[derive(Clone, Debug)]
pub(super) enum Fail {
    Class(Class),
    Failure(Box<Failure>),
    Broken(Broken),
}

impl Step {
    /// Answers with a text.
    pub fn reply(text: impl Into<String>) -> Self {
        Self::whole(Reply::text(text))
    }

    /// Answers with all of this. Usage and the reason to stop are filled in if they are not there.
    pub fn whole(reply: Reply) -> Self {
        Self::of(Outcome::Reply(reply, Ending::Whole))
    }

    /// Fails with an error of a class, and a status that goes with it.
    pub fn fail(class: Class) -> Self {
        Self::of(Outcome::Fail(Fail::Class(class)))
    }

    /// Fails with exactly this.
    pub fn failure(failure: Failure) -> Self {
        Self::of(Outcome::Fail(Fail::Failure(Box::new(failure))))
    }

    /// Fails with a connection that is broken.
    pub fn broken(broken: Broken) -> Self {
        Self::of(Outcome::Fail(Fail::Broken(broken)))
    }

    fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            reported: ReportedLimits::nothing(),
        }
    }

    /// Takes that long until the answer begins, or until it fails.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Takes that long before every event of an answer that is streamed.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Tells this about limits, in the head of an answer.
    pub fn told(mut self, limits: ReportedLimits) -> Self {
        self.reported = limits;
        self
    }

    /// Breaks off after the words. An answer that is not streamed fails instead.
    pub fn then_breaks(self, broken: Broken) -> Self {
        self.then_ends(Ending::BrokenOff(Fail::Broken(broken)))
    }

    /// Reports an error of a class after the words. An answer that is not streamed fails instead.
    pub fn then_fails(self, class: Class) -> Self {
        self.then_ends(Ending::BrokenOff(Fail::Class(class)))
    }

    fn then_ends(mut self, ending: Ending) -> Self {
        if let Outcome::Reply(_, end) = &mut self.outcome {
            *end = ending;
        }
        self
    }
}

impl Fail {
    /// The error, before an answer has begun.
    pub(super) fn error(self, provider: Provider) -> CallError {
        match self {
            Self::Class(class) => {
                CallError::Provider(Box::new(Failure::new(provider, class, status(class))))
            }
            Self::Failure(failure) => CallError::Provider(failure),
            Self::Broken(broken) => CallError::Connection { provider, broken, source: None },
        }
    }

    /// The error, in the middle of an answer: its status was one of success.
    pub(super) fn in_stream(self, provider: Provider) -> CallError {
        match self {
            Self::Class(class) => {
                CallError::Provider(Box::new(Failure::new(provider, class, StatusCode::OK)))
            }
            other => other.error(provider),
        }
    }
}

/// The status that most providers have for a class.
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
