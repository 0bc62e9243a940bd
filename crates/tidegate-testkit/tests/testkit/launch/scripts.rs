//! Running Python scripts.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use tempfile::TempDir;
use tidegate_testkit::launch::Python;

fn script(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.py");
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn a_script_sees_what_it_is_given_and_nothing_else() {
    // Python sets `LC_CTYPE` itself if no locale is configured.
    let text = "import os, sys\nprint(sys.argv[1:], sorted(set(os.environ) - {'LC_CTYPE'}))\n";
    let (_folder, path) = script(text);
    let ran = Python::installed().run(path, &["one", "two"], &[("GREETING", "hello")]);
    assert_eq!(ran.line(), "['one', 'two'] ['GREETING', 'PATH']");
}

#[test]
fn the_clients_are_there() {
    let (_folder, path) = script("import anthropic, jsonschema, ollama, openai\nprint('all')\n");
    assert_eq!(Python::installed().run(path, &[], &[]).line(), "all");
}

#[test]
fn a_script_that_fails_says_why() {
    let (_folder, path) = script("print('so far')\nraise ValueError('low tide')\n");
    let ran = Python::installed().run(path, &[], &[]);
    assert_eq!(ran.status.code(), Some(1));
    let panic = catch_unwind(AssertUnwindSafe(|| ran.line().to_owned())).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("so far") && message.contains("ValueError: low tide"), "{message}");
}
