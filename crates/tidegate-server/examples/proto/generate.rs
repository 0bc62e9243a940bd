//! Generates the code of the gRPC service from its definition. A test compares the result with the
//! committed code.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Returns the directory of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of the generated code. The client is compiled for tests only.
pub(crate) fn committed() -> PathBuf {
    here().join("src/api/grpc/generated")
}

/// Writes the generated code to `folder`.
pub(crate) fn generate(folder: &Path) -> Result<(), Box<dyn Error>> {
    let definitions = here().join("../../proto");
    let files = protox::compile(["tidegate/admin/v1/admin.proto"], [definitions])?;
    let code = tonic_prost_build::configure().client_mod_attribute(".", "#[cfg(test)]");
    code.out_dir(folder).compile_fds(files)?;
    Ok(())
}
