//! Programs that a benchmark starts beside itself, and what itself does when it is such a program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

/// A program that tells in its first line where it listens. It ends with this value.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts it and returns its first line. Its input stays open, and ends when it is to end.
    pub(crate) fn start(command: &mut Command) -> Result<(Self, String)> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("{} cannot be started", name(command)))?;
        let mut program = Self { child };
        let output = program.child.stdout.as_mut().context("a program has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok((program, line.trim_end().to_owned()))
    }

    /// Tells it to end, as a service manager does, and waits until it has.
    #[cfg(target_os = "linux")]
    pub(crate) fn stop(&mut self) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Where a process cannot be told to end.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn stop(&mut self) -> Result<()> {
        anyhow::bail!("{} cannot be told to end on this system", self.child.id())
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its input ends, and so does it; and if not, it is made to.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In such a program: serves on a free port, which its first line tells, until its input ends.
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
