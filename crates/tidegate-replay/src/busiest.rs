//! The busiest window of each key: seconds or minutes that start at whole ones in UTC.
//!
//! A line that is earlier than its key's present window counts in the present window.

use std::io;
use std::time::Duration;

use crate::event::{Event, EventSink};

/// One key: the number of its present window, the cost in it, and the largest cost in any window.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    present: u64,
    cost: u64,
    largest: u64,
}

/// Finds the largest cost of each key in any window.
#[derive(Clone, Debug)]
pub struct BusiestWindows {
    width: u64,
    keys: Vec<Windows>,
}

impl BusiestWindows {
    /// Creates a sink for windows of this width.
    #[must_use]
    pub fn new(width: Duration) -> Self {
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { width, keys: Vec::new() }
    }

    /// Returns the largest cost of each key in a window.
    pub fn largest(&self) -> impl Iterator<Item = u64> + '_ {
        self.keys.iter().map(|key| key.largest)
    }
}

impl EventSink for BusiestWindows {
    #[inline]
    fn event(&mut self, event: Event) -> io::Result<()> {
        let key = event.key as usize;
        if key >= self.keys.len() {
            self.keys.resize(key + 1, Windows::default());
        }
        let windows = &mut self.keys[key];
        let window = event.time.as_nanos() / self.width;
        if window > windows.present {
            (windows.present, windows.cost) = (window, 0);
        }
        windows.cost = windows.cost.saturating_add(event.cost);
        windows.largest = windows.largest.max(windows.cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Time;

    use super::*;

    #[test]
    fn windows_are_whole_and_late_lines_stay_in_the_present_one() {
        let mut busiest = BusiestWindows::new(Duration::from_secs(60));
        for (second, key, cost) in
            [(59, 0, 5), (60, 0, 3), (119, 0, 3), (1, 0, 1), (120, 0, 6), (7, 1, 2)]
        {
            let time = Time::from_nanos(second * 1_000_000_000);
            busiest.event(Event { key, time, cost }).unwrap();
        }
        assert_eq!(busiest.largest().collect::<Vec<_>>(), [7, 2]);
    }
}
