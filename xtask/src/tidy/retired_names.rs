//! Module and type names that were replaced and must not come back.
//!
//! These names are metaphors, or words that meant several things here. The tables hold each of
//! them with the name that replaced it; docs/glossary.md explains the names in use. A name is
//! matched as a whole: `lane` is refused, `plane` and `lane_width` are not.

use super::names::{declared_module, declared_type};
use super::scrub::scrub;
use super::{Findings, TextFile};

/// A name that is no longer used.
struct Retired {
    /// The crate in which it is retired, or [`EVERY_CRATE`].
    scope: &'static str,
    name: &'static str,
    /// The name to use instead, or several to choose from.
    replacement: &'static str,
}

const EVERY_CRATE: &str = "*";

const MODULES: &[Retired] = &[
    everywhere("asked", "request_summary"),
    everywhere("bank", "store_handle"),
    everywhere("bell", "notify"),
    everywhere("belongings", "connection_keys"),
    everywhere("beside", "side_table"),
    everywhere("bill", "charges"),
    everywhere("blame", "wait_attribution"),
    everywhere("books", "store_handle"),
    everywhere("circumstances", "read_context"),
    everywhere("desk", "context, provider_state or account_state"),
    everywhere("displace", "conflicts"),
    everywhere("door", "listener or api"),
    everywhere("dotted", "key_path"),
    everywhere("enrol", "policy_sync"),
    everywhere("excuse", "error_response"),
    everywhere("gather", "batcher"),
    everywhere("glue", "save_restore"),
    everywhere("hearing", "limit_feedback"),
    everywhere("heart", "scheduler"),
    everywhere("hidden", "redacted"),
    everywhere("intake", "body_reader"),
    everywhere("lane", "call_queue"),
    everywhere("meter", "limit_tracker"),
    everywhere("patience", "timeouts or backoff"),
    everywhere("pulse", "heartbeat"),
    everywhere("roll", "policy_history"),
    everywhere("roomless", "no_slot"),
    everywhere("seats", "list_entry, or the slots of what"),
    everywhere("shelf", "limiter_cache"),
    everywhere("shown", "redact"),
    everywhere("shut_out", "rejected"),
    everywhere("speech", "response_stream"),
    everywhere("spoken", "response_stream"),
    everywhere("spread", "jitter"),
    everywhere("stay", "stage_guard"),
    everywhere("tab", "call_context or pending_settlement"),
    everywhere("tap", "usage_reader"),
    everywhere("tariff", "script_args"),
    everywhere("terms", "live_limit"),
    everywhere("told", "reported_limits or publish"),
    everywhere("trail", "audit"),
    everywhere("troubles", "throttled_log"),
    everywhere("visit", "proxy"),
    everywhere("welcome", "insert_new"),
    everywhere("wishes", "request_options"),
    everywhere("witness", "call_observer"),
    within("tidegate", "ahead", "projection"),
    within("tidegate", "place", "driver_slot"),
    within("tidegate-config", "key", "keys or key_path"),
    within("tidegate-config", "shape", "value_kind"),
    within("tidegate-gateway", "fields", "headers"),
    within("tidegate-gateway", "leaf", "attempt"),
    within("tidegate-gateway", "live", "routing_table"),
    within("tidegate-gateway", "opening", "first_event"),
    within("tidegate-gateway", "room", "buffer_budget"),
    within("tidegate-http", "case", "pending_decision"),
    within("tidegate-http", "pass", "admitted"),
    within("tidegate-http", "served", "response_summary"),
    within("tidegate-llm", "feedback", "limit_feedback"),
    within("tidegate-llm", "phase", "breaker_state"),
    within("tidegate-llm", "quota", "model_limits"),
    within("tidegate-llm", "trip", "breaker_settings"),
    within("tidegate-memory", "course", "calibration"),
    within("tidegate-memory", "lines", "seqlock"),
    within("tidegate-memory", "plain", "fast_path"),
    within("tidegate-redis", "link", "connection"),
    within("tidegate-redis", "standing", "effective_state"),
    within("tidegate-server", "served", "limit_registry"),
];

const TYPES: &[Retired] = &[
    everywhere("Asked", "RequestSummary, or what was requested"),
    everywhere("Asking", "StoreFuture"),
    everywhere("Bell", "Notify"),
    everywhere("Berth", "SlotRef"),
    everywhere("Besides", "SideTable"),
    everywhere("Blame", "WaitAttribution"),
    everywhere("Creditor", "PendingSettlement"),
    everywhere("DeadKey", "CredentialRejected"),
    everywhere("Desk", "Context, ProviderState or AccountState"),
    everywhere("Door", "Listener or Api"),
    everywhere("Due", "PendingSettlement"),
    everywhere("Fate", "Outcome or Disposition"),
    everywhere("Ground", "Shared"),
    everywhere("Landing", "Batch"),
    everywhere("Lane", "CallQueue"),
    everywhere("Latch", "LockedBucket"),
    everywhere("Meter", "LimitTracker"),
    everywhere("Owed", "PendingSettlement"),
    everywhere("Parcel", "Batch"),
    everywhere("Patience", "Timeouts or Backoff"),
    everywhere("Post", "DriverSlot"),
    everywhere("Seat", "SlotRef, or the slot of what"),
    everywhere("Seats", "Slots, or the slots of what"),
    everywhere("Shelf", "LimiterCache"),
    everywhere("Spoken", "ResponseStream"),
    everywhere("Spots", "CellRefs"),
    everywhere("Standing", "State, or the state of what"),
    everywhere("Stay", "StageGuard"),
    everywhere("Tab", "CallContext or PendingSettlement"),
    everywhere("Taking", "BodyMode"),
    everywhere("Terms", "LiveLimit, or the options or policy of what"),
    everywhere("Ticket", "PendingAcquire"),
    everywhere("Told", "ReportedLimits, Outcome or State"),
    everywhere("Untaken", "BodyError"),
    everywhere("Valve", "DirectLimiter"),
    everywhere("Verdict", "Decision, Outcome or Class"),
    everywhere("Visit", "Proxy, or the request or connection"),
    within("tidegate", "Ask", "StoreFuture"),
    within("tidegate", "Place", "DriverSlot"),
    within("tidegate-core", "Account", "BucketEntry"),
    within("tidegate-gateway", "Leaf", "Upstream"),
    within("tidegate-gateway", "Live", "Shared"),
    within("tidegate-gateway", "Share", "BufferPermit"),
    within("tidegate-gateway", "Side", "Upstream"),
];

