//! The axes: kind of request and number of connections.

/// The measured points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Complete responses on one connection: latency.
    One,
    /// Complete responses on fifty connections: throughput.
    Fifty,
    /// Streams on a few connections: time to the first event.
    Streams,
}

impl Axis {
    pub(super) const ALL: [Self; 3] = [Self::One, Self::Fifty, Self::Streams];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::One => "1 connection",
            Self::Fifty => "50 connections",
            Self::Streams => "streams",
        }
    }

    pub(super) const fn connections(self) -> usize {
        match self {
            Self::One => 1,
            Self::Fifty => 50,
            Self::Streams => 8,
        }
    }

    /// The request body.
    pub(super) const fn body(self) -> &'static str {
        match self {
            Self::One | Self::Fifty => {
                r#"{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You answer in one sentence."},{"role":"user","content":"When does the tide turn at the harbour tonight, and how high will it be?"}],"max_tokens":256,"temperature":0.2}"#
            }
            Self::Streams => {
                r#"{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You answer in one sentence."},{"role":"user","content":"When does the tide turn at the harbour tonight, and how high will it be?"}],"max_tokens":256,"temperature":0.2,"stream":true}"#
            }
        }
    }

    /// Whether the time of a call ends with its first event instead of its last byte.
    pub(super) const fn is_streamed(self) -> bool {
        matches!(self, Self::Streams)
    }
}
