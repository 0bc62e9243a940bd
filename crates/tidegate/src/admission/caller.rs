//! A caller and the keys of its buckets.

use std::borrow::Cow;
use std::fmt;

use tidegate_core::Key;

use super::rules::MissingClient;

/// Prefix of connection keys. A client id that starts with it is escaped.
const ESCAPE: char = '\0';

/// The caller of a request, and the cost of the request.
///
/// ```
/// use tidegate::admission::Caller;
/// let caller = Caller::new().organization("acme").client("alice").cost(3);
/// ```
#[derive(Clone, Copy)]
#[must_use]
pub struct Caller<'a> {
    pub(super) organization: Option<&'a str>,
    pub(super) client: Option<&'a str>,
    pub(super) connection: Option<&'a str>,
    pub(super) cost: u64,
}

impl<'a> Caller<'a> {
    /// Creates a caller without any id: only back-pressure rejects it.
    pub const fn new() -> Self {
        Self { organization: None, client: None, connection: None, cost: 1 }
    }

    /// Sets the organization of the caller.
    pub const fn organization(mut self, organization: &'a str) -> Self {
        self.organization = Some(organization);
        self
    }

    /// Sets the client id within the organization.
    pub const fn client(mut self, client: &'a str) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the connection id, for callers without a client id.
    pub const fn connection(mut self, connection: &'a str) -> Self {
        self.connection = Some(connection);
        self
    }

    /// Sets the number of tokens to take from each bucket. Zero spends nothing and reports the
    /// state of the buckets. Default: 1.
    pub const fn cost(mut self, tokens: u64) -> Self {
        self.cost = tokens;
        self
    }

    /// Name of the caller's bucket in the client tier. Different callers have different names.
    pub(super) fn client_name(&self, missing: MissingClient) -> Option<Cow<'a, str>> {
        match (self.client, self.connection, missing) {
            (Some(client), ..) if client.starts_with(ESCAPE) => {
                Some(Cow::Owned(format!("{ESCAPE}client{client}")))
            }
            (Some(client), ..) => Some(Cow::Borrowed(client)),
            (None, Some(connection), MissingClient::Connection) => {
                Some(Cow::Owned(format!("{ESCAPE}connection{ESCAPE}{connection}")))
            }
            (None, ..) => None,
        }
    }

    /// The key of a name within the organization. The same name in two organizations is two keys.
    pub(super) fn key_in_organization<'k>(&'k self, name: &'k str) -> Key<'k> {
        match self.organization {
            Some(organization) => Key::new(name).in_group(organization),
            None => Key::new(name),
        }
    }
}

impl Default for Caller<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Caller<'_> {
    /// Ids may identify people: only their presence is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("has_organization", &self.organization.is_some())
            .field("has_client", &self.client.is_some())
            .field("has_connection", &self.connection.is_some())
            .field("cost", &self.cost)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_shares_the_bucket_of_a_connection() {
        let connection = Caller::new().connection("c1").client_name(MissingClient::Connection);
        for client in ["c1", "\0c1", "\0connection\0c1", "connection\0c1", "\0client\0c1"] {
            let named = Caller::new().client(client).client_name(MissingClient::Connection);
            assert_ne!(named, connection, "{client:?}");
        }
        let named = |client| Caller::new().client(client).client_name(MissingClient::Skip);
        assert_ne!(named("\0x"), named("\0client\0x"));
    }

    #[test]
    fn a_caller_without_id_has_a_bucket_only_by_connection() {
        let caller = Caller::new().connection("c1");
        assert_eq!(caller.client_name(MissingClient::Skip), None);
        assert!(caller.client_name(MissingClient::Connection).is_some());
        assert_eq!(Caller::new().client_name(MissingClient::Connection), None);
    }

    #[test]
    fn debug_output_hides_ids() {
        let shown = format!("{:?}", Caller::new().organization("acme").client("alice"));
        assert!(!shown.contains("acme") && !shown.contains("alice"), "{shown}");
    }
}
