//! `instructions`: what a call through the gateway and a decision over HTTP cost the built program,
//! counted by callgrind.
//!
//! Instructions do not depend on what else the machine does, so a change of a per cent shows. The
//! program runs under valgrind with a few requests and with many, on one connection, one after the
//! other; the difference, divided by their number, has no start and no end in it.

mod counted;

use std::path::Path;

use anyhow::Result;

use counted::{Request, count};

/// The most that a change may add, in per cent.
const ADDED: f64 = 3.0;

/// Counts, prints a table, and fails if there is a program before and this one needs over 3 % more.
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
