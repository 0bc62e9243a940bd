//! Behaviour specific to SQLite: creation, replaced, read-only and damaged files, killed writers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_server::{
    AuditEntry, ChangeOrigin, Database, DatabaseError, MigrationResult, SettingUpdate,
    StoredSettings,
};
use tidegate_testkit::launch::{Peer, unprivileged, wait_until};

use super::{note, set};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.db");
    (folder, path)
}

fn permissions(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[tokio::test]
async fn the_first_write_creates_a_private_file() {
    let (folder, _) = folder();
    let path = folder.path().join("state/of/tidegate.db");
    let database = Database::sqlite(&path);
    assert_eq!(database.read().await.unwrap(), StoredSettings::default());
    assert_eq!(database.history(10).await.unwrap(), []);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was created");

    set(&database, "a", "1").await.unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("state")), 0o700);
    let log = path.with_file_name("tidegate.db-wal");
    assert_eq!(mode(&log), 0o600, "the log of changes is as private as the file");
    let path = folder.path().join("by-command/tidegate.db");
    let migrated = Database::sqlite(path).migrate().await.unwrap();
    assert_eq!(migrated, MigrationResult { from: None, to: 1, backup: None });
}

#[test]
fn a_read_only_disk_can_be_read_but_not_written() {
    let (folder, path) = folder();
    block_on(async { set(&Database::sqlite(&path), "a", "1").await.unwrap() });
    permissions(&path, 0o444);
    permissions(folder.path(), 0o555);
    unprivileged(|| {
        block_on(async {
            let database = Database::sqlite(&path);
            assert_eq!(database.read().await.unwrap().settings["a"], "1");
            assert_eq!(database.history(1).await.unwrap().len(), 1);
            let written = set(&database, "a", "2").await;
            assert!(matches!(written, Err(DatabaseError::ReadOnly)), "{written:?}");
            assert_eq!(database.read().await.unwrap().settings["a"], "1");

            let nowhere = Database::sqlite(path.with_file_name("new/tidegate.db"));
            assert_eq!(nowhere.read().await.unwrap(), StoredSettings::default());
            let written = set(&nowhere, "a", "2").await;
            assert!(matches!(written, Err(DatabaseError::ReadOnly)), "{written:?}");
        });
    });
    permissions(folder.path(), 0o755);
}

#[test]
fn changes_in_the_log_of_a_read_only_disk_are_not_hidden() {
    let (_folder, path) = folder();
    // What a killed writer leaves: the log has changes that are not in the file.
    let read_copy = |endings: &[&str]| {
        let (disk, copy) = folder();
        for ending in endings {
            let [from, to] = [&path, &copy].map(|path| format!("{}{ending}", path.display()));
            fs::copy(from, &to).unwrap();
            permissions(Path::new(&to), 0o444);
        }
        permissions(disk.path(), 0o555);
        let read = unprivileged(|| block_on(Database::sqlite(&copy).read()));
        permissions(disk.path(), 0o755);
        read
    };
    block_on(async {
        let writer = Database::sqlite(&path);
        set(&writer, "a", "1").await.unwrap();
        assert_eq!(read_copy(&["", "-wal", "-shm"]).unwrap().settings["a"], "1");
        // Without its index the log cannot be read there, and the file alone is outdated.
        let refused = read_copy(&["", "-wal"]).unwrap_err();
        assert!(matches!(refused, DatabaseError::Unavailable(_)), "{refused}");
        assert!(refused.to_string().contains("-wal"), "{refused}");
    });
}

