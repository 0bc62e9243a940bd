//! Prints the vector file; `cargo xtask vectors` writes it where it is committed.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(tidegate_testkit::scenario::vectors::generate().as_bytes())
}
