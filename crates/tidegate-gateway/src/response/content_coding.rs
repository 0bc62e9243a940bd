//! Content codings: reads what a compressed answer says, beside the bytes that pass unchanged.
//!
//! The gateway asks for answers without a coding. A provider that compresses nevertheless is read
//! through a decoder here. What a decoder gives out is bounded, for each piece and for the whole
//! answer: beyond that nothing more is decoded, and the answer is estimated by its size.

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

/// An answer that cannot be decoded, or is larger than the bounds.
#[derive(Debug, thiserror::Error)]
#[error("the content coding cannot be decoded")]
pub(crate) struct Undecodable(#[from] io::Error);

impl ContentCoding {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(CONTENT_ENCODING).iter();
        let names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
        let mut names = names
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty() && name != "identity");
        let (Some(name), None) = (names.next(), names.next()) else {
            return if is_coded(headers) { Self::Unknown } else { Self::Identity };
        };
        let decoder = match name.as_str() {
            "gzip" | "x-gzip" => Inner::Gzip(MultiGzDecoder::new(Output::default())),
            "deflate" => Inner::Deflate(None),
            "br" => Inner::Brotli(DecompressorWriter::new(Output::default(), BUFFER).into()),
            "zstd" => Inner::Zstd(ZstdDecoder::default()),
            _ => return Self::Unknown,
        };
        Self::Known(Box::new(ContentDecoder { inner: decoder, total: 0 }))
    }
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

/// Decodes an answer piece by piece.
pub(crate) struct ContentDecoder {
    inner: Inner,
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
    /// Decodes a piece, as far as it can be decoded without the next one.
    pub(crate) fn decode(&mut self, data: &[u8]) -> Result<Vec<u8>, Undecodable> {
        let decoded = match &mut self.inner {
            Inner::Gzip(decoder) => {
                write(decoder, data)?;
                decoder.get_mut().take()
            }
            Inner::Deflate(decoder) => match Deflate::of(decoder, data) {
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
            Inner::Zstd(decoder) => decoder.decode(data, MAX_PIECE)?,
        };
        self.count(decoded)
    }

    /// What is left when no more bytes come, also of an answer that broke off.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, Undecodable> {
        match &mut self.inner {
            Inner::Zstd(decoder) => {
                let rest = decoder.finish(MAX_PIECE)?;
                self.count(rest)
            }
            // They give out at once what they have decoded.
            Inner::Gzip(_) | Inner::Deflate(_) | Inner::Brotli(_) => Ok(Vec::new()),
        }
    }

    fn count(&mut self, decoded: Vec<u8>) -> Result<Vec<u8>, Undecodable> {
        self.total = self.total.saturating_add(decoded.len());
        if self.total > MAX_TOTAL {
            return Err(Undecodable(too_large()));
        }
        Ok(decoded)
    }
}

impl Deflate {
    fn of<'d>(known: &'d mut Option<Self>, data: &[u8]) -> Option<&'d mut Self> {
        if known.is_none() {
            let first = data.first()?;
            // Method 8 with a window of at most 32 KiB; no bare stream begins like this.
            let is_zlib = first & 0x0f == 8 && first >> 4 <= 7;
            *known = Some(match is_zlib {
                true => Self::Zlib(ZlibDecoder::new(Output::default())),
                false => Self::Bare(DeflateDecoder::new(Output::default())),
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
    io::Error::other("the decoded answer is too large")
}

/// What a decoder has given out of one piece.
#[derive(Default)]
struct Output(Vec<u8>);

impl Output {
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl Write for Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0.len() + data.len() > MAX_PIECE {
            return Err(too_large());
        }
        self.0.extend_from_slice(data);
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
