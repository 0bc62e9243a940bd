//! The settings that have a flag on the command line, or whose name programs must know.

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
    pub const fn variable(self) -> &'static str {
        match self {
            Self::StateDir => "TIDEGATE_STATE_DIR",
            Self::ListenHttp => "TIDEGATE_LISTEN_HTTP",
            Self::ListenAdmin => "TIDEGATE_LISTEN_ADMIN",
            Self::ListenGrpc => "TIDEGATE_LISTEN_GRPC",
            Self::ListenResp => "TIDEGATE_LISTEN_RESP",
            Self::ListenAllowedHosts => "TIDEGATE_LISTEN_ALLOWED_HOSTS",
            Self::StoreUrl => "TIDEGATE_STORE_URL",
            Self::DatabaseUrl => "TIDEGATE_DATABASE_URL",
            Self::DatabaseAutoMigrate => "TIDEGATE_DATABASE_AUTO_MIGRATE",
            Self::AdminAllowUnauthenticated => "TIDEGATE_ADMIN_ALLOW_UNAUTHENTICATED",
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn every_key_is_in_the_table_under_the_same_variable() {
        for key in Key::ALL {
            let known = keys::find(&key.path().split('.').collect::<Vec<_>>()).unwrap();
            assert_eq!(key.variable(), known.variable());
        }
    }
}
