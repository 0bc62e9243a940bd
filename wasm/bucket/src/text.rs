//! A fixed buffer for text that crosses the boundary.

use core::fmt::{self, Write};

/// Size of the buffer. Texts that do not fit are cut off.
pub(crate) const SIZE: usize = 256;

/// Bytes of a text, whose length is passed separately.
pub(crate) struct Text([u8; SIZE]);

impl Text {
    /// An empty buffer.
    pub(crate) const EMPTY: Self = Self([0; SIZE]);

    /// Returns the first `length` bytes.
    pub(crate) fn get(&self, length: usize) -> &[u8] {
        &self.0[..length.min(SIZE)]
    }

    /// Writes a text and returns its length.
    pub(crate) fn set(&mut self, text: &dyn fmt::Display) -> usize {
        let mut writer = Writer { buffer: &mut self.0, used: 0 };
        // The writer does not fail.
        let _ = write!(writer, "{text}");
        writer.used
    }
}

struct Writer<'b> {
    buffer: &'b mut [u8; SIZE],
    used: usize,
}

impl Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.buffer[self.used..];
        let length = text.len().min(free.len());
        free[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.used += length;
        Ok(())
    }
}
