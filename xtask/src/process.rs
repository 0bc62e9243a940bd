//! Running cargo and git: where, with what input, and how failure is told.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::project;

/// A cargo command in the workspace, by the cargo that runs this task.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(project::root()).stdin(Stdio::null());
    command
}

/// A git command in the workspace.
pub(crate) fn git<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    // A checkout that belongs to another user is common in containers; we only read it.
    command.args(["-c", "safe.directory=*"]).args(arguments);
    command.current_dir(project::root()).stdin(Stdio::null());
    command
}

/// Adds to the compiler flags that are already in the environment.
pub(crate) fn add_rust_flags(command: &mut Command, flags: &str) {
    let mut all = env::var_os("RUSTFLAGS").unwrap_or_default();
    if !all.is_empty() {
        all.push(" ");
    }
    all.push(flags);
    command.env("RUSTFLAGS", all);
}

/// Runs a command whose output goes to ours.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", display(&command)))?;
    if !status.success() {
        bail!("{} failed ({status})", display(&command));
    }
    Ok(())
}

/// Runs a command and returns its standard output; its standard error goes to ours.
pub(crate) fn read(mut command: Command) -> Result<String> {
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", display(&command)))?;
    if !output.status.success() {
        bail!("{} failed ({})", display(&command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} wrote no text", display(&command)))
}

/// Runs a command whose output goes to ours, and shows each line of it to `on_line`.
pub(crate) fn watch(mut command: Command, mut on_line: impl FnMut(&str)) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", display(&command)))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.context("cannot read the output of cargo")?;
            let line = String::from_utf8_lossy(&line);
            // A closed standard output must not stop the tests.
            let _ = writeln!(std::io::stdout(), "{line}");
            on_line(&line);
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("{} failed ({status})", display(&command));
    }
    Ok(())
}

/// The command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={:?}", name.to_string_lossy(), value.to_string_lossy()));
        }
    }
    let program = std::path::Path::new(command.get_program());
    words.push(program.file_name().unwrap_or_default().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = cargo(["test", "--release"]);
        command.env("RUSTFLAGS", "--cfg loom");
        let display = display(&command);
        assert!(display.starts_with("RUSTFLAGS=\"--cfg loom\" cargo"), "{display}");
        assert!(display.ends_with("test --release"), "{display}");
    }
}
