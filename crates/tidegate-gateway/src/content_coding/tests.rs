//! Every coding, cut anywhere, broken off, and larger than it looks.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

/// A stream of a hundred events.
fn text() -> String {
    "data: {\"tide\":\"high\"}\n\n".repeat(100)
}

fn coding(name: &'static str) -> ContentCoding {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    ContentCoding::of(&headers)
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

fn bare(text: &str) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

/// Brotli's format with its bytes stored as they are, in one block.
fn brotli(text: &str) -> Vec<u8> {
    // A window of 64 KiB, a block that is not the last, its length less one in four digits, stored.
    let length = u32::try_from(text.len() - 1).unwrap();
    assert!(length < 1 << 16);
    let head = length << 4 | 1 << 20;
    let mut coded = head.to_le_bytes()[..3].to_vec();
    coded.extend_from_slice(text.as_bytes());
    coded.push(0b11);
    coded
}

type Encode = fn(&str) -> Vec<u8>;

#[test]
fn every_coding_is_decoded_however_it_is_cut() {
    let cases: [(&str, Encode); 6] = [
        ("gzip", gzip),
        ("X-GZIP", gzip),
        ("deflate", zlib),
        ("deflate", bare),
        ("br", brotli),
        ("identity, zstd", zstd),
    ];
    for (name, encode) in cases {
        let coded = encode(&text());
        for size in [1, 7, coded.len()] {
            let mut decoder = decoder(name);
            let mut decoded = Vec::new();
            for piece in coded.chunks(size) {
                decoded.extend(decoder.decode(piece).unwrap());
            }
            decoded.extend(decoder.finish().unwrap());
            assert_eq!(String::from_utf8(decoded).unwrap(), text(), "{name}, {size} bytes");
        }
    }
}

#[test]
fn frames_that_follow_each_other_are_one_answer() {
    for (name, encode) in [("zstd", zstd as fn(&str) -> Vec<u8>), ("gzip", gzip)] {
        let coded = [encode("first "), encode("second")].concat();
        let mut decoder = decoder(name);
        let mut decoded = decoder.decode(&coded).unwrap();
        decoded.extend(decoder.finish().unwrap());
        assert_eq!(decoded, b"first second", "{name}");
    }
}

#[test]
fn an_answer_that_broke_off_is_decoded_as_far_as_it_came() {
    for (name, encode) in [("gzip", gzip as fn(&str) -> Vec<u8>), ("deflate", zlib), ("br", brotli)]
    {
        let coded = encode(&text());
        let mut decoder = decoder(name);
        let mut decoded = decoder.decode(&coded[..coded.len() - 6]).unwrap();
        decoded.extend(decoder.finish().unwrap());
        assert!(decoded.starts_with(b"data: {\"tide\""), "{name}");
    }
}

#[test]
fn a_bomb_is_not_decoded() {
    let zeros = "0".repeat(MAX_PIECE + 1);
    for (name, encode) in [("gzip", gzip as fn(&str) -> Vec<u8>), ("deflate", zlib), ("zstd", zstd)]
    {
        let mut decoder = decoder(name);
        let coded = encode(&zeros);
        assert!(coded.len() < MAX_PIECE / 100, "{name}: {}", coded.len());
        let decoded = decoder.decode(&coded).and_then(|_| decoder.finish());
        assert!(decoded.is_err(), "{name}");
    }
}

#[test]
fn what_is_no_coding_or_an_unknown_one_is_told_apart() {
    assert!(matches!(ContentCoding::of(&HeaderMap::new()), ContentCoding::Identity));
    assert!(matches!(coding("identity"), ContentCoding::Identity));
    for unknown in ["compress", "gzip, br", "aes128gcm"] {
        assert!(matches!(coding(unknown), ContentCoding::Unknown), "{unknown}");
    }
    assert!(decoder("gzip").decode(b"{\"no\":\"gzip\"}").is_err());
}
