//! A simulated provider for the examples that call LLM providers.
//!
//! It runs on a free local port, so that no example needs an API key. Your own program does not
//! need it, nor the `base_url` of the provider.

use tidegate_sim::Simulator;
use tokio::net::TcpListener;

/// Serves a simulator until the program ends, and returns its address.
///
/// # Errors
/// If no local port is available.
pub async fn serve(simulator: &Simulator) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = simulator.clone();
    tokio::spawn(async move { server.serve(listener).await });
    Ok(format!("http://{address}"))
}

/// Tests the examples in the README of tidegate-redis, which cannot depend on the engine itself.
#[cfg(doctest)]
#[doc = include_str!("../../crates/tidegate-redis/README.md")]
struct RedisReadme;

/// The examples of the README and of `docs/library.md`, which use several crates.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/library.md")]
    struct Library;
}
