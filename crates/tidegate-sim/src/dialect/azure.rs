//! Azure OpenAI: deployments in the path, an `api-key` header, resets in whole seconds, and terse
//! errors.

use http::StatusCode;
use serde_json::{Value, json};

use super::compatible::{Compatible, StreamUsage, read};
use super::openai::{generic_error, retry_after, server_error, set_limit_headers};
use super::{Codec, ErrorResponse, Failure, ResponseContent, ResponseContext, ResponseHeaders};
use crate::calendar::whole_seconds;
use crate::limits::quota::{Dimension, Wait};
use crate::server::request::{Endpoint, Head, RequestSummary};

const DEPLOYMENTS: &str = "/openai/deployments/";

/// Azure also reads requests differently from the other OpenAI-like dialects.
pub(super) struct Azure {
    base: Compatible,
}

pub(super) static AZURE: Azure = Azure {
    base: Compatible {
        prefixes: &["/openai/v1"],
        embeddings: true,
        forbidden: &[],
        limit_headers,
        error_response,
        stream_error: |_| server_error(),
        stream_usage: StreamUsage::OnRequest,
        keep_alive: None,
    },
};

impl Codec for Azure {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        let Some(rest) = path.strip_prefix(DEPLOYMENTS) else { return self.base.route(path) };
        let (deployment, operation) = rest.split_once('/')?;
        let endpoint = match operation {
            "chat/completions" => Endpoint::Chat,
            "embeddings" => Endpoint::Embeddings,
            _ => return None,
        };
        Some((endpoint, Some(deployment.to_owned())))
    }

    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str> {
        head.header("api-key").or_else(|| head.bearer())
    }

    fn parse_request(
        &self,
        head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure> {
        let Some((_, Some(deployment))) = self.route(head.path()) else {
            return read(endpoint, body);
        };
        if head.query("api-version").is_none_or(str::is_empty) {
            return Err(Failure::BadRequest("the api-version query parameter is missing"));
        }
        // The deployment determines the model, whatever the body says.
        let mut body = body.clone();
        if let Some(members) = body.as_object_mut() {
            members.insert("model".to_owned(), deployment.into());
        }
        read(endpoint, &body)
    }

    fn limit_headers(&self, context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
        self.base.limit_headers(context, headers);
    }

    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
        self.base.error_response(failure, context)
    }

    fn response_body(&self, content: &ResponseContent) -> Value {
        self.base.response_body(content)
    }

    fn stream_content_type(&self, parse_request: &RequestSummary) -> &'static str {
        self.base.stream_content_type(parse_request)
    }

    fn stream_start(&self, content: &ResponseContent) -> String {
        self.base.stream_start(content)
    }

    fn stream_token(&self, content: &ResponseContent, index: u64, word: &str) -> String {
        self.base.stream_token(content, index, word)
    }

    fn stream_end(&self, content: &ResponseContent) -> String {
        self.base.stream_end(content)
    }

    fn stream_error(&self, content: &ResponseContent) -> String {
        self.base.stream_error(content)
    }
}

fn limit_headers(context: &ResponseContext<'_>, headers: &mut ResponseHeaders) {
    headers.set("apim-request-id", format_args!("sim-{}", context.number));
    let seconds = |reset| whole_seconds(reset).to_string();
    set_limit_headers(context.snapshot.requests, context.snapshot.tokens, headers, seconds);
}

fn error_response(failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
    let (of, policy) = match failure {
        Failure::Limited(blocked) if blocked.dimension == Dimension::Tokens => {
            ("token rate limit", "DeploymentRatelimit-Token")
        }
        _ => ("call rate limit", "DeploymentRatelimit-Call"),
    };
    let operation = match context.endpoint {
        Some(Endpoint::Embeddings) => "Embeddings_Create",
        Some(Endpoint::Chat | Endpoint::ChatStream) | None => "ChatCompletions_Create",
    };
    let exceeded = format!("Requests to {operation} have exceeded {of} of the deployment.");
    let mut response = match failure {
        Failure::Limited(blocked) if blocked.wait == Wait::Never => {
            limited(&format!("{exceeded} The request alone is larger than the limit."))
        }
        Failure::Limited(_) | Failure::Throttled { .. } | Failure::DayQuota { .. } => {
            match context.wait(failure) {
                Some(wait) => {
                    let seconds = whole_seconds(wait);
                    limited(&format!("{exceeded} Please retry after {seconds} seconds."))
                }
                None => limited(&exceeded),
            }
        }
        Failure::Busy { .. } => limited(&exceeded),
        Failure::Overloaded => limited("The system is experiencing high demand."),
        other => generic_error(other),
    };
    limit_headers(context, &mut response.headers);
    if response.status == StatusCode::TOO_MANY_REQUESTS && !context.hides_limits() {
        response.headers.set("policy-id", policy);
        if let Some(tokens) = context.snapshot.tokens {
            response.headers.set("x-rate-limit-reset-tokens", whole_seconds(tokens.reset));
        }
        if let Some(wait) = context.wait(failure) {
            retry_after(&mut response.headers, wait, true);
        }
    }
    response
}

fn limited(message: &str) -> ErrorResponse {
    let body = json!({ "error": { "code": "429", "message": message } });
    ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, body)
}
