//! Constraints, and where they come from.
