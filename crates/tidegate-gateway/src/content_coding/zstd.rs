//! Zstandard decoder, frame by frame.
//!
//! `FrameDecoder` keeps back up to a window of data until a frame ends. If a body was truncated,
//! `finish` ends the frame artificially so that all received data can be read.

use std::io;

use ruzstd::decoding::FrameDecoder;

/// Maximum window size in HTTP (RFC 9659): 8 MiB.
const MAX_WINDOW: u64 = 8 * 1_024 * 1_024;
/// Maximum length of a frame header.
const MAX_HEADER_LEN: usize = 18;
/// Header of an empty last block.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];
/// Size of the output buffer.
const CHUNK: usize = 64 * 1_024;

/// Decodes consecutive frames.
#[derive(Default)]
pub(super) struct ZstdDecoder {
    /// The current frame.
    frame: Option<Box<FrameDecoder>>,
    /// Bytes not decoded yet: at most one header or block.
    pending: Vec<u8>,
}

impl ZstdDecoder {
    pub(super) fn decode(&mut self, data: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        self.pending.extend_from_slice(data);
        self.decode_blocks(MAX_HEADER_LEN, limit)
    }

    /// Returns the rest of the last frame, ending it if it is incomplete.
    pub(super) fn finish(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut decoded = self.decode_blocks(1, limit)?;
        if self.frame.is_some() {
            self.pending = LAST_BLOCK.to_vec();
            decoded.extend(self.decode_blocks(1, limit)?);
        }
        Ok(decoded)
    }

    /// Decodes complete blocks. Starts a frame once `header` bytes are available.
    fn decode_blocks(&mut self, header: usize, limit: usize) -> io::Result<Vec<u8>> {
        let (mut decoded, mut chunk) = (Vec::new(), vec![0; CHUNK]);
        loop {
            if self.frame.is_none() && self.pending.len() < header.max(1) {
                return Ok(decoded);
            }
            let frame = self.frame.get_or_insert_with(|| {
                let mut frame = FrameDecoder::new();
                frame.set_max_window_size(MAX_WINDOW);
                Box::new(frame)
            });
            let (read, written) =
                frame.decode_from_to(&self.pending, &mut chunk).map_err(io::Error::other)?;
            // A checksum that has not arrived yet is counted as read.
            let is_incomplete = read > self.pending.len();
            if !is_incomplete {
                self.pending.drain(..read);
            }
            decoded.extend_from_slice(chunk.get(..written).unwrap_or_default());
            if decoded.len() > limit {
                return Err(super::too_large_error());
            }
            if frame.is_finished() && frame.can_collect() == 0 {
                self.frame = None;
            } else if is_incomplete || read == 0 && written == 0 {
                return Ok(decoded);
            }
        }
    }
}
