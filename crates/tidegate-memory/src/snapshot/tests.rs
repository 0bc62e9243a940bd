//! Snapshots round-trip, and any other content is an error: never a panic, and never more memory
//! than a block.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::{ExactTime, Policy, PolicyChange, Rate, State, WallTime};

use super::SnapshotError;
use super::format::{MAX_BLOCK, Records, Writer};
use super::history::{History, RestoredLimits};
use super::reader::Reader;
use super::records::{FileHeader, SavedCell, SavedHold, SavedLimit, SavedShared};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    header: FileHeader,
    cells: Vec<SavedCell>,
    holds: Vec<SavedHold>,
    shared: Vec<(String, Vec<SavedShared>)>,
    limits: Vec<SavedLimit>,
}

impl Image {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, self.header).unwrap();
        self.cells.iter().for_each(|cell| writer.cell(cell).unwrap());
        self.holds.iter().for_each(|hold| writer.hold(hold).unwrap());
        for (identity, buckets) in &self.shared {
            writer.shared(identity, buckets).unwrap();
        }
        for SavedLimit { identity, history } in &self.limits {
            writer.limit(identity, history).unwrap();
        }
        let (totals, length) = writer.finish().unwrap();
        assert_eq!((totals.cells, length), (self.cells.len() as u64, bytes.len() as u64));
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut reader = Reader::new(bytes)?;
        let header = reader.header();
        let (cells, holds, shared, limits) = (vec![], vec![], vec![], vec![]);
        let mut image = Self { header, cells, holds, shared, limits };
        while let Some(records) = reader.next()? {
            match records {
                Records::Cells(cells) => image.cells.extend(cells),
                Records::Holds(holds) => image.holds.extend(holds),
                Records::Shared(identity, buckets) => match image.shared.last_mut() {
                    Some((last, known)) if *last == identity => known.extend(buckets),
                    _ => image.shared.push((identity, buckets)),
                },
                Records::Limits(limits) => image.limits.extend(limits),
            }
        }
        Ok(image)
    }
}

fn states() -> impl Strategy<Value = State> {
    prop_oneof![
        any::<(u64, u32)>().prop_map(|(ns, part)| State::Bucket(ExactTime { ns, part })),
        any::<(u32, u64)>().prop_map(|(ends, used)| State::Quota { ends, used }),
        any::<u64>().prop_map(|used| State::Allowance { used }),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let second = 1_000_000_000_u64;
    prop_oneof![
        (1_u32.., 1..second, 1_u64..1_000, 0_u64..1_000, 0..second).prop_filter_map(
            "a valid policy",
            |(tokens, period, capacity, max_debt, horizon)| {
                let rate = Rate::per(tokens.into(), Duration::from_nanos(period)).ok()?;
                let policy = Policy::rate(rate).capacity(capacity).max_debt(max_debt);
                policy.max_horizon(Duration::from_nanos(horizon)).build().ok()
            }
        ),
        (1_u64..).prop_map(|amount| Policy::quota(amount).unwrap()),
        (1_u64..).prop_map(|amount| Policy::allowance(amount).unwrap()),
        (1_u64.., prop::option::of(1..second)).prop_map(|(slots, lease)| {
            Policy::concurrency(slots, lease.map(Duration::from_nanos)).unwrap()
        }),
    ]
}

fn limits() -> impl Strategy<Value = SavedLimit> {
    let changes = prop::sample::select(vec![
        PolicyChange::KeepTokens,
        PolicyChange::Proportional,
        PolicyChange::Reset,
    ]);
    ("[a-z][a-z0-9_.-]{0,127}", vec((1_u32..1_000, policies(), changes), 0..40)).prop_map(
        |(identity, spans)| {
            let (mut history, mut from) = (History::default(), 0);
            for (step, policy, change) in spans {
                from += step;
                assert!(history.push(from, policy, change));
            }
            SavedLimit { identity, history }
        },
    )
}

fn images() -> impl Strategy<Value = Image> {
    let header = any::<(u64, u64)>()
        .prop_map(|(wall, seed)| FileHeader { wall: WallTime::from_nanos(wall), seed });
    let cell = (any::<u64>(), states(), any::<u32>())
        .prop_map(|(fingerprint, state, version)| SavedCell { fingerprint, state, version });
    let hold = any::<(u64, u64, u64, u32)>().prop_map(|(hash, until, lapses, version)| {
        let (until, lapses) = (WallTime::from_nanos(until), WallTime::from_nanos(lapses));
        SavedHold { hash, until, lapses, version }
    });
    let bucket = (any::<u16>(), states(), any::<u32>())
        .prop_map(|(bucket, state, version)| SavedShared { bucket, state, version });
    let shared = prop::collection::btree_map("[a-z ]{1,40}", vec(bucket, 1..20), 0..4);
    let parts = (vec(cell, 0..60), vec(hold, 0..20), shared, vec(limits(), 0..4));
    (header, parts).prop_map(|(header, (cells, holds, shared, limits))| Image {
        header,
        cells,
        holds,
        shared: shared.into_iter().collect(),
        limits,
    })
}

proptest! {
    #[test]
    fn snapshot_round_trips(image in images()) {
        prop_assert_eq!(Image::decode(&image.encode()).unwrap(), image);
    }

    #[test]
    fn changed_byte_is_detected(
        image in images(),
        place in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let mut bytes = image.encode();
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        prop_assert!(Image::decode(&bytes).is_err(), "byte {}", place);
    }

    #[test]
    fn truncated_or_extended_file_is_detected(
        image in images(),
        place in any::<prop::sample::Index>(),
        more in vec(any::<u8>(), 1..40),
    ) {
        let mut bytes = image.encode();
        let shorter = &bytes[..place.index(bytes.len())];
        prop_assert!(Image::decode(shorter).is_err());
        bytes.extend(more);
        prop_assert!(Image::decode(&bytes).is_err());
    }

    /// Anyone who knows the checksum can write anything; it must not cause more than an error.
    #[test]
    fn arbitrary_records_with_a_valid_checksum_do_not_panic(
        kind in 0_u8..9,
        records in vec(any::<u8>(), 1..600),
        pieces in vec(0_u8..8, 0..40),
    ) {
        for records in [records, pieces] {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, header()).unwrap();
            writer.raw(kind, &records).unwrap();
            writer.finish().unwrap();
            if let Ok(image) = Image::decode(&bytes) {
                prop_assert!(image.cells.len() + image.holds.len() <= records.len());
            }
        }
    }
}

