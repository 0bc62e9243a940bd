//! Azure OpenAI: deployments in the path, a header of its own for the key, resets in whole seconds,
//! and errors that say little.

use http::StatusCode;
use serde_json::{Value, json};

use super::compatible::{Compatible, StreamUsage, read};
use super::openai::{gauges, plain, retry_after, server_error};
use super::{Failure, Fields, Refused, Reply, Scene, Voice};
use crate::calendar::whole_seconds;
use crate::limits::quota::{Dimension, Wait};
use crate::server::ask::{Ask, Endpoint, Head};

const DEPLOYMENTS: &str = "/openai/deployments/";

/// Azure's differences from the others are in what is read as well.
pub(super) struct Azure {
    answers: Compatible,
}

pub(super) static AZURE: Azure = Azure {
    answers: Compatible {
        prefixes: &["/openai/v1"],
        embeddings: true,
        forbidden: &[],
        announce,
        refuse,
        breaking: |_| server_error(),
        stream_usage: StreamUsage::OnRequest,
        keep_alive: None,
    },
};

impl Voice for Azure {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        let Some(rest) = path.strip_prefix(DEPLOYMENTS) else { return self.answers.route(path) };
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

    fn ask(&self, head: &Head, endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
        let Some((_, Some(deployment))) = self.route(head.path()) else {
            return read(endpoint, body);
        };
        if head.query("api-version").is_none_or(str::is_empty) {
            return Err(Failure::BadRequest("the api-version query parameter is missing"));
        }
        // The deployment decides which model answers, whatever the body says.
        let mut body = body.clone();
        if let Some(fields) = body.as_object_mut() {
            fields.insert("model".to_owned(), deployment.into());
        }
        read(endpoint, &body)
    }

    fn announce(&self, scene: &Scene<'_>, fields: &mut Fields) {
        self.answers.announce(scene, fields);
    }

    fn refuse(&self, failure: &Failure, scene: &Scene<'_>) -> Refused {
        self.answers.refuse(failure, scene)
    }

    fn whole(&self, reply: &Reply) -> Value {
        self.answers.whole(reply)
    }

    fn stream_type(&self, ask: &Ask) -> &'static str {
        self.answers.stream_type(ask)
    }

    fn opening(&self, reply: &Reply) -> String {
        self.answers.opening(reply)
    }

    fn token(&self, reply: &Reply, index: u64, word: &str) -> String {
        self.answers.token(reply, index, word)
    }

    fn closing(&self, reply: &Reply) -> String {
        self.answers.closing(reply)
    }

    fn breaking(&self, reply: &Reply) -> String {
        self.answers.breaking(reply)
    }
}

fn announce(scene: &Scene<'_>, fields: &mut Fields) {
    fields.set("apim-request-id", format_args!("sim-{}", scene.number));
    let seconds = |reset| whole_seconds(reset).to_string();
    gauges(scene.standing.requests, scene.standing.tokens, fields, seconds);
}

fn refuse(failure: &Failure, scene: &Scene<'_>) -> Refused {
    let (of, policy) = match failure {
        Failure::Limited(blocked) if blocked.dimension == Dimension::Tokens => {
            ("token rate limit", "DeploymentRatelimit-Token")
        }
        _ => ("call rate limit", "DeploymentRatelimit-Call"),
    };
    let operation = match scene.endpoint {
        Some(Endpoint::Embeddings) => "Embeddings_Create",
        Some(Endpoint::Chat | Endpoint::ChatStream) | None => "ChatCompletions_Create",
    };
    let exceeded = format!("Requests to {operation} have exceeded {of} of the deployment.");
    let mut refused = match failure {
        Failure::Limited(blocked) if blocked.wait == Wait::Never => {
            limited(&format!("{exceeded} The request alone is larger than the limit."))
        }
        Failure::Limited(_) | Failure::Throttled { .. } | Failure::DayQuota { .. } => {
            match scene.wait(failure) {
                Some(wait) => {
                    let seconds = whole_seconds(wait);
                    limited(&format!("{exceeded} Please retry after {seconds} seconds."))
                }
                None => limited(&exceeded),
            }
        }
        Failure::Busy { .. } => limited(&exceeded),
        Failure::Overloaded => limited("The system is experiencing high demand."),
        other => plain(other),
    };
    announce(scene, &mut refused.fields);
    if refused.status == StatusCode::TOO_MANY_REQUESTS && !scene.is_silent() {
        refused.fields.set("policy-id", policy);
        if let Some(tokens) = scene.standing.tokens {
            refused.fields.set("x-rate-limit-reset-tokens", whole_seconds(tokens.reset));
        }
        if let Some(wait) = scene.wait(failure) {
            retry_after(&mut refused.fields, wait, true);
        }
    }
    refused
}

fn limited(message: &str) -> Refused {
    let body = json!({ "error": { "code": "429", "message": message } });
    Refused::new(StatusCode::TOO_MANY_REQUESTS, body)
}
