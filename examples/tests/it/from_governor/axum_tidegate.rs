//! An axum app with a limit for each address, with tidegate. The page shows what is below this
//! line.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tidegate::{Limiter, Policy, PolicyError};
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;
use tokio::net::TcpListener;

/// For each address: two requests per second, with a burst of five.
pub fn app() -> Result<Router, PolicyError> {
    let limiter = Limiter::new(Policy::per_second(2).burst(5).build()?);
    let limit = LimitLayer::new().limit(limiter, key::client_ip());
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}

pub async fn serve(app: Router, listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
