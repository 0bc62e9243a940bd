//! Configuration changes: prepared, written to the database, then applied exactly as prepared.

use std::io;
use std::sync::Arc;

use tidegate_config::{Config, ConfigError, EffectiveSetting, Layers, Overrides, Patch, Source};
use tidegate_gateway::Upstream;

use super::applied::Applied;
use super::{ActiveConfig, ChangeError, ConfigSnapshot, Parts, Sources, limits, listeners};
use crate::database::{ChangeOrigin, DatabaseError, SettingUpdate, StoredSettings};
use crate::tokens;

/// Maximum number of attempts if other nodes keep writing first.
const MAX_ATTEMPTS: usize = 5;

/// Maximum number of audit entries read when changes of other processes are applied.
const MAX_MISSED: usize = 1_000;

/// A fully validated configuration, ready to apply.
struct Prepared {
    revision: u64,
    layers: Layers,
    plan: Config,
    effective: Vec<EffectiveSetting>,
    upstreams: Vec<Upstream>,
}

impl ActiveConfig {
    /// Changes settings, all or none. With `expected`, only if that is the current revision. With a
    /// database the change is permanent, otherwise it lasts until the program ends.
    ///
    /// A change that has begun completes even if the future is dropped: a caller that disconnects
    /// must not leave it half done.
    pub(crate) async fn update(
        self: &Arc<Self>,
        patch: Patch,
        expected: Option<u64>,
        note: ChangeOrigin,
    ) -> Result<Applied, ChangeError> {
        let config = self.clone();
        let change = tokio::spawn(async move {
            let mut sources = config.sources.lock().await;
            let result = config.change(&mut sources, &patch, expected, &note).await;
            config.publish(&note, result)
        });
        change.await.unwrap_or_else(|error| {
            tracing::error!(%error, "configuration change task failed");
            Err(ChangeError::Interrupted)
        })
    }

