//! Calls: a chat, and how it is to be made.

mod answer;
pub(crate) mod connection;
mod error;
pub(crate) mod ready;
mod scope;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::pacer::{Caller, Priority};
use tidegate_providers::{Chat, Endpoint, tokens};

pub use answer::Answer;
pub use connection::{Broken, ConnectionError};
pub(crate) use error::BoxError;
pub use error::CallError;
pub(crate) use scope::Scope;

/// A chat, and how it is to be put to a model. Cheap to clone, as every attempt needs one.
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
    /// Counted when it is first asked for: counting takes a while, and attempts are many.
    input_tokens: Arc<OnceLock<u64>>,
    is_streamed: bool,
    /// How it waits.
    terms: Terms,
}

/// How a call waits for its turn.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// Where it comes from, if strangers call; callers take turns before tenants do.
    pub caller: Caller,
    /// Whose call it is; tenants of a caller take turns.
    pub tenant: Option<Arc<str>>,
    /// Its class.
    pub priority: Priority,
    /// How long it may wait until its last attempt begins, for permits and between attempts
    /// together; as long as it takes if unset.
    pub max_wait: Option<Duration>,
    /// How long the call may take with all its attempts; the retry module's limit if unset.
    pub deadline: Option<Duration>,
    /// What it uses of the provider's API.
    pub endpoint: Endpoint,
}

impl Terms {
    /// The defaults, for a call of an endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            caller: Caller::ANYBODY,
            tenant: None,
            priority: Priority::default(),
            max_wait: None,
            deadline: None,
            endpoint,
        }
    }

    /// Takes what is left for the whole: no part of it may wait for longer.
    pub(crate) fn shorten(&mut self, left: Duration) {
        self.deadline = Some(left);
        self.max_wait = Some(self.max_wait.map_or(left, |wait| wait.min(left)));
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::new(Endpoint::default())
    }
}

impl Call {
    /// A call that is answered all at once.
    #[must_use]
    pub fn new(chat: impl Into<Arc<Chat>>) -> Self {
        Self {
            chat: chat.into(),
            input_tokens: Arc::default(),
            is_streamed: false,
            terms: Terms::default(),
        }
    }

    /// With an answer that comes piece by piece.
    #[must_use]
    pub const fn streamed(mut self) -> Self {
        self.is_streamed = true;
        self
    }

    /// On behalf of a tenant: tenants take turns. Default: one tenant for all.
    #[must_use]
    pub fn tenant(mut self, name: &str) -> Self {
        self.terms.tenant = Some(name.into());
        self
    }

    /// In a class. Default: [`Priority::Normal`].
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.terms.priority = priority;
        self
    }

    /// Waits at most that long, for permits and between attempts together. A longer wait for a permit
    /// is refused at once, and a fallback gets its chance. Default: as long as it takes.
    #[must_use]
    pub const fn max_wait(mut self, span: Duration) -> Self {
        self.terms.max_wait = Some(span);
        self
    }

    /// May take that long with all its attempts and waits. Default: as the retry module says.
    #[must_use]
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.terms.deadline = Some(span);
        self
    }

    /// Uses another endpoint of the provider than `chat`, with limits of its own if there are.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.terms.endpoint = endpoint;
        self
    }

    /// What is asked.
    #[must_use]
    pub fn chat(&self) -> &Chat {
        &self.chat
    }

    /// Returns whether the response is to be streamed.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.is_streamed
    }
}

impl fmt::Debug for Call {
    /// Without the chat: calls are logged by those who did not write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("is_streamed", &self.is_streamed)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl From<Chat> for Call {
    fn from(chat: Chat) -> Self {
        Self::new(chat)
    }
}

/// What the modules need to know of a call, whatever it is made of.
pub trait Outgoing {
    /// How it waits.
    fn terms(&self) -> &Terms;

    /// The same, to be changed: a retry shortens what is left of a deadline.
    fn terms_mut(&mut self) -> &mut Terms;

    /// The model, if it is not the one that the module was made for.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Input tokens by count or by guess, before anything that was learned.
    fn input_tokens(&self) -> u64;

    /// Whether the input tokens are estimated by the size of what is sent. Nothing that was learned of
    /// counts holds for them, and nothing is learned from them. Default: no.
    fn has_estimated_input(&self) -> bool {
        false
    }

    /// The most output tokens, if the call says so.
    fn max_output(&self) -> Option<u64>;

    /// What counts the input tokens that were sent beyond [`Self::input_tokens`], if the size of the
    /// call is known only when it has been sent. They are charged at the end, however the call ends.
    /// Default: nothing.
    fn extra_input(&self) -> Option<ExtraInput> {
        None
    }
}

/// Counts the input tokens of a call that were sent beyond those that were expected.
pub(crate) type ExtraInput = Box<dyn Fn() -> u64 + Send + Sync>;

impl Outgoing for Call {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn terms_mut(&mut self) -> &mut Terms {
        &mut self.terms
    }

    fn input_tokens(&self) -> u64 {
        *self.input_tokens.get_or_init(|| tokens::count_chat(&self.chat))
    }

    fn max_output(&self) -> Option<u64> {
        self.chat.max_tokens
    }
}
