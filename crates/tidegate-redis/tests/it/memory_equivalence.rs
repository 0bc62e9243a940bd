//! Mixed submissions to this store and to the in-process store: both must give the same answers.
//!
//! The random scenarios of the contract submit one operation at a time. Here a submission has several
//! operations, on a few buckets of every kind whose policies change, with a clock that also steps
//! back; so the effect of one operation on the next within a call is compared as well.

use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Key, Limit, Operation, Policy, PolicyChange, Receipt, Store, StoreError,
    StoreResponse, StoreResponses, Target, Time, WallTime,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;
use tidegate_testkit::launch::Flavor;
use tidegate_testkit::property::Effort;
use tidegate_testkit::scenario::random::Random;
use tidegate_testkit::scenario::replay::windows;
use tidegate_testkit::subject::{Subject as _, block_on, execute};

use crate::fixture::{TimedStores, error_chain, slow_bucket};

const DAY: Duration = Duration::from_secs(86_400);
const LIMITS: [&str; 5] = ["la", "lb", "lc", "ld", "le"];
/// Submissions per scenario.
const SUBMISSIONS: usize = 60;
/// Maximum number of receipts kept.
const MAX_GRANTS: usize = 12;

#[test]
fn one_node_matches_the_in_process_store() {
    compare(1);
}

/// Submissions go to two nodes in turn, and both get every new policy: one of them finds it recorded
/// and the buckets converted by the other.
#[test]
fn two_nodes_match_the_in_process_store() {
    compare(2);
}

/// Compares some random scenarios; a soak test runs more, with other seeds each time.
fn compare(nodes: usize) {
    let effort = Effort::default();
    for seed in (effort.seed..).take(usize::try_from(effort.cases / 120).unwrap()) {
        let mut events = random_events(seed);
        if let Err(difference) = run(&events, nodes) {
            let difference = shrink(&mut events, nodes).unwrap_or(difference);
            let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            panic!("seed {seed}:\n{}\n{difference}", lines.join("\n"));
        }
    }
}

/// Removes all events that are not needed for a difference, and returns the last difference.
fn shrink(events: &mut Vec<Event>, nodes: usize) -> Option<String> {
    let mut last = None;
    let mut index = events.len();
    while index > 0 {
        index -= 1;
        let original = events.clone();
        events.remove(index);
        match run(events, nodes) {
            Err(difference) => last = Some(difference),
            Ok(()) => *events = original,
        }
    }
    last
}

/// A bucket by index, and an amount.
#[derive(Clone, Copy, Debug)]
struct ChargeSpec {
    limit: usize,
    key: usize,
    amount: i64,
}

/// An event of a scenario. Consecutive operations form one submission.
#[derive(Clone, Debug)]
enum Event {
    Define(usize, Policy),
    Revise(usize, Policy, PolicyChange),
    /// The clock advances.
    Advance(Duration),
    StepBack(Duration),
    Submit(Op),
}

/// An operation before its limits are looked up. A receipt is given by a number, modulo the number
/// of receipts.
#[derive(Clone, Debug)]
enum Op {
    Take(Vec<ChargeSpec>),
    Peek(Vec<ChargeSpec>),
    Reserve(Vec<ChargeSpec>, Duration),
    Settle(Vec<ChargeSpec>),
    /// Refunds this many eighths of a spend.
    Refund(usize, i64),
    Release(usize),
    Renew(usize),
    Hold(ChargeSpec, Duration),
    Reset(ChargeSpec),
}

/// A random scenario, determined by its seed.
fn random_events(seed: u64) -> Vec<Event> {
    let mut generator = Generator(Random::new(seed));
    let mut events = Vec::new();
    for limit in 0..LIMITS.len() {
        let kind = generator.index(10);
        events.push(Event::Define(limit, generator.policy(kind)));
    }
    for _ in 0..SUBMISSIONS {
        events.push(generator.time());
        if generator.index(6) == 0 {
            events.push(generator.revision());
        }
        let count = 1 + generator.index(8);
        events.extend((0..count).map(|_| Event::Submit(generator.op())));
    }
    events
}

#[derive(Debug)]
struct Generator(Random);

