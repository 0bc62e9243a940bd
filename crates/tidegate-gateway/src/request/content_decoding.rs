//! The text of a request body: without content codings, in UTF-8.
//!
//! The forwarded body stays as the caller sent it. Decoding is limited relative to the size of the
//! body, so a small body costs little memory and time whatever it decodes to.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::content_coding::{self, ContentDecodeError, ContentDecoder, DecodeLimits};

/// Maximum decoded size of any body: 64 MiB.
const MAX_DECODED: usize = 64 * 1_024 * 1_024;
/// Maximum ratio of decoded to encoded size.
const MAX_RATIO: usize = 64;
/// Decoded size that is always allowed, whatever the ratio: 1 MiB.
const MIN_DECODED: usize = 1_024 * 1_024;
/// Maximum number of nested codings.
const MAX_CODINGS: usize = 3;
/// Size of the chunks that are decoded.
const CHUNK: usize = 4 * 1_024;
/// Maximum size of a UTF-16 or UTF-32 text that is transcoded: 4 MiB.
const MAX_TRANSCODED: usize = 4 * 1_024 * 1_024;

/// The text of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyText<'b> {
    /// Not encoded.
    Plain(&'b [u8]),
    /// The decoded text.
    Decoded(Vec<u8>),
    /// The text exceeds this many bytes.
    TooLarge(usize),
    /// The coding is unknown, or does not match the body.
    Undecodable,
}

/// Returns the maximum decoded size of an encoded body of `size` bytes.
pub(crate) fn max_decoded_size(size: usize) -> usize {
    size.saturating_mul(MAX_RATIO).clamp(MIN_DECODED, MAX_DECODED)
}

/// The content codings of a body, in the order in which they were applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codings(Vec<Cow<'static, str>>);

impl Codings {
    /// Reads the codings that the headers declare.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        match headers.contains_key(CONTENT_ENCODING) {
            true => Self(content_coding::coding_names(headers).map(Cow::Owned).collect()),
            false => Self::default(),
        }
    }

    /// Whether no coding is declared.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes a body. An undeclared gzip or zstd coding is detected by its magic number.
    pub(crate) fn decode<'b>(&self, body: &'b [u8]) -> BodyText<'b> {
        if self.is_empty() {
            let name = match body {
                [0x1f, 0x8b, ..] => "gzip",
                [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
                _ => return BodyText::Plain(body),
            };
            return Self(vec![name.into()]).decode(body);
        }
        if self.0.len() > MAX_CODINGS {
            return BodyText::Undecodable;
        }
        let (max_size, mut text) = (max_decoded_size(body.len()), Cow::Borrowed(body));
        // Undo the codings in reverse order.
        for name in self.0.iter().rev() {
            match decode_one(name, &text, max_size) {
                Some(Ok(decoded)) => text = Cow::Owned(decoded),
                Some(Err(error)) if error.is_too_large() => return BodyText::TooLarge(max_size),
                Some(Err(_)) | None => return BodyText::Undecodable,
            }
        }
        BodyText::Decoded(text.into_owned())
    }
}

