//! Callers that disconnect, and a gateway that drains.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tidegate_gateway::Gateway;
use tidegate_sim::{CallEnding, Delay, Fault};
use tokio::time::timeout;

use crate::support::{
    ACCOUNT, FAMILIES, Mode, PEER, SECOND, account, chat, gateway, is_idle, per_minute, read, send,
    settle, simulator, upstream,
};

/// Starts two calls: one is sent, the other waits.
async fn spawn_two_calls(
    gateway: &Gateway,
    name: &'static str,
) -> [tokio::task::JoinHandle<crate::support::FullResponse>; 2] {
    let calls = [(); 2].map(|()| {
        let gateway = gateway.clone();
        tokio::spawn(async move { send(&gateway, chat(name, Mode::Single)).await })
    });
    settle().await;
    calls
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_waiting_call_frees_its_queue_entry() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 5)));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(6)));
        let [sent, waiting] = spawn_two_calls(&gateway, name).await;
        let status = &gateway.status()[0];
        assert_eq!((status.queued, status.in_flight), (1, 1), "{name}");
        waiting.abort();
        settle().await;
        assert_eq!(gateway.status()[0].queued, 0, "{name}");
        assert_eq!(sent.await.unwrap().status, 200);
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_sent_call_closes_the_connection() {
    for (name, dialect, sim) in FAMILIES {
        for mode in [Mode::Single, Mode::Stream] {
            let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 60)));
            let gateway = gateway(&simulator, upstream(name, dialect));
            let pending = timeout(SECOND, gateway.handle(chat(name, mode), PEER)).await;
            // A provider may send the head at once and nothing after it.
            drop(pending);
            tokio::time::sleep(SECOND * 2).await;
            assert!(is_idle(&gateway), "{name} {mode:?}: {:?}", gateway.status());
            let ledger = simulator.ledger();
            assert_eq!(
                ledger.count(|entry| entry.ending == CallEnding::Abandoned),
                1,
                "{name} {mode:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_stream_closes_the_connection() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
        let gateway = gateway(&simulator, upstream(name, dialect));
        let mut response = gateway.handle(chat(name, Mode::Stream), PEER).await;
        response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(gateway.status()[0].in_flight, 1, "{name}");
        drop(response);
        tokio::time::sleep(SECOND * 2).await;
        assert!(is_idle(&gateway), "{name}");
        let abandoned = simulator.ledger().count(|entry| entry.ending == CallEnding::Abandoned);
        assert_eq!(abandoned, 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn draining_refuses_waiting_calls_and_finishes_sent_ones() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 5)));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(6)));
        let [sent, waiting] = spawn_two_calls(&gateway, name).await;
        gateway.drain();
        let refused = timeout(SECOND, waiting).await.unwrap().unwrap();
        assert_eq!(refused.status, 503, "{name}");
        assert!(refused.number("retry-after-ms") > 0 && refused.number("retry-after") > 0);
        let late = send(&gateway, chat(name, Mode::Stream)).await;
        assert_eq!(late.status, 503, "{name}");
        assert_eq!(sent.await.unwrap().status, 200, "{name}");
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn draining_lets_streams_finish() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let response = gateway.handle(chat(name, Mode::Stream), PEER).await;
    gateway.drain();
    let body = read(response).await.unwrap().body;
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn draining_refuses_calls_between_attempts() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.inject(ACCOUNT, Fault::RateLimited { retry_after: Some(SECOND * 30) }, 1).unwrap();
    let gateway = gateway(&simulator, upstream(name, dialect));
    let call = gateway.clone();
    let call = tokio::spawn(async move { send(&call, chat(name, Mode::Single)).await });
    tokio::time::sleep(SECOND).await;
    assert_eq!(gateway.status()[0].queued, 1, "queued between two attempts");
    gateway.drain();
    let refused = timeout(Duration::from_secs(1), call).await.unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.number("x-tidegate-attempts")), (503, 1));
    assert!(is_idle(&gateway));
}