const fn everywhere(name: &'static str, replacement: &'static str) -> Retired {
    within(EVERY_CRATE, name, replacement)
}

const fn within(scope: &'static str, name: &'static str, replacement: &'static str) -> Retired {
    Retired { scope, name, replacement }
}

/// Checks the file names, modules and type definitions below `crates/*/src`.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    for file in files {
        let Some((package, modules)) = source_of_crate(&file.path) else { continue };
        for name in modules.split('/') {
            if let Some(retired) = find(MODULES, package, name) {
                findings.error(&file.path, message("module", retired));
            }
        }
        for (index, line) in scrub(&file.text).lines().enumerate() {
            let place = || format!("{}:{}", file.path, index + 1);
            // A module in a file of its own is found by the name of the file.
            let inline = declared_module(line).filter(|_| line.contains('{'));
            if let Some(retired) = inline.and_then(|name| find(MODULES, package, name)) {
                findings.error(&place(), message("module", retired));
            }
            if let Some(retired) = declared_type(line).and_then(|name| find(TYPES, package, name)) {
                findings.error(&place(), message("type", retired));
            }
        }
    }
}

/// The crate and the module path of a source file, such as `tidegate` and `pacer/queue`.
fn source_of_crate(path: &str) -> Option<(&str, &str)> {
    let (package, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    let modules = inside.strip_prefix("src/")?.strip_suffix(".rs")?;
    (!modules.contains("generated/")).then_some((package, modules))
}

fn find<'r>(table: &'r [Retired], package: &str, name: &str) -> Option<&'r Retired> {
    table.iter().find(|row| row.name == name && [EVERY_CRATE, package].contains(&row.scope))
}

fn message(kind: &str, retired: &Retired) -> String {
    format!("the {kind} name `{}` is retired. Use {}", retired.name, retired.replacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&[TextFile { path: path.into(), text: text.into() }], &mut findings);
        findings.errors
    }

    #[test]
    fn retired_file_and_folder_names_are_refused() {
        let found = errors("crates/tidegate/src/pacer/heart.rs", "");
        assert_eq!(
            found,
            [
                "crates/tidegate/src/pacer/heart.rs: the module name `heart` is retired. Use scheduler"
            ]
        );
        assert_eq!(errors("crates/tidegate-llm/src/lane/queue.rs", "").len(), 1);
        assert!(errors("crates/tidegate/src/pacer/scheduler.rs", "").is_empty());
        assert!(errors("crates/tidegate/src/lane_width.rs", "").is_empty());
    }

    #[test]
    fn retired_inline_modules_are_refused() {
        let found = errors("crates/tidegate/src/pacer.rs", "mod queue;\npub(crate) mod heart {\n}");
        assert!(found.len() == 1 && found[0].contains("pacer.rs:2: "), "{found:?}");
        assert!(
            errors("crates/tidegate/src/pacer.rs", "mod hearts {}\n// mod heart {}").is_empty()
        );
    }

    #[test]
    fn retired_types_are_refused_whatever_their_visibility() {
        for definition in [
            "struct Told;",
            "pub struct Told<'a> {",
            "pub(crate) enum Told {",
            "    pub(super) trait Told: Send {",
            "type Told = u8;",
        ] {
            let found = errors("crates/tidegate-http/src/head.rs", definition);
            assert_eq!(found.len(), 1, "{definition}");
            assert!(found[0].ends_with("Use ReportedLimits, Outcome or State"), "{found:?}");
        }
        for text in ["struct ToldTwice;", "// struct Told;", "fn told() {}", "use a::Told;"] {
            assert!(errors("crates/tidegate-http/src/head.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_name_may_be_retired_in_one_crate_only() {
        assert_eq!(errors("crates/tidegate-gateway/src/proxy.rs", "struct Leaf;").len(), 1);
        assert!(errors("crates/tidegate-config/src/tree.rs", "struct Leaf;").is_empty());
        assert_eq!(errors("crates/tidegate-memory/src/plain.rs", "").len(), 1);
        assert!(errors("crates/tidegate-http/src/plain.rs", "").is_empty());
    }

    #[test]
    fn only_sources_of_crates_are_checked() {
        for path in ["bench/src/heart.rs", "crates/a/tests/it/heart.rs", "docs/heart.md"] {
            assert!(errors(path, "struct Told;").is_empty(), "{path}");
        }
    }

    #[test]
    fn every_name_is_listed_once_and_no_replacement_is_retired() {
        for table in [MODULES, TYPES] {
            for (index, row) in table.iter().enumerate() {
                let again = table[index + 1..].iter().any(|other| {
                    other.name == row.name && (other.scope == row.scope || row.scope == EVERY_CRATE)
                });
                assert!(!again, "{} is listed twice", row.name);
                let word = row.replacement.split([' ', ',']).next().unwrap();
                assert!(find(table, row.scope, word).is_none(), "{word} is retired itself");
            }
        }
    }
}
