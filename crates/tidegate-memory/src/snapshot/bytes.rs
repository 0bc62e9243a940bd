//! Encoding and decoding of little-endian integers and texts. Reading returns `None` if bytes are
//! missing.

/// Appends a text of less than 64 KiB, preceded by its length. Returns whether it was short enough.
pub(super) fn put_text(text: &str, to: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(text.len()) else { return false };
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(text.as_bytes());
    true
}

/// A cursor that reads from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        let (text, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}