fn header() -> FileHeader {
    FileHeader { wall: WallTime::from_secs(5), seed: 7 }
}

fn empty() -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, header()).unwrap().finish().unwrap();
    bytes
}

#[test]
fn blocks_of_two_files_cannot_be_mixed() {
    let cell = |fingerprint| SavedCell {
        fingerprint,
        state: State::Allowance { used: fingerprint },
        version: 1,
    };
    let image = |from: u64| Image {
        header: header(),
        cells: (from..from + 9_000).map(cell).collect(),
        holds: vec![],
        shared: vec![],
        limits: vec![],
    };
    let (one, other) = (image(1), image(2));
    let (bytes, mut mixed) = (one.encode(), other.encode());
    assert_eq!(Image::decode(&bytes).unwrap(), one);
    // Replace the second block with that of the other file; each is valid on its own. Before it are
    // magic and format, the header with three numbers, and 13 bytes per block.
    let block = 13 + MAX_BLOCK / SavedCell::BYTES * SavedCell::BYTES;
    let second = 12 + 13 + 24 + block..12 + 13 + 24 + 2 * block;
    mixed[second.clone()].copy_from_slice(&bytes[second]);
    assert!(matches!(Image::decode(&mixed), Err(SnapshotError::Damaged { .. })));
}

#[test]
fn oversized_block_length_is_rejected() {
    let mut bytes = empty();
    // The length of the header block, after magic, format and kind.
    bytes[13..17].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = Image::decode(&bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::Damaged { at: 12, .. }), "{error}");
}

#[test]
fn foreign_files_formats_and_hashes_have_their_own_errors() {
    for other in [&b"{}"[..], b"TIDETABLE", b"TIDESNAq\x01\0\0\0"] {
        assert!(matches!(Image::decode(other), Err(SnapshotError::NotASnapshot)), "{other:?}");
    }
    for truncated in [&b""[..], b"TIDE", b"TIDESNAP", b"TIDESNAP\x02\0\0"] {
        let error = Image::decode(truncated).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged { at: 0, .. }), "{truncated:?}: {error}");
    }
    assert!(matches!(Image::decode(b"SQLite format 3"), Err(SnapshotError::NotASnapshot)));
    let mut later = empty();
    later[8] = 2;
    assert!(matches!(Image::decode(&later), Err(SnapshotError::Format(2))));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header()).unwrap();
    writer.corrupt_hash_check();
    writer.finish().unwrap();
    assert!(matches!(Image::decode(&bytes), Err(SnapshotError::OtherHash)));
}

/// Versions increase with every restart. A reader needs only those at which a limit changed, and
/// has a bounded number of bits for them.
#[test]
fn versions_are_renumbered_and_the_oldest_are_forgotten() {
    let policy = |capacity| Policy::per_second(1).capacity(capacity).build().unwrap();
    let limit = |identity: &str, spans: &[(u32, u64)]| {
        let mut history = History::default();
        for &(from, capacity) in spans {
            assert!(history.push(from, policy(capacity), PolicyChange::KeepTokens));
        }
        SavedLimit { identity: identity.to_owned(), history }
    };
    let limits = [limit("a", &[(10, 1), (900, 2), (5_000, 3)]), limit("b", &[(700, 4)])];
    let at = |restored_limits: &RestoredLimits, identity: &str, version: u32| {
        let spans = restored_limits.get(identity).and_then(|history| history.since(version));
        spans.map(|spans| spans[0].policy)
    };
    let (restored_limits, versions) = RestoredLimits::new(&limits, 100);
    for (old, a, b) in [
        (9, None, None),
        (10, Some(1), None),
        (899, Some(1), Some(4)),
        (900, Some(2), Some(4)),
        (9_999, Some(3), Some(4)),
    ] {
        let version = versions.get(old);
        assert!(version < restored_limits.version_of(0));
        assert_eq!(at(&restored_limits, "a", version), a.map(policy), "a at {old}");
        assert_eq!(at(&restored_limits, "b", version), b.map(policy), "b at {old}");
    }
    let (restored_limits, versions) = RestoredLimits::new(&limits, 2);
    for (old, a, b) in
        [(10, None, None), (800, None, None), (900, Some(2), Some(4)), (5_000, Some(3), Some(4))]
    {
        assert_eq!(at(&restored_limits, "a", versions.get(old)), a.map(policy), "a at {old}");
        assert_eq!(at(&restored_limits, "b", versions.get(old)), b.map(policy), "b at {old}");
    }
}
