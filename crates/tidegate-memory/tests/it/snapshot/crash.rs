//! A process that is killed while it writes leaves the old file or the new one.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use super::*;

const KEYS: u64 = 20_000;
const KILLS: u64 = 24;

/// Tells the inner run of the test below where to write.
const CHILD: &str = "TIDEGATE_TEST_SNAPSHOT_CHILD";

/// What the killed process does.
fn write_until_killed(path: &str) {
    let (store, limit) = (MemoryStore::builder().build().unwrap(), yearly());
    for number in 0..KEYS {
        assert!(take(&store, &limit, &number.to_string(), 1));
    }
    let mut line = std::io::stdout();
    // More turns than it will live for.
    for _ in 0..100_000 {
        assert_eq!(store.save(path, std::slice::from_ref(&limit)).unwrap().keys, KEYS);
        writeln!(line, "\nsaved").unwrap();
    }
}

/// A limit that no run of this test outlives.
fn yearly() -> Limit {
    let policy = Policy::per(1, secs(31_536_000)).capacity(1).build().unwrap();
    Limit::named("yearly", policy).unwrap()
}

fn child(file: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "snapshot::crash::killing_the_process_during_a_save_never_loses_the_file";
    command.args(["--exact", name, "--nocapture"]).env(CHILD, file);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "tells the inner run of this very test")]
fn killing_the_process_during_a_save_never_loses_the_file() {
    if let Ok(path) = std::env::var(CHILD) {
        return write_until_killed(&path);
    }
    let machine = Machine::new();
    let (file, limit) = (machine.file(), yearly());
    let mut cut_off = 0;
    for kill in 0..KILLS {
        let mut child = child(&file);
        let temporary = machine.temporary_file(child.id());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let said = output.by_ref().lines().map_while(Result::ok).find(|line| line == "saved");
        assert!(said.is_some(), "the child did not save");
        // The output is read to its end temporary_file, so that the child does not wait for us.
        let drained = std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        // Killed when the file is about so long: each time at another place.
        let whole = std::fs::metadata(&file).unwrap().len();
        let long_enough = || {
            let length = std::fs::metadata(&temporary).map_or(0, |about| about.len());
            length >= whole * kill / KILLS && length > 0
        };
        while !long_enough() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drained.join().unwrap().unwrap();
        cut_off += u64::from(temporary.exists());
        let (store, restored) = MemoryStore::builder().restore(&file).unwrap();
        assert_eq!(restored.keys, KEYS);
        assert!(!take(&store, &limit, "7", 1));
        let files = std::fs::read_dir(machine.folder.path()).unwrap().count();
        assert!(files <= 2, "{files} files: each child removes what the last one left");
    }
    assert!(cut_off > 0, "no kill came while the file was written");
}
