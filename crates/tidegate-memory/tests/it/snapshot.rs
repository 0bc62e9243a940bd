//! Usage survives a restart, and downtime counts as refill.

mod crash;
mod policies;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_core::{
    Charge, Key, Limit, Operation, Policy, StoreResponse, Target, WallTime, Windows,
};
use tidegate_memory::clock::ManualClock;
use tidegate_memory::{MemoryStore, MemoryStoreBuilder, Overflow, Restored, SnapshotError};

/// A directory for a snapshot, and a wall clock that spans several processes.
struct Machine {
    folder: TempDir,
    wall: u64,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), wall: 1_700_000_000_000_000_000 }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("buckets")
    }

    /// Temporary name of the file while a process writes it.
    fn temporary_file(&self, process: u32) -> PathBuf {
        self.folder.path().join(format!("buckets.tmp.{process}"))
    }

    /// Returns the clock of a process that starts now.
    fn clock(&self) -> ManualClock {
        let clock = ManualClock::new();
        clock.set_wall(WallTime::from_nanos(self.wall));
        clock
    }

    fn builder(&self) -> (MemoryStoreBuilder, ManualClock) {
        let clock = self.clock();
        (MemoryStore::builder().max_memory(4 << 20).clock(clock.clone()), clock)
    }

    fn first(&self) -> MemoryStore {
        self.builder().0.build().unwrap()
    }

    /// Starts the next process, `down` after the snapshot.
    fn restart(&mut self, down: Duration) -> (MemoryStore, ManualClock, Restored) {
        self.wall += u64::try_from(down.as_nanos()).unwrap();
        let (builder, clock) = self.builder();
        let (store, restored) = builder.restore(self.file()).unwrap();
        (store, clock, restored)
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One token per second.
fn limit(capacity: u64) -> Limit {
    let policy = Policy::per_second(1).capacity(capacity).build().unwrap();
    Limit::named("client", policy).unwrap()
}

fn take(store: &MemoryStore, limit: &Limit, key: &str, cost: u64) -> bool {
    store.take_one(limit, Key::new(key), cost).is_allowed()
}

fn remaining(store: &MemoryStore, limit: &Limit, key: &str) -> u64 {
    store.take_one(limit, Key::new(key), 0).remaining()
}

#[test]
fn spending_survives_a_restart_and_downtime_refills() {
    let (mut machine, limit) = (Machine::new(), limit(10));
    let store = machine.first();
    assert!(take(&store, &limit, "alice", 10));
    assert!(take(&store, &limit, "bob", 2));
    let saved = store.save(machine.file(), std::slice::from_ref(&limit)).unwrap();
    assert_eq!(saved.keys, 2);
    assert_eq!(saved.bytes, std::fs::metadata(machine.file()).unwrap().len());

    let (store, clock, restored) = machine.restart(secs(3));
    assert_eq!((restored.keys, restored.full, restored.no_room), (1, 1, 0));
    assert_eq!(remaining(&store, &limit, "alice"), 3);
    assert_eq!(remaining(&store, &limit, "bob"), 10);
    assert!(!take(&store, &limit, "alice", 4));
    clock.advance(secs(1));
    assert!(take(&store, &limit, "alice", 4));
    assert!(!take(&store, &limit, "alice", 1));
}

#[test]
fn wall_clock_set_back_counts_as_no_downtime() {
    let (mut machine, limit) = (Machine::new(), limit(10));
    let store = machine.first();
    assert!(take(&store, &limit, "alice", 10));
    store.save(machine.file(), std::slice::from_ref(&limit)).unwrap();
    machine.wall -= 3_600_000_000_000;
    let (store, clock, _) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &limit, "alice"), 0);
    clock.advance(secs(4));
    assert_eq!(remaining(&store, &limit, "alice"), 4);
}

