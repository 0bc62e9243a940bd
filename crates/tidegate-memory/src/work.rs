//! Counts the work of decisions, in lines of the table that were locked by this thread. For tests.

use std::cell::Cell;

thread_local! {
    static LOCKED: Cell<u64> = const { Cell::new(0) };
}

/// Counts a locked line.
pub(crate) fn count_line() {
    LOCKED.set(LOCKED.get() + 1);
}

#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Limit, Policy};

    use super::LOCKED;
    use crate::MemoryStore;
    use crate::clock::ManualClock;

    const MEASURED: u64 = 1_000;

    /// The number of lines that `work` locks.
    fn lines(work: impl FnOnce()) -> u64 {
        let before = LOCKED.get();
        work();
        LOCKED.get() - before
    }

    fn key(number: u64) -> String {
        format!("client:{number}")
    }

    /// R174: neither the number of keys nor the time that has passed changes the work of a
    /// decision, and new keys cost a bounded number of lines on average, growth included.
    #[test]
    fn work_depends_neither_on_the_number_of_keys_nor_on_elapsed_time() {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let policy = Policy::per_day(1).capacity(100).build().unwrap();
        let limit = Limit::named("client", policy).unwrap();
        let take = |number| assert!(store.take_one(&limit, (&*key(number)).into(), 1).is_allowed());
        let mut known = 0;
        for keys in [2_000, 20_000, 200_000] {
            let of_new_keys = lines(|| (known..keys).for_each(take));
            let per_key = of_new_keys / (keys - known);
            assert!(per_key <= 12, "{per_key} lines for each new key, up to {keys} keys");
            known = keys;
            for elapsed in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(86_400)] {
                clock.advance(elapsed);
                let known_keys = (0..MEASURED).map(|number| number * (keys / MEASURED));
                let of_known_keys = lines(|| known_keys.for_each(take));
                assert!(
                    of_known_keys <= 2 * MEASURED,
                    "{of_known_keys} lines for {MEASURED} of {keys} keys after {elapsed:?}"
                );
            }
        }
    }
}
