//! Mixed submissions, beside the in-process store: both answer the same.
//!
//! The random scenarios of the contract ask one thing at a time. Here several operations go with
//! one submission, on a few buckets of every kind whose policies change, with a clock that also
//! steps back; so what one operation leaves to the next within a call is compared as well.

use std::time::Duration;

use tidegate_core::{
    Answer, Answers, Change, Charge, Correction, Key, Limit, Operation, Policy, Receipt, Store,
    StoreError, Target, Time, WallTime,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::ManualClock;
use tidegate_testkit::launch::Flavor;
use tidegate_testkit::property::Effort;
use tidegate_testkit::scenario::random::Random;
use tidegate_testkit::scenario::replay::windows;
use tidegate_testkit::subject::{Subject as _, ask, block_on};

use crate::fixture::{Timed, slow, story};

const DAY: Duration = Duration::from_secs(86_400);
const LIMITS: [&str; 5] = ["la", "lb", "lc", "ld", "le"];
/// Submissions of one story.
const SUBMISSIONS: usize = 60;
/// Receipts that are remembered.
const MOST_HELD: usize = 12;

#[test]
fn one_node_answers_as_the_in_process_store() {
    compare(1);
}

/// Submissions go to two nodes in turn, which both are given every new policy: one of them finds
/// it enrolled and the buckets converted by the other.
#[test]
fn two_nodes_answer_as_the_in_process_store() {
    compare(2);
}

/// Compares some stories; more, and others each time, in a soak.
fn compare(nodes: usize) {
    let effort = Effort::default();
    for seed in (effort.seed..).take(usize::try_from(effort.cases / 120).unwrap()) {
        let mut events = story_of(seed);
        if let Err(difference) = run(&events, nodes) {
            let difference = shrink(&mut events, nodes).unwrap_or(difference);
            let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            panic!("seed {seed}:\n{}\n{difference}", lines.join("\n"));
        }
    }
}

/// Leaves out whatever is not needed for a difference, and returns the last one.
fn shrink(events: &mut Vec<Event>, nodes: usize) -> Option<String> {
    let mut last = None;
    let mut index = events.len();
    while index > 0 {
        index -= 1;
        let whole = events.clone();
        events.remove(index);
        match run(events, nodes) {
            Err(difference) => last = Some(difference),
            Ok(()) => *events = whole,
        }
    }
    last
}

/// One of the buckets, and how much of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    limit: usize,
    key: usize,
    amount: i64,
}

/// What happens. An operation is submitted with those that follow it, up to the next other event.
#[derive(Clone, Debug)]
enum Event {
    Begin(usize, Policy),
    Revise(usize, Policy, Change),
    /// The clock moves; or it steps back.
    Pass(Duration),
    StepBack(Duration),
    Do(Op),
}

/// An operation before its limits are looked up. Receipts are named by a number, of which the
/// remainder counts.
#[derive(Clone, Debug)]
enum Op {
    Take(Vec<Part>),
    Peek(Vec<Part>),
    Reserve(Vec<Part>, Duration),
    Settle(Vec<Part>),
    /// So many parts of eight of what was spent.
    Refund(usize, i64),
    Release(usize),
    Renew(usize),
    Hold(Part, Duration),
    Reset(Part),
}

/// A random story, always the same for one seed.
fn story_of(seed: u64) -> Vec<Event> {
    let mut dice = Dice(Random::new(seed));
    let mut events = Vec::new();
    for limit in 0..LIMITS.len() {
        let kind = dice.index(10);
        events.push(Event::Begin(limit, dice.policy(kind)));
    }
    for _ in 0..SUBMISSIONS {
        events.push(dice.time());
        if dice.index(6) == 0 {
            events.push(dice.revision());
        }
        let count = 1 + dice.index(8);
        events.extend((0..count).map(|_| Event::Do(dice.op())));
    }
    events
}

#[derive(Debug)]
struct Dice(Random);

impl Dice {
    fn index(&mut self, length: usize) -> usize {
        let length = u32::try_from(length).unwrap();
        usize::try_from(self.0.below(length)).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Anything from nothing to days; seldom back.
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
        if self.index(20) == 0 { Event::StepBack(span) } else { Event::Pass(span) }
    }

    fn revision(&mut self) -> Event {
        let limit = self.index(LIMITS.len());
        let kinds = self.pick(&[6, 6, 10]);
        let kind = self.index(kinds);
        let change = self.pick(&[Change::KeepTokens, Change::Proportional, Change::Reset]);
        Event::Revise(limit, self.policy(kind), change)
    }

