//! What is asked for, and by how many at the same time.

/// The points at which everybody is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Whole answers on one connection: how long a call takes.
    One,
    /// Whole answers on fifty connections: how many calls there can be.
    Fifty,
    /// Streams on a few connections: how long the first event takes.
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

    /// What is asked, as JSON.
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

    /// Whether the time of a call is that of its first event, and not of its last byte.
    pub(super) const fn is_streamed(self) -> bool {
        matches!(self, Self::Streams)
    }
}
