//! Conversion between the store's time and wall time.
//!
//! The clock of a store starts with its process, so files contain wall time. A reading of both
//! clocks at the same moment gives the difference.

use tidegate_core::{ExactTime, Now, State, Time, WallTime};

/// Converts a state for saving: the arrival time of a bucket to wall time.
pub(super) fn to_wall(state: State, at: Now) -> State {
    shifted(state, |ns| wall_of(Time::from_nanos(ns), at).as_nanos())
}

/// Converts a restored state: the arrival time of a bucket to the store's time.
pub(super) fn to_store(state: State, at: Now) -> State {
    shifted(state, |ns| time_of(WallTime::from_nanos(ns), at).as_nanos())
}

/// Returns the wall time of an instant.
pub(super) fn wall_of(time: Time, at: Now) -> WallTime {
    WallTime::from_nanos(moved(time.as_nanos(), at.time.as_nanos(), at.wall.as_nanos()))
}

/// Returns the instant of a wall time.
pub(super) fn time_of(wall: WallTime, at: Now) -> Time {
    Time::from_nanos(moved(wall.as_nanos(), at.wall.as_nanos(), at.time.as_nanos()))
}

/// Shifts `ns` by the difference between `from` and `to`, saturating.
const fn moved(ns: u64, from: u64, to: u64) -> u64 {
    if ns >= from { to.saturating_add(ns - from) } else { to.saturating_sub(from - ns) }
}

fn shifted(state: State, shift: impl FnOnce(u64) -> u64) -> State {
    match state {
        State::Bucket(ExactTime { ns, part }) => State::Bucket(ExactTime { ns: shift(ns), part }),
        // Calendar windows already end in wall time, and other states contain no time.
        other => other,
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn at(time: u64, wall: u64) -> Now {
        Now { time: Time::from_nanos(time), wall: WallTime::from_nanos(wall) }
    }

    #[test]
    fn remaining_wait_shrinks_by_the_downtime() {
        let tat = State::Bucket(ExactTime { ns: 1_500, part: 7 });
        let written = to_wall(tat, at(1_000, 90_000));
        assert_eq!(written, State::Bucket(ExactTime { ns: 90_500, part: 7 }));
        let read = to_store(written, at(5, 90_200));
        assert_eq!(read, State::Bucket(ExactTime { ns: 305, part: 7 }));
    }

    #[test]
    fn conversion_saturates() {
        assert_eq!(wall_of(Time::from_nanos(u64::MAX), at(0, 9)), WallTime::from_nanos(u64::MAX));
        assert_eq!(time_of(WallTime::from_nanos(3), at(1, 9)), Time::ZERO);
    }
}
