//! Prints the description of every configuration key as JSON. `cargo xtask settings` generates
//! `docs/settings.md` from it.

use std::io::Write as _;

use tidegate_config::{KnownKey, known_keys};

fn main() -> std::io::Result<()> {
    let keys: Vec<_> = known_keys().map(KnownKey::describe).collect();
    let mut text = serde_json::to_string_pretty(&keys)?;
    text.push('\n');
    std::io::stdout().write_all(text.as_bytes())
}
