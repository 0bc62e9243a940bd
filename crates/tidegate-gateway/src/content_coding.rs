//! Content codings: reads what a compressed body says, beside the bytes that pass unchanged.
//!
//! The gateway asks for answers without a coding. A provider that compresses nevertheless is read
//! through a decoder here, and so is a caller that compresses its request. What a decoder gives out is
//! bounded, for each piece and for the whole body: beyond that nothing more is decoded, and the body is
//! estimated by its size.

mod zstd;

use std::fmt;
use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use zstd::ZstdDecoder;

/// The most bytes that one piece of an answer is decoded to: 8 MiB.
const MAX_PIECE: usize = 8 * 1_024 * 1_024;
/// The most bytes that a whole answer is decoded to: 64 MiB.
const MAX_TOTAL: usize = 64 * 1_024 * 1_024;
/// The buffer between a decoder and what it gives out.
const BUFFER: usize = 4 * 1_024;

/// The bounds of a decoder: the most bytes that it gives out of one piece, and of a whole body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) piece: usize,
    pub(crate) total: usize,
}

/// The bounds of an answer.
const OF_ANSWER: Bounds = Bounds { piece: MAX_PIECE, total: MAX_TOTAL };

/// The content coding of an answer.
#[derive(Debug)]
pub(crate) enum ContentCoding {
    /// The bytes are what they say.
    Identity,
    /// They are decoded.
    Known(Box<ContentDecoder>),
    /// They cannot be decoded: the coding is unknown, or there are several.
    Unknown,
}

/// A body that cannot be decoded, or is larger than the bounds.
#[derive(Debug, thiserror::Error)]
#[error("the content coding cannot be decoded")]
pub(crate) struct Undecodable(#[from] io::Error);

impl Undecodable {
    /// Whether it is larger than the bounds.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self.0.get_ref(), Some(error) if error.is::<TooLarge>())
    }
}

/// More was decoded than the bounds allow.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the decoded body is too large")]
struct TooLarge;

impl ContentCoding {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut names = names(headers);
        let (Some(name), None) = (names.next(), names.next()) else {
            return if is_coded(headers) { Self::Unknown } else { Self::Identity };
        };
        match ContentDecoder::of(&name, OF_ANSWER) {
            Some(decoder) => Self::Known(Box::new(decoder)),
            None => Self::Unknown,
        }
    }
}

/// The codings of a body in lower case, in the order in which they were applied. Bytes that are no text
/// are passed over.
pub(crate) fn names(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    names
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != "identity")
}

/// Whether a body with these headers has a content coding.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(is_a_coding)
}

fn is_a_coding(value: &http::HeaderValue) -> bool {
    let text = value.to_str().unwrap_or("?");
    text.split(',')
        .map(str::trim)
        .any(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"))
}

/// The decoded form of a body that came whole, such as that of an error. `None` if it has no coding,
/// or none that can be decoded.
pub(crate) fn decode_whole(headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    let ContentCoding::Known(mut decoder) = ContentCoding::of(headers) else { return None };
    let mut decoded = decoder.decode(body).ok()?;
    decoded.extend(decoder.finish().ok()?);
    Some(decoded)
}

/// Decodes a body piece by piece.
pub(crate) struct ContentDecoder {
    inner: Inner,
    bounds: Bounds,
    /// Bytes that were given out.
    total: usize,
}

enum Inner {
    Gzip(MultiGzDecoder<Output>),
    /// The standard says that this is zlib's format, and some servers send the bare one. The first
    /// byte tells.
    Deflate(Option<Deflate>),
    Brotli(Box<DecompressorWriter<Output>>),
    Zstd(ZstdDecoder),
}

enum Deflate {
    Zlib(ZlibDecoder<Output>),
    Bare(DeflateDecoder<Output>),
}

impl ContentDecoder {
    /// The decoder of a coding, if it is a known one.
    pub(crate) fn of(name: &str, bounds: Bounds) -> Option<Self> {
        let output = Output { decoded: Vec::new(), limit: bounds.piece };
        let inner = match name {
            "gzip" | "x-gzip" => Inner::Gzip(MultiGzDecoder::new(output)),
            "deflate" => Inner::Deflate(None),
            "br" => Inner::Brotli(DecompressorWriter::new(output, BUFFER).into()),
            "zstd" => Inner::Zstd(ZstdDecoder::default()),
            _ => return None,
        };
        Some(Self { inner, bounds, total: 0 })
    }

    /// Decodes a piece, as far as it can be decoded without the next one.
    pub(crate) fn decode(&mut self, data: &[u8]) -> Result<Vec<u8>, Undecodable> {
        let decoded = match &mut self.inner {
            Inner::Gzip(decoder) => {
                write(decoder, data)?;
                decoder.get_mut().take()
            }
            Inner::Deflate(decoder) => match Deflate::of(decoder, data, self.bounds.piece) {
                Some(Deflate::Zlib(decoder)) => {
                    write(decoder, data)?;
                    decoder.get_mut().take()
                }
                Some(Deflate::Bare(decoder)) => {
                    write(decoder, data)?;
                    decoder.get_mut().take()
                }
                None => Vec::new(),
            },
            Inner::Brotli(decoder) => {
                write(&mut **decoder, data)?;
                decoder.get_mut().take()
            }
            Inner::Zstd(decoder) => decoder.decode(data, self.bounds.piece)?,
        };
        self.count(decoded)
    }

    /// What is left when no more bytes come, also of an answer that broke off.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, Undecodable> {
        match &mut self.inner {
            Inner::Zstd(decoder) => {
                let rest = decoder.finish(self.bounds.piece)?;
                self.count(rest)
            }
            // They give out at once what they have decoded.
            Inner::Gzip(_) | Inner::Deflate(_) | Inner::Brotli(_) => Ok(Vec::new()),
        }
    }

    fn count(&mut self, decoded: Vec<u8>) -> Result<Vec<u8>, Undecodable> {
        self.total = self.total.saturating_add(decoded.len());
        if self.total > self.bounds.total {
            return Err(Undecodable(too_large()));
        }
        Ok(decoded)
    }
}

impl Deflate {
    fn of<'d>(known: &'d mut Option<Self>, data: &[u8], limit: usize) -> Option<&'d mut Self> {
        if known.is_none() {
            let output = Output { decoded: Vec::new(), limit };
            let first = data.first()?;
            // Method 8 with a window of at most 32 KiB; no bare stream begins like this.
            let is_zlib = first & 0x0f == 8 && first >> 4 <= 7;
            *known = Some(match is_zlib {
                true => Self::Zlib(ZlibDecoder::new(output)),
                false => Self::Bare(DeflateDecoder::new(output)),
            });
        }
        known.as_mut()
    }
}

/// Writes a piece into a decoder, and has it give out all that it can.
fn write(decoder: &mut impl Write, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match decoder.write(data)? {
            // The end of the coded bytes; what follows means nothing.
            0 => break,
            taken => data = data.get(taken..).unwrap_or_default(),
        }
    }
    decoder.flush()
}

fn too_large() -> io::Error {
    io::Error::other(TooLarge)
}

/// What a decoder has given out of one piece.
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
            return Err(too_large());
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
