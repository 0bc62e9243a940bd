//! Runs cargo and git, and reports failures.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::project;

/// A cargo command in the workspace, using the cargo that runs this task.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(project::root()).stdin(Stdio::null());
    command
}

/// A git command in the workspace.
pub(crate) fn git<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    // In containers the checkout often belongs to another user; we only read it.
    command.args(["-c", "safe.directory=*"]).args(arguments);
    command.current_dir(project::root()).stdin(Stdio::null());
    command
}

/// Appends to the compiler flags in the environment.
pub(crate) fn add_rust_flags(command: &mut Command, flags: &str) {
    let mut all = env::var_os("RUSTFLAGS").unwrap_or_default();
    if !all.is_empty() {
        all.push(" ");
    }
    all.push(flags);
    command.env("RUSTFLAGS", all);
}

/// Runs a command that inherits our output.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", display(&command)))?;
    if !status.success() {
        bail!("{} failed ({status})", display(&command));
    }
    Ok(())
}

/// Runs a command and returns its standard output; its standard error is inherited.
pub(crate) fn read(mut command: Command) -> Result<String> {
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", display(&command)))?;
    if !output.status.success() {
        bail!("{} failed ({})", display(&command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {} is not UTF-8", display(&command)))
}

/// The standard output of a command, if it starts, succeeds and prints UTF-8.
pub(crate) fn read_quietly(mut command: Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    if output.status.success() { String::from_utf8(output.stdout).ok() } else { None }
}

/// Runs a command, prints its standard output, and passes each line to `on_line`.
pub(crate) fn watch(mut command: Command, mut on_line: impl FnMut(&str)) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", display(&command)))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.context("cannot read the output of cargo")?;
            let line = String::from_utf8_lossy(&line);
            // The tests must continue if our standard output is closed.
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

/// Formats the command as typed in a shell.
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
    fn commands_are_displayed_as_typed() {
        let mut command = cargo(["test", "--release"]);
        command.env("RUSTFLAGS", "--cfg loom");
        let display = display(&command);
        assert!(display.starts_with("RUSTFLAGS=\"--cfg loom\" cargo"), "{display}");
        assert!(display.ends_with("test --release"), "{display}");
    }
}
