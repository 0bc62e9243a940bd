//! The HTTP API: paths, bodies and responses.

mod admission;
mod batches;
mod decisions;
mod errors;
mod host_checks;
mod limit_kinds;
mod lists;
mod reservations;
