//! Requests of a day: all of them anew at midnight, or flowing back all day.

use super::bucket::Bucket;
use super::window::Midnight;
use super::{Gauge, Wait};
use crate::calendar::Now;
use crate::limits::PerDay;

/// The requests of a day.
#[derive(Clone, Debug)]
pub(crate) enum Day {
    /// A day of a calendar.
    Calendar(Midnight),
    /// No day in particular.
    Refilling(Bucket),
}

impl Day {
    pub(crate) fn new(limit: PerDay) -> Self {
        match limit {
            PerDay::UntilMidnight(limit, zone) => Self::Calendar(Midnight::new(limit, zone)),
            PerDay::Refilling(limit) => Self::Refilling(Bucket::of_a_day(limit)),
        }
    }

    pub(crate) fn turn(&mut self, now: Now) {
        match self {
            Self::Calendar(day) => day.turn(now),
            Self::Refilling(bucket) => bucket.refill(now.elapsed),
        }
    }

    pub(crate) fn wait(&self) -> Wait {
        match self {
            Self::Calendar(day) => day.wait(),
            Self::Refilling(bucket) => bucket.wait(1),
        }
    }

    pub(crate) fn take(&mut self) {
        match self {
            Self::Calendar(day) => day.take(),
            Self::Refilling(bucket) => bucket.take(1),
        }
    }

    /// Gives back what was taken at an instant.
    pub(crate) fn give(&mut self, taken: Now) {
        match self {
            Self::Calendar(day) => day.give(taken),
            Self::Refilling(bucket) => bucket.give(1),
        }
    }

    pub(crate) fn gauge(&self) -> Gauge {
        match self {
            Self::Calendar(day) => day.gauge(),
            Self::Refilling(bucket) => bucket.gauge(),
        }
    }

    /// The same, of a day that refills.
    pub(crate) fn refilling(&self) -> Option<Gauge> {
        match self {
            Self::Calendar(_) => None,
            Self::Refilling(bucket) => Some(bucket.gauge()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{DAY, SECOND};

    #[test]
    fn a_day_that_refills_gives_one_back_in_its_part_of_the_day() {
        let at = |elapsed| Now { elapsed, wall: elapsed };
        let mut day = Day::new(PerDay::Refilling(200));
        (0..200).for_each(|_| day.take());
        assert_eq!(day.gauge(), Gauge { limit: 200, remaining: 0, reset: DAY });
        assert_eq!(day.wait(), Wait::For(432 * SECOND));
        day.turn(at(432 * SECOND));
        assert_eq!((day.wait(), day.gauge().remaining), (Wait::Now, 1));
        day.give(at(0));
        assert_eq!(day.refilling().unwrap().remaining, 2);
    }
}
