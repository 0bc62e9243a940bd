//! A tonic service with a limit per method, and a client that reaches it and learns when to retry.
//! The service is tonic's health check, so that no code has to be generated.
//!
//! `cargo run -p tidegate-examples --bin tonic-service`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use anyhow::Result;
use tidegate::{Engine, Policy};
use tidegate_http::grpc::{CallError, PerMethod};
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main]
async fn main() -> Result<()> {
    let engine = Engine::new();
    let checks = engine.limiter("checks", Policy::per_minute(10).capacity(3).build()?)?;
    let watches = engine.limiter("watches", Policy::per_minute(1).build()?)?;
    let limits = PerMethod::new()
        .method("/grpc.health.v1.Health/Check", LimitLayer::new().limit(checks, key::client_ip()))
        .method("/grpc.health.v1.Health/Watch", LimitLayer::new().limit(watches, key::client_ip()));

    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(limits).add_service(health);
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for number in 1..=4 {
        let request = HealthCheckRequest { service: String::new() };
        match client.check(request).await.map_err(CallError::from) {
            Ok(answer) => println!("call {number}: status {}", answer.into_inner().status),
            Err(CallError::RateLimited { retry_after, status }) => {
                println!("call {number}: {:?}, come back in {retry_after:?}", status.code());
            }
            Err(other) => println!("call {number}: {other}"),
        }
    }
    server.abort();
    Ok(())
}
