//! Retries and fallbacks.
