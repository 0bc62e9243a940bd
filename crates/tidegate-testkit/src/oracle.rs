//! The reference: the whole semantics of the Store contract over rational numbers.
//!
//! Written from the design, not from the core, with which it shares no arithmetic: what both
//! say alike is right unless the same mistake was made twice. It is slow, single-threaded, knows
//! no leases that run out, and never refuses a list: callers hand in valid ones.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_testkit::oracle::Oracle;
//! use tidegate_testkit::scenario::spec::{LimitSpec, PolicySpec};
//! use tidegate_testkit::scenario::step::{ChargeSpec, Expected, Op};
//! let policy = PolicySpec::bucket(1, Duration::from_secs(1), 10);
//! let mut oracle = Oracle::new(vec![LimitSpec::named("client", policy)]);
//! let take = Op::Take { charges: vec![ChargeSpec(0, "alice".into(), 3)] };
//! let Expected::Allowed { charges, .. } = oracle.apply(0, &take) else { panic!("denied") };
//! assert_eq!(charges[0].remaining, 7);
//! ```

mod account;
mod bucket;
mod entry;
mod open;

use std::collections::BTreeMap;

use self::account::{Account, Opening, Stamp};
use self::entry::{Entry, State};
use crate::scenario::spec::LimitSpec;
use crate::scenario::step::{ChargeSpec, CorrectionSpec, Expected, Line, ORIGIN_NS, Op, Wait};

/// What a grant charged.
#[derive(Clone, Debug)]
struct Receipt {
    /// The instant it counts from.
    start: u64,
    /// One per charge.
    stamps: Vec<Stamp>,
}

/// A store of rational numbers, driven step by step.
#[derive(Clone, Debug)]
pub struct Oracle {
    limits: Vec<LimitSpec>,
    /// The revision of each limit that callers use.
    current: Vec<usize>,
    entries: BTreeMap<(usize, String), Entry>,
    receipts: BTreeMap<usize, Receipt>,
    steps: usize,
}

impl Oracle {
    /// An oracle in which nobody has spent anything.
    #[must_use]
    pub fn new(limits: Vec<LimitSpec>) -> Self {
        let current = vec![0; limits.len()];
        Self { limits, current, entries: BTreeMap::new(), receipts: BTreeMap::new(), steps: 0 }
    }

    /// The limits, as they were handed in.
    #[must_use]
    pub fn limits(&self) -> &[LimitSpec] {
        &self.limits
    }

    /// The revision of a limit that callers use now.
    #[must_use]
    pub fn revision(&self, limit: usize) -> usize {
        self.current[limit]
    }

    /// The answer to the next step, at `at_ns` after [`ORIGIN_NS`].
    pub fn apply(&mut self, at_ns: u64, op: &Op) -> Expected {
        let now = ORIGIN_NS + at_ns;
        let step = self.steps;
        self.steps += 1;
        for entry in self.entries.values_mut() {
            entry.seen = entry.seen.max(now);
        }
        match op {
            Op::Take { charges } => self.decide(charges, Some(0), step, now),
            Op::Reserve { charges, horizon_ns } => {
                self.decide(charges, Some(*horizon_ns), step, now)
            }
            Op::Peek { charges } => self.decide(charges, None, step, now),
            Op::Settle { corrections, receipt } => self.settle(corrections, *receipt, now),
            Op::Release { receipt } => self.release(*receipt, now),
            Op::Hold { limit, key, span_ns } => self.hold((*limit, key.clone()), *span_ns, now),
            Op::Reset { limit, key } => Expected::Reset(self.reset(&(*limit, key.clone()), now)),
            Op::Revise { limit } => {
                self.current[*limit] += 1;
                Expected::Nothing
            }
        }
    }

    fn account(&self, limit: usize, key: &str, now: u64) -> Account {
        let generation = self.current[limit];
        let spec = &self.limits[limit];
        let entry = self.entries.get(&(limit, key.to_owned()));
        let (state, held_until) =
            entry.map_or((State::Fresh, None), |entry| entry.carried(spec, generation, now));
        Account::open(Opening {
            limit,
            key,
            generation,
            policy: &spec.revisions[generation].policy,
            window_s: spec.window_s,
            state,
            held_until,
            now,
        })
    }

    /// The accounts of a list, each bucket once, and for each charge the index of its account.
    fn accounts(&self, charges: &[ChargeSpec], now: u64) -> (Vec<Account>, Vec<usize>) {
        let mut accounts: Vec<Account> = Vec::new();
        let mut order = Vec::new();
        for ChargeSpec(limit, key, cost) in charges {
            let known = accounts.iter().position(|a| a.limit == *limit && a.key == *key);
            let index = known.unwrap_or_else(|| {
                accounts.push(self.account(*limit, key, now));
                accounts.len() - 1
            });
            accounts[index].cost += u128::from(*cost);
            order.push(index);
        }
        (accounts, order)
    }

