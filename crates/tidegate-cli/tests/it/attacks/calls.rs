//! Whatever costs something is charged, whatever its path, method or body.
