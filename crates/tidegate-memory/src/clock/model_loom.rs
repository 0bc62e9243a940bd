//! Every interleaving of one who corrects the clock and one who reads it, by loom: a reader goes by
//! a whole line or by none.

use std::sync::Arc;

use loom::thread;

use super::calibration::{Line, Reach};
use super::seqlock::{Found, SeqLock};

const REACH: Reach = Reach { due: 80, end: 100 };
/// A tick takes a nanosecond.
const SLOPE: u64 = 1 << 32;

/// The line of a turn. Of halves of two lines no time comes out that either of them has.
fn line(turn: u64) -> Line {
    Line { ticks: turn * 100, ns: turn * 1_000, slope: SLOPE * (turn + 1) }
}

fn by(turn: u64, ticks: u64) -> u64 {
    line(turn).after(ticks - turn * 100)
}

/// Two lines are published while `read` runs. Threads are interrupted three times at most, else
/// there are too many ways.
fn while_corrected(read: fn(&SeqLock)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let lines = Arc::new(SeqLock::new(line(0), REACH));
        let writer = {
            let lines = lines.clone();
            thread::spawn(move || {
                lines.publish(line(1));
                lines.publish(line(2));
            })
        };
        read(&lines);
        writer.join().unwrap();
        assert_eq!(lines.at(250), Some(by(2, 250)));
        assert_eq!(lines.find(190, REACH), Found::At(by(1, 190)));
        assert_eq!(lines.find(50, REACH), Found::Nowhere);
    });
}

#[test]
fn a_reader_never_sees_half_of_a_line() {
    while_corrected(|lines| {
        if let Some(time) = lines.at(150) {
            assert_eq!(time, by(1, 150));
        }
    });
}

#[test]
fn a_reader_on_the_long_way_never_sees_half_of_a_line() {
    while_corrected(|lines| match lines.find(150, REACH) {
        Found::At(time) | Found::Due(time) => assert_eq!(time, by(1, 150)),
        Found::Nowhere => {}
    });
}
