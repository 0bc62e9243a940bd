//! The stack of an account: `Retry(Fallback(RateLimit(Breaker(attempt))))`, made once for each configuration.
//!
//! The layers of `tidegate-llm` are used as functions over futures, not as services. One box holds an
//! attempt under its limits: retry and fallback keep copies of the future that they poll, and a call
//! that waits would take many times its size without the box.
//!
//! The breaker is asked twice. Before a call waits for a permit, since nobody should queue for a
//! provider that is left alone; and when it has one, since the breaker may have opened meanwhile. Then
//! the permit is given back, and the call waits between attempts, as long as it accepts to wait. A
//! call that comes while the breaker is open is refused at once, if it has no fallback.

use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_llm::CallError;
use tidegate_llm::fallback::FallbackLayer;
use tidegate_llm::rate_limit::Account;
use tidegate_llm::retry::RetryLayer;
use tidegate_providers::Provider;

use crate::request::call::{Call, OutgoingRequest, Repetition};
use crate::request::model_map::ModelMap;
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::upstream::attempt::UpstreamClient;
use crate::upstream::breaker::ProviderBreaker;

/// Says which model answered, where that is not the one that was asked for.
const MODEL: HeaderName = HeaderName::from_static("x-tidegate-model");

/// A chain of fallbacks.
pub(crate) type Chain = FallbackLayer<Call, UpstreamResponse>;

/// What makes the calls of one account.
pub(crate) struct Stack {
    pub(crate) account: Account,
    pub(crate) breaker: ProviderBreaker,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) retry: RetryLayer,
    pub(crate) chain: Option<Chain>,
}

impl Stack {
    /// Makes a call, with retries and fallbacks. A streamed body can be sent once, so it has one
    /// attempt. Fallbacks are for requests whose meaning is known.
    pub(crate) async fn call(&self, call: Call) -> Result<UpstreamResponse, CallError> {
        if !call.request.content.is_repeatable() {
            return self.limited(call).await;
        }
        let may_repeat = call.request.repetition == Repetition::Always;
        if self.chain.is_none() || !may_repeat {
            let key = self.account.credential_id();
            self.breaker.check(key, call.request.model_name())?;
        }
        if !may_repeat {
            // What may have been acted on is over for the retries, and a failure for the caller.
            let attempt = |call: Call| async {
                match self.limited(call).await {
                    Err(error) if may_have_acted(&error) => Ok(Err(error)),
                    result => result.map(Ok),
                }
            };
            return self.retry.run(call, attempt).await?;
        }
        let attempt = |call: Call| async {
            let Some(chain) = &self.chain else { return self.limited(call).await };
            let first = self.limited(call.clone());
            chain.run(call, first).await
        };
        self.retry.run(call, attempt).await
    }

    fn limited(
        &self,
        call: Call,
    ) -> Pin<Box<impl Future<Output = Result<UpstreamResponse, CallError>>>> {
        limited(&self.account, &self.breaker, &self.client, call)
    }
}

/// Whether the provider may have acted on a request that failed.
fn may_have_acted(error: &CallError) -> bool {
    let status = error.failure().map(|failure| failure.status);
    error.was_sent() && status != Some(StatusCode::TOO_MANY_REQUESTS)
}

/// A call to a fallback under way.
type FallbackCall = Pin<Box<dyn Future<Output = Result<UpstreamResponse, CallError>> + Send>>;

/// A fallback: another provider, with the account of its own key and its own names of models.
pub(crate) fn fallback(
    entry: &AccountEntry,
    client: &Arc<UpstreamClient>,
    breaker: &ProviderBreaker,
    models: ModelMap,
) -> (Provider, impl Fn(Call) -> FallbackCall + Send + Sync + use<>) {
    let (account, breaker, client) = (entry.account.clone(), breaker.clone(), client.clone());
    let provider = client.provider.clone();
    let make_call = move |mut call: Call| -> FallbackCall {
        let (account, breaker, client) = (account.clone(), breaker.clone(), client.clone());
        let renamed = models.rename(&call.request);
        Box::pin(async move {
            let renamed = renamed.map_err(|error| CallError::Request {
                provider: client.provider.clone(),
                source: error.into(),
            })?;
            let model = renamed.as_ref().map(OutgoingRequest::model_name);
            let model = model.and_then(|model| HeaderValue::from_str(model).ok());
            if let Some(renamed) = renamed {
                call.request = Arc::new(renamed);
            }
            let mut answer = limited(&account, &breaker, &client, call).await?;
            answer.head.headers.extend(model.map(|model| (MODEL, model)));
            Ok(answer)
        })
    };
    (provider, make_call)
}

/// An attempt under the limits of an account, if its provider is not left alone.
fn limited<'a>(
    account: &'a Account,
    breaker: &'a ProviderBreaker,
    client: &'a Arc<UpstreamClient>,
    call: Call,
) -> Pin<Box<impl Future<Output = Result<UpstreamResponse, CallError>> + 'a>> {
    Box::pin(async move {
        let key = account.credential_id();
        breaker.check(key, call.request.model_name())?;
        let reservation = account.reserve(call.request.model_name(), &call).await?;
        match attempt(breaker, key, client, call).await {
            Ok(mut answer) => {
                answer.keep(reservation);
                Ok(answer)
            }
            Err(error) => Err(reservation.failed(error)),
        }
    })
}

/// An attempt whose outcome the breaker counts.
async fn attempt(
    breaker: &ProviderBreaker,
    key: &str,
    client: &Arc<UpstreamClient>,
    call: Call,
) -> Result<UpstreamResponse, CallError> {
    let request = call.request.clone();
    let pass = breaker.admit(key, request.model_name(), call.context.id.number())?;
    let result = client.attempt(call).await;
    if request.content.error().is_none() {
        pass.settle(&result);
    }
    // Else the caller broke off, which says nothing about the provider.
    result
}
