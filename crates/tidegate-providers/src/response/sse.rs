//! Assembles the data of server-sent events from lines.
//!
//! Comments, which providers send as keep-alives, and other fields are ignored: the type of an
//! event is in its data as well.

use super::error::DecodeError;
use super::stream::MAX_EVENT;

/// Event parser with a buffer for the incomplete event.
#[derive(Debug, Default)]
pub(super) struct Events {
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// Adds a line. Calls `each` with the data of the event if the line ends one.
    pub(super) fn line(
        &mut self,
        line: &[u8],
        each: impl FnOnce(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if line.is_empty() {
            return self.end(each);
        }
        let value = match line.strip_prefix(b"data") {
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some([]) => &[],
            Some(_) | None => return Ok(()),
        };
        if self.data.len() + value.len() >= MAX_EVENT {
            return Err(DecodeError::TooLarge { limit: MAX_EVENT });
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
        Ok(())
    }

    /// Hands out the event that has begun, if it has data. A stream may end without the empty line
    /// that should end its last event.
    pub(super) fn end(
        &mut self,
        each: impl FnOnce(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.has_data {
            return Ok(());
        }
        self.has_data = false;
        let done = each(&self.data);
        self.data.clear();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(lines: &[&str]) -> Vec<String> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for line in lines {
            let each = |data: &[u8]| {
                found.push(String::from_utf8(data.to_vec()).unwrap());
                Ok(())
            };
            events.line(line.as_bytes(), each).unwrap();
        }
        found
    }

    #[test]
    fn data_lines_are_joined_and_other_fields_ignored() {
        let lines = [": keep-alive", "", "event: x", "data: a", "data:b", "data", "id: 1", "", ""];
        assert_eq!(events(&lines), ["a\nb\n"]);
        assert_eq!(events(&["data:  two spaces", "database: no", ""]), [" two spaces"]);
        assert!(events(&["data: never ended"]).is_empty());
    }

    #[test]
    fn event_of_many_lines_is_bounded() {
        let mut events = Events::default();
        let line = [b"data:".as_slice(), &vec![b'x'; 1 << 20]].concat();
        let error = (0..17).find_map(|_| events.line(&line, |_| Ok(())).err()).unwrap();
        assert!(matches!(error, DecodeError::TooLarge { .. }));
    }
}
