//! The stack of an account: `Retry(Fallback(RateLimit(Breaker(attempt))))`, built once per
//! configuration.
//!
//! The layers of `tidegate-llm` are used as functions over futures, not as services. Each
//! rate-limited attempt is boxed: retry and fallback hold copies of the future that they poll, so a
//! waiting call would otherwise need many times its size.
//!
//! The breaker is checked twice: before a call waits for a permit, since calls should not queue for
//! an open provider; and after it got one, since the breaker may have opened meanwhile. In the
//! second case the permit is returned and the call waits between attempts, within its maximum wait.
//! A call that arrives while the breaker is open is refused at once unless it has a fallback.

use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_llm::CallError;
use tidegate_llm::fallback::FallbackLayer;
use tidegate_llm::rate_limit::Account;
use tidegate_llm::retry::RetryLayer;
use tidegate_providers::Provider;

use crate::request::call::{Call, OutgoingRequest, ResendPolicy};
use crate::request::model_map::ModelMap;
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::upstream::attempt::UpstreamClient;
use crate::upstream::breaker::ProviderBreaker;

/// Names the model that responded, if it is not the requested one.
const MODEL_HEADER: HeaderName = HeaderName::from_static("x-tidegate-model");

/// A chain of fallbacks.
pub(crate) type Chain = FallbackLayer<Call, UpstreamResponse>;

/// Makes the calls of one account.
pub(crate) struct Stack {
    pub(crate) account: Account,
    pub(crate) breaker: ProviderBreaker,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) retry: RetryLayer,
    pub(crate) chain: Option<Chain>,
}

impl Stack {
    /// Makes a call, with retries and fallbacks. A streamed body can be sent once, so it has one
    /// attempt. Only requests whose purpose is known use fallbacks.
    pub(crate) async fn call(&self, call: Call) -> Result<UpstreamResponse, CallError> {
        if !call.request.content.is_replayable() {
            return self.attempt_with_permit(call).await;
        }
        let may_resend = call.request.resend_policy == ResendPolicy::AnyFailure;
        if self.chain.is_none() || !may_resend {
            let key = self.account.credential_id();
            self.breaker.check(key, call.request.model_name())?;
        }
        if !may_resend {
            // A request that may have been processed must not be retried. Report it as a result to
            // the retry layer and as an error to the caller.
            let attempt = |call: Call| async {
                match self.attempt_with_permit(call).await {
                    Err(error) if may_have_acted(&error) => Ok(Err(error)),
                    result => result.map(Ok),
                }
            };
            return self.retry.run(call, attempt).await?;
        }
        let attempt = |call: Call| async {
            let Some(chain) = &self.chain else { return self.attempt_with_permit(call).await };
            let first = self.attempt_with_permit(call.clone());
            chain.run(call, first).await
        };
        self.retry.run(call, attempt).await
    }

    fn attempt_with_permit(
        &self,
        call: Call,
    ) -> Pin<Box<impl Future<Output = Result<UpstreamResponse, CallError>>>> {
        attempt_with_permit(&self.account, &self.breaker, &self.client, call)
    }
}

/// Whether the provider may have processed a request that failed.
fn may_have_acted(error: &CallError) -> bool {
    let status = error.failure().map(|failure| failure.status);
    error.was_sent() && status != Some(StatusCode::TOO_MANY_REQUESTS)
}

/// The future of a call to a fallback.
type FallbackCall = Pin<Box<dyn Future<Output = Result<UpstreamResponse, CallError>> + Send>>;

/// Returns a fallback target: another provider with the account of its configured key and its own
/// model names.
pub(crate) fn fallback_target(
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
            let renamed = renamed.map_err(|error| CallError::InvalidRequest {
                provider: client.provider.clone(),
                source: error.into(),
            })?;
            let model = renamed.as_ref().map(OutgoingRequest::model_name);
            let model = model.and_then(|model| HeaderValue::from_str(model).ok());
            if let Some(renamed) = renamed {
                call.request = Arc::new(renamed);
            }
            let mut response = attempt_with_permit(&account, &breaker, &client, call).await?;
            response.head.headers.extend(model.map(|model| (MODEL_HEADER, model)));
            Ok(response)
        })
    };
    (provider, make_call)
}

/// Makes an attempt within the limits of an account, unless the breaker is open.
fn attempt_with_permit<'a>(
    account: &'a Account,
    breaker: &'a ProviderBreaker,
    client: &'a Arc<UpstreamClient>,
    call: Call,
) -> Pin<Box<impl Future<Output = Result<UpstreamResponse, CallError>> + 'a>> {
    Box::pin(async move {
        let key = account.credential_id();
        breaker.check(key, call.request.model_name())?;
        let reservation = account.reserve(call.request.model_name(), &call).await?;
        call.context.add_waits(&reservation.waited_for());
        match attempt(breaker, key, client, call).await {
            Ok(mut response) => {
                response.attach_reservation(reservation);
                Ok(response)
            }
            Err(error) => Err(reservation.failed(error)),
        }
    })
}

/// Makes an attempt and reports its result to the breaker.
async fn attempt(
    breaker: &ProviderBreaker,
    key: &str,
    client: &Arc<UpstreamClient>,
    call: Call,
) -> Result<UpstreamResponse, CallError> {
    let request = call.request.clone();
    let admitted = breaker.admit(key, request.model_name(), call.context.id.number())?;
    let result = client.attempt(call).await;
    if request.content.error().is_none() {
        admitted.settle(&result);
    }
    // Otherwise the caller aborted its upload, which says nothing about the provider.
    result
}
