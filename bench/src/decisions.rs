//! `core`: keyed decisions in process, over the number of keys and of threads.

use anyhow::Result;

use crate::contender::{Contender, Role};
use crate::keys::Keys;
use crate::machine;
use crate::measure::{Effort, Figure, as_float, in_turns};
use crate::progress;
use crate::report;

/// How many keys, and how many requests are prepared for each thread. A thousand keys and their
/// requests fit the cache of a core; of a million neither does.
const SIZES: [(usize, usize); 2] = [(1_000, 8_192), (1_000_000, 1 << 20)];
/// The number of keys at which memory is measured.
const MEMORY_AT: usize = 1_000_000;
const THREADS: [usize; 2] = [1, 2];

/// The figures at one point of the axes, in the order of [`Role::ALL`].
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) keys: usize,
    pub(crate) threads: usize,
    pub(crate) figures: Vec<Figure>,
}

/// Measures everything and prints the tables.
pub(crate) fn run(effort: Effort) -> Result<()> {
    let threads = threads();
    let steps = SIZES.len() * threads.len() * Role::ALL.len() * effort.runs;
    let progress = progress::bar(steps as u64)?;
    let mut points = Vec::new();
    let mut memory = Vec::new();
    // The large tables first: memory that small ones gave back would spoil the measurement.
    for (keys, requests) in SIZES.into_iter().rev() {
        progress.set_message(format!("preparing {keys} keys"));
        let most = threads.iter().copied().max().unwrap_or(1);
        let prepared = Keys::uniform(keys, requests, most);
        let (contenders, bytes) = enter(&prepared)?;
        if keys == MEMORY_AT {
            memory = bytes;
        }
        for &threads in &threads {
            progress.set_message(format!("{keys} keys, {threads} threads"));
            let figures = in_turns(&contenders, &prepared.orders[..threads], effort, &progress)?;
            points.push(Point { keys, threads, figures });
        }
    }
    progress.finish_and_clear();
    points.sort_by_key(|point| (point.keys, point.threads));
    print!("{}", report::tables(&points, &memory, effort));
    Ok(())
}

/// One and two threads; only one where there is no second core.
fn threads() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    THREADS.into_iter().filter(|threads| *threads <= cores).collect()
}

/// Lets every contender see every key once; also says how many bytes each took per key.
type Entered = (Vec<Box<dyn Contender>>, Vec<Option<f64>>);
fn enter(keys: &Keys) -> Result<Entered> {
    let mut contenders = Vec::new();
    let mut bytes = Vec::new();
    for role in Role::ALL {
        let before = machine::resident_bytes();
        let contender = role.enter(keys.all.len())?;
        contender.decide(&keys.all, keys.all.len() as u64);
        let grown =
            machine::resident_bytes().zip(before).map(|(now, then)| now.saturating_sub(then));
        bytes.push(grown.map(|grown| as_float(grown) / as_float(keys.all.len() as u64)));
        contenders.push(contender);
    }
    Ok((contenders, bytes))
}
