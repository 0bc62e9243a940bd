//! `instructions`: instructions of a gateway call and of a decision over HTTP, counted by
//! callgrind.
//!
//! Instruction counts do not depend on the load of the machine, so a change of one per cent shows.
//! The program runs under valgrind with few and with many requests, sequentially on one connection.
//! The difference divided by the number of requests excludes startup and shutdown.

mod counted;

use std::path::Path;

use anyhow::Result;

use counted::{Request, count};

/// Maximum increase by a change, in per cent.
const ADDED: f64 = 3.0;

/// Counts, prints a table, and fails if the program needs over 3 % more than `before`.
pub(crate) fn run(program: &Path, before: Option<&Path>) -> Result<()> {
    println!("| request | instructions | before | ratio |\n| --- | ---: | ---: | ---: |");
    let mut dearer = Vec::new();
    for request in [Request::GatewayCall, Request::Take] {
        eprintln!("counting {}; this takes a minute or two", request.name());
        let now = count(program, request)?;
        let (then, ratio) = match before {
            Some(before) => {
                let then = count(before, request)?;
                if now > then * (1.0 + ADDED / 100.0) {
                    dearer.push(request.name());
                }
                (format!("{then:.0}"), format!("{:.4}", now / then))
            }
            None => ("".to_owned(), "".to_owned()),
        };
        println!("| {} | {now:.0} | {then} | {ratio} |", request.name());
    }
    anyhow::ensure!(dearer.is_empty(), "over {ADDED} % more instructions: {}", dearer.join(", "));
    Ok(())
}
