//! The Dockerfile and the compose file.

use tidegate_testkit::launch::Python;

use super::{root, text};
use crate::program::{end, tidegate};

#[test]
fn the_container_files_pass_their_linters() {
    let script = root("crates/tidegate-cli/tests/it/deploy/container.py");
    let checked = Python::installed().run(script, &[root("").to_str().unwrap()], &[]);
    assert_eq!(checked.line(), "0", "{}", checked.stderr);
}

/// Variables in the container files are those that the program reads, with valid values.
#[test]
fn the_container_environment_is_valid() {
    let dockerfile = text("deploy/container/Dockerfile");
    let compose = text("deploy/container/compose.yaml");
    let words = dockerfile.split_whitespace().filter_map(|word| word.split_once('='));
    let lines = compose.lines().filter_map(|line| line.trim().split_once(": "));
    let variables: Vec<_> =
        words.chain(lines).filter(|(name, _)| name.starts_with("TIDEGATE_")).collect();
    assert!(variables.len() >= 6, "{variables:?}");
    let here = tempfile::tempdir().unwrap();
    let mut command = tidegate(here.path(), &["config", "--database", "none"]);
    command.args(["show", "--json"]);
    for (name, value) in &variables {
        command.env(name, value.trim_matches('"'));
    }
    let shown = end(&mut command);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for (name, _) in &variables {
        assert!(shown.stdout.contains(name), "{name} is not the source of a setting: {shown:?}");
    }
}

/// The final image has no shell and no other user.
#[test]
fn the_image_is_minimal() {
    let dockerfile = text("deploy/container/Dockerfile");
    let (_, image) = dockerfile.split_once("FROM scratch\n").unwrap();
    let user = image.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (user, group) = user.split_once(':').unwrap();
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
    assert!(!image.contains("RUN "), "there is no shell to run it");
    for command in ["CMD [\"/tidegate\", \"status\", \"--quiet\"]", "ENTRYPOINT [\"/tidegate\"]"] {
        assert!(image.contains(command), "{command}");
    }
}
