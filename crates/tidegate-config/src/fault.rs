//! What is wrong, where, and which rule it breaks. Never the first mistake only.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use tidegate::{DecimalError, LimitError, PolicyError, ScheduleError};

use crate::fields::Path;
use crate::redis_url::RedisUrlError;
use crate::size::{ByteSize, SizeError};
use crate::value::{Node, Value};

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
    /// A rule of a module that calls to providers go through.
    #[error(transparent)]
    Module(#[from] tidegate_llm::plan::Rule),
    /// A rule of the program that reads these keys.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

const KINDS: &str = "token bucket (rate or tokens_per_second, capacity, max_debt), \
    calendar quota (quota, every, zone), allowance (allowance), strict window (strict, burst)";

impl Rule {
    /// An unknown key, with the known one that looks most like it.
    #[must_use]
    pub fn unknown(key: &str, known: &[&'static str]) -> Self {
        Self::Unknown { nearest: nearest(key, known.iter().copied()), known: known.to_vec() }
    }
}

/// The name that looks most like `name`, if any does.
pub(crate) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Long names are nobody's typing error, and the comparison costs their square.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let slips = strsim::osa_distance(&name, &known);
        let (slips_allowed, likeness) =
            (known.len().min(6) / 3, strsim::jaro_winkler(&name, &known));
        (slips <= slips_allowed || likeness > 0.75).then_some(likeness)
    };
    known
        .filter_map(|known| Some((likeness(known)?, known)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

fn suggestion(nearest: Option<&str>, known: &[&str]) -> String {
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
    /// Its bytes in the text, if known.
    pub span: Option<Range<usize>>,
}

impl Fault {
    /// The mistake of this value.
    #[must_use]
    pub fn at(path: Path<'_>, value: &Value<'_>, rule: Rule) -> Self {
        let hidden = match &value.node {
            // A table does not fit a line.
            Node::Table(_) => true,
            Node::Text(text) => path.may_hide(text),
            _ => path.may_hide(""),
        };
        let shown = (!hidden).then(|| value.to_string());
        Self { key: path.to_string(), value: shown, rule, span: value.span.clone() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        if !self.key.is_empty() {
            f.write_str(": ")?;
        }
        match &self.rule {
            Rule::RedisUrl(rule) => rule.fmt(f),
            // Some rules repeat what they refuse.
            rule => f.write_str(&without_credentials(&rule.to_string())),
        }
    }
}

/// Whether a text may hold a password: an address with a user, wherever it was put.
pub(crate) fn is_secret(text: &str) -> bool {
    credentials(text).is_some()
}

/// The bytes between the scheme of an address and its host. A password may hold anything that an
/// address can, so the last sign that can end it does.
fn credentials(text: &str) -> Option<Range<usize>> {
    let start = text.find("://")? + "://".len();
    let end = text.rfind('@').filter(|end| *end >= start)?;
    Some(start..end)
}

fn without_credentials(text: &str) -> Cow<'_, str> {
    match credentials(text) {
        Some(range) => format!("{}...{}", &text[..range.start], &text[range.end..]).into(),
        None => text.into(),
    }
}

/// Where a mistake was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// In a file.
    File {
        /// Which one.
        file: PathBuf,
        /// Line and column, counted from one.
        position: Option<(usize, usize)>,
    },
    /// In this variable of the environment.
    Environment(&'static str),
    /// In this flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position: Some((line, column)) } => {
                write!(f, "{}:{line}:{column}", file.display())
            }
            Self::File { file, position: None } => file.display().fmt(f),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A mistake and where it was made.
#[derive(Debug)]
pub struct Located {
    /// Where.
    pub origin: Origin,
    /// What.
    pub fault: Fault,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.fault)
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Everything that is wrong with what was read.
    #[error("{}", lines(.0))]
    Invalid(Vec<Located>),
}

fn lines(faults: &[Located]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
