//! A circuit breaker: a provider that keeps failing is left alone for a while.
