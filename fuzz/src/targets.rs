//! The list of targets.

mod api;
mod config;
mod gateway;
mod header_fields;
mod log_line;
mod paths;
mod receipt;
mod response;
mod shard;
mod snapshot;
mod summary;
mod websocket;

/// A parser and the invariants of its results.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also the name of its seed folder.
    pub name: &'static str,
    /// Runs the target. Panics if the parser does, or if an invariant is violated.
    pub run: fn(&[u8]),
    /// Number of inputs in the tests: about one second.
    pub inputs: usize,
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, inputs: 2_000 }
}

const fn slow(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, inputs: 300 }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("admin_body", api::admin_body),
    target("admin_head", api::admin_head),
    target("answer", response::answer),
    slow("config", config::file),
    target("config_patch", config::patch),
    target("coordinator", shard::coordinator),
    target("forwarded", header_fields::forwarded),
    target("gateway", gateway::call),
    target("host", header_fields::host),
    target("http_body", api::http_body),
    slow("http_head", api::http_head),
    target("log_line", log_line::log_line),
    target("ndjson", response::ndjson),
    target("paths", paths::paths),
    target("receipt", receipt::receipt),
    target("reported_limits", header_fields::reported_limits),
    target("shard_messages", shard::messages),
    target("shard_request", shard::request),
    slow("snapshot", snapshot::snapshot),
    target("sse", response::sse),
    target("summary", summary::summary),
    target("websocket", websocket::frames),
];

/// Returns the target of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
