//! What a call waited for, in its response headers.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::json;
use tidegate::pacer::PoolSize;
use tidegate_gateway::{CallObserver, FinishedCall, Gateway, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dialect;
use tidegate_sim::Delay;

use crate::support::{
    FAMILIES, MODEL, Mode, SECOND, account, chat, engine, gateway, send, simulator, upstream,
};
use crate::transport::ScriptedProvider;

/// Records the input tokens of calls.
#[derive(Debug, Default)]
struct Inputs(Mutex<Vec<u64>>);

impl CallObserver for Inputs {
    fn finished(&self, call: &FinishedCall<'_>) {
        let (input, _) = call.details.unwrap().reserved.unwrap();
        self.0.lock().unwrap().push(input);
    }

    fn wants_details(&self) -> bool {
        true
    }
}

fn with_output(max_tokens: u64) -> Request<Full<Bytes>> {
    let messages = [json!({ "role": "user", "content": "A river?" })];
    let body = json!({ "model": MODEL, "messages": messages, "max_tokens": max_tokens });
    chat("openai", Mode::Single).map(|_| Full::new(Bytes::from(body.to_string())))
}

fn openai() -> Upstream {
    upstream("openai", Dialect::OpenAi)
}

fn observed_gateway(upstream: Upstream) -> (Gateway, Arc<Inputs>) {
    let observer = Arc::new(Inputs::default());
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let builder = Gateway::builder(&engine()).http(provider);
    let gateway = builder.upstream(upstream).call_observer(observer.clone()).build().unwrap();
    (gateway, observer)
}

/// R97: 985 tokens a second are 1.5 % below the limit, so 197 that are missing take 200 ms; the next
/// request may be sent after 250.
#[tokio::test(start_paused = true)]
async fn a_wait_is_split_between_tokens_and_requests() {
    let (unlimited, observer) = observed_gateway(openai());
    send(&unlimited, with_output(1)).await;
    let input = observer.0.lock().unwrap()[0];
    let raw = RawConstraint {
        requests_per_minute: Some(244),
        burst_capacity: Some(1),
        tokens_per_minute: Some(60_000),
        ..RawConstraint::default()
    };
    let (gateway, _) = observed_gateway(openai().limits(Constraint::try_new(&raw).unwrap()));
    let held = 58_800;
    let first = send(&gateway, with_output(held - 1_000)).await;
    assert_eq!(first.header("x-tidegate-waited-for"), "", "it did not wait");
    let second = send(&gateway, with_output(1_000 + 197 - 2 * input)).await;
    assert_eq!(second.status, 200);
    assert_eq!(second.number("x-tidegate-wait-ms"), 250);
    assert_eq!(second.header("x-tidegate-waited-for"), "tokens=200, requests=50");
    assert_eq!(second.header("x-tidegate-limited-by"), "tokens");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_is_named_concurrency() {
    let simulator = simulator(account(FAMILIES[0].2).first_token(Delay::fixed(SECOND * 3)));
    let gateway = gateway(&simulator, openai().concurrency(PoolSize::Fixed(1)));
    let call = || send(&gateway, chat("openai", Mode::Single));
    let (first, second) = tokio::join!(call(), call());
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
    let parts = second.header("x-tidegate-waited-for");
    assert!(parts.starts_with("concurrency=3"), "{parts}");
    assert_eq!(second.header("x-tidegate-limited-by"), "concurrency");
}
