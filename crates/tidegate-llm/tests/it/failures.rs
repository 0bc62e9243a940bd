//! Errors of providers, read and classed.
