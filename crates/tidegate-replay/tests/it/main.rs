//! Replays against the oracle and brute force.
