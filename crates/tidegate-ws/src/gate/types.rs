//! Message types known to a gate.
//!
//! Clients choose the type, and it is part of keys. A client that may invent types may invent full
//! buckets; so all undeclared types count as one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// The type of all messages whose type the gate does not know. No declared type can equal it.
pub const UNKNOWN_TYPE: &str = "*";

/// Maximum length of a type in bytes. Longer ones count as unknown.
pub const MAX_TYPE_BYTES: usize = 128;

/// The types that a gate knows.
#[derive(Debug)]
pub(crate) enum Types {
    Declared(HashSet<Arc<str>>),
    Any,
}

impl Types {
    /// Returns whether clients can invent types.
    pub(crate) const fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// Returns the type that a message counts as.
    pub(crate) fn label<'a>(&'a self, raw: Cow<'a, str>) -> TypeLabel<'a> {
        match self {
            Self::Declared(known) => {
                known.get(&*raw).map_or(TypeLabel::Unknown, TypeLabel::Declared)
            }
            Self::Any if raw.is_empty() || raw.len() > MAX_TYPE_BYTES || raw == UNKNOWN_TYPE => {
                TypeLabel::Unknown
            }
            Self::Any => TypeLabel::Raw(raw),
        }
    }
}

/// The type that one message counts as.
#[derive(Clone, Debug)]
pub(crate) enum TypeLabel<'a> {
    Declared(&'a Arc<str>),
    Raw(Cow<'a, str>),
    Unknown,
}

impl TypeLabel<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Declared(name) => name,
            Self::Raw(name) => name,
            Self::Unknown => UNKNOWN_TYPE,
        }
    }

    /// Returns the type for a handler, which may outlive the frame.
    pub(crate) fn to_shared(&self) -> Option<Arc<str>> {
        match self {
            Self::Declared(name) => Some(Arc::clone(name)),
            Self::Raw(name) => Some(Arc::from(&**name)),
            Self::Unknown => None,
        }
    }
}
