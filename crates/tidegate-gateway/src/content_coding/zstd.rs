//! Zstandard, frame by frame.
//!
//! The decoder holds back a window's worth of each frame until the frame ends. Of an answer that
//! broke off, the frame is ended here, so that all of it that came can be read.

use std::io;

use ruzstd::decoding::FrameDecoder;

/// The largest window that HTTP allows: 8 MiB.
const MAX_WINDOW: u64 = 8 * 1_024 * 1_024;
/// The longest header of a frame.
const MAX_HEADER_LEN: usize = 18;
/// The header of an empty block that is the last of its frame.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];
/// How much is given out at a time.
const CHUNK: usize = 64 * 1_024;

/// Decodes frames that follow each other.
#[derive(Default)]
pub(super) struct ZstdDecoder {
    /// The frame that has begun.
    frame: Option<Box<FrameDecoder>>,
    /// Bytes that are not decoded yet: at most a header, or a block.
    pending: Vec<u8>,
}

impl ZstdDecoder {
    pub(super) fn decode(&mut self, data: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        self.pending.extend_from_slice(data);
        self.decode_blocks(MAX_HEADER_LEN, limit)
    }

    /// What is left of the last frame, which is ended if it has not ended by itself.
    pub(super) fn finish(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut decoded = self.decode_blocks(1, limit)?;
        if self.frame.is_some() {
            self.pending = LAST_BLOCK.to_vec();
            decoded.extend(self.decode_blocks(1, limit)?);
        }
        Ok(decoded)
    }

    /// Decodes whole blocks. A frame is begun when so many bytes are there.
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
            // A checksum that is not there yet is told as read.
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
