//! The audit of changes: a line in the log, an event for those who watch, a count.

use tidegate_config::Changed;

use super::{ActiveConfig, ChangeError, Parts};
use crate::database::Note;
use crate::events::Event;

/// What has changed, or why nothing has.
type Done = Result<Vec<Changed>, ChangeError>;

impl ActiveConfig {
    /// Tells of a change, and hands on what came of it.
    pub(super) fn publish(&self, note: &Note, done: Done) -> Done {
        let Note { door, who } = note;
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
                let changes = changed.clone();
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
