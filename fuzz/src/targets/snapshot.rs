//! Snapshots of the in-process store.
//!
//! Every block of a snapshot has a checksum, which a mutation breaks. So this target computes valid
//! checksums, after the head of a snapshot that the store wrote.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rapidhash::v3::rapidhash_v3;
use tempfile::TempDir;
use tidegate_memory::clock::ManualClock;
use tidegate_memory::{MemoryStore, MemoryStoreBuilder};

/// Magic and format, then the head: a prefix, three numbers, a checksum.
const HEAD: usize = 12 + 5 + 24 + 8;
const CHECKSUM: usize = 8;
/// The kind of the last block.
const END: u8 = 6;

struct Place {
    _folder: TempDir,
    path: PathBuf,
    head: Vec<u8>,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(place());
}

/// The folder of this thread, and the head of a snapshot of an empty store.
fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot");
    store().build().unwrap().save(&path, &[]).unwrap();
    let head = fs::read(&path).unwrap()[..HEAD].to_vec();
    Place { _folder: folder, path, head }
}

fn store() -> MemoryStoreBuilder {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(3_600));
    MemoryStore::builder().max_memory(1 << 20).clock(clock)
}

/// The bytes of a complete file if they start with its magic; otherwise blocks: a kind, two bytes
/// of length, records.
pub(super) fn snapshot(bytes: &[u8]) {
    PLACE.with_borrow(|place| {
        let file =
            if bytes.starts_with(b"TIDESNAP") { bytes.to_vec() } else { sealed(place, bytes) };
        restore(&place.path, &file);
    });
}

/// A rejected file stays unchanged. An accepted one is restored, saved and restored again.
fn restore(path: &Path, file: &[u8]) {
    fs::write(path, file).unwrap();
    let restored = store().restore(path);
    assert_eq!(fs::read(path).unwrap(), file, "restoring has changed the file");
    if let Ok((first, stats)) = restored {
        assert!(first.len() as u64 <= stats.keys, "{} keys of {stats:?}", first.len());
        first.save(path, &[]).unwrap();
        store().restore(path).expect("what was saved is restored");
    }
}

/// The blocks of an input after a valid head, with valid checksums and a valid end.
fn sealed(place: &Place, mut blocks: &[u8]) -> Vec<u8> {
    let mut file = place.head.clone();
    let mut totals = [0_u64; 4];
    while let [kind, low, high, rest @ ..] = blocks {
        let size = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (records, rest) = rest.split_at(size);
        count(*kind, records, &mut totals);
        seal(&mut file, *kind, records);
        blocks = rest;
    }
    seal(&mut file, END, &totals.map(u64::to_le_bytes).concat());
    file
}

/// Appends a block. Its checksum continues that of the previous block.
fn seal(file: &mut Vec<u8>, kind: u8, records: &[u8]) {
    let length = u32::try_from(records.len()).unwrap();
    let before = &file[file.len() - CHECKSUM..];
    let block = [before, &[kind], &length.to_le_bytes(), records].concat();
    file.extend_from_slice(&block[CHECKSUM..]);
    file.extend_from_slice(&rapidhash_v3(&block).to_le_bytes());
}

/// Counts the records of a block like the last block of a file; a block of limits counts as one.
fn count(kind: u8, records: &[u8], totals: &mut [u64; 4]) {
    let [cells, holds, shared, limits] = totals;
    let size = records.len() as u64;
    match (kind, records) {
        (2, _) => *cells += size / 25,
        (3, _) => *holds += size / 28,
        (4, [low, high, ..]) => {
            let identity = u64::from(u16::from_le_bytes([*low, *high]));
            *shared += size.saturating_sub(2 + identity) / 19;
        }
        (5, [_, ..]) => *limits += 1,
        _ => {}
    }
}