    /// A policy of one of ten kinds: buckets with rates that do not divide well, one that takes
    /// years to fill, the fastest there is, and what is no bucket.
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
        // A key that is held for a hundred years leaves little to compare.
        if self.index(50) == 0 {
            span = 36_525 * DAY;
        }
        match self.index(14) {
            0..=4 => Op::Take(self.parts()),
            5 => Op::Peek(self.parts()),
            6 | 7 => Op::Reserve(self.parts(), span),
            8 => Op::Refund(self.index(MOST_HELD), self.pick(&[0, 1, 4, 8, 9])),
            9 => Op::Settle(self.corrections()),
            10 => Op::Release(self.index(MOST_HELD)),
            11 => Op::Renew(self.index(MOST_HELD)),
            12 => Op::Hold(self.part(), span),
            _ => Op::Reset(self.part()),
        }
    }

    fn part(&mut self) -> Part {
        let amount = self.pick(&[0, 1, 1, 1, 2, 3, 9, 5_000]);
        Part { limit: self.index(LIMITS.len()), key: self.index(keys().len() - 1), amount }
    }

    fn parts(&mut self) -> Vec<Part> {
        (0..=self.index(3)).map(|_| self.part()).collect()
    }

    fn corrections(&mut self) -> Vec<Part> {
        let mut parts = self.parts();
        for part in &mut parts {
            part.amount *= self.pick(&[1, -1]);
        }
        parts
    }
}

/// A spend that was granted, with the receipt of either store.
#[derive(Debug)]
struct Held {
    parts: Vec<Part>,
    /// Whether each of them was of slots.
    slots: Vec<bool>,
    receipts: [Receipt; 2],
}

/// Both stores and what they share.
#[derive(Debug)]
struct Pair {
    shared: Timed,
    memory: MemoryStore,
    clock: ManualClock,
    now: Duration,
    limits: Vec<Limit>,
    held: Vec<Held>,
}

/// Runs a story on both stores, up to the first difference.
fn run(events: &[Event], nodes: usize) -> Result<(), String> {
    let clock = ManualClock::new();
    let mut pair = Pair {
        shared: block_on(Timed::with_nodes(Flavor::Redis, nodes)),
        memory: MemoryStore::builder().clock(clock.clone()).build().unwrap(),
        clock,
        now: Timed::ORIGIN,
        limits: LIMITS.map(|name| slow(name, 5)).to_vec(),
        held: Vec::new(),
    };
    pair.set_time(Timed::ORIGIN);
    let mut ops: Vec<Op> = Vec::new();
    for event in events.iter().map(Some).chain([None]) {
        if let Some(Event::Do(op)) = event {
            ops.push(op.clone());
            continue;
        }
        pair.both(&std::mem::take(&mut ops))?;
        match event {
            Some(Event::Begin(limit, policy)) => {
                pair.limits[*limit] = Limit::named(LIMITS[*limit], *policy).unwrap();
            }
            // Two nodes that revise a limit to the policy that it has make two revisions of it.
            Some(Event::Revise(limit, policy, _))
                if nodes > 1 && pair.limits[*limit].policy() == policy => {}
            Some(Event::Revise(limit, policy, change)) => {
                pair.limits[*limit] = pair.limits[*limit].revise(*policy, *change).unwrap();
                pair.tell_all(*limit);
            }
            Some(Event::Pass(span)) => pair.set_time(pair.now + *span),
            Some(Event::StepBack(span)) => pair.set_time(pair.now - *span),
            _ => {}
        }
    }
    Ok(())
}

impl Pair {
    fn set_time(&mut self, now: Duration) {
        self.now = now;
        let nanos = u64::try_from(now.as_nanos()).unwrap();
        self.clock.set(Time::from_nanos(nanos));
        self.clock.set_wall(WallTime::from_nanos(nanos));
        self.shared.set(now);
    }

    /// Has every node enrol the newest policy of a limit, by a look at a bucket that nobody uses.
    /// A node that brings several revisions at once enrols what others have enrolled before it.
    fn tell_all(&self, limit: usize) {
        let part = Part { limit, key: keys().len() - 1, amount: 0 };
        let look = [Charge { target: self.target(&part), cost: 0 }];
        for node in self.shared.nodes() {
            block_on(ask(node, Operation::Peek(&look))).unwrap();
        }
    }

    /// Submits operations to both stores and compares their answers.
    fn both(&mut self, ops: &[Op]) -> Result<(), String> {
        let lists: Vec<List<'_>> = ops.iter().filter_map(|op| self.list(op)).collect();
        if lists.is_empty() {
            return Ok(());
        }
        let memory = answers(&self.memory, &lists, Side::Memory);
        let shared = answers(self.shared.store(), &lists, Side::Shared);
        let mut held = Vec::new();
        for ((list, memory), shared) in lists.iter().zip(memory).zip(shared) {
            let (one, other) = (told(&memory), told(&shared));
            if one != other {
                return Err(format!("{:?}\nmemory: {one}\nshared: {other}", list.op));
            }
            if let Op::Take(parts) | Op::Reserve(parts, _) = list.op
                && let (Some(memory), Some(shared)) = (receipt(memory), receipt(shared))
            {
                let slots = parts.iter().map(|part| self.has_slots(part)).collect();
                held.push(Held { parts: parts.clone(), slots, receipts: [memory, shared] });
            }
        }
        self.held.append(&mut held);
        let old = self.held.len().saturating_sub(MOST_HELD);
        self.held.drain(..old);
        Ok(())
    }

