//! Runs the built program, to its exit or in the background.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidegate_testkit::launch::wait_until;
use ureq::http;

/// How long a test waits for the next line of the program before it fails.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Exit code and output of a finished run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Returns the path of the program: `TIDEGATE_PROGRAM`, or else the one built with the tests.
pub(crate) fn program() -> OsString {
    env::var_os("TIDEGATE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_tidegate").into())
}

/// Returns a command for the program in a directory, with an empty environment.
pub(crate) fn tidegate(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args);
    alone(command, directory)
}

/// Returns a `serve` command with these flags. Unless the flags say otherwise, it listens on free
/// ports and keeps its state in the directory.
pub(crate) fn serve(directory: &Path, flags: &[&str]) -> Command {
    tidegate(directory, &serve_args(flags))
}

/// Returns a `serve` command like [`serve`], with a limit on open files.
pub(crate) fn serve_with_files(files: usize, directory: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
    command.arg(program()).args(serve_args(flags));
    alone(command, directory)
}

fn serve_args<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    const FREE: &str = "127.0.0.1:0";
    let own = [("--http", FREE), ("--admin", FREE), ("--grpc", FREE), ("--state-dir", "state")];
    let missing = own.into_iter().filter(|(flag, _)| !flags.contains(flag));
    let missing = missing.flat_map(|(flag, value)| [flag, value]);
    ["serve"].into_iter().chain(missing).chain(flags.iter().copied()).collect()
}

fn alone(mut command: Command, directory: &Path) -> Command {
    command.current_dir(directory).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program until it exits.
pub(crate) fn run(directory: &Path, args: &[&str]) -> Ended {
    end(&mut tidegate(directory, args))
}

/// Runs a command until it exits.
pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running server. It is killed when the test ends.
pub(crate) struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Lines of standard error. A thread reads them, because a full pipe would block the program.
    stderr: mpsc::Receiver<String>,
    /// The part of standard error that [`wait_for`](Self::wait_for) has read.
    told: String,
    /// Base URL of the HTTP API.
    pub(crate) url: String,
    /// Base URL of the admin API.
    pub(crate) admin: String,
    /// Token to send to the admin API.
    pub(crate) token: Option<String>,
    agent: ureq::Agent,
}

impl Serving {
    /// Starts the server and waits for its lines on standard output, one per listener.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = lines_of(child.stderr.take().unwrap());
        let mut doors = ["", "admin ", "grpc://"].map(|prefix| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let Some(address) = line.trim_end().strip_prefix(prefix).filter(|it| !it.is_empty())
            else {
                let _ = child.kill();
                let told: String = stderr.iter().collect();
                panic!("{line:?} is not the line of a listener: {told}");
            };
            address.to_owned()
        });
        let [url, admin, _] = &mut doors;
        let (url, admin) = (std::mem::take(url), std::mem::take(admin));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Self { child, stdout, stderr, told: String::new(), url, admin, token: None, agent }
    }

    /// Waits for a line on standard error that contains `text`.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let start = self.told.len();
        while !self.told[start..].contains(text) {
            match self.stderr.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => self.told.push_str(&line),
                Err(error) => panic!("the program did not print {text:?}: {error}: {}", self.told),
            }
        }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Posts JSON and returns status and body.
    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        let request = self.agent.post(format!("{}{path}", self.url));
        answer(request.header("content-type", "application/json").send(body))
    }

    /// Puts JSON and returns status and body.
    pub(crate) fn put(&self, path: &str, body: &str) -> (u16, String) {
        let request = self.agent.put(format!("{}{path}", self.url));
        answer(request.header("content-type", "application/json").send(body))
    }

    /// Posts JSON to the admin API and returns status and body.
    pub(crate) fn post_admin(&self, path: &str, body: &str) -> (u16, String) {
        let request = self.agent.post(format!("{}{path}", self.admin));
        let request = request.header("authorization", self.authorization());
        answer(request.header("content-type", "application/json").send(body))
    }

    /// Sends a GET request to the admin API and returns status and body.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        let request = self.agent.get(format!("{}{path}", self.admin));
        answer(request.header("authorization", self.authorization()).call())
    }

    /// Changes settings through the admin API and returns status and body.
    pub(crate) fn patch(&self, body: &Value) -> (u16, String) {
        let request = self.agent.patch(format!("{}/admin/config", self.admin));
        let request = request.header("authorization", self.authorization());
        answer(request.header("content-type", "application/json").send(body.to_string()))
    }

    /// Returns the settings of a section from the admin API.
    pub(crate) fn settings(&self, key: &str) -> Vec<Value> {
        let (status, body) = self.ask(&format!("/admin/config?key={key}"));
        assert_eq!(status, 200, "{body}");
        let shown: Value = serde_json::from_str(&body).unwrap();
        shown["settings"].as_array().unwrap().clone()
    }

    /// Returns value and source of a setting.
    pub(crate) fn setting(&self, key: &str) -> (Value, String) {
        let settings = self.settings(key);
        let [one] = settings.as_slice() else { panic!("{key}: {settings:?}") };
        (one["value"].clone(), one["source"].as_str().unwrap().to_owned())
    }

    /// Waits until a setting has the given value.
    pub(crate) fn wait_until_it_has(&self, key: &str, value: &Value) {
        wait_until(&format!("{key} = {value}"), || (self.setting(key).0 == *value).then_some(()));
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.token.as_deref().unwrap_or("nobody"))
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Sends a signal and waits for the exit. Standard output is without the lines of the
    /// listeners.
    pub(crate) fn stop(mut self, signal: &str) -> Ended {
        self.signal(signal);
        let (mut stdout, mut stderr) = (String::new(), std::mem::take(&mut self.told));
        self.stdout.read_to_string(&mut stdout).unwrap();
        stderr.extend(self.stderr.iter());
        Ended { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

/// Reads the lines of a pipe on a separate thread until it is closed.
fn lines_of(pipe: ChildStderr) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        while pipe.read_line(&mut line).is_ok_and(|read| read > 0) {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}

fn answer(reply: Result<http::Response<ureq::Body>, ureq::Error>) -> (u16, String) {
    let mut reply = reply.unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has exited already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
