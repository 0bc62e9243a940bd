//! Adapters against the simulator, in every dialect.
