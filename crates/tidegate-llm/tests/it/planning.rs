//! Constraints and planners.
