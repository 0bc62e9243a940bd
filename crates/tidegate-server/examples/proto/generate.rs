//! From the definition of the gRPC service to its code. A test makes it anew and compares.

use std::error::Error;
use std::path::{Path, PathBuf};

/// The crate's own folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the code is kept: that of the server, and that of the client, which only tests compile.
pub(crate) fn committed() -> PathBuf {
    here().join("src/api/grpc/generated")
}

/// Writes the code into a folder.
pub(crate) fn generate(folder: &Path) -> Result<(), Box<dyn Error>> {
    let definitions = here().join("../../proto");
    let files = protox::compile(["tidegate/admin/v1/admin.proto"], [definitions])?;
    let code = tonic_prost_build::configure().client_mod_attribute(".", "#[cfg(test)]");
    code.out_dir(folder).compile_fds(files)?;
    Ok(())
}
