//! Responses of providers: complete, as server-sent events, and as lines of JSON.
//!
//! The first byte of an input selects the dialect, and for streams also where it is split.

use http::{Response, StatusCode};
use tidegate_core::WallTime;
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::response::{Decoder, decode, decode_events};
use tidegate_providers::{Dialect, Event, Failure, Provider, Usage};

use crate::input;

const DIALECTS: [Dialect; 10] = [
    Dialect::OpenAi,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Azure,
    Dialect::Groq,
    Dialect::Mistral,
    Dialect::Together,
    Dialect::OpenRouter,
    Dialect::DeepSeek,
    Dialect::Compatible,
];

/// The dialect that a byte selects; printable bytes, so that seeds are text.
pub(super) fn dialect(byte: u8) -> Dialect {
    match byte {
        b'o' => Dialect::Ollama,
        byte => DIALECTS[usize::from(byte) % DIALECTS.len()],
    }
}

/// An event stream gives the same events however it is split.
pub(super) fn sse(bytes: &[u8]) {
    let [choice, cut, stream @ ..] = bytes else { return };
    same_however_cut(dialect(*choice), usize::from(*cut), stream);
}

/// A stream of lines gives the same events however it is split.
pub(super) fn ndjson(bytes: &[u8]) {
    let [cut, stream @ ..] = bytes else { return };
    same_however_cut(Dialect::Ollama, usize::from(*cut), stream);
}

fn same_however_cut(dialect: Dialect, cut: usize, stream: &[u8]) {
    for new in [Decoder::new, Decoder::lenient] {
        let whole = read(new(dialect), [stream].into_iter());
        let bytes = read(new(dialect), stream.chunks(1));
        assert_eq!(whole, bytes, "byte by byte, the events differ");
        let pieces = read(new(dialect), stream.chunks(cut % 37 + 2));
        assert_eq!(whole, pieces, "in pieces, the events differ");
        let stops = whole.0.iter().filter(|event| matches!(event, Event::Stop(_))).count();
        assert!(stops <= 1, "a stream has several ends");
    }
}

/// The events, and whether the stream ended correctly.
fn read<'b>(mut decoder: Decoder, pieces: impl Iterator<Item = &'b [u8]>) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    for piece in pieces {
        if decoder.feed(piece, &mut events).is_err() {
            let spoilt = decoder.feed(b"data: {}\n\n", &mut events);
            assert!(spoilt.is_err(), "the decoder accepts input after an error");
            return (events, false);
        }
    }
    let ended = decoder.end(&mut events).is_ok();
    (events, ended)
}

/// A complete response or an error: status, headers, an empty line, a body.
pub(super) fn answer(bytes: &[u8]) {
    let Some((line, rest)) = input::text_line(bytes) else { return };
    let dialect = dialect(line.bytes().next().unwrap_or_default());
    let status = line.get(1..).and_then(|status| status.trim().parse().ok()).unwrap_or(200);
    let Ok(status) = StatusCode::from_u16(status) else { return };
    let (headers, body) = input::headers(rest);
    let _ = decode(dialect, body);
    let _ = decode_events(dialect, body);
    if let Some(usage) = Usage::read(dialect, body) {
        let _ = usage.total();
    }
    for cut in [0, body.len() / 2] {
        let _ = Usage::read_end(dialect, &body[cut..]).map(|usage| usage.total());
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    let (parts, ()) = response.into_parts();
    let (provider, rules) = (Provider::new("fuzzed"), ClassificationRules::default());
    let now = WallTime::from_secs(1_800_000_000);
    let failure = Failure::of_response(dialect, &provider, &parts, body, &rules, now);
    assert_eq!(failure.status, status);
    let _ = failure.to_string();
    if let Ok(body) = serde_json::from_slice(body) {
        let failure = Failure::in_stream(dialect, &provider, &body, &rules, now);
        let _ = format!("{failure} {failure:?}");
    }
}
