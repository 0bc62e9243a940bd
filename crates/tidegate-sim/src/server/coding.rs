//! Content codings of responses, as proxies in front of a provider may apply them unasked.

use std::convert::Infallible;
use std::io::Write as _;
use std::mem;

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::server::response_stream::Body;

/// Buffer size, quality and window size of the Brotli encoder.
const BROTLI: (usize, u32, u32) = (4_096, 4, 18);

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    pub(crate) fn of(name: &str) -> Option<Self> {
        let all = [Self::Gzip, Self::Deflate, Self::Brotli, Self::Zstd];
        all.into_iter().find(|coding| coding.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Encodes a body. Every frame is flushed, so that it can be decoded immediately.
    pub(crate) fn encode(self, body: Body) -> Body {
        let state = (body, Some(Encoder::new(self)));
        let frames = stream::unfold(state, |(mut body, mut encoder)| async move {
            // No encoder means that the end was sent.
            let mut coding = encoder.take()?;
            let coded = match body.frame().await {
                Some(Ok(frame)) => {
                    let coded = coding.encode(&frame.into_data().unwrap_or_default());
                    encoder = Some(coding);
                    coded
                }
                Some(Err(never)) => match never {},
                None => coding.finish(),
            };
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(coded))), (body, encoder)))
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    /// One zstd frame per body frame.
    Zstd,
}

impl Encoder {
    fn new(coding: Coding) -> Self {
        let (buffer, effort, window) = BROTLI;
        match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            Coding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), Compression::default())),
            Coding::Brotli => {
                Self::Brotli(CompressorWriter::new(Vec::new(), buffer, effort, window).into())
            }
            Coding::Zstd => Self::Zstd,
        }
    }

    /// Encodes data. Writing to memory does not fail.
    fn encode(&mut self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Gzip(encoder) => {
                let _ = encoder.write_all(data).and_then(|()| encoder.flush());
                mem::take(encoder.get_mut())
            }
            Self::Deflate(encoder) => {
                let _ = encoder.write_all(data).and_then(|()| encoder.flush());
                mem::take(encoder.get_mut())
            }
            Self::Brotli(encoder) => {
                let _ = encoder.write_all(data).and_then(|()| encoder.flush());
                mem::take(encoder.get_mut())
            }
            Self::Zstd => compress_to_vec(data, CompressionLevel::Fastest),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.finish().unwrap_or_default(),
            Self::Deflate(encoder) => encoder.finish().unwrap_or_default(),
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd => Vec::new(),
        }
    }
}
