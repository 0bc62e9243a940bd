//! A process killed during a save leaves either the old or the new file.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use super::*;

const KEYS: u64 = 20_000;
const KILLS: u64 = 24;

/// Tells the child process of the test below where to write.
const CHILD: &str = "TIDEGATE_TEST_SNAPSHOT_CHILD";

/// Runs in the child process.
fn write_until_killed(path: &str) {
    let (store, limit) = (MemoryStore::builder().build().unwrap(), yearly());
    for number in 0..KEYS {
        assert!(take(&store, &limit, &number.to_string(), 1));
    }
    let mut stdout = std::io::stdout();
    // More iterations than it lives for.
    for _ in 0..100_000 {
        assert_eq!(store.save(path, std::slice::from_ref(&limit)).unwrap().keys, KEYS);
        writeln!(stdout, "\nsaved").unwrap();
    }
}

/// A limit that does not refill during this test.
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
#[expect(clippy::disallowed_methods, reason = "selects the child process of this test")]
fn killing_the_process_during_a_save_never_loses_the_file() {
    if let Ok(path) = std::env::var(CHILD) {
        return write_until_killed(&path);
    }
    let machine = Machine::new();
    let (file, limit) = (machine.file(), yearly());
    let mut interrupted = 0;
    for kill in 0..KILLS {
        let mut child = child(&file);
        let temporary = machine.temporary_file(child.id());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let saved = output.by_ref().lines().map_while(Result::ok).find(|line| line == "saved");
        assert!(saved.is_some(), "the child did not save");
        // Drain the output in the background, so that the child does not block.
        let drained = std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        // Kill it when the file has reached a certain length, different each time.
        let whole = std::fs::metadata(&file).unwrap().len();
        let reached_length = || {
            let length = std::fs::metadata(&temporary).map_or(0, |about| about.len());
            length >= whole * kill / KILLS && length > 0
        };
        while !reached_length() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drained.join().unwrap().unwrap();
        interrupted += u64::from(temporary.exists());
        let (store, restored) = MemoryStore::builder().restore(&file).unwrap();
        assert_eq!(restored.keys, KEYS);
        assert!(!take(&store, &limit, "7", 1));
        let files = std::fs::read_dir(machine.folder.path()).unwrap().count();
        assert!(files <= 2, "{files} files: each child removes the leftovers of the last one");
    }
    assert!(interrupted > 0, "no kill hit a file being written");
}