#[test]
fn quotas_allowances_and_holds_are_restored_but_leases_are_not() {
    let mut machine = Machine::new();
    let day = u32::try_from(machine.wall / 1_000_000_000).unwrap();
    let windows = Windows::new([day - 9, day - 5, day + 100, day + 200]);
    let named = |name: &str, policy| Limit::named(name, policy).unwrap();
    let (quota, allowance) =
        (named("quota", Policy::quota(5).unwrap()), named("total", Policy::allowance(5).unwrap()));
    let (held, slots) =
        (limit(5), named("slots", Policy::concurrency(1, Some(secs(900))).unwrap()));
    let spend = |store: &MemoryStore, limit: &Limit, cost| {
        let target = Target { limit, key: "alice".into(), windows };
        let charges = [Charge { target, cost }];
        match store.execute(&Operation::Take(&charges)).unwrap() {
            StoreResponse::Decision(decision) => decision.is_allowed(),
            other => panic!("{other:?}"),
        }
    };
    let store = machine.first();
    for (limit, cost) in [(&quota, 3), (&allowance, 3), (&slots, 1)] {
        assert!(spend(&store, limit, cost));
    }
    let target = Target { limit: &held, key: "alice".into(), windows: None };
    store.execute(&Operation::Hold { target, span: secs(60) }).unwrap();
    let limits = [quota.clone(), allowance.clone(), held.clone(), slots.clone()];
    store.save(machine.file(), &limits).unwrap();

    let (store, clock, restored) = machine.restart(secs(20));
    assert_eq!(restored.keys, 3);
    assert!(!spend(&store, &quota, 3));
    assert!(!spend(&store, &allowance, 3));
    assert!(spend(&store, &slots, 1));
    clock.advance(secs(39));
    assert!(!take(&store, &held, "alice", 1));
    // The bucket is empty after the hold.
    clock.advance(secs(2));
    assert!(take(&store, &held, "alice", 1));
    assert!(!take(&store, &held, "alice", 1));
    store.save(machine.file(), &limits).unwrap();

    // The window of the quota has ended; an allowance has none. The hold has become part of its
    // bucket, which is full again.
    let (store, _, restored) = machine.restart(secs(120));
    assert_eq!((restored.keys, restored.full), (1, 2));
    assert!(!spend(&store, &allowance, 3));
}

#[test]
fn keys_on_shared_buckets_stay_there_after_a_restart() {
    let mut machine = Machine::new();
    let policy = Policy::per(1, secs(36_000)).capacity(1).build().unwrap();
    let limit = Limit::named("hourly", policy).unwrap();
    let store = |machine: &Machine| machine.builder().0.overflow(Overflow::Shared);
    let full = store(&machine).build().unwrap();
    let key = |number: usize| format!("user:{number}");
    let keys = full.stats().max_keys * 2;
    for number in 0..keys {
        take(&full, &limit, &key(number), 1);
    }
    assert!(full.stats().overflowed > 0);
    full.save(machine.file(), std::slice::from_ref(&limit)).unwrap();
    let (again, _, restored) = machine.restart(secs(1));
    assert_eq!(restored.no_room, 0);
    for number in 0..keys {
        assert!(!take(&again, &limit, &key(number), 1), "key {number} lost its debt");
    }
}

#[test]
fn smaller_store_restores_what_fits_and_counts_the_rest() {
    let (machine, limit) = (Machine::new(), limit(1_000));
    let store = machine.first();
    for number in 0..60_000 {
        assert!(take(&store, &limit, &number.to_string(), 1_000));
    }
    assert_eq!(store.save(machine.file(), std::slice::from_ref(&limit)).unwrap().keys, 60_000);
    let small = MemoryStore::builder().max_memory(1 << 20).clock(machine.clock());
    let (small, restored) = small.restore(machine.file()).unwrap();
    assert_eq!(restored.keys + restored.no_room, 60_000);
    assert!(restored.no_room > 20_000, "{restored:?}");
    assert_eq!(small.len() as u64, restored.keys);
    let spent = (0..60_000).filter(|number| remaining(&small, &limit, &number.to_string()) == 0);
    assert!(spent.count() as u64 >= restored.keys);
}

