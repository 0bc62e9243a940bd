//! Changes of the configuration: prepared once, written, and applied as they were prepared.

use std::io;
use std::sync::Arc;

use tidegate_config::{ConfigError, Effective, Layers, Overrides, Patch, Plan, Source};
use tidegate_gateway::Upstream;

use super::applied::Applied;
use super::{ActiveConfig, ChangeError, Current, Parts, Sources, limits, listeners};
use crate::database::{Change, DatabaseError, Note, Stored};
use crate::tokens;

/// How often a change is tried again because another node was faster.
const ATTEMPTS: usize = 5;

/// How many changes of other processes are looked up at most when theirs are taken over.
const MOST_MISSED: usize = 1_000;

/// A configuration that was checked whole and can be applied.
struct Prepared {
    revision: u64,
    layers: Layers,
    plan: Plan,
    effective: Vec<Effective>,
    upstreams: Vec<Upstream>,
}

impl ActiveConfig {
    /// Changes settings: all that is asked for, or nothing. With `expected` only if that is the
    /// revision in force. With a database the change lasts; else it holds until the program ends.
    ///
    /// A change that has begun is finished also when the future is dropped: a caller that goes away
    /// must not leave it half made.
    pub(crate) async fn update(
        self: &Arc<Self>,
        patch: Patch,
        expected: Option<u64>,
        note: Note,
    ) -> Result<Applied, ChangeError> {
        let config = self.clone();
        let change = tokio::spawn(async move {
            let mut sources = config.sources.lock().await;
            let done = config.change(&mut sources, &patch, expected, &note).await;
            config.publish(&note, done)
        });
        change.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a change of the configuration ended badly");
            Err(ChangeError::Interrupted)
        })
    }

    async fn change(
        &self,
        sources: &mut Sources,
        patch: &Patch,
        expected: Option<u64>,
        note: &Note,
    ) -> Result<Applied, ChangeError> {
        patch.check()?;
        for _ in 0..ATTEMPTS {
            let revision = sources.stored.revision;
            if expected.is_some_and(|expected| expected != revision) {
                return Err(DatabaseError::Conflict { now: revision }.into());
            }
            let base = Overrides::from_iter(sources.stored.settings.clone());
            let changes = patch.difference(&base).into_iter();
            let changes: Vec<_> = changes.map(|(key, value)| Change { key, value }).collect();
            if changes.is_empty() {
                return Ok(Applied::default());
            }
            let after = Stored::of(revision.saturating_add(1), &patch.apply(&base));
            // What cannot be used is found out before anything is written.
            let prepared = self.prepare(&sources.layers, &after)?;
            let written = match &self.parts.database {
                None => after.clone(),
                Some(database) => match database.write(&changes, note, Some(revision)).await {
                    Ok(written) => written,
                    // Another node was faster. The change is checked again beside what it wrote.
                    Err(DatabaseError::Conflict { .. }) => {
                        let stored = database.read().await?;
                        let done = self.adopt_missed(sources, stored).await;
                        // What came of that is published, and is no matter of this change.
                        let _ = self.publish(&Note::ELSEWHERE, done);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            if written != after {
                // The database did not hold what was known of it.
                return self.adopt(sources, written);
            }
            let before = std::mem::replace(&mut sources.stored, written);
            let applied = self.apply(sources, prepared)?;
            return Ok(applied.with_written(&before, &sources.stored, self.kept_by()));
        }
        Err(DatabaseError::Conflict { now: sources.stored.revision }.into())
    }

    /// Reads the file again if it says something else by now.
    pub(crate) async fn follow_file(&self) {
        let mut sources = self.sources.lock().await;
        let next = match reread(&sources.layers).await {
            Ok(next) if next.has_same_file(&sources.layers) => return,
            next => next,
        };
        let done = next.and_then(|next| self.replace(&mut sources, &next));
        // What came of it is published.
        let _ = self.publish(&Note { door: "file", who: None }, done);
    }

    /// Reads the file again, whether or not it has changed.
    pub(crate) async fn reread(&self, note: &Note) -> Result<Applied, ChangeError> {
        let mut sources = self.sources.lock().await;
        let next = reread(&sources.layers).await;
        let done = next.and_then(|next| self.replace(&mut sources, &next));
        self.publish(note, done)
    }

    /// Puts other layers in the place of these, below what the database holds; if that is of no use
    /// with them, below what is in force of it.
    fn replace(&self, sources: &mut Sources, next: &Layers) -> Result<Applied, ChangeError> {
        let prepared = self.prepare(next, &sources.stored).or_else(|error| {
            let known = Stored::of(sources.stored.revision, sources.layers.overrides());
            self.prepare(next, &known).map_err(|_| error)
        })?;
        self.apply(sources, prepared)
    }

    /// Takes over what the database holds, since another process has changed it.
    pub(crate) async fn take_over(&self, seen: Stored) {
        let mut sources = self.sources.lock().await;
        // What was seen may be old by now: somebody may have changed it through this process.
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
        let done = self.adopt_missed(&mut sources, stored).await;
        // What came of it is published.
        let _ = self.publish(&Note::ELSEWHERE, done);
    }

    /// Puts in force what other processes have written, with what the database remembers of their
    /// changes: of two that came close after each other both are told.
    async fn adopt_missed(
        &self,
        sources: &mut Sources,
        stored: Stored,
    ) -> Result<Applied, ChangeError> {
        let missed = sources.stored.revision.saturating_add(1)..=stored.revision;
        let applied = self.adopt(sources, stored)?;
        // Without the history the latest change is told all the same.
        let history = self.history(MOST_MISSED).await.unwrap_or_default();
        let history = history.into_iter().filter(|audit| missed.contains(&audit.revision));
        Ok(applied.with_history(history.rev().collect()))
    }

    /// Puts in force what the database holds. If it is of no use it is remembered all the same.
    fn adopt(&self, sources: &mut Sources, stored: Stored) -> Result<Applied, ChangeError> {
        let prepared = self.prepare(&sources.layers, &stored);
        if prepared.is_err() {
            let known = Current { revision: stored.revision, ..Current::clone(&self.current()) };
            self.current.store(Arc::new(known));
        }
        let before = std::mem::replace(&mut sources.stored, stored);
        let applied = self.apply(sources, prepared?)?;
        Ok(applied.with_written(&before, &sources.stored, self.kept_by()))
    }

    /// Everything that layers and what the database holds are resolved to, checked.
    fn prepare(&self, layers: &Layers, stored: &Stored) -> Result<Prepared, ChangeError> {
        let overrides = Overrides::from_iter(stored.settings.clone());
        let layers = match self.kept_by() {
            Source::Runtime => layers.with_runtime_overrides(overrides),
            _ => layers.with_overrides(overrides),
        };
        let plan = layers.plan()?;
        let listen = &self.started.plan.listen;
        for (listener, address) in listeners(listen.admin.value, listen.grpc.value) {
            tokens::check_door(listener, address, &plan.admin)?;
        }
        let upstreams = Parts::check(&plan)?;
        limits::check(&self.parts.engine.limits(), &plan.limits)?;
        let effective = self.as_started(&plan, layers.effective());
        Ok(Prepared { revision: stored.revision, layers, plan, effective, upstreams })
    }

    /// The values in force: those that cannot change at run time are as they were at the start.
    fn as_started(&self, plan: &Plan, effective: Vec<Effective>) -> Vec<Effective> {
        let fixed = self.started.plan.needs_restart(plan);
        let of_start = |key: &str| self.started.effective.iter().find(|one| one.key == key);
        let in_force = |one: Effective| match fixed.contains(&one.key.as_str()) {
            true => of_start(&one.key).cloned().unwrap_or(one),
            false => one,
        };
        effective.into_iter().map(in_force).collect()
    }

    /// Puts in force what was prepared, whole.
    fn apply(&self, sources: &mut Sources, prepared: Prepared) -> Result<Applied, ChangeError> {
        let Prepared { revision, layers, plan, effective, upstreams } = prepared;
        let before = self.current();
        let limits = self.parts.follow(upstreams, &plan, &before)?;
        // Of what was told of already nobody need hear with every change.
        let news = before.plan.needs_restart(&plan);
        let fixed = self.started.plan.needs_restart(&plan);
        for key in fixed.into_iter().filter(|key| news.contains(key)) {
            tracing::warn!(key, "this setting has changed and holds from the next start on");
        }
        let applied = Applied::of(&before, &plan, &effective);
        let (plan, effective) = (Arc::new(plan), Arc::new(effective));
        let current = Current { revision, plan, effective, limits: Arc::new(limits) };
        self.current.store(Arc::new(current));
        sources.layers = layers;
        Ok(applied)
    }
}

/// The layers with the file read again. A file that was there and is gone is an error: whoever
/// replaces one may do so in two steps, and nobody means to lose all limits.
async fn reread(layers: &Layers) -> Result<Layers, ChangeError> {
    let before = layers.clone();
    // A file may be on a disk that takes its time.
    let next = tokio::task::spawn_blocking(move || before.reread()).await;
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
