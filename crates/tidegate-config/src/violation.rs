//! Violations of configuration rules. Readers collect all of them instead of stopping at the first.

use std::borrow::Borrow;
use std::fmt;

use tidegate::{LimitError, PolicyError, ScheduleError};
use tidegate_core::DecimalError;
use tidegate_llm::plan::InvalidSettings;

use crate::values::duration::DurationError;
use crate::values::fields::Path;
use crate::values::postgres_url::PostgresUrlError;
use crate::values::redis_url::RedisUrlError;
use crate::values::secret::without_credentials;
use crate::values::setting::Position;
use crate::values::size::{ByteSize, SizeError};
use crate::values::value::{Node, Value};

/// A rule that a value violates. Its `Display` follows the key: `limits.a.rate: is required`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    /// The text is not valid TOML or YAML.
    #[error("{0}")]
    Syntax(String),
    /// A feature of YAML that configuration files cannot use.
    #[error("{0} cannot be used in a configuration")]
    YamlFeature(&'static str),
    /// YAML that is nested too deeply. Contains the maximum.
    #[error("is nested too deeply: use at most {0} levels")]
    TooDeep(usize),
    /// A tier that is not in the tier table of the provider.
    #[error("is not a tier of {provider}; {}", suggestion("tiers", nearest.as_deref(), known))]
    UnknownTier {
        /// The provider.
        provider: String,
        /// The most similar tier, if one is close enough.
        nearest: Option<String>,
        /// All tiers of the provider.
        known: Vec<String>,
    },
    /// A tier of a provider that the tier table does not have.
    #[error(
        "is not in the tier table, which has no tiers of {0}: set the limits themselves, such as \
         requests_per_minute"
    )]
    NoTiers(String),
    /// A chain of fallbacks with an entry that is neither a provider nor one of its models.
    #[error("must be providers, such as \"anthropic\" or \"anthropic/claude-sonnet-5\"")]
    FallbackTarget,
    /// Fallback without a chain.
    #[error(
        "needs providers to fall back to: set chain; the fallback of a provider needs no `enabled`"
    )]
    EmptyChain,
    /// The variable named by `api_key_env` is not set, in the library.
    #[error("{0} is not set in this environment: set it to the key")]
    KeyNotSet(String),
    /// A key that the library cannot apply.
    #[error("has no effect in the library: {0}")]
    NotInLibrary(&'static str),
    /// An unknown key.
    #[error("is not a known key; {}", suggestion("keys", *nearest, known))]
    Unknown {
        /// The most similar known key, if one is close enough.
        nearest: Option<&'static str>,
        /// All known keys of the table.
        known: Vec<&'static str>,
    },
    /// A key that occurs twice in one table.
    #[error("is given twice")]
    Duplicate,
    /// A required key that is missing.
    #[error("is required")]
    Required,
    /// Not a table.
    #[error("must be a table of keys and values")]
    NotTable,
    /// Not a list.
    #[error("must be a list")]
    NotList,
    /// Not a string.
    #[error("must be a string")]
    NotText,
    /// Not a boolean.
    #[error("must be true or false")]
    NotBool,
    /// Not an integer, or below the minimum.
    #[error("must be a whole number >= {min}")]
    NotWhole {
        /// Smallest allowed value.
        min: u64,
    },
    /// Not an integer within bounds.
    #[error("must be a whole number between {min} and {max}")]
    NotBetween {
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
    /// An admission tier whose limit is not a token bucket.
    #[error("is a tier of [admission] and must be a token bucket: set capacity and rate")]
    NotATier,
    /// An auto-tuning ceiling below the initial concurrency.
    #[error("must be at least max_concurrent_requests ({0}), where auto-tuning starts")]
    CeilingBelowConcurrency(u32),
    /// A number that is not below the named setting.
    #[error("must be below {0}")]
    NotBelow(&'static str),
    /// A factor outside its bounds.
    #[error("must be a number from {min} to {max}")]
    NotFactor {
        /// Smallest allowed value.
        min: f64,
        /// Largest allowed value.
        max: f64,
    },
    /// Not a valid model name or pattern. Contains the maximum length.
    #[error(
        "is not a model name or pattern: use at most {0} characters without spaces, and * as a \
         wildcard, as in \"gpt-4o*\""
    )]
    ModelPattern(usize),
    /// Two entries for the same model.
    #[error("is the same model as `{0}`: names are case-insensitive")]
    SameModel(String),
    /// More model entries than allowed.
    #[error("must have at most {0} models")]
    TooManyModels(usize),
    /// An allow-list entry that is not `organization/client`.
    #[error(
        "must be clients, each as organization/client with one slash, such as acme/nightly-export; \
         client ids are unique only within an organization"
    )]
    AllowedClient,
    /// An integer that does not fit 64 bits.
    #[error("must be at most {}", u64::MAX)]
    ExceedsU64,
    /// Not one of the allowed words.
    #[error("must be one of {}", .0.join(", "))]
    NotOneOf(&'static [&'static str]),
    /// Not a socket address to listen on.
    #[error("must be an address and a port, such as 127.0.0.1:8080; port 0 picks a free one")]
    Address,
    /// Not a valid value of the Host header.
    #[error("must be a host name or address, with or without a port, such as tidegate.internal")]
    Host,
    /// Neither an IP address nor a network.
    #[error("must be addresses or networks of proxies, such as 10.0.0.0/8")]
    Network,
    /// Not a memory size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A memory size below the minimum.
    #[error("must be at least {min}")]
    TooSmall {
        /// Smallest usable size.
        min: ByteSize,
    },
    /// A kind of store that this version does not support.
    #[error(
        "{scheme} stores are not supported; use \"memory:\" or a URL such as redis://host:6379 or \
         durable://host"
    )]
    UnsupportedStore {
        /// The URL scheme.
        scheme: String,
    },
    /// Not a store URL.
    #[error(
        "must be \"memory:\" for the in-process store, or a URL such as redis://host:6379 or \
         durable://host"
    )]
    StoreUrl,
    /// Not a valid URL of a Worker.
    #[error(
        "must be durable://host[:port][/path], or durable+http://... without TLS; the secret of the \
         Worker does not belong into the URL: set the variable TIDEGATE_SECRET"
    )]
    DurableUrl,
    /// The Worker's secret is missing.
    #[error("needs the secret of the Worker: set the variable {0} to its TIDEGATE_SECRET")]
    SecretNotSet(&'static str),
    /// Not a valid Redis URL.
    #[error(transparent)]
    RedisUrl(#[from] RedisUrlError),
    /// Not a valid decimal.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// Not a valid policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Not a valid calendar.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Not a valid limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A policy with keys of two kinds.
    #[error(
        "belongs to {kind}, but `{other}` makes this {other_kind}; a policy has one kind: {}",
        KINDS
    )]
    MixedPolicyKinds {
        /// The kind that the key belongs to.
        kind: &'static str,
        /// A key of the policy's first kind.
        other: &'static str,
        /// The policy's first kind.
        other_kind: &'static str,
    },
    /// A policy without any key that determines its kind.
    #[error("has no key that defines a policy; a policy is one of: {}", KINDS)]
    NoPolicyKind,
    /// Both `rate` and `tokens_per_second`.
    #[error("means the same as `rate`; set only one of them")]
    TwoRates,
    /// Neither `rate` nor `tokens_per_second`.
    #[error("is required, such as \"50/s\" (or tokens_per_second = 50)")]
    NoRate,
    /// Not a strict window.
    #[error("must be a whole number and a window, such as \"60/min\" or \"5/10s\"")]
    Strict,
    /// A setting that must not come from the database, with the reason.
    #[error("cannot be set in the database: {0}")]
    NotInDatabase(&'static str),
    /// A variable that matches several settings.
    #[error("matches more than one setting: {}; set it in the file instead", .0.join(" or "))]
    Ambiguous(Vec<String>),
    /// Not a key path.
    #[error("is not a key path such as limits.client.rate")]
    NotAPath,
    /// Not JSON.
    #[error("is not JSON: {0}")]
    Json(String),
    /// A change with too many keys.
    #[error("must change at most {0} keys at once")]
    TooManyKeys(usize),
    /// A text over the maximum length.
    #[error("must have at most {0} characters")]
    TooLong(usize),
    /// Not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// Not a directory path.
    #[error("must be the path of a directory")]
    Directory,
    /// Not a path for a snapshot file.
    #[error("must be the path of a file, or \"none\"")]
    SnapshotFile,
    /// A snapshot for a store that is not in-process.
    #[error(
        "requires the in-process store (store.url = \"memory:\"); a shared store keeps its buckets \
         across restarts by itself"
    )]
    SnapshotNeedsMemoryStore,
    /// Not a database URL.
    #[error(
        "must be \"none\", \"sqlite:\" (a file in the state directory), \"sqlite:PATH\" or a \
         URL such as postgres://user:password@host/database"
    )]
    DatabaseUrl,
    /// Not a valid PostgreSQL URL.
    #[error(transparent)]
    PostgresUrl(#[from] PostgresUrlError),
    /// Not a token hash.
    #[error(
        "must be token hashes, each \"sha256:\" and 64 hexadecimal digits; run `tidegate key` to \
         create a token and its hash, and keep the token itself out of the file"
    )]
    TokenHash,
    /// Not a valid name for a provider or an endpoint.
    #[error(
        "is not a valid name: use a lower-case letter, then lower-case letters, digits, _ or -, at \
         most 64 characters"
    )]
    Name,
    /// A provider name that collides with a path of the HTTP or admin API.
    #[error("is reserved for a path of the API itself; choose another provider name")]
    ReservedName,
    /// Not a valid base URL of a provider.
    #[error(
        "must be http:// or https:// and a host, optionally a port and a path, without user and \
         query; put an API key into the variable that api_key_env names"
    )]
    BaseUrl,
    /// A missing base URL for a dialect without a default one.
    #[error("is required: this dialect has no default base URL")]
    NoBaseUrl,
    /// Not the name of an environment variable.
    #[error(
        "must be the name of an environment variable, such as OPENAI_API_KEY; keep the \
         key itself out of the file"
    )]
    VariableName,
    /// A provider that is not configured.
    #[error(
        "{name:?} is not a configured provider; {}", suggestion("providers", nearest.as_deref(), known)
    )]
    NoSuchProvider {
        /// The configured name.
        name: String,
        /// The most similar provider, if one is close enough.
        nearest: Option<String>,
        /// All configured providers.
        known: Vec<String>,
    },
    /// The variable named by `api_key_env` is not set.
    #[error(
        "{0} is not set in this environment: set it to the key, or remove api_key_env to let the \
         caller's own key pass through"
    )]
    VariableNotSet(String),
    /// A fallback that calls can never use.
    #[error("must not name {name:?}: calls never fall back to it because {why}")]
    UnsuitableFallback {
        /// Name of the fallback provider.
        name: String,
        /// Why calls cannot fall back to it.
        why: &'static str,
    },
    /// Model names for a provider that is not a fallback.
    #[error("is not in the `fallback` list of this provider, so its model names are never used")]
    NotInFallbackList,
    /// Not a model name.
    #[error("must be a model name of 1 to 256 characters")]
    ModelName,
    /// A model name that cannot be part of a URL path.
    #[error("must contain only letters, digits, `-`, `.` and `_`: this API puts it into URL paths")]
    ModelInPath,
    /// Not a path of a certificate file.
    #[error("must be the path of a PEM file of root certificates")]
    CertificateFile,
    /// The certificate file could not be read.
    #[error("cannot be read: {0}")]
    CertificateFileUnreadable(String),
    /// The certificate file contains no certificate, or is too large to be one.
    #[error("contains no certificate; a PEM certificate begins with a BEGIN CERTIFICATE line")]
    NoCertificates,
    /// An invalid certificate, by its position in the file.
    #[error("contains an invalid certificate, number {0} in the file")]
    InvalidCertificate(usize),
    /// Not a valid proxy URL.
    #[error(transparent)]
    Proxy(tidegate_providers::request::RequestError),
    /// Not a valid `no_proxy` entry.
    #[error(transparent)]
    NoProxy(crate::sections::no_proxy::NoProxyError),
    /// A provider that falls back to itself.
    #[error("must not name the provider itself")]
    SelfFallback,
    /// A fallback to a mock provider, which has no HTTP address.
    #[error("must not name {0:?}, which is a mock: the gateway cannot send calls to it")]
    MockFallback(String),
    /// More fallbacks than allowed.
    #[error("must name at most {0} providers")]
    TooManyFallbacks(usize),
    /// An unknown endpoint without paths: no call would match it.
    #[error(
        "is not a known endpoint{}; known endpoints are {}; for a workload of your own, set its \
         paths, such as paths = [\"/v1/chat/completions\"], or paths = [] if callers name it in \
         x-tidegate-endpoint",
        nearest.map(|nearest| format!(": did you mean `{nearest}`?")).unwrap_or_default(),
        known.join(", ")
    )]
    UnknownEndpoint {
        /// The most similar known endpoint.
        nearest: Option<&'static str>,
        /// All known endpoints.
        known: &'static [&'static str],
    },
    /// Not a valid endpoint path.
    #[error(transparent)]
    RoutePath(#[from] tidegate_providers::request::RequestError),
    /// More paths than an endpoint may have.
    #[error("must have at most {0} paths")]
    TooManyPaths(usize),
    /// A path that already belongs to another endpoint.
    #[error(
        "has the path {path:?}, which belongs to endpoint `{owner}`; remove it from one of them"
    )]
    PathTaken {
        /// The path, without the API root.
        path: String,
        /// The endpoint that has the path.
        owner: String,
    },
    /// Not a list of HTTP error statuses.
    #[error("must be HTTP statuses from 400 to 599, such as [429, 500, 503]")]
    RetryStatus,
    /// A status after which a retry cannot succeed.
    #[error("must not contain {0}: the request or its key is invalid, and a retry cannot succeed")]
    NeverRetried(u16),
    /// `ramp_floor` without `ramp_up`.
    #[error("requires ramp_up, which is not set; set it, such as ramp_up = \"60s\"")]
    RampFloorWithoutRamp,
    /// Not a number.
    #[error("must be a number")]
    NotNumber,
    /// A rule of `tidegate-llm`, as text.
    #[error("{0}")]
    Module(String),
    /// A rule of the caller that reads these keys.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl From<InvalidSettings> for Rule {
    /// The rule of the first mistake: for what has one value.
    fn from(invalid: InvalidSettings) -> Self {
        Self::Module(invalid.violations().map(|(_, _, rule)| rule).next().unwrap_or_default())
    }
}

