//! The key is masked in every form in which a provider may echo it, and nothing else is masked.

use super::*;

const KEY: &str = "sk-Tidal/0123+456789abcdefXYZ";

fn redacted(text: &str) -> String {
    let redactor = KeyRedactor::new(KEY).unwrap();
    let masked = redactor.redact(text.as_bytes()).unwrap_or_else(|| text.as_bytes().to_vec());
    assert_eq!(masked.len(), text.len());
    String::from_utf8(masked).unwrap()
}

#[test]
fn key_is_masked_in_every_form() {
    let pairs = ["", "x", "xy", "xyz"].map(|user| STANDARD_NO_PAD.encode(format!("{user}:{KEY}")));
    let plain = [
        KEY.to_owned(),
        KEY.to_uppercase(),
        KEY.replace('/', "\\/"),
        KEY.replace('/', "%2F").replace('+', "%2b"),
    ];
    for form in plain.iter().chain(&pairs) {
        let shown = redacted(&format!("before {form} after {form}"));
        let rest = shown.replace('*', "");
        assert!(rest.len() <= "before  after ".len() + 16, "{form}: {shown}");
        assert!(shown.starts_with("before ") && shown.contains(" after "), "{shown}");
    }
}

#[test]
fn key_fragments_are_masked_at_any_offset() {
    for length in MAX_SHOWN_LEN + 1..=KEY.len() {
        for start in 0..=KEY.len() - length {
            for before in ["", ".", "..", "...", "....", "....."] {
                let text = format!("{before}{}!", &KEY[start..start + length]);
                let hidden = format!("{before}{}!", "*".repeat(length));
                assert_eq!(redacted(&text), hidden, "{text}");
            }
        }
    }
}

#[test]
fn other_text_is_unchanged() {
    for text in ["", "sk-", "sk-Tida", "sk-T****fXYZ", "Incorrect API key provided: sk-T****fXYZ."]
    {
        assert_eq!(redacted(text), text);
    }
}

#[test]
fn short_keys_are_masked_and_placeholders_are_not() {
    assert!(KeyRedactor::new("abc").is_none());
    let redactor = KeyRedactor::new("abcd").unwrap();
    assert_eq!(redactor.redact(b"an abcd").unwrap(), b"an ****");
    assert!(redactor.redact(b"an abc").is_none());
    assert!(!redactor.scans_bodies());
}

#[test]
fn key_is_masked_in_headers_and_order_is_kept() {
    let redactor = KeyRedactor::new("sk-tidal-0123456789").unwrap();
    let mut headers = HeaderMap::new();
    headers.append("set-cookie", HeaderValue::from_static("a=sk-tidal-0123456789; Path=/"));
    headers.append("set-cookie", HeaderValue::from_static("b=1"));
    headers.append("x-sk-tidal-0123456789", HeaderValue::from_static("1"));
    redactor.redact_headers(&mut headers);
    let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=*******************; Path=/", "b=1"]);
    assert_eq!(headers.len(), 2);
}

#[test]
fn partial_key_at_the_end_of_a_chunk_is_detected() {
    let redactor = KeyRedactor::new(KEY).unwrap();
    for length in 0..KEY.len() {
        let chunk = format!("ss{}", &KEY[..length]);
        let partial = if length == 0 { 1 } else { length };
        assert_eq!(redactor.partial_key_len(chunk.as_bytes()), partial, "{chunk}");
    }
    assert_eq!(redactor.partial_key_len(KEY.as_bytes()), 0);
    let chunk = redactor.redact_chunk(format!("a{KEY}b{KEY}").into());
    let mask = "*".repeat(KEY.len());
    assert_eq!(chunk, format!("a{mask}b{mask}"));
}
