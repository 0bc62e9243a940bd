//! Parser for structured fields (RFC 9651), limited to what rate-limit fields use: lists of items
//! with parameters, and dictionaries of items.
//!
//! A text with any syntax error yields `None`, as the RFC requires. So does one with inner lists,
//! which are valid but not used by rate-limit fields.

/// A value without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BareItem {
    Integer(i64),
    /// A string or a token: the drafts use either.
    Text(String),
    /// Anything else: decimals, bytes, booleans, dates.
    Other,
}

/// A value with its parameters. The last parameter of a name wins.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) value: BareItem,
    parameters: Vec<(String, BareItem)>,
}

impl Item {
    pub(super) fn parameter(&self, name: &str) -> Option<&BareItem> {
        let mut named = self.parameters.iter().rev();
        named.find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns a parameter that is a non-negative integer.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.number()
    }
}

impl BareItem {
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// Reads a list of items.
pub(super) fn list(text: &str) -> Option<Vec<Item>> {
    members(text, item)
}

/// Reads a dictionary.
pub(super) fn dictionary(text: &str) -> Option<Vec<(String, Item)>> {
    members(text, |reader| {
        let key = reader.key()?;
        if reader.eat(b'=') {
            return Some((key, item(reader)?));
        }
        Some((key, Item { value: BareItem::Other, parameters: reader.parameters()? }))
    })
}

fn members<T>(text: &str, member: impl Fn(&mut Reader<'_>) -> Option<T>) -> Option<Vec<T>> {
    let mut reader = Reader(text.trim_matches(' ').as_bytes());
    let mut members = Vec::new();
    while !reader.0.is_empty() {
        members.push(member(&mut reader)?);
        reader.skip(b" \t");
        if reader.0.is_empty() {
            break;
        }
        if !reader.eat(b',') {
            return None;
        }
        reader.skip(b" \t");
        if reader.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

fn item(reader: &mut Reader<'_>) -> Option<Item> {
    Some(Item { value: reader.bare_item()?, parameters: reader.parameters()? })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn skip(&mut self, any: &[u8]) {
        while self.0.first().is_some_and(|byte| any.contains(byte)) {
            self.0 = &self.0[1..];
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !fits(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn parameters(&mut self) -> Option<Vec<(String, BareItem)>> {
        let mut parameters = Vec::new();
        while self.eat(b';') {
            self.skip(b" ");
            let key = self.key()?;
            let value = if self.eat(b'=') { self.bare_item()? } else { BareItem::Other };
            parameters.push((key, value));
        }
        Some(parameters)
    }

    fn key(&mut self) -> Option<String> {
        if !self.0.first().is_some_and(|byte| byte.is_ascii_lowercase() || *byte == b'*') {
            return None;
        }
        let key = self.take_while(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        });
        Some(String::from_utf8_lossy(key).into_owned())
    }

    fn bare_item(&mut self) -> Option<BareItem> {
        match *self.0.first()? {
            b'"' => self.string().map(BareItem::Text),
            b'-' | b'0'..=b'9' => self.number(),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => Some(BareItem::Text(self.token())),
            b':' => self.bytes(),
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(BareItem::Other)
            }
            b'@' => {
                self.next();
                matches!(self.number()?, BareItem::Integer(_)).then_some(BareItem::Other)
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => match self.next()? {
                    byte @ (b'"' | b'\\') => text.push(byte.into()),
                    _ => return None,
                },
                byte @ 0x20..=0x7e => text.push(byte.into()),
                _ => return None,
            }
        }
    }

    fn token(&mut self) -> String {
        let token = self.take_while(|byte| {
            byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
        });
        String::from_utf8_lossy(token).into_owned()
    }

    /// Parses an integer of at most 15 digits, or a decimal of at most 12 digits and 3 decimals.
    fn number(&mut self) -> Option<BareItem> {
        let negative = self.eat(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let part = self.take_while(|byte| byte.is_ascii_digit());
            let fits = whole.len() <= 12 && (1..=3).contains(&part.len());
            return fits.then_some(BareItem::Other);
        }
        let number = whole.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(BareItem::Integer(if negative { -number } else { number }))
    }

    fn bytes(&mut self) -> Option<BareItem> {
        self.next();
        self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.eat(b':').then_some(BareItem::Other)
    }

    fn display_string(&mut self) -> Option<BareItem> {
        self.next();
        if !self.eat(b'"') {
            return None;
        }
        self.take_while(|byte| (0x20..=0x7e).contains(&byte) && byte != b'"');
        self.eat(b'"').then_some(BareItem::Other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Number of items by an independent parser.
    fn reference_len(text: &str) -> Option<usize> {
        let list = sfv::Parser::new(text).parse::<sfv::List>().ok()?;
        let flat = list.iter().all(|entry| matches!(entry, sfv::ListEntry::Item(_)));
        flat.then_some(list.len())
    }

    #[test]
    fn items_and_their_parameters_are_read() {
        let read = list(r#""a\"b";q=5;w=-1;pk=:YQ==:;x , c/d;r=1.5;r=2, 7;on=?1;at=@9"#).unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].value, BareItem::Text("a\"b".into()));
        assert_eq!((read[0].number("q"), read[0].number("w")), (Some(5), None));
        assert_eq!(read[0].parameter("x"), Some(&BareItem::Other));
        assert_eq!((&read[1].value, read[1].number("r")), (&BareItem::Text("c/d".into()), Some(2)));
        assert_eq!(read[2].value, BareItem::Integer(7));
        let read = dictionary("limit=100, flag, reset=5;x=1").unwrap();
        assert_eq!((read[0].0.as_str(), read[0].1.value.number()), ("limit", Some(100)));
        assert_eq!((read[1].0.as_str(), read[1].1.value.number()), ("flag", None));
    }

    #[test]
    fn any_syntax_error_invalidates_the_list() {
        for text in [
            r#""a";r=1,"#,
            r#""a";r=1 "b""#,
            r#""a"#,
            r#""a";R=1"#,
            r#""a";r="#,
            "1234567890123456",
            "ä",
            "limit=100",
        ] {
            assert!(list(text).is_none(), "{text}");
            assert_eq!(reference_len(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_independent_parser(text in "[ab\";=,0-9. rt\\\\:?*-]{0,24}") {
            // This parser does not decode byte sequences, because no rate-limit field uses them.
            prop_assume!(!text.contains(':'));
            prop_assert_eq!(list(&text).map(|list| list.len()), reference_len(&text));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,60}") {
            let _ = (list(&text), dictionary(&text));
        }
    }
}
