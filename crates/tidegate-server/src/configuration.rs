//! The configuration in force: one snapshot that every request reads, and the one place that puts
//! another in its place.
//!
//! A change comes through a door: the admin API, the RPC, the file, a signal, another node. Whatever
//! the door, it is resolved with all other layers, checked whole, written down if it is to last, and
//! then applied: the snapshot of the limits, the rules of admission, the providers of the gateway,
//! the tokens of the admin door. If any of it cannot be used nothing of it is, and the
//! configuration of before stays. Changes are made one after the other; readers wait for none.
//!
//! What the database holds and what is in force can differ: another node, or another version, may
//! have written what is of no use here. Then it is remembered, so that the next change is made to
//! it, and may be the one that mends it.

mod audit;
mod control;
mod file;
pub(crate) mod limit_registry;
mod parts;
mod providers;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_config::{Changed, ConfigError, Effective, Layers, Overrides, Patch, Plan};
use tokio::sync::Mutex;

use crate::api::admin::By;
use crate::database::{self, DatabaseError, Note, Stored};
use crate::tokens::{self, OpenToAll};

pub(crate) use file::FileWatch;
use limit_registry::{LimitRegistry, ReviseError};
pub(crate) use parts::{Parts, PartsError};

/// How often a change is tried again because another node was faster.
const ATTEMPTS: usize = 5;

/// What holds at one moment. It never changes; another configuration is another one.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    /// How often settings were changed at run time: by the count of the database, if there is one.
    pub(crate) revision: u64,
    pub(crate) plan: Arc<Plan>,
    /// Every value in force, and where it comes from.
    pub(crate) effective: Arc<Vec<Effective>>,
    pub(crate) limits: Arc<LimitRegistry>,
}