    async fn change(
        &self,
        sources: &mut Sources,
        patch: &Patch,
        expected: Option<u64>,
        note: &ChangeOrigin,
    ) -> Result<Applied, ChangeError> {
        patch.check()?;
        for _ in 0..MAX_ATTEMPTS {
            let revision = sources.stored.revision;
            if expected.is_some_and(|expected| expected != revision) {
                return Err(DatabaseError::Conflict { now: revision }.into());
            }
            let base = Overrides::from_iter(sources.stored.settings.clone());
            let changes = patch.difference(&base).into_iter();
            let changes: Vec<_> =
                changes.map(|(key, value)| SettingUpdate { key, value }).collect();
            if changes.is_empty() {
                return Ok(Applied::default());
            }
            let after = StoredSettings::new(revision.saturating_add(1), &patch.apply(&base));
            // Invalid settings are rejected before anything is written.
            let prepared = self.prepare(&sources.layers, &after)?;
            let written = match &self.parts.database {
                None => after.clone(),
                Some(database) => match database.write(&changes, note, Some(revision)).await {
                    Ok(written) => written,
                    // Another node wrote first. Validate the change again on top of that.
                    Err(DatabaseError::Conflict { .. }) => {
                        let stored = database.read().await?;
                        let result = self.apply_stored_with_history(sources, stored).await;
                        // `publish` has reported the result, which does not affect this change.
                        let _ = self.publish(&ChangeOrigin::OTHER_PROCESS, result);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            if written != after {
                // The database contained something else than we knew.
                return self.apply_stored(sources, written);
            }
            let before = std::mem::replace(&mut sources.stored, written);
            let applied = self.apply(sources, prepared)?;
            return Ok(applied.with_written(&before, &sources.stored, self.change_source()));
        }
        Err(DatabaseError::Conflict { now: sources.stored.revision }.into())
    }

    /// Reloads the file if its content has changed.
    pub(crate) async fn reload_if_changed(&self) {
        let mut sources = self.sources.lock().await;
        let next = match reload_layers(&sources.layers).await {
            Ok(next) if next.has_same_file(&sources.layers) => return,
            next => next,
        };
        let result = next.and_then(|next| self.replace_layers(&mut sources, &next));
        // `publish` has reported the result.
        let _ = self.publish(&ChangeOrigin { door: "file", who: None }, result);
    }

    /// Reloads the file, whether or not it has changed.
    pub(crate) async fn reload(&self, note: &ChangeOrigin) -> Result<Applied, ChangeError> {
        let mut sources = self.sources.lock().await;
        let next = reload_layers(&sources.layers).await;
        let result = next.and_then(|next| self.replace_layers(&mut sources, &next));
        self.publish(note, result)
    }

    /// Replaces the layers below the stored settings. If the stored settings are invalid with the
    /// new layers, keeps those that are currently effective.
    fn replace_layers(&self, sources: &mut Sources, next: &Layers) -> Result<Applied, ChangeError> {
        let prepared = self.prepare(next, &sources.stored).or_else(|error| {
            let known = StoredSettings::new(sources.stored.revision, sources.layers.overrides());
            self.prepare(next, &known).map_err(|_| error)
        })?;
        self.apply(sources, prepared)
    }

    /// Applies the content of the database after another process changed it.
    pub(crate) async fn apply_stored_changes(&self, seen: StoredSettings) {
        let mut sources = self.sources.lock().await;
        // `seen` may be outdated: this process may have changed the settings in the meantime.
        let (stored, is_read) = match &self.parts.database {
            Some(database) => match database.read().await {
                Ok(stored) => (stored, true),
                Err(_) => (seen, false),
            },
            None => (seen, true),
        };
        let known = sources.stored.revision;
        if stored.revision == known || (!is_read && stored.revision < known) {
            return;
        }
        let result = self.apply_stored_with_history(&mut sources, stored).await;
        // `publish` has reported the result.
        let _ = self.publish(&ChangeOrigin::OTHER_PROCESS, result);
    }

    /// Applies settings written by other processes, with their audit entries, so that each of
    /// several changes in quick succession is reported.
    async fn apply_stored_with_history(
        &self,
        sources: &mut Sources,
        stored: StoredSettings,
    ) -> Result<Applied, ChangeError> {
        let missed = sources.stored.revision.saturating_add(1)..=stored.revision;
        let applied = self.apply_stored(sources, stored)?;
        // If the history cannot be read, the latest change is still reported.
        let history = self.history(MAX_MISSED).await.unwrap_or_default();
        let history = history.into_iter().filter(|audit| missed.contains(&audit.revision));
        Ok(applied.with_history(history.rev().collect()))
    }

    /// Applies the content of the database. Remembers it even if it is invalid.
    fn apply_stored(
        &self,
        sources: &mut Sources,
        stored: StoredSettings,
    ) -> Result<Applied, ChangeError> {
        let prepared = self.prepare(&sources.layers, &stored);
        if prepared.is_err() {
            let known = ConfigSnapshot {
                revision: stored.revision,
                ..ConfigSnapshot::clone(&self.current())
            };
            self.current.store(Arc::new(known));
        }
        let before = std::mem::replace(&mut sources.stored, stored);
        let applied = self.apply(sources, prepared?)?;
        Ok(applied.with_written(&before, &sources.stored, self.change_source()))
    }

    /// Resolves the layers with the stored settings and validates the result.
    fn prepare(&self, layers: &Layers, stored: &StoredSettings) -> Result<Prepared, ChangeError> {
        let overrides = Overrides::from_iter(stored.settings.clone());
        let layers = match self.change_source() {
            Source::Runtime => layers.with_runtime_overrides(overrides),
            _ => layers.with_overrides(overrides),
        };
        let plan = layers.validate()?;
        let listen = &self.started.plan.listen;
        for (listener, address) in listeners(listen.admin.value, listen.grpc.value) {
            tokens::check_listener(listener, address, &plan.admin)?;
        }
        let upstreams = Parts::check(&plan)?;
        limits::check(&self.parts.engine.limits(), &plan.limits)?;
        let effective = self.effective_values(&plan, layers.effective());
        Ok(Prepared { revision: stored.revision, layers, plan, effective, upstreams })
    }

    /// Returns the effective values: settings that need a restart keep their value from the start.
    fn effective_values(
        &self,
        plan: &Config,
        effective: Vec<EffectiveSetting>,
    ) -> Vec<EffectiveSetting> {
        let fixed = self.started.plan.needs_restart(plan);
        let at_start = |key: &str| self.started.effective.iter().find(|one| one.key == key);
        let in_force = |one: EffectiveSetting| match fixed.contains(&one.key.as_str()) {
            true => at_start(&one.key).cloned().unwrap_or(one),
            false => one,
        };
        effective.into_iter().map(in_force).collect()
    }

    /// Applies a prepared configuration completely.
    fn apply(&self, sources: &mut Sources, prepared: Prepared) -> Result<Applied, ChangeError> {
        let Prepared { revision, layers, plan, effective, upstreams } = prepared;
        let before = self.current();
        let limits = self.parts.reconfigure(upstreams, &plan, &before)?;
        // Do not repeat warnings that an earlier change has caused.
        let newly_fixed = before.plan.needs_restart(&plan);
        let fixed = self.started.plan.needs_restart(&plan);
        for key in fixed.into_iter().filter(|key| newly_fixed.contains(key)) {
            tracing::warn!(key, "setting changed; takes effect after a restart");
        }
        let applied = Applied::difference(&before, &plan, &effective);
        let (plan, effective) = (Arc::new(plan), Arc::new(effective));
        let current = ConfigSnapshot { revision, plan, effective, limits: Arc::new(limits) };
        self.current.store(Arc::new(current));
        sources.layers = layers;
        Ok(applied)
    }
}

/// Returns the layers with the file read again. A file that has disappeared is an error: it may be
/// in the middle of being replaced, and its removal must not drop all limits.
async fn reload_layers(layers: &Layers) -> Result<Layers, ChangeError> {
    let before = layers.clone();
    // Reading may block, for example on a network file system.
    let next = tokio::task::spawn_blocking(move || before.reload_file()).await;
    let gone = |file: &std::path::Path| {
        let source = io::Error::from(io::ErrorKind::NotFound);
        ConfigError::Read { file: file.to_owned(), source }
    };
    let next = next.map_err(|error| ConfigError::Read {
        file: layers.file().map(ToOwned::to_owned).unwrap_or_default(),
        source: io::Error::other(error),
    })??;
    match (layers.file(), next.file()) {
        (Some(file), None) => Err(gone(file).into()),
        _ => Ok(next),
    }
}
