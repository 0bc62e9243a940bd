//! The simulator's responses to every fault, in every dialect. The simulator shares no code with
//! this crate. Its wall clock starts at 2026.

use std::time::Duration;

use http::Request;
use http::response::Parts;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Class, Dialect, Dimension, Failure, LimitReading, ReportedLimits};
use tidegate_sim::{Account, Dialect as Voice, Fault, Limits, Simulator, Zone};

use super::{NOW, exhausted, rate_limited, seconds};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const THROTTLE: Fault = Fault::RateLimited { retry_after: Some(Duration::from_millis(976)) };
const SILENT: Fault = Fault::RateLimited { retry_after: None };

/// Dialects of the simulator, and their equivalents in this crate.
const VOICES: [(Voice, Dialect); 10] = [
    (Voice::OpenAi, Dialect::OpenAi),
    (Voice::AzureOpenAi, Dialect::Azure),
    (Voice::Anthropic, Dialect::Anthropic),
    (Voice::Gemini, Dialect::Gemini),
    (Voice::Groq, Dialect::Groq),
    (Voice::Mistral, Dialect::Mistral),
    (Voice::Together, Dialect::Together),
    (Voice::OpenRouter, Dialect::OpenRouter),
    (Voice::DeepSeek, Dialect::DeepSeek),
    (Voice::Ollama, Dialect::Ollama),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Complete,
    Stream,
}

/// A simulated provider with one account.
struct Fixture {
    simulator: Simulator,
    voice: Voice,
    dialect: Dialect,
}

impl Fixture {
    /// Creates a provider whose limits no test reaches.
    fn with_ample_limits(voice: (Voice, Dialect)) -> Self {
        let limits = match voice.1 {
            Dialect::DeepSeek | Dialect::Ollama => Limits::new(),
            _ => Limits::new().requests_per_minute(6_000),
        };
        Self::new(voice, limits)
    }

    fn new((voice, dialect): (Voice, Dialect), limits: Limits) -> Self {
        let account = Account::new(voice, "main", "key").model("m", limits);
        let simulator = Simulator::builder().account(account).build().unwrap();
        Self { simulator, voice, dialect }
    }

    /// Sends a chat to a model.
    async fn send(&self, key: &str, model: &str, mode: Mode) -> (Parts, Bytes) {
        let streamed = mode == Mode::Stream;
        let messages = json!([{ "role": "user", "content": "12345678" }]);
        let mut body = json!({ "model": model, "messages": messages, "stream": streamed });
        let path = match self.voice {
            Voice::AzureOpenAi => {
                format!("/openai/deployments/{model}/chat/completions?api-version=1")
            }
            Voice::Anthropic => {
                body["max_tokens"] = json!(50);
                "/v1/messages".to_owned()
            }
            Voice::Gemini => {
                body = json!({ "contents": [{ "parts": [{ "text": "12345678" }] }] });
                let method =
                    if streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
                format!("/v1beta/models/{model}:{method}")
            }
            Voice::Groq => "/openai/v1/chat/completions".to_owned(),
            Voice::OpenRouter => "/api/v1/chat/completions".to_owned(),
            Voice::Ollama => "/api/chat".to_owned(),
            _ => "/v1/chat/completions".to_owned(),
        };
        let (name, value) = match self.voice {
            Voice::AzureOpenAi => ("api-key", key.to_owned()),
            Voice::Anthropic => ("x-api-key", key.to_owned()),
            Voice::Gemini => ("x-goog-api-key", key.to_owned()),
            _ => ("authorization", format!("Bearer {key}")),
        };
        let request = Request::post(path)
            .header("host", "sim")
            .header("anthropic-version", "2023-06-01")
            .header("x-sim-output-tokens", "8")
            .header(name, value);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let connection = TokioIo::new(self.simulator.connect().unwrap());
        let (mut sender, connection) = http1::handshake(connection).await.unwrap();
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        (parts, body.collect().await.unwrap().to_bytes())
    }

    fn read(&self, (parts, body): &(Parts, Bytes)) -> Failure {
        let provider = "sim".into();
        Failure::of_response(self.dialect, &provider, parts, body, &ClassificationRules::new(), NOW)
    }

    /// Injects a fault and returns the failure, or `None` if the provider has no such fault.
    async fn inject(&self, fault: Fault) -> Option<Failure> {
        self.simulator.inject("main", fault, 1).ok()?;
        Some(self.read(&self.send("key", "m", Mode::Complete).await))
    }
}

fn requests(after: Option<Duration>) -> Class {
    rate_limited(after, Some(Dimension::Requests))
}

