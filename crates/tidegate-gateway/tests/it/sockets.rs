//! The gateway's own client, over real sockets, in real time.

use std::num::NonZeroU32;

use tidegate_gateway::{Gateway, Upstream};
use tokio::net::TcpListener;

use crate::stage::{FAMILIES, Want, account, ask, chat, is_idle, simulator};

#[tokio::test]
async fn every_family_is_answered_over_a_socket() {
    for (name, dialect, sim) in FAMILIES {
        let simulator = simulator(account(sim));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = simulator.clone();
        let serving = tokio::spawn(async move { server.serve(listener).await });
        let upstream = Upstream::new(name, dialect, &base).unwrap();
        let upstream = upstream.concurrency(NonZeroU32::new(8).unwrap());
        let gateway = Gateway::builder(&crate::stage::engine()).upstream(upstream).build().unwrap();
        for want in [Want::Whole, Want::Stream, Want::Whole] {
            let answer = ask(&gateway, chat(name, want)).await;
            assert_eq!(answer.status, 200, "{name} {want:?}");
        }
        assert!(is_idle(&gateway), "{name}");
        serving.abort();
    }
}

#[tokio::test]
async fn a_port_that_nobody_listens_at_is_a_502() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (name, dialect, _) = FAMILIES[0];
    let upstream = Upstream::new(name, dialect, &base).unwrap().max_retries(0);
    let gateway = Gateway::builder(&crate::stage::engine()).upstream(upstream).build().unwrap();
    assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.status, 502);
}
