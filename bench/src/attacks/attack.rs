//! The attacks: each from its own address, with bounded connections and a bounded rate, until it is
//! stopped.

mod connections;
mod requests;

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::wire::{self, loopback};

/// Maximum duration of one attempt; then its connection is dropped.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(55);

/// One attempt of an attack.
type Attempt = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// An attack.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    /// Last octet of its address, 127.0.0.x.
    from: u8,
    /// Number of concurrent attempts.
    at_once: u32,
    /// Pause between two attempts of a task.
    pause: Duration,
    run: fn(Attacker) -> Attempt,
}

/// Parameters of one attempt.
#[derive(Clone, Copy, Debug)]
struct Attacker {
    from: Ipv4Addr,
    to: SocketAddr,
    /// Unique number of the attempt.
    number: u64,
}

impl Attacker {
    async fn connect(self) -> Result<TcpStream> {
        wire::connect(self.from, self.to).await
    }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

macro_rules! attacks {
    ($($name:literal, $from:literal, $at_once:literal, $pause:literal, $run:path;)*) => {
        [$(Attack {
            name: $name,
            from: $from,
            at_once: $at_once,
            pause: millis($pause),
            run: |attacker| Box::pin($run(attacker)),
        }),*]
    };
}

/// Name, address, concurrent attempts, pause in milliseconds, function.
///
/// Pauses limit the rate of attackers that are refused immediately, so that they do not starve the
/// callers of CPU time. The number of idle connections exceeds the limit of a listener, even while
/// some of them pause.
const ATTACKS: [Attack; 13] = attacks![
    "slow heads", 1, 200, 2000, connections::slow_head;
    "garbage", 1, 2, 100, connections::garbage;
    "slow bodies of 64 MiB", 2, 8, 2000, connections::slow_body;
    "slow readers", 2, 32, 2000, connections::slow_reader;
    "idle connections", 3, 12200, 10000, connections::idle;
    "junk keys with random models", 4, 2, 50, requests::junk_key;
    "a tenant for every call", 5, 4, 50, requests::tenant_per_call;
    "unreadable bodies", 6, 2, 100, requests::unreadable_body;
    "compression bombs", 6, 1, 500, requests::compression_bomb;
    "large JSON", 7, 1, 2000, requests::large_json;
    "odd methods and upgrades", 8, 2, 100, requests::odd_method;
    "batches that are answered at length", 9, 1, 200, requests::batch;
    "half-closed connections", 9, 2, 100, connections::half_closed;
];

/// Running attacks; dropping this value stops them.
pub(super) struct Attacks {
    tasks: JoinSet<()>,
    counters: Vec<(&'static str, Arc<AtomicU64>)>,
}

/// Starts all attacks.
pub(super) fn start(http: SocketAddr) -> Attacks {
    let (mut tasks, mut counters) = (JoinSet::new(), Vec::new());
    for attack in ATTACKS {
        let attempts = Arc::new(AtomicU64::new(0));
        counters.push((attack.name, attempts.clone()));
        for number in 0..attack.at_once {
            let attempts = attempts.clone();
            // Start the attempts staggered within one pause.
            let wait = attack.pause * number / attack.at_once;
            tasks.spawn(async move {
                sleep(wait).await;
                attack.repeat(http, &attempts).await;
            });
        }
    }
    Attacks { tasks, counters }
}

impl Attack {
    async fn repeat(&self, to: SocketAddr, attempts: &AtomicU64) {
        loop {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            let attacker = Attacker { from: loopback(self.from), to, number };
            // A refused attempt is expected.
            let _ = timeout(ATTEMPT_TIMEOUT, (self.run)(attacker)).await;
            sleep(self.pause).await;
        }
    }
}

impl Attacks {
    /// Stops all attacks and returns the number of attempts of each.
    pub(super) fn stop(mut self) -> Vec<(&'static str, u64)> {
        self.tasks.abort_all();
        let read = |(name, counter): &(&'static str, Arc<AtomicU64>)| {
            (*name, counter.load(Ordering::Relaxed))
        };
        self.counters.iter().map(read).collect()
    }
}
