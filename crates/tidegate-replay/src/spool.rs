//! Events in a temporary file, for several passes over one log.
//!
//! Standard input can be read only once, and a log is much slower to read than its events: 20 bytes
//! each, in a file without a name that disappears with the program.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use tidegate_core::Time;

use crate::error::ReplayError;
use crate::event::{Event, EventSink};

const RECORD: usize = 20;
/// Events per read, and per report of progress.
const BATCH: usize = 16 * 1024;

/// Events on disk.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    events: u64,
}

impl Spool {
    /// Creates an empty temporary file.
    ///
    /// # Errors
    /// If that fails.
    pub fn new() -> Result<Self, ReplayError> {
        let file = tempfile::tempfile().map_err(ReplayError::Spool)?;
        Ok(Self { file: BufWriter::with_capacity(BATCH * RECORD, file), events: 0 })
    }

    /// Returns the number of events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Passes every event to `each`, in order, and the number of those passed to `progress`.
    ///
    /// # Errors
    /// If the file cannot be written or read.
    pub fn pass(
        &mut self,
        progress: &mut dyn FnMut(u64),
        mut each: impl FnMut(Event),
    ) -> Result<(), ReplayError> {
        self.rewind().map_err(ReplayError::Spool)?;
        let mut source = BufReader::with_capacity(BATCH * RECORD, self.file.get_ref());
        let mut batch = vec![0; BATCH * RECORD];
        let mut left = self.events;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(BATCH).min(BATCH);
            let bytes = &mut batch[..count * RECORD];
            source.read_exact(bytes).map_err(ReplayError::Spool)?;
            let (records, _) = bytes.as_chunks::<RECORD>();
            records.iter().map(decode).for_each(&mut each);
            left -= count as u64;
            progress(count as u64);
        }
        Ok(())
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().seek(SeekFrom::Start(0)).map(drop)
    }
}

impl EventSink for Spool {
    #[inline]
    fn event(&mut self, event: Event) -> io::Result<()> {
        self.events += 1;
        self.file.write_all(&encode(event))
    }
}

fn encode(event: Event) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..4].copy_from_slice(&event.key.to_le_bytes());
    record[4..12].copy_from_slice(&event.time.as_nanos().to_le_bytes());
    record[12..].copy_from_slice(&event.cost.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD]) -> Event {
    let mut key = [0; 4];
    let (mut time, mut cost) = ([0; 8], [0; 8]);
    key.copy_from_slice(&record[..4]);
    time.copy_from_slice(&record[4..12]);
    cost.copy_from_slice(&record[12..]);
    Event {
        key: u32::from_le_bytes(key),
        time: Time::from_nanos(u64::from_le_bytes(time)),
        cost: u64::from_le_bytes(cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_has_all_events_in_order() {
        let event = |n: u64| Event {
            key: u32::MAX - u32::try_from(n).unwrap(),
            time: Time::from_nanos(u64::MAX - n),
            cost: n << 40,
        };
        for count in [0, 1, BATCH as u64, 3 * BATCH as u64 + 7] {
            let mut spool = Spool::new().unwrap();
            (0..count).for_each(|n| spool.event(event(n)).unwrap());
            for _ in 0..2 {
                let (mut next, mut reported) = (0, 0);
                spool
                    .pass(&mut |events| reported += events, |found| {
                        assert_eq!(found, event(next));
                        next += 1;
                    })
                    .unwrap();
                assert_eq!((next, reported, spool.events()), (count, count, count));
            }
        }
    }
}
