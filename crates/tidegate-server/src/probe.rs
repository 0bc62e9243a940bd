//! Checks whether the configured providers can be reached from this machine.

use http::Uri;
use tidegate_config::{Config, ProviderConfig};
use tidegate_llm::client::{Client, Roots};
use tidegate_llm::proxy::Proxy;
use tokio::task::JoinSet;

/// Result of an attempt to reach a provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeResult {
    /// Name of the provider.
    pub provider: String,
    /// Its configured base URL.
    pub base_url: String,
    /// Host and port of the proxy used, without credentials.
    pub proxy: Option<String>,
    /// Why the provider cannot be reached; `None` if it can.
    pub error: Option<String>,
}

/// Returns the names of the providers that [`probe_providers`] tries: those with settings of their
/// own in the configuration.
#[must_use]
pub fn configured_providers(plan: &Config) -> Vec<&str> {
    configured(plan).map(|(name, _)| name).collect()
}

fn configured(plan: &Config) -> impl Iterator<Item = (&str, &ProviderConfig)> {
    let providers = plan.providers.iter().map(|(name, provider)| (name.as_str(), provider));
    providers.filter(|(_, it)| it.is_configured() && it.has_gateway_path())
}

/// Tries to reach every configured provider concurrently: name resolution, TCP and TLS within the
/// provider's connect timeout, through its proxy and with its root certificates. No API key is
/// sent. Calls `on_result` with each result as soon as it is known.
pub async fn probe_providers(plan: &Config, mut on_result: impl FnMut(ProbeResult)) {
    let mut probes = JoinSet::new();
    for (name, provider) in configured(plan) {
        let base_url = provider.base_url.value.clone();
        let proxy = plan.proxy.proxy_for(&base_url).cloned();
        let (name, provider) = (name.to_owned(), provider.clone());
        probes.spawn(async move {
            let result = probe(&provider, proxy.clone()).await;
            let proxy = proxy.map(|proxy| proxy.host_port().to_owned());
            ProbeResult { provider: name, base_url, proxy, error: result.err() }
        });
    }
    while let Some(done) = probes.join_next().await {
        if let Ok(reached) = done {
            on_result(reached);
        }
    }
}

async fn probe(provider: &ProviderConfig, proxy: Option<Proxy>) -> Result<(), String> {
    let uri: Uri =
        provider.base_url.value.parse().map_err(|_| "base_url is not a valid URL".to_owned())?;
    let roots = provider.roots().map(|roots| Roots::from_der(roots.to_vec()));
    let roots = roots.transpose().map_err(|error| error.to_string())?;
    let client = Client::new().map_err(|error| error.to_string())?;
    let limit = provider.connect_timeout.value;
    client.probe(uri, limit, roots, proxy).await.map_err(|error| error.to_string())
}
