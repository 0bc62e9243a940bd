//! What callers are told has no key and nothing of another caller.
