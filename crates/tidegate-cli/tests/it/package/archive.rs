//! The archive.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_testkit::launch::Python;

use super::{Packages, run};
use crate::deploy::root;
use crate::program::Serving;

/// Unpacks the archive into an empty folder. Returns it with the folder in the archive.
fn unpack() -> (TempDir, PathBuf) {
    let here = tempfile::tempdir().unwrap();
    let archive = Packages::get().ending(".tar.gz");
    run(Command::new("tar").arg("-xf").arg(&archive).current_dir(&here));
    let name = archive.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    let folder = here.path().join(name);
    (here, folder)
}

#[test]
fn the_unpacked_program_serves_with_the_example_configuration() {
    let (_here, folder) = unpack();
    let work = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder.join("bin/tidegate"));
    command.args(["serve", "--state-dir", "state", "--config"]).arg(folder.join("tidegate.toml"));
    for listener in ["--http", "--admin", "--grpc"] {
        command.args([listener, "127.0.0.1:0"]);
    }
    command.env_clear().current_dir(&work).stdout(std::process::Stdio::piped());
    let serving = Serving::start(command.stderr(std::process::Stdio::piped()));
    let (status, body) = serving.post("/v1/take", r#"{"key":"alice","limit":"client"}"#);
    assert!(status == 200 && body.contains("\"allowed\":true"), "{body}");
    assert_eq!(serving.stop("TERM").code, Some(0));
}

#[test]
fn entries_have_no_trace_of_the_builder() {
    let archive = Packages::get().ending(".tar.gz");
    let list = run(Command::new("tar").arg("-tvf").arg(&archive).args(["--numeric-owner"]));
    let lines: Vec<_> = list.lines().collect();
    assert!(lines.len() > 20, "{list}");
    let mut times = BTreeSet::new();
    for line in &lines {
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(
            words[1] == "0/0" && ["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"].contains(&words[0])
        );
        times.insert((words[3], words[4]));
    }
    assert_eq!(times.len(), 1, "{times:?}");
    let names: Vec<_> = lines.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert!(names[0].ends_with('/') && !names.iter().any(|name| name.contains("..")));
}

#[test]
fn checksums_cover_every_file() {
    let (_here, folder) = unpack();
    run(Command::new("sha256sum").args(["--strict", "--check", "SHA256SUMS"]).current_dir(&folder));
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let files = run(Command::new("find").args([".", "-type", "f"]).current_dir(&folder));
    // All but the list itself.
    assert_eq!(sums.lines().count(), files.lines().count() - 1);
}

#[test]
fn the_bill_of_materials_is_valid_and_licences_are_complete() {
    let (_here, folder) = unpack();
    let bill = folder.join("sbom.cdx.json");
    let script = root("crates/tidegate-cli/tests/it/package/sbom.py");
    let checked = Python::installed().run(script, &[bill.to_str().unwrap()], &[]);
    assert_eq!(checked.line(), "0", "{}", checked.stderr);
    let bill: Value = serde_json::from_str(&fs::read_to_string(bill).unwrap()).unwrap();
    let components = bill["components"].as_array().unwrap();
    let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
    let names: BTreeSet<_> = components.iter().map(name).collect();
    for linked in ["hyper", "rusqlite", "libsqlite3-sys", "tidegate-core", "tokio"] {
        assert!(names.contains(linked), "{linked} is linked into the program");
    }
    for not_linked in ["cc", "proptest", "rcgen", "serde_derive", "xtask"] {
        assert!(!names.contains(not_linked), "{not_linked} is not linked into the program");
    }
    let licences = fs::read_to_string(folder.join("LICENSES-THIRD-PARTY.txt")).unwrap();
    for component in components.iter().filter(|it| it.get("purl").is_some()) {
        let version = component["version"].as_str().unwrap();
        let head = format!("{} {version}", name(component));
        // Once in the list, and once above a text.
        assert!(licences.matches(&head).count() >= 2, "{head} has no licence text");
    }
}

#[test]
fn man_pages_and_completions_are_complete_and_render() {
    let (_here, folder) = unpack();
    let help = run(Command::new(folder.join("bin/tidegate")).arg("--help"));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<_> = commands
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.contains(&"serve") && commands.len() >= 5, "{commands:?}");
    let pages = folder.join("share/man/man1");
    for command in &commands {
        let page = pages.join(format!("tidegate-{command}.1"));
        assert!(rendered(&page).contains("SYNOPSIS"), "{}", page.display());
    }
    let serve = rendered(&pages.join("tidegate-serve.1"));
    assert!(serve.contains("--http") && serve.contains("SIGHUP"), "{serve}");
    for (path, shell) in [
        ("bash-completion/completions/tidegate", "bash"),
        ("zsh/vendor-completions/_tidegate", ""),
        ("fish/vendor_completions.d/tidegate.fish", ""),
    ] {
        let path = folder.join("share").join(path);
        let text = fs::read_to_string(&path).unwrap();
        for command in &commands {
            assert!(text.contains(command), "{command} in {}", path.display());
        }
        if !shell.is_empty() {
            run(Command::new(shell).arg("-n").arg(path));
        }
    }
}

/// Renders a man page and returns its text. A warning fails.
fn rendered(page: &Path) -> String {
    let mut command = Command::new("groff");
    command.args(["-man", "-Tascii", "-ww", "-P-cbou"]).arg(page);
    let output = command.output().unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
    String::from_utf8(output.stdout).unwrap()
}
