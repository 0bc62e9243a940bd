//! Tokens by the size of a body, where it cannot be read.

use tidegate_providers::request::Purpose;

/// Bytes of a text that count as a token, as providers say for English.
const TEXT_BYTES_PER_TOKEN: u64 = 4;
/// Bytes of an image, a sound or a film that count as a token. A minute of speech in MP3 is about a
/// thousand tokens and half a megabyte, an image of a megabyte a thousand or two.
const MEDIA_BYTES_PER_TOKEN: u64 = 512;
/// Bytes in a content coding that count as a token: they are about four times as many when decoded.
const ENCODED_BYTES_PER_TOKEN: u64 = 1;

/// How the bytes of one body are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenEstimate {
    bytes_per_token: u64,
    /// Bytes of the body that were charged before it was sent.
    reserved_bytes: u64,
}

impl TokenEstimate {
    /// For what is sent to a path.
    pub(crate) const fn for_purpose(purpose: &Purpose<'_>, reserved_bytes: u64) -> Self {
        let bytes_per_token =
            if purpose.takes_media() { MEDIA_BYTES_PER_TOKEN } else { TEXT_BYTES_PER_TOKEN };
        Self { bytes_per_token, reserved_bytes }
    }

    pub(crate) const fn text(reserved_bytes: u64) -> Self {
        Self { bytes_per_token: TEXT_BYTES_PER_TOKEN, reserved_bytes }
    }

    pub(crate) const fn encoded(reserved_bytes: u64) -> Self {
        Self { bytes_per_token: ENCODED_BYTES_PER_TOKEN, reserved_bytes }
    }

    /// Tokens of so many bytes.
    pub(crate) const fn tokens(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_token)
    }

    /// Tokens of what was sent beyond what was charged.
    pub(crate) const fn extra(self, sent: u64) -> u64 {
        self.tokens(sent.saturating_sub(self.reserved_bytes))
    }
}
