//! The built program, running or run to its end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program in a directory, without anything of the surrounding environment.
pub(crate) fn tidegate(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args);
    alone(command, directory)
}

/// The program in a directory, as above, with at most this many open files.
pub(crate) fn tidegate_with_files(files: usize, directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).args(args);
    alone(command, directory)
}

fn alone(mut command: Command, directory: &Path) -> Command {
    command.current_dir(directory).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn run(directory: &Path, args: &[&str]) -> Ended {
    let output = tidegate(directory, args).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The program while it serves. It does not outlive the test.
pub(crate) struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// What has been read of standard error.
    told: String,
    pub(crate) url: String,
}

impl Serving {
    /// Starts it and waits for its first line, which is the address.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        Self { child, stdout, stderr, told: String::new(), url: line.trim_end().to_owned() }
    }

    /// Waits for a line of standard error that contains this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let start = self.told.len();
        while !self.told[start..].contains(text) {
            let read = self.stderr.read_line(&mut self.told).unwrap();
            assert_ne!(read, 0, "it ended before it said {text:?}: {}", self.told);
        }
    }

    /// Posts JSON and returns status and body.
    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(format!("{}{path}", self.url));
        let mut reply = request.header("content-type", "application/json").send(body).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    /// Sends a signal and waits for the end; standard output without the first line.
    pub(crate) fn stop(mut self, signal: &str) -> Ended {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let (mut stdout, mut stderr) = (String::new(), std::mem::take(&mut self.told));
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Ended { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