    /// Decides a list; without a horizon nothing is spent.
    fn decide(
        &mut self,
        charges: &[ChargeSpec],
        horizon: Option<u64>,
        step: usize,
        now: u64,
    ) -> Expected {
        let (mut accounts, order) = self.accounts(charges, now);
        let reach = accounts.iter().map(Account::reach).min().unwrap_or(u64::MAX);
        let reach = reach.min(horizon.unwrap_or(0));
        let starts: Result<Vec<u64>, Wait> = accounts.iter().map(Account::fit).collect();
        let start = starts.ok().and_then(|starts| starts.into_iter().max());
        let Some(start) = start.filter(|start| start - now <= reach) else {
            let lines = order.iter().map(|&i| accounts[i].line(accounts[i].retry())).collect();
            if horizon.is_some() {
                self.repair(accounts, now);
            }
            return denied(lines);
        };
        for account in &mut accounts {
            account.spend(start, step);
        }
        let lines: Vec<Line> = order.iter().map(|&index| accounts[index].line(None)).collect();
        if horizon.is_some() {
            let stamps = order.iter().map(|&index| stamp(&accounts[index])).collect();
            self.receipts.insert(step, Receipt { start, stamps });
            for account in accounts.into_iter().filter(|account| account.cost > 0) {
                self.write(account, now);
            }
        }
        let least = lines.iter().map(|line| line.remaining).min();
        let by = lines.iter().position(|line| Some(line.remaining) == least).unwrap_or(0);
        Expected::Allowed { by, wait_ns: start - now, charges: lines }
    }

    /// A denial spends nothing, but it mends what a clock that stepped back has left, and brings
    /// a bucket under the present policy.
    fn repair(&mut self, accounts: Vec<Account>, now: u64) {
        for mut account in accounts.into_iter().filter(|account| account.cost > 0) {
            let behind = self.is_behind(account.limit, &account.key)
                || self.hold_is_behind(account.limit, &account.key, now);
            if account.repair(now) || behind {
                self.write(account, now);
            }
        }
    }

    fn settle(
        &mut self,
        corrections: &[CorrectionSpec],
        receipt: Option<usize>,
        now: u64,
    ) -> Expected {
        let receipt = receipt.map(|step| self.receipts[&step].clone());
        let (mut saturated, mut dropped, mut charges) = (0, 0, Vec::new());
        for (index, CorrectionSpec(limit, key, delta)) in corrections.iter().enumerate() {
            let mut account = self.account(*limit, key, now);
            let spend = receipt.as_ref().map(|receipt| (&receipt.stamps[index], receipt.start));
            let settled = account.settle(*delta, spend);
            saturated += usize::from(settled.saturated);
            dropped += usize::from(settled.dropped);
            charges.push(account.line(None));
            self.write(account, now);
        }
        Expected::Settled { saturated, dropped, charges }
    }

    fn release(&mut self, receipt: usize, now: u64) -> Expected {
        let mut released = 0;
        for Stamp { limit, key, .. } in self.receipts[&receipt].stamps.clone() {
            let Some(entry) = self.entries.get_mut(&(limit, key)) else { continue };
            if let State::Slots(slots) = &mut entry.state {
                released += slots.remove(&receipt).unwrap_or(0);
                entry.seen = now;
            }
        }
        Expected::Slots(released)
    }

    fn hold(&mut self, id: (usize, String), span_ns: u64, now: u64) -> Expected {
        let generation = self.current[id.0];
        let entry = self.entries.entry(id).or_insert(Entry { generation, ..Entry::default() });
        let until = entry.held_until.unwrap_or(0).max(now + span_ns);
        entry.held_until = Some(until);
        entry.hold_generation = generation;
        entry.seen = now;
        Expected::Held(until - now)
    }

    fn write(&mut self, account: Account, now: u64) {
        let entry = self.entries.entry((account.limit, account.key)).or_default();
        entry.generation = account.generation;
        entry.held_until = account.held_until;
        // A window in which nothing is used is no window: not even while the clock has stepped
        // back behind its start.
        let unused = matches!(account.state, State::Quota { used: 0, .. });
        entry.state = if unused { State::Fresh } else { account.state };
        entry.seen = now;
    }
}

fn stamp(account: &Account) -> Stamp {
    Stamp {
        limit: account.limit,
        key: account.key.clone(),
        generation: account.generation,
        spent: account.cost > 0,
        state: account.state.clone(),
    }
}

/// The first of the longest waits binds.
fn denied(charges: Vec<Line>) -> Expected {
    let longest = charges.iter().filter_map(|line| line.retry_ns).max();
    let by = charges.iter().position(|line| line.retry_ns == longest).unwrap_or(0);
    Expected::Denied { by, retry_ns: longest.unwrap_or(Wait::Never), charges }
}
