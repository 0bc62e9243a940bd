//! A loaded model.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_providers::{Provider, Reply};
use tower_service::Service;

use super::registry::Backend;
use crate::call::ready::CallFuture;
use crate::call::{Call, CallError, CallResponse, OutgoingCall as _};
use crate::rate_limit::Account;

/// A loaded model, ready to call. Cheap to clone. It is also a tower service.
///
/// Its `Display` shows the modules around it: `Retry(Fallback(RateLimit(openai/gpt-4o)))`.
#[derive(Clone)]
pub struct Model {
    backend: Backend,
    info: Arc<ModelInfo>,
}

pub(super) struct ModelInfo {
    pub(super) provider: Provider,
    pub(super) model: String,
    /// Outermost first.
    pub(super) modules: Vec<&'static str>,
    pub(super) account: Option<Account>,
    /// Maximum wait of calls that have none of their own.
    pub(super) max_wait: Option<Duration>,
}

impl ModelInfo {
    /// Sets the maximum wait of a call that has none of its own.
    fn bound(&self, call: Call) -> Call {
        match self.max_wait {
            Some(span) if call.options().max_wait.is_none() => call.max_wait(span),
            _ => call,
        }
    }
}

impl Model {
    pub(super) fn new(backend: Backend, info: ModelInfo) -> Self {
        Self { backend, info: Arc::new(info) }
    }

    /// Calls the model and waits for the complete reply.
    ///
    /// # Errors
    /// When the call fails despite retries and fallbacks.
    pub async fn invoke(&self, call: impl Into<Call>) -> Result<Reply, CallError> {
        self.call(call.into()).await?.into_reply().await
    }

    /// Calls the model and waits until the response starts; its events are then streamed.
    ///
    /// # Errors
    /// When the call fails despite retries and fallbacks.
    pub async fn stream(&self, call: impl Into<Call>) -> Result<CallResponse, CallError> {
        self.call(call.into().streamed()).await
    }

    async fn call(&self, call: Call) -> Result<CallResponse, CallError> {
        self.backend.call(self.info.bound(call)).await
    }

    /// Returns the provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.info.provider
    }

    /// Returns the model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.model
    }

    /// Returns the modules around the model, outermost first, out of `Retry`, `Fallback` and
    /// `RateLimit`.
    #[must_use]
    pub fn modules(&self) -> &[&'static str] {
        &self.info.modules
    }

    /// Returns the account whose limits apply, if calls are rate limited.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        self.info.account.as_ref()
    }
}

impl Service<Call> for Model {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture<CallResponse>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.backend.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        self.backend.call(self.info.bound(call))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for module in &self.info.modules {
            write!(f, "{module}(")?;
        }
        write!(f, "{}/{}", self.info.provider, self.info.model)?;
        self.info.modules.iter().try_for_each(|_| f.write_str(")"))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({self})")
    }
}
