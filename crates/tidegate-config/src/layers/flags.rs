//! Command-line flags as a configuration layer.

use std::fmt;

use crate::layers::tree::Leaf;
use crate::sections::keys;
use crate::values::setting::{Position, Source};
use crate::values::value::Value;

/// A setting that has a command-line flag or a well-known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// `state_dir`: directory for state files.
    StateDir,
    /// `[listen] http`: address of the HTTP API.
    ListenHttp,
    /// `[listen] admin`: address of the admin API.
    ListenAdmin,
    /// `[listen] grpc`: address of the gRPC API.
    ListenGrpc,
    /// `[listen] resp`: address of the RESP listener, which does not exist yet.
    ListenResp,
    /// `[listen] allowed_hosts`: additional values of the Host header to accept.
    ListenAllowedHosts,
    /// `[store] url`: URL of the store.
    StoreUrl,
    /// `[database] url`: URL of the settings database.
    DatabaseUrl,
    /// `[database] auto_migrate`: whether to migrate a PostgreSQL database at start.
    DatabaseAutoMigrate,
    /// `[admin] allow_unauthenticated`: whether to allow access beyond loopback without tokens.
    AdminAllowUnauthenticated,
}

impl Key {
    /// All keys, in the order of the file.
    pub const ALL: [Self; 10] = [
        Self::StateDir,
        Self::ListenHttp,
        Self::ListenAdmin,
        Self::ListenGrpc,
        Self::ListenResp,
        Self::ListenAllowedHosts,
        Self::StoreUrl,
        Self::DatabaseUrl,
        Self::DatabaseAutoMigrate,
        Self::AdminAllowUnauthenticated,
    ];

    /// Returns the path in the file, such as `listen.http`.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::StateDir => "state_dir",
            Self::ListenHttp => "listen.http",
            Self::ListenAdmin => "listen.admin",
            Self::ListenGrpc => "listen.grpc",
            Self::ListenResp => "listen.resp",
            Self::ListenAllowedHosts => "listen.allowed_hosts",
            Self::StoreUrl => "store.url",
            Self::DatabaseUrl => "database.url",
            Self::DatabaseAutoMigrate => "database.auto_migrate",
            Self::AdminAllowUnauthenticated => "admin.allow_unauthenticated",
        }
    }

    /// Returns the name of the environment variable.
    #[must_use]
    pub fn variable(self) -> String {
        keys::variable(self.path())
    }

    /// Returns the command-line flag, or the path in the file if there is no flag.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::StateDir => "--state-dir",
            Self::ListenHttp => "--http",
            Self::ListenAdmin => "--admin",
            Self::ListenGrpc => "--grpc",
            Self::ListenResp => "--resp",
            Self::StoreUrl => "--store",
            Self::DatabaseUrl => "--database",
            Self::DatabaseAutoMigrate => "--auto-migrate",
            Self::AdminAllowUnauthenticated => "--allow-unauthenticated",
            Self::ListenAllowedHosts => self.path(),
        }
    }
}

/// The given flags. `Debug` shows names without values, since a URL may contain a password.
#[derive(Clone, Default)]
pub(crate) struct Flags(Vec<(Key, String)>);

impl Flags {
    /// Sets a flag, replacing an earlier one for the same key.
    pub(crate) fn set(&mut self, key: Key, text: String) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, text));
    }

    /// Returns the name of the flag at an index.
    pub(crate) fn name_at(&self, at: usize) -> &'static str {
        self.0.get(at).map_or("", |(key, _)| key.flag())
    }

    /// Returns the flags as configuration values.
    pub(crate) fn leaves(&self) -> Vec<Leaf<'_>> {
        let mut leaves = Vec::new();
        for (at, (key, text)) in self.0.iter().enumerate() {
            let Some(known) = keys::find(&key.path().split('.').collect::<Vec<_>>()) else {
                continue;
            };
            let position = Position { source: Source::Flag, at: Some(at) };
            let names = key.path().split('.').map(ToOwned::to_owned).collect();
            let value = Value { node: known.kind().read(text), position };
            leaves.push(Leaf { names, value });
        }
        leaves
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key.flag())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_the_variable_of_the_table() {
        for key in Key::ALL {
            let known = keys::find(&key.path().split('.').collect::<Vec<_>>()).unwrap();
            assert_eq!(key.variable(), known.variable());
        }
        assert_eq!(Key::StateDir.variable(), "TIDEGATE_STATE_DIR");
        assert_eq!(Key::DatabaseAutoMigrate.variable(), "TIDEGATE_DATABASE_AUTO_MIGRATE");
    }
}
