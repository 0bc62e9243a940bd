//! What an observer is told: every call, once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_gateway::{CallObserver, FinishedCall, Gateway, Outcome, Upstream};
use tidegate_sim::{Delay, Fault, Simulator};
use tokio::time::timeout;

use crate::stage::{
    FAMILIES, LABEL, MODEL, PEER, SECOND, Want, account, ask, chat, per_minute, settle, simulator,
    upstream,
};
use crate::wire;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Note>>);

#[derive(Clone, Debug, PartialEq)]
struct Note {
    model: String,
    outcome: Outcome,
    wait: Duration,
    limited_by: Option<&'static str>,
    attempts: u32,
    throttled: u32,
    tokens: Option<(u64, u64)>,
    status: Option<u16>,
}

impl CallObserver for Heard {
    fn finished(&self, call: &FinishedCall<'_>) {
        self.0.lock().unwrap().push(Note {
            model: call.model.to_owned(),
            outcome: call.outcome,
            wait: call.wait,
            limited_by: call.limited_by,
            attempts: call.attempts,
            throttled: call.upstream_429s,
            tokens: call.usage.map(|usage| (usage.input, usage.output)),
            status: call.status.map(|status| status.as_u16()),
        });
    }
}

impl Heard {
    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn one(&self) -> Note {
        let mut notes = self.take();
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes.remove(0)
    }
}

fn watched(simulator: &Simulator, upstream: Upstream) -> (Gateway, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let builder = Gateway::builder(&crate::stage::engine()).http(wire::http(simulator));
    let gateway = builder.upstream(upstream).call_observer(heard.clone()).build().unwrap();
    (gateway, heard)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_with_what_it_used() {
    for (name, dialect, sim) in FAMILIES {
        for want in [Want::Whole, Want::Stream] {
            let simulator = simulator(account(sim));
            let (gateway, heard) = watched(&simulator, upstream(name, dialect).models([MODEL]));
            ask(&gateway, chat(name, want)).await;
            let note = heard.one();
            assert_eq!((note.outcome, note.status), (Outcome::Answered, Some(200)), "{name}");
            assert_eq!((note.model.as_str(), note.attempts), (MODEL, 1));
            assert_eq!(note.tokens, Some((2, 10)), "{name} {want:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_end_is_told_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let (gateway, heard) = watched(&simulator, upstream(name, dialect).limits(per_minute(60)));
    simulator.inject(LABEL, Fault::RateLimited { retry_after: Some(SECOND) }, 1).unwrap();
    ask(&gateway, chat(name, Want::Whole)).await;
    let note = heard.one();
    assert_eq!((note.throttled, note.attempts, note.model.as_str()), (1, 2, "other"));
    assert!(note.wait >= SECOND, "{note:?}");

    simulator.inject(LABEL, Fault::Cut { after: 3 }, 1).unwrap();
    let response = gateway.handle(chat(name, Want::Stream), PEER).await;
    crate::stage::read(response).await.unwrap_err();
    assert_eq!(heard.one().outcome, Outcome::Broken);

    drop(timeout(SECOND * 3, gateway.handle(chat(name, Want::Stream), PEER)).await);
    settle().await;
    let note = heard.one();
    assert_eq!((note.outcome, note.attempts), (Outcome::Cancelled, 1));

    let mut quick = chat(name, Want::Whole);
    quick.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    let first = gateway.handle(chat(name, Want::Stream), PEER).await;
    assert_eq!(ask(&gateway, quick).await.status, 429);
    let note = heard.one();
    assert_eq!((note.outcome, note.attempts, note.status), (Outcome::Refused, 0, Some(429)));
    drop(first);
    settle().await;
    heard.take();

    gateway.drain();
    ask(&gateway, chat(name, Want::Whole)).await;
    assert_eq!(heard.one().outcome, Outcome::Drained);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_told_with_its_reason() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let (gateway, heard) = watched(&simulator, upstream(name, dialect).limits(per_minute(60)));
    ask(&gateway, chat(name, Want::Whole)).await;
    let answer = ask(&gateway, chat(name, Want::Whole)).await;
    assert_eq!(answer.field("x-tidegate-limited-by"), "requests");
    assert!((900..=1_100).contains(&answer.number("x-tidegate-wait-ms")));
    let notes = heard.take();
    assert_eq!(notes[1].limited_by, Some("requests"));
    assert_eq!(gateway.status()[0].binding, Some("requests"));
}
