//! `tidegate key`: creates a token for the admin API.

use tidegate_server::create_token;

use crate::failure::Failure;
use crate::terminal::{eprint_line, print};

/// Prints a new token and its hash, one per line. The token is not stored anywhere.
pub(crate) fn key() -> Result<(), Failure> {
    let token = create_token()?;
    print(&format!("{}\n{}", token.token, token.digest))?;
    eprint_line("the first line is the token; keep it secret, it grants access to the admin API");
    eprint_line("the second line is its hash; add it to write_tokens or read_tokens under [admin]");
    Ok(())
}
