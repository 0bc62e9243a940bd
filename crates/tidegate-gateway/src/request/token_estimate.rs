//! Estimates tokens by the size of a body that cannot be parsed.

use tidegate_providers::request::PathPurpose;

/// Bytes of text per token, as providers state for English.
const TEXT_BYTES_PER_TOKEN: u64 = 4;
/// Bytes of an image, audio or video per token. A minute of speech in MP3 is about a thousand
/// tokens and half a megabyte; an image of one megabyte is one or two thousand tokens.
const MEDIA_BYTES_PER_TOKEN: u64 = 512;
/// Encoded bytes per token. Text is about four times larger when decoded.
const ENCODED_BYTES_PER_TOKEN: u64 = 1;

/// How the tokens of one body are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenEstimate {
    bytes_per_token: u64,
    /// Bytes of the body for which tokens were reserved before sending.
    reserved_bytes: u64,
}

impl TokenEstimate {
    /// Estimate for a body by the purpose of its path.
    pub(crate) const fn for_purpose(purpose: &PathPurpose<'_>, reserved_bytes: u64) -> Self {
        let bytes_per_token =
            if purpose.has_media_input() { MEDIA_BYTES_PER_TOKEN } else { TEXT_BYTES_PER_TOKEN };
        Self { bytes_per_token, reserved_bytes }
    }

    pub(crate) const fn text(reserved_bytes: u64) -> Self {
        Self { bytes_per_token: TEXT_BYTES_PER_TOKEN, reserved_bytes }
    }

    pub(crate) const fn encoded(reserved_bytes: u64) -> Self {
        Self { bytes_per_token: ENCODED_BYTES_PER_TOKEN, reserved_bytes }
    }

    /// Returns the tokens of `bytes` bytes.
    pub(crate) const fn tokens(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_token)
    }

    /// Returns the tokens of bytes sent beyond those reserved.
    pub(crate) const fn extra(self, sent: u64) -> u64 {
        self.tokens(sent.saturating_sub(self.reserved_bytes))
    }
}
