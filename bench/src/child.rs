//! Child processes of a benchmark, and the server loop of this program when it is such a child.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

/// A child process that prints its address in its first line. It is stopped on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts it and returns its first line. Its standard input stays open until it is stopped.
    pub(crate) fn start(command: &mut Command) -> Result<(Self, String)> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("cannot start {}", name(command)))?;
        let mut program = Self { child };
        let output = program.child.stdout.as_mut().context("the child has no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok((program, line.trim_end().to_owned()))
    }

    /// Stops it with SIGTERM, like a service manager, and waits until it has ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn stop(&mut self) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Fails on systems without SIGTERM.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn stop(&mut self) -> Result<()> {
        anyhow::bail!("cannot stop process {} on this system", self.child.id())
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The child exits when its input is closed; it is killed if it does not.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: prints the address of a free port and serves on it until standard input is closed.
pub(crate) fn serve_alone(serve: impl AsyncFnOnce(TcpListener) -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (closed, stop) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        let _ = closed.send(());
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        tokio::select! {
            served = serve(listener) => served,
            _ = stop => Ok(()),
        }
    })
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
