//! What `serve` prints when it starts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::program::{Serving, run, serve};

/// Lines of a start and a stop with the default configuration.
const MOST_LINES: usize = 9;

/// Starts and stops the program. Returns what it printed on standard error.
fn log(folder: &Path) -> String {
    let ended = Serving::start(&mut serve(folder, &["--database", "none"])).stop("TERM");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    ended.stderr
}

#[test]
fn default_start_prints_a_line_per_listener_and_hints() {
    let here = tempfile::tempdir().unwrap();
    let log = log(here.path());
    let lines: Vec<_> = log.lines().collect();
    assert!(lines.len() <= MOST_LINES, "{} lines: {log}", lines.len());
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("listening listener="), 3, "{log}");
    for hint in ["try: curl ", "base URL for SDKs of LLM providers: ", "documents: https://"] {
        assert_eq!(count(hint), 1, "{hint}: {log}");
    }
    assert_eq!(count("WARN") + count("ERROR"), 0, "{log}");
    assert_eq!(count("listen.resp"), 0, "it was not set: {log}");
}

/// Standard error has no line per provider, limit or model.
#[test]
fn more_objects_print_no_more_lines() {
    let here = tempfile::tempdir().unwrap();
    let few = log(here.path()).lines().count();
    let mut text = String::new();
    for number in 0..20 {
        write!(
            text,
            "[providers.p{number}]\ndialect = \"openai\"\n\
             base_url = \"http://127.0.0.1:9/v1\"\nmax_concurrent_requests = 3\n\
             [limits.l{number}]\ncapacity = 7\nrate = \"1/s\"\n"
        )
        .unwrap();
    }
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let many = log(here.path());
    assert_eq!(many.lines().count(), few, "{many}");
    assert!(many.contains("/p19"), "{many}");
}

#[test]
fn help_names_the_documents_that_the_start_names() {
    let here = tempfile::tempdir().unwrap();
    let log = log(here.path());
    let address = log.lines().find_map(|line| line.strip_prefix("documents: ")).unwrap();
    let help = run(here.path(), &["--help"]).stdout;
    assert!(help.contains(address), "{help}");
    let folder = address.rsplit_once("/tree/main/").unwrap().1;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(root.join(folder).is_dir(), "{folder} is no folder of the repository");
}
