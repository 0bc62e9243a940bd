//! Loom models of a writer and a reader of the seqlock: a reader uses a consistent conversion or
//! none.

use std::sync::Arc;

use loom::thread;

use super::calibration::{Conversion, Validity};
use super::seqlock::{Reading, SeqLock};

const VALIDITY: Validity = Validity { due: 80, end: 100 };
/// Slope of one nanosecond per tick.
const ONE_NS_PER_TICK: u64 = 1 << 32;

/// Returns the conversion of a sequence number. Mixing two of them gives a time that neither has.
fn conversion(sequence: u64) -> Conversion {
    Conversion {
        ticks: sequence * 100,
        ns: sequence * 1_000,
        slope: ONE_NS_PER_TICK * (sequence + 1),
    }
}

fn time_by(sequence: u64, ticks: u64) -> u64 {
    conversion(sequence).after(ticks - sequence * 100)
}

/// Publishes two conversions while `read` runs. At most three preemptions are explored; more would
/// take too long.
fn with_concurrent_writer(read: fn(&SeqLock)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let seqlock = Arc::new(SeqLock::new(conversion(0), VALIDITY));
        let writer = {
            let seqlock = seqlock.clone();
            thread::spawn(move || {
                seqlock.publish(conversion(1));
                seqlock.publish(conversion(2));
            })
        };
        read(&seqlock);
        writer.join().unwrap();
        assert_eq!(seqlock.at(250), Some(time_by(2, 250)));
        assert_eq!(seqlock.find(190, VALIDITY), Reading::Valid(time_by(1, 190)));
        assert_eq!(seqlock.find(50, VALIDITY), Reading::Unknown);
    });
}

#[test]
fn fast_reader_never_sees_a_torn_conversion() {
    with_concurrent_writer(|seqlock| {
        if let Some(time) = seqlock.at(150) {
            assert_eq!(time, time_by(1, 150));
        }
    });
}

#[test]
fn slow_reader_never_sees_a_torn_conversion() {
    with_concurrent_writer(|seqlock| match seqlock.find(150, VALIDITY) {
        Reading::Valid(time) | Reading::Due(time) => assert_eq!(time, time_by(1, 150)),
        Reading::Unknown => {}
    });
}