const KINDS: &str = "token bucket (rate or tokens_per_second, capacity, max_debt), \
    calendar quota (quota, every, zone), allowance (allowance), strict window (strict, burst), \
    concurrency limit (concurrency, lease)";

impl Rule {
    /// Creates [`Rule::Unknown`] with the most similar known key.
    #[must_use]
    pub fn unknown(key: &str, known: &[&'static str]) -> Self {
        Self::Unknown { nearest: nearest(key, known.iter().copied()), known: known.to_vec() }
    }
}

/// Returns the known name most similar to `name`, if one is close enough to be a typo.
///
/// ```
/// let known = ["openai", "anthropic"];
/// assert_eq!(tidegate_config::nearest("opnai", known.into_iter()), Some("openai"));
/// assert_eq!(tidegate_config::nearest("weather", known.into_iter()), None);
/// ```
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // The comparison is quadratic, and a long name is not a typo of a short one.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let typos = strsim::osa_distance(&name, &known);
        let (allowed_typos, likeness) =
            (known.len().min(6) / 3, strsim::jaro_winkler(&name, &known));
        (typos <= allowed_typos || likeness > 0.75).then_some(likeness)
    };
    known
        .filter_map(|known| Some((likeness(known)?, known)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

fn suggestion(what: &str, nearest: Option<&str>, known: &[impl Borrow<str>]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known {what} are {}", known.join(", ")),
    }
}

/// A value that violates a rule.
#[derive(Debug)]
pub struct Violation {
    /// Path of the key, such as `limits.client.capacity`; empty for the text as a whole.
    pub key: String,
    /// The value as given, truncated to one line; `None` if it may contain a password.
    pub value: Option<String>,
    /// The violated rule.
    pub rule: Rule,
    /// Where the value was set.
    pub position: Position,
}

impl Violation {
    /// Creates a violation for `value`. The value is left out if it may contain a secret.
    #[must_use]
    pub fn at(path: Path<'_>, value: &Value<'_>, rule: Rule) -> Self {
        let is_secret = match &value.node {
            // A table does not fit on one line.
            Node::Table(_) => true,
            Node::Text(text) => path.may_hold_secret(text),
            _ => path.may_hold_secret(""),
        };
        let shown = (!is_secret).then(|| value.to_string());
        Self { key: path.to_string(), value: shown, rule, position: value.position }
    }
}

impl Violation {
    /// Creates a violation for `value` at the path `names`.
    pub(crate) fn at_names(names: &[impl AsRef<str>], value: &Value<'_>, rule: Rule) -> Self {
        with_path(Path::Root, names, |path| Self::at(path, value, rule))
    }

    /// Renders the rule without credentials; some rules repeat the value they reject.
    pub(crate) fn rule_text(&self) -> String {
        let rendered = self.rule.to_string();
        match &self.rule {
            // These show the URL syntax, which looks like credentials, and never repeat the value.
            Rule::RedisUrl(_) | Rule::PostgresUrl(_) | Rule::Proxy(_) => rendered,
            _ => without_credentials(&rendered).into_owned(),
        }
    }

    /// Creates a violation at the path `names`, without a value.
    pub(crate) fn of_names(names: &[impl AsRef<str>], rule: Rule, position: Position) -> Self {
        let key = with_path(Path::Root, names, |path| path.to_string());
        Self { key, value: None, rule, position }
    }
}

/// Builds the path `names` below `path` and passes it to `make`.
fn with_path<T>(path: Path<'_>, names: &[impl AsRef<str>], make: impl FnOnce(Path<'_>) -> T) -> T {
    match names {
        [] => make(path),
        [first, rest @ ..] => with_path(Path::Key(&path, first.as_ref()), rest, make),
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key.as_str(), &self.value) {
            ("", None) => {}
            ("", Some(value)) => write!(f, "{value}: ")?,
            (key, None) => write!(f, "{key}: ")?,
            (key, Some(value)) => write!(f, "{key} = {value}: ")?,
        }
        f.write_str(&self.rule_text())
    }
}
