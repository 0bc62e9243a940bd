//! A mock provider for tests.
//!
//! A [`Mock`] responds to calls without a network: first as scripted, then always in the same way.
//! Its delays use tokio's clock, so they take no real time when that is paused. It keeps the calls
//! it received, for comparison by value.

mod event_stream;
mod step;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tidegate_providers::{Chat, Provider, Reply, StopReason, Usage, tokens};
use tower_service::Service;

use crate::call::deadline::end_at;
use crate::call::{Call, CallError, CallResponse, OutgoingCall as _};
use event_stream::EventStream;
pub use step::Step;
use step::{Ending, Outcome};

/// Maximum number of calls remembered; the oldest are dropped.
const MAX_REMEMBERED: usize = 1_024;

/// A service that responds to calls as scripted, or times out at their deadline. Clones share the
/// script and the calls.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use tidegate_llm::mock::{Mock, Step};
/// use tidegate_llm::Call;
/// use tidegate_llm::{Chat, Class};
/// use tower::ServiceExt as _;
///
/// let mock = Mock::new("mock").then(Step::fail(Class::Overloaded)).always(Step::reply("Elbe"));
/// let call = Call::new(Chat::user("A river?"));
///
/// let error = mock.clone().oneshot(call.clone()).await.unwrap_err();
/// assert_eq!(error.class(), Class::Overloaded);
/// let response = mock.clone().oneshot(call).await?;
/// assert_eq!(response.into_reply().await?.text, "Elbe");
///
/// assert_eq!(mock.call_count(), 2);
/// assert_eq!(mock.calls()[1].chat(), &Chat::user("A river?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Mock {
    provider: Provider,
    state: Arc<Mutex<State>>,
}

struct State {
    script: VecDeque<Step>,
    always: Step,
    calls: VecDeque<Call>,
    seen: u64,
}

impl Mock {
    /// Creates a mock that responds `This is a mock.` to every call, without delay.
    #[must_use]
    pub fn new(provider: impl Into<Provider>) -> Self {
        let state = State {
            script: VecDeque::new(),
            always: Step::reply("This is a mock."),
            calls: VecDeque::new(),
            seen: 0,
        };
        Self { provider: provider.into(), state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a step to the script. Each call takes the next step.
    #[must_use]
    pub fn then(self, step: Step) -> Self {
        self.push(step);
        self
    }

    /// Sets the response to calls after the end of the script.
    #[must_use]
    pub fn always(self, step: Step) -> Self {
        self.lock().always = step;
        self
    }

    /// Adds a step to the script of a mock that is already in use.
    pub fn push(&self, step: Step) {
        self.lock().script.push_back(step);
    }

    /// Returns the last 1,024 calls, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.iter().cloned().collect()
    }

    /// Returns the total number of calls.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.lock().seen
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a call and returns its step.
    fn take(&self, call: &Call) -> Step {
        let mut state = self.lock();
        state.seen += 1;
        if state.calls.len() == MAX_REMEMBERED {
            state.calls.pop_front();
        }
        state.calls.push_back(call.clone());
        state.script.pop_front().unwrap_or_else(|| state.always.clone())
    }
}

impl Service<Call> for Mock {
    type Response = CallResponse;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let Step { outcome, delay, pause, reported } = self.take(&call);
        let provider = self.provider.clone();
        let (deadline, called) = (call.options().deadline, provider.clone());
        let attempt = async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let (reply, ending) = match outcome {
                Outcome::Reply(reply, ending) => (fill_in(reply, call.chat()), ending),
                Outcome::Fail(fail) => return Err(fail.error(provider)),
            };
            let response = match (call.is_streamed(), ending) {
                (false, Ending::Complete) => CallResponse::complete(provider, reply),
                (false, Ending::Interrupted(fail)) => return Err(fail.error(provider)),
                (true, ending) => {
                    let event_stream = EventStream::new(provider.clone(), reply, ending, pause);
                    CallResponse::streamed(provider, Box::pin(event_stream))
                }
            };
            Ok(response.with_head(reported, None))
        };
        Box::pin(async move { end_at(deadline, &called, attempt).await })
    }
}

/// Fills in the usage, by our own token count, and the stop reason if they are not set.
fn fill_in(mut reply: Reply, chat: &Chat) -> Reply {
    reply.usage.get_or_insert_with(|| Usage {
        input: tokens::count_chat(chat),
        output: tokens::count(&reply.text),
        ..Usage::default()
    });
    let stop = if reply.calls.is_empty() { StopReason::End } else { StopReason::Tools };
    reply.stop.get_or_insert(stop);
    reply
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock")
            .field("provider", &self.provider)
            .field("seen", &self.call_count())
            .finish_non_exhaustive()
    }
}