#[tokio::test(start_paused = true)]
async fn rate_limits_have_the_reported_delay() {
    let fine = Some(Duration::from_millis(976));
    for voice in VOICES {
        let fixture = Fixture::with_ample_limits(voice);
        let expected = match voice.1 {
            Dialect::OpenAi => requests(fine),
            Dialect::Azure => rate_limited(fine, None),
            Dialect::Groq | Dialect::Gemini | Dialect::OpenRouter => requests(seconds(1)),
            Dialect::DeepSeek => rate_limited(None, None),
            Dialect::Ollama => continue,
            _ => rate_limited(seconds(1), None),
        };
        assert_eq!(fixture.inject(THROTTLE).await.unwrap().class, expected, "{voice:?}");
        let expected = match voice.1 {
            Dialect::OpenAi | Dialect::Groq => requests(None),
            _ => rate_limited(None, None),
        };
        assert_eq!(fixture.inject(SILENT).await.unwrap().class, expected, "{voice:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn daily_and_billing_quotas_are_distinguished_by_fields() {
    for voice in VOICES {
        let fixture = Fixture::with_ample_limits(voice);
        let class = fixture.inject(Fault::DayQuota).await.map(|failure| failure.class);
        let day = seconds(86_400);
        let expected = match voice.1 {
            Dialect::Anthropic => Some(Class::BadRequest),
            // Until midnight Pacific time, eight hours after midnight UTC.
            Dialect::Gemini => Some(exhausted(seconds(8 * 3_600))),
            Dialect::OpenAi | Dialect::Groq => Some(requests(day)),
            Dialect::OpenRouter => Some(rate_limited(day, Some(Dimension::RequestsPerDay))),
            Dialect::DeepSeek | Dialect::Ollama => None,
            _ => Some(rate_limited(day, None)),
        };
        assert_eq!(class, expected, "{voice:?}");
        let class = fixture.inject(Fault::InsufficientQuota).await.map(|failure| failure.class);
        let expected = match voice.1 {
            // Only the message says so, and messages do not determine the class.
            Dialect::Groq => Some(requests(None)),
            Dialect::Anthropic => Some(exhausted(seconds(31 * 86_400))),
            Dialect::OpenAi | Dialect::Gemini | Dialect::OpenRouter | Dialect::DeepSeek => {
                Some(exhausted(None))
            }
            _ => None,
        };
        assert_eq!(class, expected, "{voice:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_errors_are_retryable() {
    for voice in VOICES {
        let fixture = Fixture::with_ample_limits(voice);
        let class = fixture.inject(Fault::ServerError).await.unwrap().class;
        assert_eq!(class, Class::Transient, "{voice:?}");
        let class = fixture.inject(Fault::Unavailable).await.unwrap().class;
        assert_eq!(class, Class::Overloaded, "{voice:?}");
        let class = fixture.inject(Fault::Overloaded).await.unwrap().class;
        let busy = voice.1 == Dialect::Azure;
        let expected = if busy { rate_limited(None, None) } else { Class::Overloaded };
        assert_eq!(class, expected, "{voice:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_and_models_are_not_retryable() {
    for voice in VOICES {
        let fixture = Fixture::with_ample_limits(voice);
        let unknown = fixture.read(&fixture.send("key", "no-such-model", Mode::Complete).await);
        assert_eq!(unknown.class, Class::BadRequest, "{voice:?}");
        if voice.1 != Dialect::Ollama {
            let stranger = fixture.read(&fixture.send("no-such-key", "m", Mode::Complete).await);
            assert_eq!(stranger.class, Class::CredentialRejected, "{voice:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn error_in_a_stream_is_classified() {
    for voice in VOICES {
        let fixture = Fixture::with_ample_limits(voice);
        for after in [0, 3] {
            fixture.simulator.inject("main", Fault::StreamError { after }, 1).unwrap();
            let (parts, body) = fixture.send("key", "m", Mode::Stream).await;
            assert_eq!(parts.status, 200, "{voice:?}");
            let text = std::str::from_utf8(&body).unwrap();
            let line = text.lines().rfind(|line| line.contains("\"error\"")).unwrap();
            let event: Value =
                serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).unwrap();
            let provider = "sim".into();
            let failure =
                Failure::in_stream(voice.1, &provider, &event, &ClassificationRules::new(), NOW);
            let expected = match voice.1 {
                Dialect::Anthropic | Dialect::Gemini => Class::Overloaded,
                _ => Class::Transient,
            };
            assert_eq!(failure.class, expected, "{voice:?}");
            assert!(failure.message.is_some(), "{voice:?}");
            assert!(failure.to_string().starts_with("sim failed after its response began"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gemini_streaming_endpoint_wraps_errors_in_an_array() {
    let fixture = Fixture::with_ample_limits((Voice::Gemini, Dialect::Gemini));
    fixture.simulator.inject("main", THROTTLE, 1).unwrap();
    let answer = fixture.send("key", "m", Mode::Stream).await;
    assert!(answer.1.starts_with(b"["));
    assert_eq!(fixture.read(&answer).class, requests(seconds(1)));
}

/// Compares the reported limits with those of the simulator.
#[tokio::test(start_paused = true)]
async fn reported_limits_match_the_simulator() {
    for voice in VOICES {
        let limits = match voice.1 {
            Dialect::DeepSeek | Dialect::Ollama => Limits::new(),
            Dialect::Gemini => Limits::new().requests_per_minute(60),
            _ => Limits::new()
                .requests_per_minute(60)
                .tokens_per_minute(6_000)
                .requests_per_day(500, Zone::UTC),
        };
        let fixture = Fixture::new(voice, limits);
        let (parts, _) = fixture.send("key", "m", Mode::Complete).await;
        assert_eq!(parts.status, 200, "{voice:?}");
        let reported = ReportedLimits::read(voice.1, &parts.headers, NOW);
        let (requests, day, tokens) = match voice.1 {
            Dialect::OpenAi | Dialect::Azure | Dialect::Anthropic | Dialect::Mistral => {
                (Some((60, MINUTE)), None, Some((6_000, MINUTE)))
            }
            Dialect::Groq => (None, Some((500, DAY)), Some((6_000, MINUTE))),
            Dialect::Together => {
                let second = Duration::from_secs(1);
                (Some((1, second)), None, Some((100, second)))
            }
            _ => (None, None, None),
        };
        let limit = |of| {
            reported.get(of).map(|reading: &LimitReading| (reading.limit.unwrap(), reading.window))
        };
        assert_eq!(limit(Dimension::Requests), requests, "{voice:?}");
        assert_eq!(limit(Dimension::RequestsPerDay), day, "{voice:?}");
        assert_eq!(limit(Dimension::Tokens), tokens, "{voice:?}");
        assert!(
            reported.iter().all(|(_, reading)| reading.remaining <= reading.limit),
            "{voice:?}"
        );
    }
}

/// One call per minute is allowed, and two are made.
#[tokio::test(start_paused = true)]
async fn exceeded_limit_is_reported_in_full() {
    for voice in VOICES {
        let limits = match voice.1 {
            // Together's limits are per second.
            Dialect::Together => Limits::new().requests_per_minute(60),
            Dialect::DeepSeek | Dialect::Ollama => continue,
            _ => Limits::new().requests_per_minute(1),
        };
        let fixture = Fixture::new(voice, limits);
        fixture.send("key", "m", Mode::Complete).await;
        let refused = fixture.send("key", "m", Mode::Complete).await;
        assert_eq!(refused.0.status, 429, "{voice:?}");
        let failure = fixture.read(&refused);
        let Class::RateLimited { after: Some(after), dimension } = failure.class else {
            panic!("{voice:?}: {:?}", failure.class);
        };
        assert_eq!(dimension, Some(Dimension::Requests), "{voice:?}");
        let reading = failure.reported_limits.get(Dimension::Requests).unwrap();
        assert_eq!((reading.limit, reading.remaining), (Some(1), Some(0)), "{voice:?}");
        let is_of_a_second = voice.1 == Dialect::Together;
        let window = if is_of_a_second { Duration::from_secs(1) } else { MINUTE };
        assert_eq!(reading.window, window, "{voice:?}");
        assert!(after > Duration::ZERO && after <= MINUTE, "{voice:?} {after:?}");
        // A call after the reported delay succeeds.
        tokio::time::advance(after).await;
        assert_eq!(fixture.send("key", "m", Mode::Complete).await.0.status, 200, "{voice:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refilling_daily_limit_is_recognized() {
    for voice in [(Voice::OpenAi, Dialect::OpenAi), (Voice::Groq, Dialect::Groq)] {
        let fixture = Fixture::new(voice, Limits::new().requests_per_day_refilling(2_000));
        for used in 1..=10 {
            let (parts, _) = fixture.send("key", "m", Mode::Complete).await;
            let reported = ReportedLimits::read(voice.1, &parts.headers, NOW);
            let reset = Some(Duration::from_millis(43_200) * used);
            let (limit, remaining) = (Some(2_000), Some(2_000 - u64::from(used)));
            let day = LimitReading { limit, remaining, reset, window: DAY };
            assert_eq!(reported.get(Dimension::RequestsPerDay), Some(&day), "{voice:?}");
            assert_eq!(reported.get(Dimension::Requests), None, "{voice:?}");
        }
    }
}
