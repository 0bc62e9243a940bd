//! An axum app with a general limit and a stricter one for one route, and a client that reaches
//! both.
//!
//! `cargo run -p tidegate-examples --bin axum-app`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use tidegate::{Engine, Policy};
use tidegate_http::field::Report;
use tidegate_http::key;
use tidegate_http::layer::{LimitLayer, RequestDecision};
use tidegate_http::route::PerRoute;
use tokio::net::TcpListener;

fn app() -> Result<Router> {
    let engine = Engine::new();
    let all = engine.limiter("all", Policy::per_minute(10).capacity(4).build()?)?;
    let search = engine.limiter("search", Policy::per_minute(2).capacity(2).build()?)?;
    // By API key, which is hashed before it reaches the store; without one, by address.
    let by_key = |limiter| LimitLayer::new().limit(limiter, key::api_key("x-api-key"));
    let limits =
        PerRoute::new().route("/search/{topic}", by_key(search).expose()).fallback(by_key(all));
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .route("/search/{topic}", get(search_for))
        .layer(limits))
}

/// A handler can read the decision.
async fn search_for(decided: RequestDecision) -> String {
    let left = decided.binding().map_or(0, Report::remaining);
    format!("found something; {left} searches left")
}

#[tokio::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // Limits by address need the address of the peer.
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, service).await });
    tokio::task::spawn_blocking(move || meet_the_limits(address)).await??;
    server.abort();
    Ok(())
}

fn meet_the_limits(address: SocketAddr) -> Result<()> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let ask = |path: &str, key: &str| -> Result<()> {
        let url = format!("http://{address}{path}");
        let mut response = agent.get(url).header("x-api-key", key).call()?;
        println!("GET {path} as {key}: {}", response.status());
        for name in ["ratelimit-policy", "ratelimit", "retry-after", "retry-after-ms"] {
            if let Some(value) = response.headers().get(name) {
                println!("   {name}: {}", value.to_str()?);
            }
        }
        println!("   {}", response.body_mut().read_to_string()?);
        Ok(())
    };
    for _ in 0..5 {
        ask("/", "alice")?;
    }
    for _ in 0..3 {
        ask("/search/tides", "alice")?;
    }
    ask("/search/tides", "bob")
}
