//! Settings: single values with a name in the file, in the environment and on the command line,
//! and the knowledge of which of these gave the value in force.

use std::fmt;

/// Where the value in force comes from; a later one wins over an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// Nobody said anything.
    #[default]
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// A value in force and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who gave it.
    pub source: Source,
}

impl<T> Setting<T> {
    pub(crate) const fn default(value: T) -> Self {
        Self { value, source: Source::Default }
    }

    /// Takes the value of a higher layer, if that has one.
    pub(crate) fn replace(&mut self, value: Option<T>, source: Source) {
        if let Some(value) = value {
            *self = Self { value, source };
        }
    }
}

/// A setting that the environment, and perhaps a flag, can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
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
    /// `[store] max_memory`: the bound of the in-process store.
    StoreMaxMemory,
    /// `[store] overflow`: what happens to new keys when it is full.
    StoreOverflow,
    /// `[store] on_failure`: what is decided when the store does not answer.
    StoreOnFailure,
    /// `[store] expected_nodes`: how many share a limit before they have met.
    StoreExpectedNodes,
    /// `[admission] enabled`: whether callers are rejected at all.
    AdmissionEnabled,
    /// `[admission] backpressure_threshold`: above how many pending requests everybody is rejected.
    AdmissionBackpressureThreshold,
    /// `[admission] jitter_percent`: by how much hints are spread.
    AdmissionJitterPercent,
    /// `[admission] mode`: whether rejections count.
    AdmissionMode,
    /// `[admission] allow_organizations`: who is never rejected.
    AdmissionAllowOrganizations,
    /// `[modules.rate_limit] enabled`: whether calls to providers are paced.
    ModulesRateLimitEnabled,
    /// `[modules.rate_limit] requests_per_minute`: how fast they go.
    ModulesRateLimitRequestsPerMinute,
    /// `[modules.rate_limit] burst_capacity`: how many may leave at once.
    ModulesRateLimitBurstCapacity,
}

impl Key {
    /// All of them, in the order of the file.
    pub const ALL: [Self; 18] = [
        Self::ListenHttp,
        Self::ListenAdmin,
        Self::ListenGrpc,
        Self::ListenResp,
        Self::ListenAllowedHosts,
        Self::StoreUrl,
        Self::StoreMaxMemory,
        Self::StoreOverflow,
        Self::StoreOnFailure,
        Self::StoreExpectedNodes,
        Self::AdmissionEnabled,
        Self::AdmissionBackpressureThreshold,
        Self::AdmissionJitterPercent,
        Self::AdmissionMode,
        Self::AdmissionAllowOrganizations,
        Self::ModulesRateLimitEnabled,
        Self::ModulesRateLimitRequestsPerMinute,
        Self::ModulesRateLimitBurstCapacity,
    ];

    /// Section and key in the file. A section within another one is named with a dot.
    #[must_use]
    pub const fn in_file(self) -> (&'static str, &'static str) {
        match self {
            Self::ListenHttp => ("listen", "http"),
            Self::ListenAdmin => ("listen", "admin"),
            Self::ListenGrpc => ("listen", "grpc"),
            Self::ListenResp => ("listen", "resp"),
            Self::ListenAllowedHosts => ("listen", "allowed_hosts"),
            Self::StoreUrl => ("store", "url"),
            Self::StoreMaxMemory => ("store", "max_memory"),
            Self::StoreOverflow => ("store", "overflow"),
            Self::StoreOnFailure => ("store", "on_failure"),
            Self::StoreExpectedNodes => ("store", "expected_nodes"),
            Self::AdmissionEnabled => ("admission", "enabled"),
            Self::AdmissionBackpressureThreshold => ("admission", "backpressure_threshold"),
            Self::AdmissionJitterPercent => ("admission", "jitter_percent"),
            Self::AdmissionMode => ("admission", "mode"),
            Self::AdmissionAllowOrganizations => ("admission", "allow_organizations"),
            Self::ModulesRateLimitEnabled => ("modules.rate_limit", "enabled"),
            Self::ModulesRateLimitRequestsPerMinute => {
                ("modules.rate_limit", "requests_per_minute")
            }
            Self::ModulesRateLimitBurstCapacity => ("modules.rate_limit", "burst_capacity"),
        }
    }

    /// The name in the environment.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::ListenHttp => "TIDEGATE_LISTEN_HTTP",
            Self::ListenAdmin => "TIDEGATE_LISTEN_ADMIN",
            Self::ListenGrpc => "TIDEGATE_LISTEN_GRPC",
            Self::ListenResp => "TIDEGATE_LISTEN_RESP",
            Self::ListenAllowedHosts => "TIDEGATE_LISTEN_ALLOWED_HOSTS",
            Self::StoreUrl => "TIDEGATE_STORE_URL",
            Self::StoreMaxMemory => "TIDEGATE_STORE_MAX_MEMORY",
            Self::StoreOverflow => "TIDEGATE_STORE_OVERFLOW",
            Self::StoreOnFailure => "TIDEGATE_STORE_ON_FAILURE",
            Self::StoreExpectedNodes => "TIDEGATE_STORE_EXPECTED_NODES",
            Self::AdmissionEnabled => "TIDEGATE_ADMISSION_ENABLED",
            Self::AdmissionBackpressureThreshold => "TIDEGATE_ADMISSION_BACKPRESSURE_THRESHOLD",
            Self::AdmissionJitterPercent => "TIDEGATE_ADMISSION_JITTER_PERCENT",
            Self::AdmissionMode => "TIDEGATE_ADMISSION_MODE",
            Self::AdmissionAllowOrganizations => "TIDEGATE_ADMISSION_ALLOW_ORGANIZATIONS",
            Self::ModulesRateLimitEnabled => "TIDEGATE_MODULES_RATE_LIMIT_ENABLED",
            Self::ModulesRateLimitRequestsPerMinute => {
                "TIDEGATE_MODULES_RATE_LIMIT_REQUESTS_PER_MINUTE"
            }
            Self::ModulesRateLimitBurstCapacity => "TIDEGATE_MODULES_RATE_LIMIT_BURST_CAPACITY",
        }
    }

    /// The flag of the command line; where there is none, the path in the file.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::ListenHttp => "--http",
            Self::ListenAdmin => "--admin",
            Self::ListenGrpc => "--grpc",
            Self::ListenResp => "--resp",
            Self::StoreUrl => "--store",
            other => other.in_file().1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_environment_follow_from_the_file() {
        for key in Key::ALL {
            let (section, name) = key.in_file();
            let named = format!("TIDEGATE_{section}_{name}").replace('.', "_");
            assert_eq!(key.variable(), named.to_uppercase());
        }
    }
}
