//! The audit of changes: a line in the log, an event for those who watch, a count.

use tidegate_config::Changed;

use super::{ActiveConfig, ApplyError, Parts, control};
use crate::api::admin::By;
use crate::events::{self, Event};

/// What has changed, or why nothing has.
type Done = Result<Vec<Changed>, ApplyError>;

impl ActiveConfig {
    /// Tells of a change, and hands on what came of it.
    pub(super) fn publish(&self, by: &By, done: Done) -> Done {
        let By { door, who } = by;
        let Parts { metrics, events, .. } = self.parts();
        let revision = self.current().revision;
        metrics.revised(revision);
        metrics.change_asked(door, if done.is_ok() { "applied" } else { "refused" });
        match &done {
            Ok(changed) if changed.is_empty() => {
                tracing::info!(door, revision, "the configuration is as it was");
            }
            Ok(changed) => {
                let name = who.as_deref().unwrap_or("-");
                for Changed { key, old, new, .. } in changed {
                    let (old, new) = (old.as_deref().unwrap_or("-"), new.as_deref().unwrap_or("-"));
                    tracing::info!(
                        target: "tidegate::audit", door, who = name, revision, key, old, new,
                        "a setting was changed"
                    );
                }
                let changes = changed.iter().map(event_of).collect();
                events.publish(&Event::Config { revision, changes, door, who: who.clone() });
            }
            Err(error) => {
                for line in error.to_string().lines() {
                    tracing::error!(door, "not used: {line}");
                }
                tracing::error!(door, "the configuration of before stays in force");
                let message = format!("a change through {door} is not used: {error}");
                events.publish(&Event::Warning { message });
            }
        }
        done
    }
}

fn event_of(changed: &Changed) -> events::Change {
    let json = |value: &Option<String>| value.as_deref().map(control::json);
    events::Change { key: changed.key.clone(), old: json(&changed.old), new: json(&changed.new) }
}
