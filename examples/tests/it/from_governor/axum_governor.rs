//! An axum app with a limit for each address, with tower-governor. The page shows what is below
//! this line.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// For each address: one request every 500 ms, with a burst of five.
pub fn app() -> Option<Router> {
    let config = GovernorConfigBuilder::default().per_millisecond(500).burst_size(5).finish()?;
    Some(Router::new().route("/", get(async || "hello")).layer(GovernorLayer::new(config)))
}

pub async fn serve(app: Router, listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