#[test]
fn unusable_file_is_reported_with_the_cause() {
    let (machine, limit) = (Machine::new(), limit(10));
    let restore = || machine.builder().0.restore(machine.file()).map(drop).unwrap_err();
    assert!(matches!(restore(), SnapshotError::NotFound));
    let store = machine.first();
    assert!(take(&store, &limit, "alice", 1));
    store.save(machine.file(), &[limit]).unwrap();
    let whole = std::fs::read(machine.file()).unwrap();
    std::fs::write(machine.file(), &whole[..whole.len() - 1]).unwrap();
    let error = restore();
    assert!(matches!(error, SnapshotError::Damaged { .. }), "{error}");
    std::fs::write(machine.file(), "").unwrap();
    assert!(matches!(restore(), SnapshotError::Damaged { at: 0, .. }));
    std::fs::write(machine.file(), "[limits]").unwrap();
    assert!(matches!(restore(), SnapshotError::NotASnapshot));
    let folder = machine.builder().0.restore(machine.folder.path());
    assert!(matches!(folder, Err(SnapshotError::NotAFile)));
    let nowhere = machine.folder.path().join("missing").join("buckets");
    assert!(matches!(store.save(nowhere, &[]), Err(SnapshotError::Io(_))));
}

#[cfg(unix)]
#[test]
fn file_is_private_and_leftover_temporary_files_are_not_reused() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let machine = Machine::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let elsewhere = machine.folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "not ours").unwrap();
    symlink(&elsewhere, machine.temporary_file(std::process::id())).unwrap();
    machine.first().save(machine.file(), &[]).unwrap();
    assert_eq!(mode(&machine.file()), 0o600);
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "not ours");
    assert_eq!(std::fs::read_dir(machine.folder.path()).unwrap().count(), 2);
}

/// Detecting dead processes requires `/proc`.
#[cfg(target_os = "linux")]
#[test]
fn only_leftovers_of_dead_processes_are_removed() {
    let machine = Machine::new();
    let left = machine.temporary_file(u32::MAX);
    let alive = machine.temporary_file(std::os::unix::process::parent_id());
    let others = ["buckets.tmp", "buckets.tmp.", "buckets.tmp.0123", "buckets2.tmp.4294967295"];
    let others = others.map(|name| machine.folder.path().join(name));
    for path in others.iter().chain([&left, &alive]) {
        std::fs::write(path, "half of it").unwrap();
    }
    machine.first().save(machine.file(), &[]).unwrap();
    assert!(!left.exists());
    assert!(others.iter().chain([&alive]).all(|path| path.exists()));
}

#[test]
fn receipts_do_not_survive_a_restart() {
    let (mut machine, limit) = (Machine::new(), limit(10));
    let store = machine.first();
    let grant = store.take_one(&limit, "alice".into(), 1).granted().unwrap();
    store.save(machine.file(), &[limit]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert_ne!(store.issuer(), grant.receipt.issuer());
}

/// Segments split and move during a save. All keys that existed when it started are in the file.
#[test]
fn save_during_growth_omits_no_key() {
    let mut machine = Machine::new();
    let (store, limit) = (machine.first(), limit(3_600));
    let old = 10_000;
    for number in 0..old {
        assert!(take(&store, &limit, &number.to_string(), 3_600));
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = (old..70_000).take_while(|_| !done.load(std::sync::atomic::Ordering::SeqCst));
            for number in new {
                assert!(take(&store, &limit, &number.to_string(), 1));
            }
        });
        for _ in 0..5 {
            let saved = store.save(machine.file(), std::slice::from_ref(&limit)).unwrap();
            assert!(saved.keys >= old);
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let (store, _clock, _restored) = machine.restart(secs(0));
    for number in 0..old {
        assert_eq!(remaining(&store, &limit, &number.to_string()), 0, "key {number}");
    }
}
