//! The HTTP client underneath.