impl Generator {
    fn index(&mut self, length: usize) -> usize {
        let length = u32::try_from(length).unwrap();
        usize::try_from(self.0.below(length)).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// A step of the clock, from zero to days; rarely back.
    fn time(&mut self) -> Event {
        let span = self.pick(&[
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_micros(7),
            Duration::from_millis(200),
            Duration::from_secs(1),
            Duration::from_micros(3_000_001),
            Duration::from_secs(60),
            DAY,
            5 * DAY,
        ]);
        if self.index(20) == 0 { Event::StepBack(span) } else { Event::Advance(span) }
    }

    fn revision(&mut self) -> Event {
        let limit = self.index(LIMITS.len());
        let kinds = self.pick(&[6, 6, 10]);
        let kind = self.index(kinds);
        let change =
            self.pick(&[PolicyChange::KeepTokens, PolicyChange::Proportional, PolicyChange::Reset]);
        Event::Revise(limit, self.policy(kind), change)
    }

    /// A policy of one of ten kinds: buckets with awkward rates, one that takes years to fill, the
    /// fastest possible, and other kinds of limits.
    fn policy(&mut self, kind: usize) -> Policy {
        let few = self.pick(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let month = 30 * DAY;
        let policy = match kind {
            0 => Policy::per_second(5).capacity(few).build(),
            1 => {
                let builder = Policy::rate("600000000/s".parse().unwrap());
                builder.capacity(self.pick(&[1, 7, 600_000_000])).max_horizon(month).build()
            }
            2 => {
                let builder = Policy::per(1, 10 * DAY).capacity(few).max_debt(few * 100);
                builder.max_horizon(month).build()
            }
            3 => Policy::rate("999983/min".parse().unwrap()).capacity(few * 1_000).build(),
            4 => Policy::quota(few * 3),
            5 => Policy::allowance(few * 10),
            6 => Policy::concurrency(few, Some(Duration::from_millis(1_500))),
            7 => Policy::concurrency(few, None),
            8 => {
                let builder = Policy::per(1, 365 * DAY).capacity(45).max_debt(45);
                builder.max_horizon(Duration::ZERO).build()
            }
            _ => Policy::per(4_294_967_291, Duration::from_secs(1)).capacity(few).build(),
        };
        policy.unwrap()
    }

    fn op(&mut self) -> Op {
        let mut span = self.pick(&[
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_nanos(1_234_567_891),
            20 * DAY,
        ]);
        // Rarely a hold of a hundred years: it leaves little to compare.
        if self.index(50) == 0 {
            span = 36_525 * DAY;
        }
        match self.index(14) {
            0..=4 => Op::Take(self.charges()),
            5 => Op::Peek(self.charges()),
            6 | 7 => Op::Reserve(self.charges(), span),
            8 => Op::Refund(self.index(MAX_GRANTS), self.pick(&[0, 1, 4, 8, 9])),
            9 => Op::Settle(self.corrections()),
            10 => Op::Release(self.index(MAX_GRANTS)),
            11 => Op::Renew(self.index(MAX_GRANTS)),
            12 => Op::Hold(self.charge(), span),
            _ => Op::Reset(self.charge()),
        }
    }

    fn charge(&mut self) -> ChargeSpec {
        let amount = self.pick(&[0, 1, 1, 1, 2, 3, 9, 5_000]);
        ChargeSpec { limit: self.index(LIMITS.len()), key: self.index(keys().len() - 1), amount }
    }

    fn charges(&mut self) -> Vec<ChargeSpec> {
        (0..=self.index(3)).map(|_| self.charge()).collect()
    }

    fn corrections(&mut self) -> Vec<ChargeSpec> {
        let mut charges = self.charges();
        for charge in &mut charges {
            charge.amount *= self.pick(&[1, -1]);
        }
        charges
    }
}

/// A granted spend, with the receipts of both stores.
#[derive(Debug)]
struct Granted {
    charges: Vec<ChargeSpec>,
    /// Whether each charge was on slots.
    slots: Vec<bool>,
    receipts: [Receipt; 2],
}

/// Both stores and their shared state.
#[derive(Debug)]
struct StorePair {
    shared: TimedStores,
    memory: MemoryStore,
    clock: ManualClock,
    now: Duration,
    limits: Vec<Limit>,
    granted: Vec<Granted>,
}

/// Runs a scenario on both stores, up to the first difference.
fn run(events: &[Event], nodes: usize) -> Result<(), String> {
    let clock = ManualClock::new();
    let mut stores = StorePair {
        shared: block_on(TimedStores::with_nodes(Flavor::Redis, nodes)),
        memory: MemoryStore::builder().clock(clock.clone()).build().unwrap(),
        clock,
        now: TimedStores::ORIGIN,
        limits: LIMITS.map(|name| slow_bucket(name, 5)).to_vec(),
        granted: Vec::new(),
    };
    stores.set_time(TimedStores::ORIGIN);
    let mut ops: Vec<Op> = Vec::new();
    for event in events.iter().map(Some).chain([None]) {
        if let Some(Event::Submit(op)) = event {
            ops.push(op.clone());
            continue;
        }
        stores.submit_to_both(&std::mem::take(&mut ops))?;
        match event {
            Some(Event::Define(limit, policy)) => {
                stores.limits[*limit] = Limit::named(LIMITS[*limit], *policy).unwrap();
            }
            // Two nodes that revise a limit to its current policy would make two revisions.
            Some(Event::Revise(limit, policy, _))
                if nodes > 1 && stores.limits[*limit].policy() == policy => {}
            Some(Event::Revise(limit, policy, change)) => {
                stores.limits[*limit] = stores.limits[*limit].revise(*policy, *change).unwrap();
                stores.sync_policy(*limit);
            }
            Some(Event::Advance(span)) => stores.set_time(stores.now + *span),
            Some(Event::StepBack(span)) => stores.set_time(stores.now - *span),
            _ => {}
        }
    }
    Ok(())
}

impl StorePair {
    fn set_time(&mut self, now: Duration) {
        self.now = now;
        let nanos = u64::try_from(now.as_nanos()).unwrap();
        self.clock.set(Time::from_nanos(nanos));
        self.clock.set_wall(WallTime::from_nanos(nanos));
        self.shared.set(now);
    }

    /// Makes every node sync the newest policy of a limit, by a peek at an unused bucket. Otherwise a
    /// node with several new revisions would add ones that others have added before.
    fn sync_policy(&self, limit: usize) {
        let charge = ChargeSpec { limit, key: keys().len() - 1, amount: 0 };
        let peek = [Charge { target: self.target(&charge), cost: 0 }];
        for node in self.shared.nodes() {
            block_on(execute(node, Operation::Peek(&peek))).unwrap();
        }
    }

    /// Submits operations to both stores and compares their answers.
    fn submit_to_both(&mut self, ops: &[Op]) -> Result<(), String> {
        let lists: Vec<List<'_>> = ops.iter().filter_map(|op| self.list(op)).collect();
        if lists.is_empty() {
            return Ok(());
        }
        let memory = answers(&self.memory, &lists, Side::Memory);
        let shared = answers(self.shared.store(), &lists, Side::Shared);
        let mut granted = Vec::new();
        for ((list, memory), shared) in lists.iter().zip(memory).zip(shared) {
            let (one, other) = (describe(&memory), describe(&shared));
            if one != other {
                return Err(format!("{:?}\nmemory: {one}\nshared: {other}", list.op));
            }
            if let Op::Take(charges) | Op::Reserve(charges, _) = list.op
                && let (Some(memory), Some(shared)) = (receipt(memory), receipt(shared))
            {
                let slots = charges.iter().map(|charge| self.has_slots(charge)).collect();
                granted.push(Granted {
                    charges: charges.clone(),
                    slots,
                    receipts: [memory, shared],
                });
            }
        }
        self.granted.append(&mut granted);
        let old = self.granted.len().saturating_sub(MAX_GRANTS);
        self.granted.drain(..old);
        Ok(())
    }

    /// Resolves an operation; `None` if it refers to a receipt that does not exist.
    fn list<'l>(&'l self, op: &'l Op) -> Option<List<'l>> {
        let mut list = List {
            op,
            granted: None,
            charges: Vec::new(),
            corrections: Vec::new(),
            targets: Vec::new(),
        };
        let correction =
            |charge: &ChargeSpec, delta| Correction { target: self.target(charge), delta };
        match op {
            // A peek removes expired leases in the in-process store, but changes nothing on the
            // server, which shows when the clock steps back.
            Op::Peek(charges) if charges.iter().any(|charge| self.has_leases(charge)) => {
                return None;
            }
            Op::Take(charges) | Op::Peek(charges) | Op::Reserve(charges, _) => {
                let cost = |charge: &ChargeSpec| u64::try_from(charge.amount).unwrap();
                let to_charge = |spec| Charge { target: self.target(spec), cost: cost(spec) };
                list.charges = charges.iter().map(to_charge).collect();
            }
            Op::Settle(charges) => {
                // A correction cannot grant slots.
                let delta = |charge: &ChargeSpec| {
                    if self.has_slots(charge) { 0.min(charge.amount) } else { charge.amount }
                };
                list.corrections =
                    charges.iter().map(|charge| correction(charge, delta(charge))).collect();
            }
            Op::Refund(number, eighths) => {
                // Releasing slots of a limit that is a bucket now does not touch the shared
                // bucket, but updates the in-process one, which shows when the clock steps back.
                let is_comparable = |granted: &&Granted| {
                    let mut pairs = granted.charges.iter().zip(&granted.slots);
                    pairs.all(|(charge, slots)| !slots || self.has_slots(charge))
                };
                let granted = self.granted(*number).filter(is_comparable)?;
                let delta = |charge: &ChargeSpec| -(charge.amount * eighths + 7) / 8;
                list.corrections = granted
                    .charges
                    .iter()
                    .map(|charge| correction(charge, delta(charge)))
                    .collect();
                list.granted = Some(granted);
            }
            Op::Release(number) | Op::Renew(number) => {
                let granted = self.granted(*number)?;
                list.targets = granted.charges.iter().map(|charge| self.target(charge)).collect();
                list.granted = Some(granted);
            }
            Op::Hold(charge, _) | Op::Reset(charge) => list.targets.push(self.target(charge)),
        }
        Some(list)
    }

    fn granted(&self, number: usize) -> Option<&Granted> {
        self.granted.get(number.checked_rem(self.granted.len())?)
    }

    fn has_slots(&self, charge: &ChargeSpec) -> bool {
        matches!(self.limits[charge.limit].policy(), Policy::Concurrency(_))
    }

    fn has_leases(&self, charge: &ChargeSpec) -> bool {
        let policy = self.limits[charge.limit].policy();
        matches!(policy, Policy::Concurrency(slots) if slots.lease().is_some())
    }

    fn target(&self, charge: &ChargeSpec) -> Target<'_> {
        let today = windows(86_400, u64::try_from(self.now.as_nanos()).unwrap());
        Target::new(&self.limits[charge.limit], keys()[charge.key]).with_windows(today)
    }
}

/// One of the two stores, and the index of its receipts.
#[derive(Clone, Copy, Debug)]
enum Side {
    Memory = 0,
    Shared = 1,
}

/// An operation with its limits looked up.
#[derive(Debug)]
struct List<'l> {
    op: &'l Op,
    granted: Option<&'l Granted>,
    charges: Vec<Charge<'l>>,
    corrections: Vec<Correction<'l>>,
    targets: Vec<Target<'l>>,
}

