//! Generates the code of the gRPC service: `cargo run -p tidegate-server --example proto`.

#[path = "proto/generate.rs"]
mod generate;

use generate::{committed, generate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    generate(&committed())
}
