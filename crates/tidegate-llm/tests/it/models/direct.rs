//! R36: a model without modules calls its adapter directly.

use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http_body_util::Full;
use tidegate::now_or_never;
use tidegate_llm::adapter::{Adapter, Target};
use tidegate_llm::mock::Mock;
use tidegate_llm::models::Models;
use tidegate_llm::{Call, CallError, CallResponse};
use tidegate_providers::{Credential, Dialect, Reply};
use tower::{Service, service_fn};

use super::hello;

/// An HTTP service that answers at once.
fn http() -> impl Service<
    http::Request<Full<Bytes>>,
    Response = http::Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync {
    service_fn(|_: http::Request<Full<Bytes>>| async {
        let body = r#"{"message":{"content":"Elbe"},"done":true}"#;
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(body.as_bytes()))))
    })
}

/// Runs a call that does not wait, and returns how many allocations it made.
fn allocations(call: impl AsyncFn(Call) -> Result<Reply, CallError>) -> u64 {
    let run = || assert_eq!(now_or_never(call(hello())).unwrap().unwrap().text, "Elbe");
    run();
    measure(run).count_total
}

#[test]
fn model_without_modules_allocates_nothing_of_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let address = "http://127.0.0.1:11434";
    let target = Target::new(Dialect::Ollama, address, "llama3", &Credential::none()).unwrap();
    let adapter = Adapter::new(http(), "ollama", target);
    let direct = allocations(async |call| {
        let mut adapter = adapter.clone();
        let ready = adapter.poll_ready(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ready, Poll::Ready(Ok(()))));
        adapter.call(call).await?.into_reply().await
    });
    let models = Models::builder().http(http()).build();
    let load = || models.load_model("ollama", "llama3");
    let plain = load().build().unwrap();
    assert_eq!(plain.to_string(), "ollama/llama3");
    assert_eq!(allocations(async |call| plain.invoke(call).await), direct);
    let limited = load().rate_limit(true).build().unwrap();
    assert!(allocations(async |call| limited.invoke(call).await) > direct, "they are counted");
    // A service in place of an adapter is called as directly.
    let models = Models::builder().backend("ollama", adapter.clone()).build();
    let plain = models.load_model("ollama", "llama3").build().unwrap();
    assert_eq!(allocations(async |call| plain.invoke(call).await), direct);
}

/// A service of which two must be cloned at the same time.
struct Meeting {
    mock: Mock,
    arrived: Arc<(Mutex<u32>, Condvar)>,
}

impl Clone for Meeting {
    fn clone(&self) -> Self {
        let (count, changed) = &*self.arrived;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let within = Duration::from_secs(20);
        let (count, waited) = changed.wait_timeout_while(count, within, |it| *it < 2).unwrap();
        assert!(!waited.timed_out(), "a call waits for another one");
        drop(count);
        Self { mock: self.mock.clone(), arrived: self.arrived.clone() }
    }
}

impl Service<Call> for Meeting {
    type Response = CallResponse;
    type Error = CallError;
    type Future = <Mock as Service<Call>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.mock.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        self.mock.call(call)
    }
}

#[test]
fn calls_of_a_model_without_modules_share_no_lock() {
    let meeting = Meeting { mock: Mock::new("openai"), arrived: Arc::default() };
    let models = Models::builder().backend("openai", meeting).build();
    let model = models.load_model("openai", "a").build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| now_or_never(model.invoke(hello())).unwrap().unwrap());
        }
    });
}