/// Undoes one coding; `None` if it is unknown.
fn decode_one(
    name: &str,
    encoded: &[u8],
    max_size: usize,
) -> Option<Result<Vec<u8>, ContentDecodeError>> {
    let mut decoder =
        ContentDecoder::for_coding(name, DecodeLimits { chunk: max_size, total: max_size })?;
    let mut decoded = Vec::new();
    for chunk in encoded.chunks(CHUNK) {
        match decoder.decode(chunk) {
            Ok(more) => decoded.extend_from_slice(&more),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(decoder.finish().map(|rest| {
        decoded.extend_from_slice(&rest);
        decoded
    }))
}

/// Converts a text to UTF-8 without a byte order mark. UTF-16 and UTF-32 are detected by their
/// mark, or by the zeros in the first character, since JSON starts with ASCII.
pub(crate) fn to_utf8(text: &[u8]) -> Cow<'_, [u8]> {
    let (encoding, text) = match text {
        [0xef, 0xbb, 0xbf, rest @ ..] => return rest.into(),
        [0xff, 0xfe, 0, 0, rest @ ..] => (Encoding::Utf32Le, rest),
        [0, 0, 0xfe, 0xff, rest @ ..] => (Encoding::Utf32Be, rest),
        [0xff, 0xfe, rest @ ..] => (Encoding::Utf16Le, rest),
        [0xfe, 0xff, rest @ ..] => (Encoding::Utf16Be, rest),
        [0, 0, 0, 1..=0xff, ..] => (Encoding::Utf32Be, text),
        [1..=0xff, 0, 0, 0, ..] => (Encoding::Utf32Le, text),
        [0, 1..=0xff, ..] => (Encoding::Utf16Be, text),
        [1..=0xff, 0, ..] => (Encoding::Utf16Le, text),
        _ => return text.into(),
    };
    if text.len() > MAX_TRANSCODED {
        return text.into();
    }
    encoding.transcode(text).into_bytes().into()
}

#[derive(Clone, Copy)]
enum Encoding {
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
}

impl Encoding {
    /// Converts to UTF-8. Invalid code units become the replacement character.
    fn transcode(self, text: &[u8]) -> String {
        let utf16 = |unit: fn([u8; 2]) -> u16| {
            let units = text.as_chunks::<2>().0.iter().map(move |bytes| unit(*bytes));
            let chars = char::decode_utf16(units);
            chars.map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        };
        let utf32 = |unit: fn([u8; 4]) -> u32| {
            let units = text.as_chunks::<4>().0.iter().map(move |bytes| unit(*bytes));
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        };
        match self {
            Self::Utf16Le => utf16(u16::from_le_bytes),
            Self::Utf16Be => utf16(u16::from_be_bytes),
            Self::Utf32Le => utf32(u32::from_le_bytes),
            Self::Utf32Be => utf32(u32::from_be_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderValue;

    use super::*;

    fn decode<'b>(names: &[&'static str], body: &'b [u8]) -> BodyText<'b> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        Codings::from_headers(&headers).decode(body)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn codings_are_removed_in_reverse_order() {
        let text = br#"{"model":"m"}"#;
        let (once, twice) = (gzip(text), gzip(&gzip(text)));
        let decoded = BodyText::Decoded(text.to_vec());
        assert_eq!(decode(&["GZIP"], &once), decoded);
        assert_eq!(decode(&["gzip, x-gzip"], &twice), decoded);
        assert_eq!(decode(&["gzip", "identity", "gzip"], &twice), decoded);
        assert_eq!(decode(&[], &once), decoded, "detected by its first bytes");
        assert_eq!(decode(&["identity"], text), BodyText::Plain(text));
        for names in [&["compress"][..], &["gzip"], &["gzip, gzip, gzip, gzip"]] {
            assert_eq!(decode(names, text), BodyText::Undecodable, "{names:?}");
        }
    }

    #[test]
    fn decompression_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![b' '; MIN_DECODED * 4]);
        assert!(bomb.len() * MAX_RATIO < MIN_DECODED);
        assert_eq!(decode(&["gzip"], &bomb), BodyText::TooLarge(MIN_DECODED));
        let nested = gzip(&bomb);
        assert_eq!(decode(&["gzip, gzip"], &nested), BodyText::TooLarge(MIN_DECODED));
    }

    #[test]
    fn every_unicode_encoding_becomes_utf8() {
        let text = "{\"a\":\"Ебб 🌊\"}";
        let utf16: Vec<u16> = text.encode_utf16().collect();
        let utf32: Vec<u32> = text.chars().map(u32::from).collect();
        let encodings: [(&[u8], Vec<u8>); 5] = [
            (b"\xef\xbb\xbf", text.as_bytes().to_vec()),
            (b"\xff\xfe", utf16.iter().flat_map(|unit| unit.to_le_bytes()).collect()),
            (b"\xfe\xff", utf16.iter().flat_map(|unit| unit.to_be_bytes()).collect()),
            (b"\xff\xfe\0\0", utf32.iter().flat_map(|unit| unit.to_le_bytes()).collect()),
            (b"\0\0\xfe\xff", utf32.iter().flat_map(|unit| unit.to_be_bytes()).collect()),
        ];
        for (mark, bytes) in encodings {
            assert_eq!(*to_utf8(&bytes), *text.as_bytes(), "without {mark:?}");
            assert_eq!(*to_utf8(&[mark, &bytes].concat()), *text.as_bytes(), "with {mark:?}");
        }
        for odd in [&b""[..], b"\0", b"\0\0\0\0", b"{\0\xd8", b"\xff"] {
            to_utf8(odd);
        }
    }
}
