//! The units of systemd, checked by `systemd-analyze`.

use std::fs;
use std::path::Path;
use std::process::Command;

use tidegate_server::SHUTDOWN_GRACE;

use super::{root, text};
use crate::program::{Ended, end, program, run};

const SERVICE: &str = "tidegate.service";

/// The highest exposure that is accepted, of 10.0 (unprotected), times ten; the unit has 1.2.
const MAX_EXPOSURE: &str = "15";

/// Copies the units to a folder, with the built program.
fn copy_units(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root("deploy/systemd")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let program = program().into_string().unwrap();
        let unit = text(&format!("deploy/systemd/{name}")).replace("/usr/bin/tidegate", &program);
        fs::write(folder.join(&name), unit).unwrap();
        names.push(name);
    }
    names.retain(|name| name.ends_with(".service") || name.ends_with(".socket"));
    names
}

fn analyze(folder: &Path, args: &[&str], units: &[String]) -> Ended {
    let mut command = Command::new("systemd-analyze");
    command.args(args).args(units).current_dir(folder);
    // Units of the system are not searched, so that their mistakes do not fail the test.
    end(command.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display())))
}

#[test]
fn the_units_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let units = copy_units(folder.path());
    assert_eq!(units.len(), 4, "{units:?}");
    let paths: Vec<_> = units.iter().map(|unit| format!("./{unit}")).collect();
    let ended = analyze(folder.path(), &["verify", "--man=no"], &paths);
    // The tool warns about unknown keys without failing.
    let ours = ended.stderr.lines().filter(|line| line.contains("tidegate"));
    let ours: Vec<_> = ours.collect();
    assert!(ended.code == Some(0) && ours.is_empty(), "{ended:?}");
}

#[test]
fn the_service_is_hardened() {
    let folder = tempfile::tempdir().unwrap();
    copy_units(folder.path());
    let args = ["security", "--offline=true", "--threshold", MAX_EXPOSURE, "--no-pager"];
    let ended = analyze(folder.path(), &args, &[format!("./{SERVICE}")]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Overall exposure level"), "{}", ended.stdout);
}

/// systemd must not kill the program before its own bound on the shutdown.
#[test]
fn the_service_has_time_to_stop() {
    let unit = text("deploy/systemd/tidegate.service");
    let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    // A snapshot and the admin listener follow the grace period, which takes up to 6 s.
    assert!(seconds.parse::<u64>().unwrap() >= SHUTDOWN_GRACE.as_secs() + 6);
    let compose = text("deploy/container/compose.yaml");
    assert!(compose.contains(&format!("stop_grace_period: {seconds}s")));
}

#[test]
fn the_example_configuration_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let example = root("deploy/tidegate.toml");
    let ended = run(folder.path(), &["check", example.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Also with its examples: lines in which a `#` precedes a key or a table.
    let text = text("deploy/tidegate.toml");
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let path = folder.path().join("all.toml");
    fs::write(&path, uncommented).unwrap();
    let mut command = crate::program::tidegate(folder.path(), &["check", "all.toml"]);
    let ended = end(command.env("OPENAI_API_KEY", "sk-example"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