    /// What the operation borrows; nothing if it is about a receipt that there is not.
    fn list<'l>(&'l self, op: &'l Op) -> Option<List<'l>> {
        let mut list = List {
            op,
            held: None,
            charges: Vec::new(),
            corrections: Vec::new(),
            targets: Vec::new(),
        };
        let correction = |part: &Part, delta| Correction { target: self.target(part), delta };
        match op {
            // A look at leases that have run out forgets them in the process, and in the server
            // it changes nothing: a clock that steps back tells.
            Op::Peek(parts) if parts.iter().any(|part| self.has_leases(part)) => return None,
            Op::Take(parts) | Op::Peek(parts) | Op::Reserve(parts, _) => {
                let cost = |part: &Part| u64::try_from(part.amount).unwrap();
                let charge = |part| Charge { target: self.target(part), cost: cost(part) };
                list.charges = parts.iter().map(charge).collect();
            }
            Op::Settle(parts) => {
                // Nobody can be given slots by a correction.
                let delta = |part: &Part| {
                    if self.has_slots(part) { 0.min(part.amount) } else { part.amount }
                };
                list.corrections = parts.iter().map(|part| correction(part, delta(part))).collect();
            }
            Op::Refund(number, eighths) => {
                // Slots that come back to what is a bucket by now leave the shared bucket alone,
                // and bring the one in the process up to date: a clock that steps back tells.
                let alike = |held: &&Held| {
                    let mut pairs = held.parts.iter().zip(&held.slots);
                    pairs.all(|(part, slots)| !slots || self.has_slots(part))
                };
                let held = self.held(*number).filter(alike)?;
                let delta = |part: &Part| -(part.amount * eighths + 7) / 8;
                list.corrections =
                    held.parts.iter().map(|part| correction(part, delta(part))).collect();
                list.held = Some(held);
            }
            Op::Release(number) | Op::Renew(number) => {
                let held = self.held(*number)?;
                list.targets = held.parts.iter().map(|part| self.target(part)).collect();
                list.held = Some(held);
            }
            Op::Hold(part, _) | Op::Reset(part) => list.targets.push(self.target(part)),
        }
        Some(list)
    }

    fn held(&self, number: usize) -> Option<&Held> {
        self.held.get(number.checked_rem(self.held.len())?)
    }

    fn has_slots(&self, part: &Part) -> bool {
        matches!(self.limits[part.limit].policy(), Policy::Concurrency(_))
    }

    fn has_leases(&self, part: &Part) -> bool {
        let policy = self.limits[part.limit].policy();
        matches!(policy, Policy::Concurrency(slots) if slots.lease().is_some())
    }

    fn target(&self, part: &Part) -> Target<'_> {
        let today = windows(86_400, u64::try_from(self.now.as_nanos()).unwrap());
        Target::new(&self.limits[part.limit], keys()[part.key]).with_windows(today)
    }
}

/// Which store, and which receipt of a pair.
#[derive(Clone, Copy, Debug)]
enum Side {
    Memory = 0,
    Shared = 1,
}

/// What an operation borrows.
#[derive(Debug)]
struct List<'l> {
    op: &'l Op,
    held: Option<&'l Held>,
    charges: Vec<Charge<'l>>,
    corrections: Vec<Correction<'l>>,
    targets: Vec<Target<'l>>,
}

impl<'l> List<'l> {
    fn operation(&'l self, side: Side) -> Operation<'l> {
        let Self { charges, corrections, targets, .. } = self;
        let receipt = self.held.map(|held| &held.receipts[side as usize]);
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

fn answers(store: &dyn Store, lists: &[List<'_>], side: Side) -> Answers {
    let operations: Vec<Operation<'_>> = lists.iter().map(|list| list.operation(side)).collect();
    let mut answers = Answers::new();
    block_on(store.submit(&operations, &mut answers));
    assert_eq!(answers.len(), operations.len());
    answers
}

/// The last one is not used by stories.
fn keys() -> [Key<'static>; 3] {
    [Key::new("k1"), Key::new("k2").in_group("g"), Key::new("nobody")]
}

/// An answer in words. Receipts are the stores' own, and whether there was something to forget
/// depends on what a store forgets by itself.
fn told(answer: &Result<Answer, StoreError>) -> String {
    match answer {
        Ok(Answer::Decision(decision)) => {
            let grant = decision.clone().granted();
            let start = grant.map(|grant| (grant.wait, grant.receipt.start()));
            format!("{} {:?} {start:?}", decision.is_allowed(), decision.outcomes())
        }
        Ok(Answer::Reset(_)) => "reset".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => story(error),
    }
}

fn receipt(answer: Result<Answer, StoreError>) -> Option<Receipt> {
    match answer {
        Ok(Answer::Decision(decision)) => decision.granted().map(|grant| grant.receipt),
        _ => None,
    }
}
