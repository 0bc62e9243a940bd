//! Adapters: a call goes out, an answer comes back.
