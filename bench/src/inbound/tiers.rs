//! Admission in process: the cost of each tier, enabled and disabled.

use anyhow::Result;
use indicatif::ProgressBar;
use tidegate::admission::{Admission, AdmissionDecision, Caller, Rules};
use tidegate::{Engine, MemoryStore, Policy};

use crate::contender::{Contender, decide_each};
use crate::keys::Keys;
use crate::measure::{Effort, Figure, measure_shared};

/// Numbers of clients and prepared requests. A thousand clients fit the cache, a million do not.
const SIZES: [(usize, usize); 2] = [(1_000, 8_192), (1_000_000, 1 << 20)];
const MAX_MEMORY: usize = 512 << 20;
/// Large enough that no request is rejected.
const BURST: u64 = 1_000_000_000;

/// The enabled tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiers {
    Off,
    Backpressure,
    Client,
    All,
}

impl Tiers {
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::Backpressure, Self::Client, Self::All];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "switched off",
            Self::Backpressure => "back-pressure",
            Self::Client => "back-pressure and client",
            Self::All => "back-pressure, client and organization",
        }
    }

    fn enter(self) -> Result<Box<dyn Contender>> {
        let bucket = Policy::per_second(1).capacity(BURST).build()?;
        let rules = Rules::none().backpressure(100);
        let rules = match self {
            Self::Off | Self::Backpressure => rules,
            Self::Client => rules.client(bucket),
            Self::All => rules.client(bucket).organization(bucket),
        };
        let store = MemoryStore::builder().max_memory(MAX_MEMORY).build()?;
        let admission = Admission::new(&Engine::on(store), rules)?;
        if self == Self::Off {
            admission.disable();
        }
        Ok(Box::new(Door(admission)))
    }
}

/// Results for a number of clients on one thread, in the order of [`Tiers::ALL`].
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) clients: usize,
    pub(crate) figures: Vec<Figure>,
}

pub(crate) fn steps(effort: Effort) -> u64 {
    (SIZES.len() * Tiers::ALL.len() * effort.runs) as u64
}

pub(crate) fn measure(effort: Effort, progress: &ProgressBar) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for (clients, requests) in SIZES {
        progress.set_message(format!("admission, {clients} clients"));
        let keys = Keys::uniform(clients, requests, 1);
        let doors = Tiers::ALL.into_iter().map(Tiers::enter).collect::<Result<Vec<_>>>()?;
        for door in &doors {
            door.decide(&keys.all, keys.all.len() as u64);
        }
        let figures = measure_shared(&doors, &keys.orders, effort, progress)?;
        points.push(Point { clients, figures });
    }
    Ok(points)
}

struct Door(Admission);

impl Contender for Door {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        decide_each(keys, requests, |client| {
            // Three digits of the id: 4,096 organizations.
            let organization = &client[7..10];
            let caller = Caller::new().organization(organization).client(client);
            self.0.admit(caller).now().as_ref().is_ok_and(AdmissionDecision::is_admitted)
        })
    }
}
