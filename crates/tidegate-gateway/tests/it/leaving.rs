//! Callers who leave, and a gateway that ends.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tidegate_gateway::Gateway;
use tidegate_sim::{Delay, Ending, Fault};
use tokio::time::timeout;

use crate::stage::{
    FAMILIES, LABEL, PEER, SECOND, Want, account, ask, chat, gateway, is_idle, per_minute, read,
    settle, simulator, upstream,
};

/// One that is sent, and one that waits.
async fn two(
    gateway: &Gateway,
    name: &'static str,
) -> [tokio::task::JoinHandle<crate::stage::Answer>; 2] {
    let calls = [(); 2].map(|()| {
        let gateway = gateway.clone();
        tokio::spawn(async move { ask(&gateway, chat(name, Want::Whole)).await })
    });
    settle().await;
    calls
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_it_waits_frees_its_place() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 5)));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(6)));
        let [sent, waits] = two(&gateway, name).await;
        let status = &gateway.status()[0];
        assert_eq!((status.queued, status.in_flight), (1, 1), "{name}");
        waits.abort();
        settle().await;
        assert_eq!(gateway.status()[0].queued, 0, "{name}");
        assert_eq!(sent.await.unwrap().status, 200);
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_the_provider_works_hangs_up() {
    for (name, dialect, sim) in FAMILIES {
        for want in [Want::Whole, Want::Stream] {
            let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 60)));
            let gateway = gateway(&simulator, upstream(name, dialect));
            let asked = timeout(SECOND, gateway.handle(chat(name, want), PEER)).await;
            // A provider may send its head at once, and nothing behind it.
            drop(asked);
            tokio::time::sleep(SECOND * 2).await;
            assert!(is_idle(&gateway), "{name} {want:?}: {:?}", gateway.status());
            let ledger = simulator.ledger();
            assert_eq!(
                ledger.count(|entry| entry.ending == Ending::Abandoned),
                1,
                "{name} {want:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_in_the_middle_of_a_stream_hangs_up() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
        let gateway = gateway(&simulator, upstream(name, dialect));
        let mut response = gateway.handle(chat(name, Want::Stream), PEER).await;
        response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(gateway.status()[0].in_flight, 1, "{name}");
        drop(response);
        tokio::time::sleep(SECOND * 2).await;
        assert!(is_idle(&gateway), "{name}");
        let abandoned = simulator.ledger().count(|entry| entry.ending == Ending::Abandoned);
        assert_eq!(abandoned, 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_ends_sends_the_waiting_away_and_finishes_the_rest() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 5)));
        let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(6)));
        let [sent, waits] = two(&gateway, name).await;
        gateway.drain();
        let refused = timeout(SECOND, waits).await.unwrap().unwrap();
        assert_eq!(refused.status, 503, "{name}");
        assert!(refused.number("retry-after-ms") > 0 && refused.number("retry-after") > 0);
        let late = ask(&gateway, chat(name, Want::Stream)).await;
        assert_eq!(late.status, 503, "{name}");
        assert_eq!(sent.await.unwrap().status, 200, "{name}");
        assert!(is_idle(&gateway), "{name}");
        assert_eq!(simulator.ledger().seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_ends_lets_streams_come_to_their_ends() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let response = gateway.handle(chat(name, Want::Stream), PEER).await;
    gateway.drain();
    let body = read(response).await.unwrap().body;
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_ends_does_not_wait_for_the_next_attempt() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.inject(LABEL, Fault::RateLimited { retry_after: Some(SECOND * 30) }, 1).unwrap();
    let gateway = gateway(&simulator, upstream(name, dialect));
    let call = gateway.clone();
    let call = tokio::spawn(async move { ask(&call, chat(name, Want::Whole)).await });
    tokio::time::sleep(SECOND).await;
    assert_eq!(gateway.status()[0].queued, 1, "between two attempts it is held");
    gateway.drain();
    let refused = timeout(Duration::from_secs(1), call).await.unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.number("x-tidegate-attempts")), (503, 1));
    assert!(is_idle(&gateway));
}