impl<'l> List<'l> {
    fn operation(&'l self, side: Side) -> Operation<'l> {
        let Self { charges, corrections, targets, .. } = self;
        let receipt = self.granted.map(|granted| &granted.receipts[side as usize]);
        match (self.op, receipt) {
            (Op::Take(_), _) => Operation::Take(charges),
            (Op::Peek(_), _) => Operation::Peek(charges),
            (&Op::Reserve(_, horizon), _) => Operation::Reserve { charges, horizon },
            (Op::Settle(_) | Op::Refund(..), receipt) => Operation::Settle { corrections, receipt },
            (Op::Release(_), Some(receipt)) => Operation::Release { targets, receipt },
            (Op::Renew(_), Some(receipt)) => Operation::Renew { targets, receipt },
            (&Op::Hold(_, span), _) => Operation::Hold { target: targets[0], span },
            (Op::Reset(_), _) => Operation::Reset { target: targets[0] },
            (op, None) => panic!("{op:?} without a receipt"),
        }
    }
}

fn answers(store: &dyn Store, lists: &[List<'_>], side: Side) -> StoreResponses {
    let operations: Vec<Operation<'_>> = lists.iter().map(|list| list.operation(side)).collect();
    let mut answers = StoreResponses::new();
    block_on(store.submit(&operations, &mut answers));
    assert_eq!(answers.len(), operations.len());
    answers
}

/// Keys; scenarios do not use the last one.
fn keys() -> [Key<'static>; 3] {
    [Key::new("k1"), Key::new("k2").in_group("g"), Key::new("unused")]
}

/// An answer as comparable text. Receipts differ between stores, and whether a reset removed anything
/// depends on what a store has already removed.
fn describe(answer: &Result<StoreResponse, StoreError>) -> String {
    match answer {
        Ok(StoreResponse::Decision(decision)) => {
            let grant = decision.clone().granted();
            let start = grant.map(|grant| (grant.wait, grant.receipt.start()));
            format!("{} {:?} {start:?}", decision.is_allowed(), decision.outcomes())
        }
        Ok(StoreResponse::Reset(_)) => "reset".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error_chain(error),
    }
}

fn receipt(answer: Result<StoreResponse, StoreError>) -> Option<Receipt> {
    match answer {
        Ok(StoreResponse::Decision(decision)) => decision.granted().map(|grant| grant.receipt),
        _ => None,
    }
}
