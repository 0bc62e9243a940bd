//! The stack of an account: `Retry(Fallback(RateLimit(attempt)))`, made once for each configuration.
//!
//! The layers of `tidegate-llm` are used as functions over futures, not as services. One box holds an
//! attempt under its limits: retry and fallback keep copies of the future that they poll, and a call
//! that waits would take many times its size without the box.

use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_llm::CallError;
use tidegate_llm::fallback::{FallbackLayer, Target};
use tidegate_llm::rate_limit::Account;
use tidegate_llm::retry::RetryLayer;

use crate::request::call::{Call, OutgoingRequest, UNKNOWN};
use crate::request::model_map::ModelMap;
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::upstream::attempt::UpstreamClient;

/// Says which model answered, where that is not the one that was asked for.
const MODEL: HeaderName = HeaderName::from_static("x-tidegate-model");

/// A chain of fallbacks.
pub(crate) type Chain = FallbackLayer<Call, UpstreamResponse>;

/// What makes the calls of one account.
pub(crate) struct Stack {
    pub(crate) account: Account,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) retry: RetryLayer,
    pub(crate) chain: Option<Chain>,
}

impl Stack {
    /// Makes a call, with retries and fallbacks. A streamed body can be sent once, so it has one
    /// attempt.
    pub(crate) async fn call(&self, call: Call) -> Result<UpstreamResponse, CallError> {
        if !call.request.content.is_repeatable() {
            return limited(&self.account, &self.client, call).await;
        }
        let attempt = |call: Call| async {
            let Some(chain) = &self.chain else {
                return limited(&self.account, &self.client, call).await;
            };
            let first = limited(&self.account, &self.client, call.clone());
            chain.run(call, first).await
        };
        self.retry.run(call, attempt).await
    }
}

/// A fallback: another provider, with the account of its own key and its own names of models.
pub(crate) fn fallback(
    entry: &AccountEntry,
    client: &Arc<UpstreamClient>,
    models: ModelMap,
) -> Target<Call, UpstreamResponse> {
    let (account, client) = (entry.account.clone(), client.clone());
    Target::from_fn(client.provider.clone(), move |mut call: Call| {
        let (account, client) = (account.clone(), client.clone());
        let renamed = models.rename(&call.request);
        async move {
            let renamed = renamed.map_err(|error| CallError::Request {
                provider: client.provider.clone(),
                source: error.into(),
            })?;
            let model = renamed.as_ref().map(OutgoingRequest::model_name);
            let model = model.and_then(|model| HeaderValue::from_str(model).ok());
            if let Some(renamed) = renamed {
                call.request = Arc::new(renamed);
            }
            let mut answer = limited(&account, &client, call).await?;
            answer.head.headers.extend(model.map(|model| (MODEL, model)));
            Ok(answer)
        }
    })
}

/// An attempt under the limits of an account.
fn limited<'a>(
    account: &'a Account,
    client: &'a Arc<UpstreamClient>,
    call: Call,
) -> Pin<Box<impl Future<Output = Result<UpstreamResponse, CallError>> + 'a>> {
    Box::pin(account.run(UNKNOWN, call, |call| client.attempt(call)))
}
