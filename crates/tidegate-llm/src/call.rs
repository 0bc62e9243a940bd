//! Calls: a chat and the options for sending it.

pub(crate) mod connection;
pub(crate) mod deadline;
mod error;
mod limit_scope;
pub(crate) mod ready;
mod response;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::pacer::{CallerId, Priority};
use tidegate_providers::tokens::TokenCounter;
use tidegate_providers::{Chat, Endpoint};

pub use connection::{ConnectionError, ConnectionFailure};
pub(crate) use error::BoxError;
pub use error::CallError;
pub(crate) use limit_scope::LimitScope;
pub use response::CallResponse;
pub(crate) use response::ResponsePermit;

/// A chat and the options for sending it. Cheap to clone, since every attempt takes a clone.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::Call;
/// use tidegate_llm::Chat;
/// let call = Call::new(Chat::user("hello")).streamed().tenant("team-a").max_wait(Duration::from_secs(5));
/// # let _ = call;
/// ```
#[derive(Clone)]
pub struct Call {
    chat: Arc<Chat>,
    /// Counted on first use and shared by all attempts, since counting is slow.
    input: Arc<OnceLock<CountedInput>>,
    is_streamed: bool,
    /// How the call waits.
    options: CallOptions,
}

/// Input tokens of a call.
#[derive(Clone, Copy)]
struct CountedInput {
    tokens: u64,
    /// Whether they were estimated because the tokenizer was not ready.
    is_provisional: bool,
}

/// How a call waits for permits and retries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallOptions {
    /// Where the call comes from, if callers are not trusted. Callers take turns, then their
    /// tenants.
    pub caller: CallerId,
    /// Tenant of the call. Tenants of a caller take turns.
    pub tenant: Option<Arc<str>>,
    /// Priority class.
    pub priority: Priority,
    /// Maximum time spent waiting, for permits and between attempts together. Unlimited if unset.
    pub max_wait: Option<Duration>,
    /// Maximum time of the call including all attempts and waits. The limit of the retry layer if
    /// unset.
    pub deadline: Option<Duration>,
    /// Endpoint of the provider's API.
    pub endpoint: Endpoint,
    /// Says whether the call waits for a permit, to those that watch its deadline.
    pub(crate) permit_wait: Option<PermitWait>,
}

/// Whether a call waits for a permit. Clones share it, so that a layer outside the queue can tell a
/// deadline that ends in the queue from one that ends at the provider.
#[derive(Clone, Debug, Default)]
pub(crate) struct PermitWait(Arc<AtomicBool>);

/// Marks a call as waiting until it is dropped.
pub(crate) struct PermitWaitGuard(PermitWait);

impl PermitWait {
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn start(&self) -> PermitWaitGuard {
        self.0.store(true, Ordering::Release);
        PermitWaitGuard(self.clone())
    }
}

impl Drop for PermitWaitGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl CallOptions {
    /// Creates the defaults for a call to an endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            caller: CallerId::UNSPECIFIED,
            tenant: None,
            priority: Priority::default(),
            max_wait: None,
            deadline: None,
            endpoint,
            permit_wait: None,
        }
    }

    /// Reduces the deadline to the remaining time, which also bounds the wait.
    pub(crate) fn shorten(&mut self, remaining: Duration) {
        self.deadline = Some(remaining);
        self.max_wait = Some(self.max_wait.map_or(remaining, |wait| wait.min(remaining)));
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::new(Endpoint::default())
    }
}

impl Call {
    /// Creates a call whose response comes in one piece.
    #[must_use]
    pub fn new(chat: impl Into<Arc<Chat>>) -> Self {
        Self {
            chat: chat.into(),
            input: Arc::default(),
            is_streamed: false,
            options: CallOptions::default(),
        }
    }

    /// Requests a streamed response.
    #[must_use]
    pub const fn streamed(mut self) -> Self {
        self.is_streamed = true;
        self
    }

