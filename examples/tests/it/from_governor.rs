//! The programs in `docs/from-governor.md`: they compile, both versions decide alike, and the page
//! shows them verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]

mod axum_governor;
mod axum_tidegate;
mod direct_governor;
mod direct_tidegate;
mod keyed_governor;
mod keyed_tidegate;
mod waiting_governor;
mod waiting_tidegate;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use tower::ServiceExt as _;

use crate::page::assert_shows;

const PAGE: &str = include_str!("../../../docs/from-governor.md");

/// The programs in the order of the page; governor's version is the first of each pair.
const PROGRAMS: &[(&str, &str)] = &[
    ("from_governor/keyed_governor.rs", include_str!("from_governor/keyed_governor.rs")),
    ("from_governor/keyed_tidegate.rs", include_str!("from_governor/keyed_tidegate.rs")),
    ("from_governor/direct_governor.rs", include_str!("from_governor/direct_governor.rs")),
    ("from_governor/direct_tidegate.rs", include_str!("from_governor/direct_tidegate.rs")),
    ("from_governor/axum_governor.rs", include_str!("from_governor/axum_governor.rs")),
    ("from_governor/axum_tidegate.rs", include_str!("from_governor/axum_tidegate.rs")),
    ("from_governor/waiting_governor.rs", include_str!("from_governor/waiting_governor.rs")),
    ("from_governor/waiting_tidegate.rs", include_str!("from_governor/waiting_tidegate.rs")),
];

#[test]
fn the_page_shows_the_programs() {
    assert_shows("docs/from-governor.md", PAGE, PROGRAMS);
}

#[test]
fn keyed_limiters_have_the_same_burst() {
    let (theirs, ours) = (keyed_governor::limiter(), keyed_tidegate::limiter().unwrap());
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for _ in 0..20 {
        assert_eq!(keyed_governor::check(&theirs, client), None);
        assert_eq!(keyed_tidegate::check(&ours, client).unwrap(), None);
    }
    // A slow machine may allow a few more, but not twenty.
    let theirs = (0..20).find_map(|_| keyed_governor::check(&theirs, client));
    let ours = (0..20).find_map(|_| keyed_tidegate::check(&ours, client).unwrap());
    for wait in [theirs.unwrap(), ours.unwrap()] {
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
    }
}

#[test]
fn direct_limiters_spend_several_at_once() {
    let (theirs, ours) = (direct_governor::limiter().unwrap(), direct_tidegate::limiter().unwrap());
    let tokens = |count| NonZeroU32::new(count).unwrap();
    assert!(direct_governor::one(&theirs) && direct_tidegate::one(&ours));
    assert!(direct_governor::several(&theirs, tokens(4)).unwrap());
    assert!(direct_tidegate::several(&ours, 4));
    assert!(direct_governor::several(&theirs, tokens(6)).is_err());
    assert!(!direct_tidegate::several(&ours, 6));
    assert_eq!(ours.take(6).retry(), Some(tidegate::Retry::Never));
}

#[tokio::test]
async fn axum_apps_answer_five_requests_of_an_address() {
    let apps =
        [(axum_governor::app().unwrap(), "governor"), (axum_tidegate::app().unwrap(), "tidegate")];
    for (app, name) in apps {
        for _ in 0..5 {
            assert_eq!(status(&app, [192, 0, 2, 1]).await, StatusCode::OK, "{name}");
        }
        // A slow machine may allow one more, but not five.
        let mut refused = false;
        for _ in 0..5 {
            refused |= status(&app, [192, 0, 2, 1]).await == StatusCode::TOO_MANY_REQUESTS;
        }
        assert!(refused, "{name}");
        assert_eq!(status(&app, [192, 0, 2, 2]).await, StatusCode::OK, "{name}");
    }
}

async fn status(app: &Router, address: [u8; 4]) -> StatusCode {
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 4711))));
    app.clone().oneshot(request).await.unwrap().status()
}

/// The servers on the page attach the peer address to requests.
#[tokio::test]
async fn axum_servers_know_their_clients() {
    for ours in [false, true] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            if ours {
                axum_tidegate::serve(axum_tidegate::app().unwrap(), listener).await
            } else {
                axum_governor::serve(axum_governor::app().unwrap(), listener).await
            }
        });
        let asked = tokio::task::spawn_blocking(move || ureq::get(url).call().unwrap().status());
        assert_eq!(asked.await.unwrap(), 200);
        server.abort();
    }
}

#[tokio::test]
async fn waiting_ends_when_a_token_is_there() {
    let theirs = waiting_governor::limiter();
    let ours = waiting_tidegate::limiter().unwrap();
    let mut waited = Duration::ZERO;
    for _ in 0..10 {
        waited += waiting_tidegate::wait(&ours, "job").await.unwrap();
    }
    assert!(waited > Duration::ZERO, "one token was enough for ten waits");
    // governor does not report the wait, so the test only shows that it ends.
    for _ in 0..10 {
        waiting_governor::wait(&theirs, "job").await;
    }
}

/// A minute between tokens, so that even a slow machine sees no second one.
#[tokio::test]
async fn a_wait_that_is_too_long_fails_at_once() {
    let policy = tidegate::Policy::per(1, Duration::from_secs(60)).build().unwrap();
    let limiter = tidegate::Limiter::new(policy);
    assert_eq!(waiting_tidegate::wait(&limiter, "job").await.unwrap(), Duration::ZERO);
    let error = waiting_tidegate::wait(&limiter, "job").await.unwrap_err();
    assert!(matches!(error, tidegate::pacer::AcquireError::TooLong { .. }), "{error}");
}