#[tokio::test]
async fn foreign_files_are_refused_and_unchanged() {
    let (_folder, path) = folder();
    fs::write(&path, "this is no database, and quite certainly not ours; ".repeat(40)).unwrap();
    let before = fs::read(&path).unwrap();
    let read = Database::sqlite(&path).read().await;
    assert!(matches!(read, Err(DatabaseError::Damaged(_))), "{read:?}");
    let written = set(&Database::sqlite(&path), "a", "1").await;
    assert!(matches!(written, Err(DatabaseError::Damaged(_))), "{written:?}");
    assert_eq!(fs::read(&path).unwrap(), before);

    let (_folder, path) = folder();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE addresses (name TEXT)").unwrap();
    let read = Database::sqlite(&path).read().await;
    assert!(matches!(read, Err(DatabaseError::Foreign)), "{read:?}");
    let written = set(&Database::sqlite(&path), "a", "1").await;
    assert!(matches!(written, Err(DatabaseError::Foreign)), "{written:?}");
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused() {
    let (_folder, path) = folder();
    let database = Database::sqlite(&path);
    set(&database, "a", "1").await.unwrap();
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.execute("UPDATE tidegate_meta SET format = 9", []).unwrap();
    for error in [
        database.read().await.unwrap_err(),
        set(&database, "a", "2").await.unwrap_err(),
        database.history(1).await.unwrap_err(),
        database.migrate().await.unwrap_err(),
    ] {
        assert!(matches!(error, DatabaseError::NewFormat { found: 9, known: 1 }), "{error}");
    }
    newer.execute("DELETE FROM tidegate_meta", []).unwrap();
    let read = database.read().await;
    assert!(matches!(read, Err(DatabaseError::Damaged(_))), "{read:?}");
}

#[tokio::test]
async fn a_replaced_file_is_detected() {
    let (folder, path) = folder();
    let database = Database::sqlite(&path);
    set(&database, "a", "1").await.unwrap();
    let other = folder.path().join("other.db");
    for value in ["2", "3"] {
        set(&Database::sqlite(&other), "a", value).await.unwrap();
    }
    fs::remove_file(path.with_file_name("tidegate.db-wal")).unwrap();
    fs::rename(&other, &path).unwrap();
    let changed = database.changed(1).await;
    assert_eq!((changed.revision, changed.settings["a"].as_str()), (2, "3"));
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(database.changed(2).await, StoredSettings::default());
    assert_eq!(set(&database, "a", "4").await.unwrap().revision, 1);
}

const PEER: &str = "TIDEGATE_TEST_DATABASE";
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Sets three keys to the revision number forever, and records each acknowledged write.
async fn write_forever(path: &Path) {
    use std::io::Write as _;
    let database = Database::sqlite(path);
    let acknowledged = path.with_extension("acknowledged");
    let mut acknowledged =
        fs::File::options().create(true).append(true).open(acknowledged).unwrap();
    let mut revision = database.read().await.unwrap().revision;
    loop {
        let next = (revision + 1).to_string();
        let changes = KEYS.map(|key| SettingUpdate::set(key, next.clone()));
        let note = ChangeOrigin { door: "cli", who: None };
        revision = database.write(&changes, &note, Some(revision)).await.unwrap().revision;
        // In one write: a kill between the number and the newline would join two numbers.
        acknowledged.write_all(format!("{revision}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_killed_writer_loses_no_acknowledged_write_and_leaves_no_partial_one() {
    if let Some(path) = Peer::env_var(PEER) {
        return block_on(write_forever(Path::new(&path)));
    }
    let here = "database::sqlite::\
                a_killed_writer_loses_no_acknowledged_write_and_leaves_no_partial_one";
    let (_folder, path) = folder();
    let acknowledged = || {
        let text = fs::read_to_string(path.with_extension("acknowledged")).unwrap_or_default();
        text.lines().last().map_or(0, |line| line.parse::<u64>().unwrap())
    };
    for round in 1..=12 {
        let before = acknowledged();
        let mut peer = Peer::spawn(here, &[(PEER, path.to_str().unwrap())]);
        wait_until("some writes", || (acknowledged() >= before + round).then_some(()));
        peer.kill();

        let (stored, history) = block_on(async {
            let database = Database::sqlite(&path);
            (database.read().await.unwrap(), database.history(1_000).await.unwrap())
        });
        let acknowledged = acknowledged();
        // The last write may have been committed without being acknowledged.
        let revision = stored.revision;
        assert!((acknowledged..=acknowledged + 1).contains(&revision), "{acknowledged} {revision}");
        for key in KEYS {
            assert_eq!(stored.settings[key], revision.to_string());
        }
        assert_consistent(&stored, &history);
    }
}

/// Every revision of the trail has all of its changes, and it leads to what is stored.
fn assert_consistent(stored: &StoredSettings, history: &[AuditEntry]) {
    let whole = history.len() / KEYS.len();
    for (changes, revision) in history.chunks_exact(KEYS.len()).zip((0..=stored.revision).rev()) {
        for (change, key) in changes.iter().zip(KEYS.iter().rev()) {
            assert_eq!((change.revision, change.key.as_str()), (revision, *key));
            assert_eq!(change.new, Some(revision.to_string()));
            let old = revision.checked_sub(1).filter(|old| *old > 0);
            assert_eq!(change.old, old.map(|old| old.to_string()));
        }
    }
    let told = u64::try_from(whole).unwrap();
    assert!(told == stored.revision || history.len() == 1_000, "{told} of {}", stored.revision);
}

#[tokio::test]
async fn a_writing_process_does_not_block_readers() {
    let (_folder, path) = folder();
    let database = Database::sqlite(&path);
    set(&database, "a", "1").await.unwrap();
    let mut other = rusqlite::Connection::open(&path).unwrap();
    let writing = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
    let writing = writing.unwrap();
    writing.execute("DELETE FROM tidegate_setting", []).unwrap();
    assert_eq!(database.read().await.unwrap().settings["a"], "1");
    writing.rollback().unwrap();
    assert_eq!(set(&database, "a", "2").await.unwrap().revision, 2);
    assert_eq!(database.write(&[], &note(), None).await.unwrap().settings["a"], "2");
}
