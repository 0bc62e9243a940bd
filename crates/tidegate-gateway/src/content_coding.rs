//! Content codings: decodes a copy of a compressed body while the original bytes are forwarded.
//!
//! The gateway asks providers for uncompressed responses. If a provider compresses anyway, or a
//! caller compresses its request, the body is decoded here to read it. Output is limited per chunk
//! and per body. Beyond these limits decoding stops and the body is estimated by its size.

mod zstd;

use std::fmt;
use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use zstd::ZstdDecoder;

/// Maximum decoded size of one response chunk: 8 MiB.
const MAX_CHUNK: usize = 8 * 1_024 * 1_024;
/// Maximum decoded size of a response: 64 MiB.
const MAX_TOTAL: usize = 64 * 1_024 * 1_024;
/// Size of the Brotli decoder's buffer.
const BUFFER_SIZE: usize = 4 * 1_024;

/// Maximum bytes that a decoder produces from one chunk and from a whole body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeLimits {
    pub(crate) chunk: usize,
    pub(crate) total: usize,
}

/// Limits for responses.
const RESPONSE_LIMITS: DecodeLimits = DecodeLimits { chunk: MAX_CHUNK, total: MAX_TOTAL };

/// The content coding of a response.
#[derive(Debug)]
pub(crate) enum ContentCoding {
    /// Not encoded.
    Identity,
    /// Encoded with a supported coding.
    Known(Box<ContentDecoder>),
    /// Cannot be decoded: the coding is unknown, or there are several.
    Unknown,
}

/// The body is malformed or exceeds the limits.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode the body")]
pub(crate) struct ContentDecodeError(#[from] io::Error);

impl ContentDecodeError {
    /// Whether the body exceeds the limits.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self.0.get_ref(), Some(error) if error.is::<TooLarge>())
    }
}

/// The decoded size exceeds the limits.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the decoded body is too large")]
struct TooLarge;

impl ContentCoding {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let mut names = coding_names(headers);
        let (Some(name), None) = (names.next(), names.next()) else {
            return if is_encoded(headers) { Self::Unknown } else { Self::Identity };
        };
        match ContentDecoder::for_coding(&name, RESPONSE_LIMITS) {
            Some(decoder) => Self::Known(Box::new(decoder)),
            None => Self::Unknown,
        }
    }
}

/// Returns the codings of a body in lower case, in the order in which they were applied. Values
/// that are not text are skipped.
pub(crate) fn coding_names(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    names
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != "identity")
}

/// Whether a body with these headers has a content coding.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(names_a_coding)
}

fn names_a_coding(value: &http::HeaderValue) -> bool {
    let text = value.to_str().unwrap_or("?");
    text.split(',')
        .map(str::trim)
        .any(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"))
}

/// Decodes a complete body, such as that of an error. Returns `None` if it is not encoded or cannot
/// be decoded.
pub(crate) fn decode_body(headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    let ContentCoding::Known(mut decoder) = ContentCoding::from_headers(headers) else {
        return None;
    };
    let mut decoded = decoder.decode(body).ok()?;
    decoded.extend(decoder.finish().ok()?);
    Some(decoded)
}

/// Decodes a body chunk by chunk.
pub(crate) struct ContentDecoder {
    inner: Decoder,
    limits: DecodeLimits,
    /// Bytes decoded so far.
    total: usize,
}

enum Decoder {
    Gzip(MultiGzDecoder<Output>),
    /// RFC 9110 requires the zlib format, but some servers send raw deflate. Detected by the first
    /// byte.
    Deflate(Option<Deflate>),
    Brotli(Box<DecompressorWriter<Output>>),
    Zstd(ZstdDecoder),
}

enum Deflate {
    Zlib(ZlibDecoder<Output>),
    Raw(DeflateDecoder<Output>),
}

impl ContentDecoder {
    /// Returns the decoder of a coding, or `None` if the coding is unknown.
    pub(crate) fn for_coding(name: &str, limits: DecodeLimits) -> Option<Self> {
        let output = Output { decoded: Vec::new(), limit: limits.chunk };
        let inner = match name {
            "gzip" | "x-gzip" => Decoder::Gzip(MultiGzDecoder::new(output)),
            "deflate" => Decoder::Deflate(None),
            "br" => Decoder::Brotli(DecompressorWriter::new(output, BUFFER_SIZE).into()),
            "zstd" => Decoder::Zstd(ZstdDecoder::default()),
            _ => return None,
        };
        Some(Self { inner, limits, total: 0 })
    }

    /// Decodes a chunk as far as possible without the next one.
    pub(crate) fn decode(&mut self, data: &[u8]) -> Result<Vec<u8>, ContentDecodeError> {
        let decoded = match &mut self.inner {
            Decoder::Gzip(decoder) => {
                write(decoder, data)?;
                decoder.get_mut().take()
            }
            Decoder::Deflate(decoder) => match Deflate::detect(decoder, data, self.limits.chunk) {
                Some(Deflate::Zlib(decoder)) => {
                    write(decoder, data)?;
                    decoder.get_mut().take()
                }
                Some(Deflate::Raw(decoder)) => {
                    write(decoder, data)?;
                    decoder.get_mut().take()
                }
                None => Vec::new(),
            },
            Decoder::Brotli(decoder) => {
                write(&mut **decoder, data)?;
                decoder.get_mut().take()
            }
            Decoder::Zstd(decoder) => decoder.decode(data, self.limits.chunk)?,
        };
        self.count(decoded)
    }

    /// Returns what is left at the end of the body, also if the body was truncated.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, ContentDecodeError> {
        match &mut self.inner {
            Decoder::Zstd(decoder) => {
                let rest = decoder.finish(self.limits.chunk)?;
                self.count(rest)
            }
            // These decoders keep nothing back.
            Decoder::Gzip(_) | Decoder::Deflate(_) | Decoder::Brotli(_) => Ok(Vec::new()),
        }
    }

    fn count(&mut self, decoded: Vec<u8>) -> Result<Vec<u8>, ContentDecodeError> {
        self.total = self.total.saturating_add(decoded.len());
        if self.total > self.limits.total {
            return Err(ContentDecodeError(too_large_error()));
        }
        Ok(decoded)
    }
}

impl Deflate {
    fn detect<'d>(
        detected: &'d mut Option<Self>,
        data: &[u8],
        limit: usize,
    ) -> Option<&'d mut Self> {
        if detected.is_none() {
            let output = Output { decoded: Vec::new(), limit };
            let first = data.first()?;
            // Compression method 8 with a window of at most 32 KiB; no raw deflate stream starts
            // like this.
            let is_zlib = first & 0x0f == 8 && first >> 4 <= 7;
            *detected = Some(match is_zlib {
                true => Self::Zlib(ZlibDecoder::new(output)),
                false => Self::Raw(DeflateDecoder::new(output)),
            });
        }
        detected.as_mut()
    }
}

/// Writes a chunk into a decoder and flushes it.
fn write(decoder: &mut impl Write, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match decoder.write(data)? {
            // End of the encoded data; trailing bytes are ignored.
            0 => break,
            consumed => data = data.get(consumed..).unwrap_or_default(),
        }
    }
    decoder.flush()
}

fn too_large_error() -> io::Error {
    io::Error::other(TooLarge)
}

/// Collects the output for one chunk, up to a limit.
struct Output {
    decoded: Vec<u8>,
    limit: usize,
}

impl Output {
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.decoded)
    }
}

impl Write for Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.decoded.len() + data.len() > self.limit {
            return Err(too_large_error());
        }
        self.decoded.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ContentDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentDecoder").field("total", &self.total).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
