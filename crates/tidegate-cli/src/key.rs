//! `tidegate key`: creates a token for the admin API.

use serde::Serialize;
use tidegate_server::create_token;

use crate::args::output::Output;
use crate::failure::Failure;
use crate::terminal::{eprint_line, print, print_json};

/// Prints a new token and its hash, one per line. The token is not stored anywhere.
pub(crate) fn key(output: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct NewKey {
        token: String,
        hash: String,
    }
    let created = create_token()?;
    if output.json {
        return print_json(&NewKey { token: created.token, hash: created.digest.to_string() });
    }
    print(&format!("{}\n{}", created.token, created.digest))?;
    eprint_line("the first line is the token; keep it secret, it grants access to the admin API");
    eprint_line("the second line is its hash; add it to write_tokens or read_tokens under [admin]");
    Ok(())
}
