//! Tokens by the size of a body, where it cannot be read.

use tidegate_providers::request::Purpose;

/// Bytes of a text that count as a token, as providers say for English.
const TEXT: u64 = 4;
/// Bytes of an image, a sound or a film that count as a token. A minute of speech in MP3 is about a
/// thousand tokens and half a megabyte, an image of a megabyte a thousand or two.
const MEDIA: u64 = 512;
/// Bytes in a content coding that count as a token: they are about four times as many when decoded.
const CODED: u64 = 1;

/// How the bytes of one body are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenEstimate {
    bytes_per_token: u64,
    /// Bytes of the body that were charged before it was sent.
    charged: u64,
}

impl TokenEstimate {
    /// For what is sent to a path.
    pub(crate) const fn of(purpose: &Purpose<'_>, charged: u64) -> Self {
        let bytes_per_token = if purpose.takes_media() { MEDIA } else { TEXT };
        Self { bytes_per_token, charged }
    }

    pub(crate) const fn of_text(charged: u64) -> Self {
        Self { bytes_per_token: TEXT, charged }
    }

    pub(crate) const fn of_coded(charged: u64) -> Self {
        Self { bytes_per_token: CODED, charged }
    }

    /// Tokens of so many bytes.
    pub(crate) const fn tokens(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_token)
    }

    /// Tokens of what was sent beyond what was charged.
    pub(crate) const fn extra(self, sent: u64) -> u64 {
        self.tokens(sent.saturating_sub(self.charged))
    }
}
