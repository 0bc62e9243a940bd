//! Flags of the command line: the settings that have one, and what was given as a layer.

use std::fmt;

use crate::layers::tree::Leaf;
use crate::sections::keys;
use crate::values::setting::{Place, Source};
use crate::values::value::Value;

/// A setting by its path in the file, its variable and its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// `state_dir`: where files of this program are.
    StateDir,
    /// `[listen] http`: where the HTTP door opens.
    ListenHttp,
    /// `[listen] admin`: where the admin door opens.
    ListenAdmin,
    /// `[listen] grpc`: where the gRPC door opens.
    ListenGrpc,
    /// `[listen] resp`: where the RESP door opens.
    ListenResp,
    /// `[listen] allowed_hosts`: further values of the Host header.
    ListenAllowedHosts,
    /// `[store] url`: which store.
    StoreUrl,
    /// `[database] url`: where changes of settings are kept.
    DatabaseUrl,
    /// `[database] auto_migrate`: whether a PostgreSQL database is brought to the newest format.
    DatabaseAutoMigrate,
    /// `[admin] allow_unauthenticated`: whether doors beyond loopback need no tokens.
    AdminAllowUnauthenticated,
}

impl Key {
    /// All of them, in the order of the file.
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

    /// The path in the file, such as `listen.http`.
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

    /// The name in the environment.
    #[must_use]
    pub fn variable(self) -> String {
        keys::variable(self.path())
    }

    /// The flag of the command line; where there is none, the path in the file.
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

/// The flags that were given. `Debug` shows which, and not what they say: an address may hold a
/// password.
#[derive(Clone, Default)]
pub(crate) struct Flags(Vec<(Key, String)>);

impl Flags {
    /// Sets a flag. Of two for one key the later counts.
    pub(crate) fn set(&mut self, key: Key, text: String) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, text));
    }

    /// The flag that was given in this place.
    pub(crate) fn name_at(&self, at: usize) -> &'static str {
        self.0.get(at).map_or("", |(key, _)| key.flag())
    }

    /// What they say.
    pub(crate) fn leaves(&self) -> Vec<Leaf<'_>> {
        let mut leaves = Vec::new();
        for (at, (key, text)) in self.0.iter().enumerate() {
            let Some(known) = keys::find(&key.path().split('.').collect::<Vec<_>>()) else {
                continue;
            };
            let place = Place { source: Source::Flag, at: Some(at) };
            let names = key.path().split('.').map(ToOwned::to_owned).collect();
            let value = Value { node: known.kind().read(text), place };
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
