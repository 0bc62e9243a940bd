//! Names of the keys in Redis.
//!
//! `<prefix>1:{<tag>}:<limit>[:<name>]`. The number is the format of keys and values. The tag is
//! the group of a key, or the key itself if it has none, so that keys decided together live on one
//! cluster node. Parts are escaped, so that different buckets never share a key.

use std::fmt::Write as _;

use tidegate_core::Target;
use tidegate_core::hash::digest;

use crate::error::OpenError;

/// Format of keys and values.
pub(crate) const FORMAT: u8 = 1;
/// Default prefix.
const DEFAULT_PREFIX: &str = "tidegate:";
const MAX_PREFIX_BYTES: usize = 64;

/// Key names of one store.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self { prefix: DEFAULT_PREFIX.to_owned() }
    }
}

impl Names {
    /// Creates names under a prefix. Braces are reserved for hash tags.
    pub(crate) fn new(prefix: &str) -> Result<Self, OpenError> {
        let valid = |b: u8| b.is_ascii_graphic() && b != b'{' && b != b'}';
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(valid) {
            return Err(OpenError::Prefix(prefix.to_owned()));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Key of the entry of a bucket: its state and its hold.
    pub(crate) fn entry(&self, target: &Target<'_>) -> Name {
        self.bucket("", target)
    }

    /// Key of the slots of a concurrency limit.
    pub(crate) fn slots(&self, target: &Target<'_>) -> Name {
        self.bucket("s", target)
    }

    /// Key of the policy history of a limit.
    pub(crate) fn policies(&self, identity: &str) -> Name {
        let mut name = format!("{}{FORMAT}p:{{", self.prefix);
        escape(identity, &mut name);
        name.push('}');
        Name(name)
    }

    /// Key of the nodes that share this store.
    pub(crate) fn nodes(&self) -> Name {
        Name(format!("{}{FORMAT}n", self.prefix))
    }

    /// Issuer id of this store in receipts: the same on all nodes that share it.
    pub(crate) fn issuer(&self) -> u64 {
        self.format().number()
    }

    /// Key of the format in use under this prefix.
    pub(crate) fn format(&self) -> Name {
        Name(format!("{}format", self.prefix))
    }

    fn bucket(&self, kind: &str, target: &Target<'_>) -> Name {
        let (key, identity) = (target.key, target.limit.identity());
        let group = key.group();
        let length = self.prefix.len() + identity.len() + key.name().len() + 16;
        let mut name = String::with_capacity(length + group.map_or(0, str::len));
        // Writing to a string does not fail.
        let _ = write!(name, "{}{FORMAT}{kind}:{{", self.prefix);
        escape(group.unwrap_or(key.name()), &mut name);
        name.push_str("}:");
        escape(identity, &mut name);
        if group.is_some() {
            name.push(':');
            escape(key.name(), &mut name);
        }
        Name(name)
    }
}

/// A key in Redis.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the number that identifies the bucket in receipts.
    pub(crate) fn number(&self) -> u64 {
        digest(&self.0)
    }
}

impl std::fmt::Debug for Name {
    /// Shows only the length, because keys may identify people.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name(<{} bytes>)", self.0.len())
    }
}

/// Writes `part` escaped: without separators and braces, and never empty.
fn escape(part: &str, into: &mut String) {
    let is_unescaped = |b: u8| !matches!(b, b':' | b'%' | b'{' | b'}');
    if part.is_empty() {
        into.push('%');
    } else if part.bytes().all(is_unescaped) {
        into.push_str(part);
    } else {
        for c in part.chars() {
            match c {
                ':' => into.push_str("%3A"),
                '%' => into.push_str("%25"),
                '{' => into.push_str("%7B"),
                '}' => into.push_str("%7D"),
                c => into.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Key, Limit, Policy};

    use super::*;

    fn name(limit: &str, key: Key<'_>) -> String {
        let policy = Policy::per_second(1).build().unwrap();
        let limit = Limit::named(limit, policy).unwrap();
        let target = Target { limit: &limit, key, windows: None };
        Names::default().entry(&target).0
    }

    #[test]
    fn grouped_keys_share_a_tag() {
        assert_eq!(name("client", Key::new("alice")), "tidegate:1:{alice}:client");
        let in_acme = Key::new("alice").in_group("acme");
        assert_eq!(name("client", in_acme), "tidegate:1:{acme}:client:alice");
    }

    #[test]
    fn names_are_distinct() {
        let keys = [
            Key::new("a"),
            Key::new("a").in_group("a"),
            Key::new(""),
            Key::new("%"),
            Key::new("").in_group("a"),
            Key::new("a").in_group(""),
            Key::new("a:b"),
            Key::new("b").in_group("a"),
            Key::new("a%3Ab"),
            Key::new("}a"),
            Key::new("{}"),
        ];
        let mut names: Vec<String> = Vec::new();
        for key in keys {
            for limit in ["a", "b"] {
                names.push(name(limit, key));
            }
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        // An empty or truncated tag would scatter related keys over a cluster.
        assert!(names.iter().all(|name| !name.contains("{}")));
    }

    #[test]
    fn prefixes_are_checked() {
        for bad in ["", "a b", "a{b", "}", &"x".repeat(65)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Names::new("app:").unwrap().format().0, "app:format");
    }
}