    /// Sets the tenant. Tenants take turns. Default: all calls share one tenant.
    #[must_use]
    pub fn tenant(mut self, name: &str) -> Self {
        self.options.tenant = Some(name.into());
        self
    }

    /// Sets the priority class. Default: [`Priority::Normal`].
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Sets the maximum time spent waiting, for permits and between attempts together. If a permit
    /// would take longer, the call fails immediately with [`CallError::NoPermit`], so that a
    /// fallback can be tried; one that waits for it gets what is left of the time. Default:
    /// unlimited.
    #[must_use]
    pub const fn max_wait(mut self, span: Duration) -> Self {
        self.options.max_wait = Some(span);
        self
    }

    /// Sets the maximum time of the call including all attempts and waits, with or without retries.
    /// A call that still waits for a permit then fails with [`CallError::NoPermit`]: nothing was
    /// sent. One that the provider has not answered fails as timed out. A streamed response that has
    /// begun is not cut off. Default: the limit of the retry layer.
    #[must_use]
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.options.deadline = Some(span);
        self
    }

    /// Sets the endpoint, whose limits apply if it has any. Default: `chat`.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.options.endpoint = endpoint;
        self
    }

    /// Returns the chat.
    #[must_use]
    pub fn chat(&self) -> &Chat {
        &self.chat
    }

    /// Returns whether the response is to be streamed.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    fn counted_input(&self) -> CountedInput {
        *self.input.get_or_init(|| {
            let counter = TokenCounter::current();
            CountedInput {
                tokens: counter.count_chat(&self.chat),
                is_provisional: counter.is_provisional(),
            }
        })
    }
}

impl fmt::Debug for Call {
    /// Omits the chat, which must not reach logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("is_streamed", &self.is_streamed)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl From<Chat> for Call {
    fn from(chat: Chat) -> Self {
        Self::new(chat)
    }
}

/// What the layers need to know of a call. Implemented by [`Call`], and by requests of programs
/// that use the layers with their own request type.
pub trait OutgoingCall {
    /// Returns how the call waits.
    fn options(&self) -> &CallOptions;

    /// Returns how the call waits, mutably: a retry shortens the deadline.
    fn options_mut(&mut self) -> &mut CallOptions;

    /// Returns the model, if it differs from the one that the layer was created for.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Returns the counted or estimated input tokens, before learned corrections.
    fn input_tokens(&self) -> u64;

    /// Returns whether the input tokens are estimated: from the size of the request, or because
    /// the tokenizer was [not ready](tidegate_providers::tokens). Corrections learned from counted
    /// tokens do not apply to such calls, and nothing is learned from them.
    /// Default: no.
    fn has_estimated_input(&self) -> bool {
        false
    }

    /// Returns the maximum number of output tokens, if the call sets one.
    fn max_output(&self) -> Option<u64>;

    /// Returns a counter of the input tokens sent beyond [`Self::input_tokens`], for calls whose
    /// size is known only after sending. They are charged at the end, however the call ends.
    /// Default: none.
    fn extra_input(&self) -> Option<ExtraInput> {
        None
    }
}

/// Counts the input tokens of a call sent beyond the expected ones.
pub(crate) type ExtraInput = Box<dyn Fn() -> u64 + Send + Sync>;

impl OutgoingCall for Call {
    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        &mut self.options
    }

    fn input_tokens(&self) -> u64 {
        self.counted_input().tokens
    }

    fn has_estimated_input(&self) -> bool {
        self.counted_input().is_provisional
    }

    fn max_output(&self) -> Option<u64> {
        self.chat.max_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provisional_count_is_an_estimate_for_all_attempts() {
        let call = Call::new(Chat::user("hello"));
        let provisional = CountedInput { tokens: 7, is_provisional: true };
        assert!(call.input.set(provisional).is_ok());
        for attempt in [call.clone(), call] {
            assert_eq!((attempt.input_tokens(), attempt.has_estimated_input()), (7, true));
        }
        tidegate_providers::tokens::prepare();
        assert!(!Call::new(Chat::user("hello")).has_estimated_input());
    }
}
