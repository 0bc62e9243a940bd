//! The attacks: each from an address of its own, on a bounded number of connections, at a bounded
//! rate, until it is told to stop.

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

/// One attempt takes no longer than this: then its connection is given up for another.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(55);

/// One attempt of an attack; it gets its own number.
type Attempt = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// An attack.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    /// The last number of its address, 127.0.0.x.
    from: u8,
    /// Attempts at once.
    at_once: u32,
    /// Between two attempts of one.
    pause: Duration,
    run: fn(Attacker) -> Attempt,
}

/// Who makes one attempt.
#[derive(Clone, Copy, Debug)]
struct Attacker {
    from: Ipv4Addr,
    to: SocketAddr,
    /// Different for every attempt.
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

/// Name, address, attempts at once, milliseconds between them, what is done.
///
/// Pauses are such that being refused at once does not make an attacker faster than the machine can
/// bear: the program is to be stopped, not its neighbours. Idle connections are more than a listener
/// has, also while some of them pause.
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

/// Attacks that run. They end with this value.
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
            // They begin one after the other, within their pause.
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
            // Being refused is what attackers are to expect.
            let _ = timeout(ATTEMPT_TIMEOUT, (self.run)(attacker)).await;
            sleep(self.pause).await;
        }
    }
}

impl Attacks {
    /// Ends all attacks; how often each was tried.
    pub(super) fn stop(mut self) -> Vec<(&'static str, u64)> {
        self.tasks.abort_all();
        let read = |(name, counter): &(&'static str, Arc<AtomicU64>)| {
            (*name, counter.load(Ordering::Relaxed))
        };
        self.counters.iter().map(read).collect()
    }
}
