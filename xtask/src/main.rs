//! The tasks of this repository, as `cargo xtask <command>`.
//!
//! Continuous integration runs `cargo xtask test` and nothing else. Tasks run cargo and git. They
//! depend on no crate of the product, so that they work while the product does not compile.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tasks print to the terminal")]

mod api;
mod bench;
mod dist;
mod features;
mod models;
mod no_std;
mod process;
mod project;
mod sanitize;
mod settings;
mod soak;
mod test;
mod test_counts;
mod tidy;
mod tools;
mod typescript;
mod vectors;
mod vocabulary;
mod wasm;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The tasks of this repository.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check: formatting, lints, tidy, vectors, settings, documentation, public API,
    /// no_std, WebAssembly, features, tests, TypeScript, models. Stops at the first step that fails; the last line is "N
    /// passed, M failed".
    Test,
    /// Install missing programs that the tests need: Redis, Valkey, PostgreSQL, promtool, systemd,
    /// groff, Python with the client libraries of providers, npm packages, a compiler for
    /// WebAssembly.
    /// Bundles the Worker. `test` does so too.
    Tools,
    /// Check what the compiler does not: dependencies between crates, licences, file sizes, retired
    /// names, doc comments, configuration keys, commit subjects.
    Tidy,
    /// Generate the vector file from the rational-number oracle.
    Vectors {
        /// Write nothing; fail if the committed file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Write the vocabulary that tokens are counted with, from the crate bpe-openai.
    Vocabulary,
    /// Generate docs/settings.md: every configuration key with its default, bounds, sources and
    /// tests.
    Settings {
        /// Write nothing; fail if the committed page is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Generate the listings of the public API, api/CRATE.txt: one line per public item of each
    /// published crate.
    Api {
        /// Write nothing; fail if a committed listing is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Build the WebAssembly modules of the Worker and the npm package, which are committed.
    Wasm {
        /// Write nothing; fail if a committed file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Bundle the Worker into target/worker, where tests look for it.
    Worker,
    /// Build packages of the program, an archive and a Debian package, and check its size, idle
    /// memory and start time. Builds twice, to check that the bytes can be reproduced.
    Dist(dist::Arguments),
    /// Run a benchmark against peers in one run, and print medians and ratios as Markdown.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Run tests that take minutes or hours: properties with many more cases (the default),
    /// coverage-guided fuzzing, or mixed attacks on the running program.
    Soak {
        #[command(subcommand)]
        soak: Option<soak::Soak>,
    },
    /// Run the multi-threaded tests under ThreadSanitizer, which reports data races. Takes minutes,
    /// and compiles the standard library.
    Sanitize,
}

fn main() -> ExitCode {
    if let Some(code) = wasm::run_as_compiler().or_else(api::run_as_rustdoc) {
        return code;
    }
    let outcome = match Arguments::parse().task {
        Task::Test => return test::run(),
        Task::Tools => tools_and_worker(),
        Task::Tidy => tidy::run(),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Vectors { check: false } => vectors::write(),
        Task::Vectors { check: true } => vectors::check(),
        Task::Vocabulary => vocabulary::write(),
        Task::Settings { check: false } => settings::write(),
        Task::Settings { check: true } => settings::check(),
        Task::Api { check: false } => api::write(),
        Task::Api { check: true } => api::check(),
        Task::Wasm { check: false } => wasm::write(),
        Task::Wasm { check: true } => wasm::check(),
        Task::Worker => worker::bundle(),
        Task::Bench { bench } => bench::run(&bench),
        Task::Soak { soak } => soak::run(&soak.unwrap_or(soak::Soak::Properties)),
        Task::Sanitize => sanitize::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Installs the tools and bundles the Worker, after which `cargo test` has all it needs.
fn tools_and_worker() -> anyhow::Result<()> {
    tools::run()?;
    if worker::exists() { worker::bundle() } else { Ok(()) }
}
