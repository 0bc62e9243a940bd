//! Every coding at any chunk size, truncated bodies and decompression bombs.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

/// A stream of a hundred events.
fn events() -> String {
    "data: {\"tide\":\"high\"}\n\n".repeat(100)
}

fn coding(name: &'static str) -> ContentCoding {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    ContentCoding::from_headers(&headers)
}

fn decoder(name: &'static str) -> Box<ContentDecoder> {
    match coding(name) {
        ContentCoding::Known(decoder) => decoder,
        other => panic!("{name}: {other:?}"),
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn raw(text: &str) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

/// Encodes text as one uncompressed Brotli block.
fn brotli(text: &str) -> Vec<u8> {
    // Window of 64 KiB; not the last block; length minus one in four nibbles; uncompressed.
    let length = u32::try_from(text.len() - 1).unwrap();
    assert!(length < 1 << 16);
    let head = length << 4 | 1 << 20;
    let mut encoded = head.to_le_bytes()[..3].to_vec();
    encoded.extend_from_slice(text.as_bytes());
    encoded.push(0b11);
    encoded
}

type Encode = fn(&str) -> Vec<u8>;

#[test]
fn every_coding_decodes_at_any_chunk_size() {
    let cases: [(&str, Encode); 6] = [
        ("gzip", gzip),
        ("X-GZIP", gzip),
        ("deflate", zlib),
        ("deflate", raw),
        ("br", brotli),
        ("identity, zstd", zstd),
    ];
    for (name, encode) in cases {
        let encoded = encode(&events());
        for size in [1, 7, encoded.len()] {
            let mut decoder = decoder(name);
            let mut decoded = Vec::new();
            for chunk in encoded.chunks(size) {
                decoded.extend(decoder.decode(chunk).unwrap());
            }
            decoded.extend(decoder.finish().unwrap());
            assert_eq!(String::from_utf8(decoded).unwrap(), events(), "{name}, {size} bytes");
        }
    }
}

#[test]
fn consecutive_frames_decode_as_one_body() {
    for (name, encode) in [("zstd", zstd as fn(&str) -> Vec<u8>), ("gzip", gzip)] {
        let encoded = [encode("first "), encode("second")].concat();
        let mut decoder = decoder(name);
        let mut decoded = decoder.decode(&encoded).unwrap();
        decoded.extend(decoder.finish().unwrap());
        assert_eq!(decoded, b"first second", "{name}");
    }
}

#[test]
fn a_truncated_body_decodes_up_to_the_cut() {
    for (name, encode) in [("gzip", gzip as fn(&str) -> Vec<u8>), ("deflate", zlib), ("br", brotli)]
    {
        let encoded = encode(&events());
        let mut decoder = decoder(name);
        let mut decoded = decoder.decode(&encoded[..encoded.len() - 6]).unwrap();
        decoded.extend(decoder.finish().unwrap());
        assert!(decoded.starts_with(b"data: {\"tide\""), "{name}");
    }
}

#[test]
fn a_decompression_bomb_is_rejected() {
    let zeros = "0".repeat(MAX_CHUNK + 1);
    for (name, encode) in [("gzip", gzip as fn(&str) -> Vec<u8>), ("deflate", zlib), ("zstd", zstd)]
    {
        let mut decoder = decoder(name);
        let encoded = encode(&zeros);
        assert!(encoded.len() < MAX_CHUNK / 100, "{name}: {}", encoded.len());
        let decoded = decoder.decode(&encoded).and_then(|_| decoder.finish());
        assert!(decoded.is_err(), "{name}");
    }
}

#[test]
fn identity_and_unknown_codings_are_distinguished() {
    assert!(matches!(ContentCoding::from_headers(&HeaderMap::new()), ContentCoding::Identity));
    assert!(matches!(coding("identity"), ContentCoding::Identity));
    for unknown in ["compress", "gzip, br", "aes128gcm"] {
        assert!(matches!(coding(unknown), ContentCoding::Unknown), "{unknown}");
    }
    assert!(decoder("gzip").decode(b"{\"no\":\"gzip\"}").is_err());
}
