//! The gateway: the server that `serve` runs, or the same APIs in memory.

use tidegate_config::{Key, Layers, Loader};
use tidegate_server::{InProcess, Running, Server};

use super::DemoError;
use super::network::Endpoint;
use super::scenario::Scenario;

/// An open gateway.
pub(super) enum Gateway {
    Server(Running),
    InProcess(InProcess),
}

impl Gateway {
    /// Opens a gateway in front of a provider, on free ports if the provider has one.
    pub(super) async fn open(provider: &Endpoint) -> Result<Self, DemoError> {
        let layers = layers(&provider.url());
        Ok(match provider {
            Endpoint::Simulator(simulator) => {
                let simulator = simulator.clone();
                Self::InProcess(InProcess::new(layers, move || simulator.connect())?)
            }
            Endpoint::Socket(_) | Endpoint::Gateway(_) => {
                Self::Server(Server::new(layers)?.open().await?)
            }
        })
    }

    /// Where agents call it.
    pub(super) fn endpoint(&self) -> Endpoint {
        match self {
            Self::Server(running) => Endpoint::Socket(running.http()),
            Self::InProcess(api) => Endpoint::Gateway(api.clone()),
        }
    }

    /// Stops it after the requests in flight.
    pub(super) async fn close(self) {
        match self {
            Self::Server(running) => _ = running.shutdown().await,
            Self::InProcess(_) => {}
        }
    }
}

/// The layers: the settings of the scenario on free ports. Neither the environment nor a file is
/// read, and nothing is stored.
fn layers(base_url: &str) -> Layers {
    let listeners = [Key::ListenHttp, Key::ListenAdmin, Key::ListenGrpc];
    let loader = listeners
        .into_iter()
        .fold(Loader::default(), |loader, listener| loader.flag(listener, "127.0.0.1:0"));
    loader.flag(Key::DatabaseUrl, "none").text_layers("demo.toml", &Scenario::settings(base_url))
}
