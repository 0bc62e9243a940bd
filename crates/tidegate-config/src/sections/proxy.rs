//! `[proxy]`: HTTP proxies for calls to providers, and the hosts to reach without one.
//!
//! The usual variables set the same keys: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` for both, and
//! `NO_PROXY`, in upper or lower case.

use http::Uri;
use http::uri::Scheme;
use tidegate_llm::proxy::Proxy;

use crate::sections::keys::KnownKey;
use crate::sections::no_proxy::NoProxy;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::Rule;

const WHY_FIXED: &str = "keys and prompts pass through the proxy, so only the operator may set it";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "proxy.https",
        ValueKind::Text,
        |value| proxy(value).map(drop),
        "HTTP proxy for providers with https:// URLs, or \"none\". HTTPS_PROXY sets it too.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "proxy.http",
        ValueKind::Text,
        |value| proxy(value).map(drop),
        "HTTP proxy for providers with http:// URLs, or \"none\". HTTP_PROXY sets it too.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "proxy.no_proxy",
        ValueKind::Texts,
        |value| no_proxy(value).map(drop),
        "Hosts, domains, addresses and networks to reach without a proxy, each optionally with a \
         port. NO_PROXY sets it too.",
    )
    .fixed(WHY_FIXED),
];

/// Keys and their usual variables. The first variable that is set wins.
pub(crate) const VARIABLES: [(&str, &[&str]); 3] = [
    ("https", &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
    ("http", &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
    ("no_proxy", &["NO_PROXY", "no_proxy"]),
];

/// Settings of `[proxy]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// Proxy for `https://` URLs. Default: none.
    pub https: Setting<Option<Proxy>>,
    /// Proxy for `http://` URLs. Default: none.
    pub http: Setting<Option<Proxy>>,
    /// Hosts to reach without a proxy. Default: none.
    pub no_proxy: Setting<NoProxy>,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            https: Setting::default(None),
            http: Setting::default(None),
            no_proxy: Setting::default(NoProxy::default()),
        }
    }
}

impl ProxyConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        config.https.replace(fields.setting("https", proxy));
        config.http.replace(fields.setting("http", proxy));
        config.no_proxy.replace(fields.setting("no_proxy", no_proxy));
        config
    }

    /// Returns the proxy for `base_url`, if it is reached through one.
    ///
    /// ```
    /// let text = "[proxy]\nhttps = \"http://proxy.test:3128\"\nno_proxy = [\"openai.com\"]\n";
    /// let config = tidegate_config::Loader::default().text("in-line", text)?;
    /// let proxy = config.proxy.proxy_for("https://api.anthropic.com").unwrap();
    /// assert_eq!(proxy.to_string(), "http://proxy.test:3128");
    /// assert!(config.proxy.proxy_for("https://api.openai.com").is_none());
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn proxy_for(&self, base_url: &str) -> Option<&Proxy> {
        let uri: Uri = base_url.parse().ok()?;
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let proxy = if is_https { &self.https } else { &self.http };
        proxy.value.as_ref().filter(|_| !self.no_proxy.value.matches(&uri))
    }
}

/// Parses a proxy URL; `none` and the empty text mean no proxy.
pub(crate) fn proxy(value: &Value<'_>) -> Result<Option<Proxy>, Rule> {
    match value.to_text()?.trim() {
        "" | "none" => Ok(None),
        text => text.parse().map(Some).map_err(Rule::Proxy),
    }
}

fn no_proxy(value: &Value<'_>) -> Result<NoProxy, Rule> {
    // Entries may be separated by spaces as well as commas.
    let entries = value.to_texts()?.into_iter().flat_map(str::split_whitespace);
    NoProxy::new(entries).map_err(Rule::NoProxy)
}
