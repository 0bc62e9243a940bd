//! Errors of providers, read from their bodies.
