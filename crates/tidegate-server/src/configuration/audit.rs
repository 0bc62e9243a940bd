//! Reports changes: an audit log line for each changed setting and for each refused change, an
//! event for watchers, and a metric. Warnings caused by a change are logged with it.

use tidegate_config::{SettingChange, Source, redacted_value};

use super::{ActiveConfig, Applied, ChangeError, Parts};
use crate::database::{AuditEntry, ChangeOrigin};
use crate::events::Event;

/// Result of a change.
type ChangeResult = Result<Applied, ChangeError>;

/// Who changed a setting, and in which revision.
#[derive(Clone, Copy)]
struct Author<'a> {
    door: &'a str,
    who: &'a str,
    revision: u64,
    /// The listener of the process that made the change; differs from `door` if another process
    /// made it.
    via: &'a str,
}

impl ActiveConfig {
    /// Logs, counts and publishes the result of a change, and returns it.
    pub(super) fn publish(&self, note: &ChangeOrigin, result: ChangeResult) -> ChangeResult {
        let ChangeOrigin { door, who } = note;
        let Parts { metrics, events, .. } = self.parts();
        let revision = self.current().revision;
        metrics.set_revision(revision);
        metrics.count_change(door, if result.is_ok() { "applied" } else { "refused" });
        match &result {
            Ok(applied) => {
                let name = who.as_deref().unwrap_or("-");
                let author = Author { door, who: name, revision, via: door };
                log_changes(applied, author);
                if !applied.changes.is_empty() {
                    let changes = applied.changes.clone();
                    events.publish(&Event::Config { revision, changes, door, who: who.clone() });
                }
                for warning in &applied.warnings {
                    tracing::warn!(door, %warning, "configuration warning");
                    events.publish(&Event::Warning { message: warning.to_string() });
                }
            }
            Err(error) => {
                let who = who.as_deref().unwrap_or("-");
                tracing::info!(
                    target: "tidegate::audit", door, who, revision, outcome = "refused",
                    "change refused"
                );
                for line in error.to_string().lines() {
                    tracing::error!(door, error = %line, "change not applied");
                }
                tracing::error!(door, "change refused; keeping the current configuration");
                let message = format!("configuration change through {door} refused: {error}");
                events.publish(&Event::Warning { message });
            }
        }
        result
    }
}

/// Logs each changed setting. Changes of other processes that were replaced before they took effect
/// here are logged too.
fn log_changes(applied: &Applied, author: Author<'_>) {
    let Applied { changes, history, .. } = applied;
    if changes.is_empty() && history.is_empty() {
        let Author { door, who, revision, .. } = author;
        tracing::info!(target: "tidegate::audit", door, who, revision, "configuration unchanged");
    }
    for (index, audit) in history.iter().enumerate() {
        let AuditEntry { revision, door: via, who, key, .. } = audit;
        let author =
            Author { revision: *revision, via, who: who.as_deref().unwrap_or("-"), ..author };
        let replaced = history.iter().skip(index + 1).any(|later| later.key == *key);
        match changes.iter().find(|changed| changed.key == *key && !replaced) {
            Some(changed) => log_change(changed, author),
            None => log_replaced(audit, author),
        }
    }
    let is_logged = |changed: &&SettingChange| history.iter().any(|audit| audit.key == changed.key);
    changes.iter().filter(|changed| !is_logged(changed)).for_each(|it| log_change(it, author));
}

fn log_change(changed: &SettingChange, author: Author<'_>) {
    let SettingChange { key, old, new, configured, source, .. } = changed;
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let (old, new, configured) =
        (shown(old), shown(new), shown(if configured.is_some() { configured } else { new }));
    let source = source.map_or_else(|| "-".to_owned(), |source| source.to_string());
    log_setting(key, [&old, &new, &configured, &source], author);
}

/// Logs a change that never took effect here.
fn log_replaced(audit: &AuditEntry, author: Author<'_>) {
    let shown = |value: &Option<String>| {
        value.as_ref().map_or_else(|| "-".to_owned(), |value| redacted_value(&audit.key, value))
    };
    let (old, new) = (shown(&audit.old), shown(&audit.new));
    log_setting(&audit.key, [&old, &new, &new, &Source::Database.to_string()], author);
}

/// `old` and `new` are effective values, `asked` is the requested one.
fn log_setting(key: &str, [old, new, asked, source]: [&str; 4], author: Author<'_>) {
    let Author { door, who, revision, via } = author;
    tracing::info!(
        target: "tidegate::audit", door, who, revision, key, old, new, asked, source, via,
        outcome = "done", "setting changed"
    );
}
