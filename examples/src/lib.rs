//! What the examples that call LLM providers have in common: a provider to call.
//!
//! It is a simulator on a free port of this machine, so that no example needs a key. A program of
//! one's own leaves it out, and with it the `base_url` of its provider.

use tidegate_sim::Simulator;
use tokio::net::TcpListener;

/// Serves a simulator until the program ends; answers where it is.
///
/// # Errors
/// When no port of this machine can be listened at.
pub async fn serve(simulator: &Simulator) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = simulator.clone();
    tokio::spawn(async move { server.serve(listener).await });
    Ok(format!("http://{address}"))
}

/// The examples of the README of tidegate-redis, which itself does not know the engine.
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