/// Why a configuration is not taken over. The one of before holds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("limits.{0}: {1}")]
    Limit(String, ReviseError),
    #[error(transparent)]
    Parts(#[from] PartsError),
    #[error(transparent)]
    OpenToAll(#[from] OpenToAll),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// What the configuration is made of.
#[derive(Debug)]
struct Sources {
    /// The layers in force.
    layers: Layers,
    /// What the database holds, as far as is known.
    stored: Stored,
}

/// How the server was started, which no change at run time changes.
#[derive(Debug)]
struct Started {
    plan: Arc<Plan>,
    effective: Arc<Vec<Effective>>,
}

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    current: ArcSwap<Current>,
    /// Whoever holds the lock is changing it.
    sources: Mutex<Sources>,
    started: Started,
    parts: Parts,
}

impl ActiveConfig {
    /// The configuration that the parts were made by, and what the database held then.
    pub(crate) fn new(layers: Layers, plan: Plan, stored: Stored, parts: Parts) -> Self {
        let limits = LimitRegistry::new(&plan.limits, &parts.metrics).share(&parts.admission);
        parts.metrics.revised(stored.revision);
        let (plan, effective) = (Arc::new(plan), Arc::new(layers.effective()));
        let started = Started { plan: plan.clone(), effective: effective.clone() };
        let current =
            Current { revision: stored.revision, plan, effective, limits: Arc::new(limits) };
        let sources = Mutex::new(Sources { layers, stored });
        Self { current: ArcSwap::from_pointee(current), sources, started, parts }
    }

    /// The configuration of this moment.
    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<Current>> {
        self.current.load()
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Changes settings: all that is asked for, or nothing. With a database the change lasts; else
    /// it holds until the program ends.
    pub(crate) async fn update(
        &self,
        patch: &Patch,
        expected: Option<u64>,
        by: &By,
    ) -> Result<Vec<Changed>, ApplyError> {
        let mut sources = self.sources.lock().await;
        let done = self.change(&mut sources, patch, expected, by).await;
        self.publish(by, done)
    }

    async fn change(
        &self,
        sources: &mut Sources,
        patch: &Patch,
        expected: Option<u64>,
        by: &By,
    ) -> Result<Vec<Changed>, ApplyError> {
        patch.check()?;
        for _ in 0..ATTEMPTS {
            let revision = sources.stored.revision;
            if expected.is_some_and(|expected| expected != revision) {
                return Err(DatabaseError::Conflict { now: revision }.into());
            }
            let base = Overrides::from_iter(sources.stored.settings.clone());
            let after = patch.apply(&base);
            let changes = patch.difference(&base);
            if changes.is_empty() {
                return Ok(Vec::new());
            }
            let next = sources.layers.with_overrides(after.clone());
            // What cannot be used is found out before anything is written down.
            let ready = self.prepare(&next, revision.saturating_add(1))?;
            let Some(database) = &self.parts.database else {
                let settings = after.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
                let (settings, revision) = (settings.collect(), ready.revision);
                sources.stored = Stored { revision, settings };
                return self.apply(sources, next, ready);
            };
            let changes = changes.into_iter();
            let changes: Vec<_> =
                changes.map(|(key, value)| database::Change { key, value }).collect();
            let note = Note { door: by.door, who: by.who.clone() };
            match database.write(&changes, &note, Some(revision)).await {
                Ok(stored) => return self.adopt(sources, stored),
                // Another node was faster. The change is checked again beside what it wrote.
                Err(DatabaseError::Conflict { .. }) => {
                    let stored = database.read().await?;
                    let done = self.adopt(sources, stored);
                    // What came of that is told, and is no matter of this change.
                    let _ = self.publish(&By::ELSEWHERE, done);
                }
                Err(error) => return Err(error.into()),
            }
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
        // What came of it is told.
        let _ = self.publish(&By { door: "file", who: None }, done);
    }

    /// Reads the file again, since somebody asks for it.
    pub(crate) async fn reread(&self, by: &By) -> Result<Vec<Changed>, ApplyError> {
        let mut sources = self.sources.lock().await;
        let next = reread(&sources.layers).await;
        let done = next.and_then(|next| self.replace(&mut sources, &next));
        self.publish(by, done)
    }

    /// Puts other layers in the place of these, below what the database holds; if that is of no use
    /// with them, below what is in force of it.
    fn replace(&self, sources: &mut Sources, next: &Layers) -> Result<Vec<Changed>, ApplyError> {
        let stored = Overrides::from_iter(sources.stored.settings.clone());
        let revision = sources.stored.revision;
        let (with_stored, with_known) =
            (next.with_overrides(stored), next.with_overrides(sources.layers.overrides().clone()));
        match self.prepare(&with_stored, revision) {
            Ok(ready) => self.apply(sources, with_stored, ready),
            Err(error) => match self.prepare(&with_known, revision) {
                Ok(ready) => self.apply(sources, with_known, ready),
                Err(_) => Err(error),
            },
        }
    }

    /// Takes over what the database holds, since another process has changed it.
    pub(crate) async fn take_over(&self, seen: Stored, by: &By) {
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
        let done = self.adopt(&mut sources, stored);
        // What came of it is told.
        let _ = self.publish(by, done);
    }

    /// Puts in force what the database holds. If it is of no use it is remembered all the same.
    fn adopt(&self, sources: &mut Sources, stored: Stored) -> Result<Vec<Changed>, ApplyError> {
        let next = sources.layers.with_overrides(Overrides::from_iter(stored.settings.clone()));
        let revision = stored.revision;
        sources.stored = stored;
        let ready = self.prepare(&next, revision);
        if ready.is_err() {
            let known = Current { revision, ..Current::clone(&self.current()) };
            self.current.store(Arc::new(known));
        }
        self.apply(sources, next, ready?)
    }

    /// Everything that a configuration is resolved to, checked.
    fn prepare(&self, layers: &Layers, revision: u64) -> Result<Current, ApplyError> {
        let plan = layers.plan()?;
        let listen = &self.started.plan.listen;
        for (door, address) in doors(listen.admin.value, listen.grpc.value) {
            tokens::check_door(door, address, &plan.admin)?;
        }
        Parts::check(&plan)?;
        let limits = self.current().limits.revised(&plan.limits, &self.parts.metrics);
        let limits = limits.map_err(|(name, why)| ApplyError::Limit(name, why))?;
        let effective = self.as_started(&plan, layers.effective());
        Ok(Current {
            revision,
            plan: Arc::new(plan),
            effective: Arc::new(effective),
            limits: Arc::new(limits),
        })
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

    /// Puts a configuration in force, whole.
    fn apply(
        &self,
        sources: &mut Sources,
        next: Layers,
        ready: Current,
    ) -> Result<Vec<Changed>, ApplyError> {
        let before = self.current();
        self.parts.follow(&ready.plan, &before.plan)?;
        for key in self.started.plan.needs_restart(&ready.plan) {
            tracing::warn!(key, "this setting has changed and holds from the next start on");
        }
        let changed = tidegate_config::diff(&before.effective, &ready.effective);
        let limits = Arc::unwrap_or_clone(ready.limits).share(&self.parts.admission);
        self.current.store(Arc::new(Current { limits: Arc::new(limits), ..ready }));
        sources.layers = next;
        Ok(changed)
    }
}

/// The doors that change the configuration.
pub(crate) fn doors(admin: SocketAddr, grpc: SocketAddr) -> [(&'static str, SocketAddr); 2] {
    [("admin", admin), ("grpc", grpc)]
}

/// The layers with the file read again. A file that was there and is gone is an error: whoever
/// replaces one may do so in two steps, and nobody means to lose all limits.
async fn reread(layers: &Layers) -> Result<Layers, ApplyError> {
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
