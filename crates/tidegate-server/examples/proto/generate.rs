//! From the definition of the gRPC service to its code. A test makes it anew and compares.

use std::error::Error;
use std::path::{Path, PathBuf};

/// The crate's own folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the code of the server is kept, and that of the client, which is for tests.
pub(crate) fn committed() -> [PathBuf; 2] {
    [here().join("src/api/grpc/generated"), here().join("tests/it/generated")]
}

/// Writes the code of the server into one folder, and that of the client into the other.
pub(crate) fn generate(server: &Path, client: &Path) -> Result<(), Box<dyn Error>> {
    let definitions = here().join("../../proto");
    let files = protox::compile(["tidegate/admin/v1/admin.proto"], [definitions])?;
    let made = tonic_prost_build::configure().build_client(false).out_dir(server);
    made.compile_fds(files.clone())?;
    let made = tonic_prost_build::configure().build_server(false).out_dir(client);
    made.compile_fds(files)?;
    Ok(())
}
