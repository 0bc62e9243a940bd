//! What is wrong, where, and which rule it breaks. Never the first mistake only.

use std::borrow::Borrow;
use std::fmt;

use tidegate::{LimitError, PolicyError, ScheduleError};
use tidegate_core::DecimalError;

use crate::values::duration::DurationError;
use crate::values::fields::Path;
use crate::values::postgres_url::PostgresUrlError;
use crate::values::redis_url::RedisUrlError;
use crate::values::secret::without_credentials;
use crate::values::setting::Place;
use crate::values::size::{ByteSize, SizeError};
use crate::values::value::{Node, Value};

/// The rule that a value breaks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    /// The text is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key that nobody reads.
    #[error("is not a known key; {}", suggestion(*nearest, known))]
    Unknown {
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
        /// All known keys.
        known: Vec<&'static str>,
    },
    /// A key that stands twice in one table.
    #[error("is given twice")]
    Twice,
    /// A missing key.
    #[error("is required")]
    Required,
    /// Not keys and values.
    #[error("must be a table of keys and values")]
    NotTable,
    /// Not a list.
    #[error("must be a list")]
    NotList,
    /// Not text.
    #[error("must be text")]
    NotText,
    /// Not true or false.
    #[error("must be true or false")]
    NotBool,
    /// Not a whole number, or too small.
    #[error("must be a whole number >= {least}")]
    NotWhole {
        /// The smallest that is allowed.
        least: u64,
    },
    /// Not a whole number within bounds.
    #[error("must be a whole number between {least} and {most}")]
    NotBetween {
        /// The smallest that is allowed.
        least: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// A tier of admission that is no token bucket.
    #[error("is a tier of [admission], which takes a token bucket: a capacity and a rate")]
    NotATier,
    /// A ceiling of calls at once that is below where they start.
    #[error("must be at least max_concurrent_requests, which is {0}: auto-tuning starts there")]
    CeilingBelowConcurrency(u32),
    /// A number that must be below another setting.
    #[error("must be below {0}")]
    NotBelow(&'static str),
    /// A factor outside of its bounds.
    #[error("must be a number from {least} to {most}")]
    NotFactor {
        /// The smallest that is allowed.
        least: f64,
        /// The largest that is allowed.
        most: f64,
    },
    /// Not the name or the pattern of a model.
    #[error(
        "is not a model: at most {0} characters without spaces; * stands for any characters, as in \
         \"gpt-4o*\""
    )]
    ModelPattern(usize),
    /// Two entries for one model.
    #[error("is the same model as `{0}`: case does not matter")]
    SameModel(String),
    /// More models than are told apart.
    #[error("must have at most {0} models")]
    TooManyModels(usize),
    /// Not a client of the allow-list.
    #[error(
        "must be clients, each as organization/client with one slash, such as acme/nightly-export: \
         a client id alone may be anybody's"
    )]
    AllowedClient,
    /// A whole number above 64 bits.
    #[error("must be at most {}", u64::MAX)]
    TooBig,
    /// Not one of a few words.
    #[error("must be one of {}", .0.join(", "))]
    NotOneOf(&'static [&'static str]),
    /// Not an address to listen on.
    #[error("must be an address and a port, such as 127.0.0.1:8080; port 0 picks a free one")]
    Address,
    /// Not a value of the Host header.
    #[error("must be a host name or address, with or without a port, such as tidegate.internal")]
    Host,
    /// Neither an address nor a network.
    #[error("must be addresses or networks of proxies, such as 10.0.0.0/8")]
    Network,
    /// Not a size of memory.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Too little memory for a store.
    #[error("must be at least {least}")]
    TooLittle {
        /// The least that works.
        least: ByteSize,
    },
    /// A store that this version does not have.
    #[error("this version has no {scheme} store; it serves \"memory:\" and \"redis://host:6379\"")]
    StoreNotServed {
        /// The part before the colon.
        scheme: String,
    },
    /// Not the address of a store.
    #[error("must be \"memory:\", the in-process store, or an address such as redis://host:6379")]
    StoreUrl,
    /// Not the address of a Redis server.
    #[error(transparent)]
    RedisUrl(#[from] RedisUrlError),
    /// A decimal that cannot be used.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// A policy that cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A calendar that cannot be used.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A limit that cannot be made.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Keys of two kinds of policy in one.
    #[error(
        "belongs to {kind}, but `{other}` makes this {other_kind}; a policy is of one kind: {}",
        KINDS
    )]
    Mixed {
        /// The kind that this key belongs to.
        kind: &'static str,
        /// A key of the first kind found.
        other: &'static str,
        /// The first kind found.
        other_kind: &'static str,
    },
    /// Not a single key that says what kind of policy it is.
    #[error("says nothing to enforce; a policy is one of: {}", KINDS)]
    Kindless,
    /// `rate` and `tokens_per_second` together.
    #[error("says the same as `rate`: give one of the two")]
    TwoRates,
    /// Neither `rate` nor `tokens_per_second`.
    #[error("is required, such as \"50/s\" (or tokens_per_second = 50)")]
    NoRate,
    /// Not a strict window.
    #[error("must be a whole number and a window, such as \"60/min\" or \"5/10s\"")]
    Strict,
    /// A setting that does not come from the database, and why not.
    #[error("never comes from the database: {0}")]
    NotOperational(&'static str),
    /// A variable that two settings answer to.
    #[error("may be {}: say it in a file", .0.join(" or "))]
    Ambiguous(Vec<String>),
    /// Not the path of a key.
    #[error("is not the path of a key, such as limits.client.rate")]
    NotAPath,
    /// Not JSON.
    #[error("is not JSON: {0}")]
    Json(String),
    /// More than is taken at once.
    #[error("{0} are the most at once")]
    TooManyKeys(usize),
    /// Longer than anything that is meant.
    #[error("must have at most {0} characters")]
    TooLong(usize),
    /// Not a length of time.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// Not a directory.
    #[error("must be the path of a directory")]
    Directory,
    /// Not a file for a snapshot.
    #[error("must be the path of a file, or \"none\"")]
    SnapshotFile,
    /// A snapshot of a store that is elsewhere.
    #[error(
        "is for the in-process store, whose url is \"memory:\"; a shared store outlives a restart by \
         itself"
    )]
    NothingToSave,
    /// Not a database.
    #[error(
        "must be \"none\", \"sqlite:\" (a file in the state directory), \"sqlite:PATH\" or an \
         address such as postgres://user:password@host/database"
    )]
    DatabaseUrl,
    /// Not the address of a PostgreSQL server.
    #[error(transparent)]
    PostgresUrl(#[from] PostgresUrlError),
    /// Not the hash of a token.
    #[error(
        "must be hashes of tokens, each \"sha256:\" and 64 hexadecimal digits: `tidegate key` \
         makes a token and prints its hash, and the token itself belongs in no file"
    )]
    TokenHash,
    /// Not a name for a provider or an endpoint.
    #[error(
        "is not a name: a lower-case letter, then lower-case letters, digits, _ or -, at most 64"
    )]
    Name,
    /// A name that the HTTP door needs for itself.
    #[error("is a path of the HTTP door itself, so no provider can have this name")]
    ReservedName,
    /// Not the address of a provider.
    #[error(
        "must be http:// or https://, a host, perhaps a port and a path; no user, no query: a key \
         stands in the variable that api_key_env names"
    )]
    BaseUrl,
    /// A provider whose address nobody knows.
    #[error("is required: where a provider of this dialect is depends on who asks")]
    NoBaseUrl,
    /// Not the name of a variable.
    #[error(
        "must be the name of an environment variable, such as OPENAI_API_KEY; the key itself \
         belongs in no file"
    )]
    VariableName,
    /// A provider that is not configured.
    #[error("{name:?} is not a configured provider; {}", suggestion(nearest.as_deref(), known))]
    NoSuchProvider {
        /// What was named.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// All of them.
        known: Vec<String>,
    },
    /// The variable of a key that is not there.
    #[error(
        "{0} is not set in this environment: set it to the key, or remove api_key_env to let the \
         caller's own key pass through"
    )]
    VariableNotSet(String),
    /// A fallback that is never used.
    #[error("must not name {name:?}, calls never fall back to it: {why}")]
    UnsuitableFallback {
        /// Who was named.
        name: String,
        /// Why calls never fall back to it.
        why: &'static str,
    },
    /// Names of models at a provider that calls do not fall back to.
    #[error("is not among the `fallback` of this provider, so its models are never asked for")]
    NotAFallback,
    /// Not the name of a model.
    #[error("must be the name of a model, of 1 to 256 characters")]
    ModelName,
    /// Not the name of a model where paths have it.
    #[error("must have letters, digits, `-`, `.` and `_` only: this API has it in its paths")]
    ModelInPath,
    /// Not a file of roots.
    #[error("must be the path of a file of root certificates in PEM")]
    RootsFile,
    /// A file of roots that cannot be read.
    #[error("cannot be read: {0}")]
    RootsUnreadable(String),
    /// A file of roots without any.
    #[error("has no certificate in it; a certificate in PEM is between BEGIN and END CERTIFICATE")]
    NoRoots,
    /// A file of roots with one that cannot be used.
    #[error("has a certificate that cannot be used, number {0}")]
    BrokenRoot(usize),
    /// Not a proxy.
    #[error(transparent)]
    Proxy(tidegate_llm::proxy::ProxyError),
    /// Not hosts that are reached without a proxy.
    #[error(transparent)]
    Bypass(crate::sections::bypass::BypassError),
    /// A provider that falls back to itself.
    #[error("must name other providers than this one")]
    OwnFallback,
    /// A provider that no call can be sent to.
    #[error("must not name {0:?}, which is a mock: it is in programs only, and has no door here")]
    MockFallback(String),
    /// More than a chain of fallbacks takes.
    #[error("must name at most {0} providers")]
    TooManyFallbacks(usize),
    /// An endpoint that no call would belong to.
    #[error(
        "is not a known endpoint{}; known are {}. For a workload of your own say which paths are its \
         own, such as paths = [\"/v1/chat/completions\"], or paths = [] if callers name it in \
         x-tidegate-endpoint",
        nearest.map(|nearest| format!(": did you mean `{nearest}`?")).unwrap_or_default(),
        known.join(", ")
    )]
    UnknownEndpoint {
        /// The known one that looks most like it.
        nearest: Option<&'static str>,
        /// All known ones.
        known: &'static [&'static str],
    },
    /// Not a path of an endpoint.
    #[error(transparent)]
    RoutePath(#[from] tidegate_providers::request::RequestError),
    /// More paths than an endpoint has.
    #[error("must have at most {0} paths")]
    TooManyPaths(usize),
    /// A path of two endpoints.
    #[error("has the path {path:?}, which is one of endpoint `{owner}`; a path belongs to one")]
    PathTaken {
        /// The path, without the root of the API.
        path: String,
        /// Whose it is.
        owner: String,
    },
    /// Not statuses of errors.
    #[error("must be statuses from 400 to 599, such as [429, 500, 503]")]
    RetryStatus,
    /// A status that no retry helps against.
    #[error(
        "must not have {0}: the request or its key is wrong, and stays so however often it is sent"
    )]
    NeverRetried(u16),
    /// A floor of no ramp.
    #[error("is where ramp_up begins, and that is not set, such as ramp_up = \"60s\"")]
    NoRamp,
    /// Not a number that can be multiplied with.
    #[error("must be a number")]
    NotNumber,
    /// A rule of a module that calls to providers go through.
    #[error(transparent)]
    Module(#[from] tidegate_llm::plan::Rule),
    /// A rule of the program that reads these keys.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

const KINDS: &str = "token bucket (rate or tokens_per_second, capacity, max_debt), \
    calendar quota (quota, every, zone), allowance (allowance), strict window (strict, burst), \
    concurrency limit (concurrency, lease)";

impl Rule {
    /// An unknown key, with the known one that looks most like it.
    #[must_use]
    pub fn unknown(key: &str, known: &[&'static str]) -> Self {
        Self::Unknown { nearest: nearest(key, known.iter().copied()), known: known.to_vec() }
    }
}

/// The name that looks most like `name`, if any does.
///
/// ```
/// let known = ["openai", "anthropic"];
/// assert_eq!(tidegate_config::nearest("opnai", known.into_iter()), Some("openai"));
/// assert_eq!(tidegate_config::nearest("weather", known.into_iter()), None);
/// ```
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Long names are nobody's typing error, and the comparison costs their square.
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

fn suggestion(nearest: Option<&str>, known: &[impl Borrow<str>]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// One mistake.
#[derive(Debug)]
pub struct Fault {
    /// The path of the key, such as `limits.client.capacity`; empty for the text as a whole.
    pub key: String,
    /// The value as it was given, cut to a line; `None` if it may hold a password.
    pub value: Option<String>,
    /// The rule it breaks.
    pub rule: Rule,
    /// Where it was made.
    pub place: Place,
}

impl Fault {
    /// The mistake of this value.
    #[must_use]
    pub fn at(path: Path<'_>, value: &Value<'_>, rule: Rule) -> Self {
        let is_secret = match &value.node {
            // A table does not fit a line.
            Node::Table(_) => true,
            Node::Text(text) => path.may_hold_secret(text),
            _ => path.may_hold_secret(""),
        };
        let shown = (!is_secret).then(|| value.to_string());
        Self { key: path.to_string(), value: shown, rule, place: value.place }
    }
}

impl Fault {
    /// The mistake of a value at a path of names.
    pub(crate) fn at_names(names: &[impl AsRef<str>], value: &Value<'_>, rule: Rule) -> Self {
        with_path(Path::Root, names, |path| Self::at(path, value, rule))
    }

    /// The rule as it may be shown: some repeat what they refuse.
    pub(crate) fn rule_text(&self) -> String {
        let told = self.rule.to_string();
        match &self.rule {
            // These show how an address is written, and repeat nothing.
            Rule::RedisUrl(_) | Rule::PostgresUrl(_) | Rule::Proxy(_) => told,
            _ => without_credentials(&told).into_owned(),
        }
    }

    /// A mistake at a path of names, whatever its value is.
    pub(crate) fn of_names(names: &[impl AsRef<str>], rule: Rule, place: Place) -> Self {
        let key = with_path(Path::Root, names, |path| path.to_string());
        Self { key, value: None, rule, place }
    }
}

/// Goes down a path of names and makes something at its end.
fn with_path<T>(path: Path<'_>, names: &[impl AsRef<str>], make: impl FnOnce(Path<'_>) -> T) -> T {
    match names {
        [] => make(path),
        [first, rest @ ..] => with_path(Path::Key(&path, first.as_ref()), rest, make),
    }
}

impl fmt::Display for Fault {
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
