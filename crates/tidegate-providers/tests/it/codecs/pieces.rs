//! Streams in pieces: the events do not depend on where the stream is split, and no input panics.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tidegate_providers::response::{DecodeError, Decoder};
use tidegate_providers::{Dialect, Event, Reply, StopReason};

use super::transcripts;

/// Returns all events of a stream in these pieces, and the error that ended it.
fn decode<'a>(
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Option<String>) {
    let mut decoder = Decoder::new(dialect);
    let mut events = Vec::new();
    let read = || {
        pieces.into_iter().try_for_each(|piece| decoder.feed(piece, &mut events))?;
        decoder.end(&mut events)
    };
    let error = read().err().map(|error: DecodeError| error.to_string());
    (events, error)
}

fn reply(events: &[Event]) -> Reply {
    let mut reply = Reply::default();
    events.iter().cloned().for_each(|event| reply.add(event));
    reply
}

/// Splits bytes at these positions.
fn split_at<'a>(bytes: &'a [u8], positions: &[Index]) -> Vec<&'a [u8]> {
    let mut positions: Vec<usize> =
        positions.iter().map(|place| place.index(bytes.len() + 1)).collect();
    positions.sort_unstable();
    let starts = std::iter::once(0).chain(positions.iter().copied());
    let ends = positions.iter().copied().chain([bytes.len()]);
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

fn dialects() -> impl Strategy<Value = Dialect> {
    select(vec![Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama])
}

#[test]
fn transcripts_decode_to_their_replies() {
    for transcript in transcripts::all() {
        let (events, error) = decode(transcript.dialect, [transcript.stream.as_bytes()]);
        assert_eq!(error, None, "{:?}", transcript.dialect);
        assert_eq!(reply(&events), transcript.reply, "{:?}", transcript.dialect);
        assert_eq!(events.last(), Some(&Event::Stop(StopReason::Tools)));
    }
}

#[test]
fn stream_of_single_bytes_decodes_alike() {
    for transcript in transcripts::all() {
        let bytes = transcript.stream.as_bytes();
        let whole = decode(transcript.dialect, [bytes]);
        assert_eq!(decode(transcript.dialect, bytes.chunks(1)), whole, "{:?}", transcript.dialect);
    }
}

#[test]
fn nothing_is_read_after_an_error() {
    for error in ["data: {\"error\":{\"code\":500}}\n\n", "data: no JSON\n\n"] {
        let (mut decoder, mut events) = (Decoder::new(Dialect::OpenAi), Vec::new());
        assert!(decoder.feed(error.as_bytes(), &mut events).is_err());
        let words = b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
        assert!(matches!(decoder.feed(words, &mut events), Err(DecodeError::AfterError)));
        assert!(matches!(decoder.end(&mut events), Err(DecodeError::AfterError)));
        assert_eq!(events, []);
    }
}

#[test]
fn truncated_stream_is_never_complete() {
    for transcript in transcripts::all() {
        let bytes = transcript.stream.as_bytes();
        // Start of the last record: nothing before it can end the stream.
        let last = match transcript.dialect {
            Dialect::OpenAi => transcript.stream.find("tool_calls\"}]").unwrap(),
            Dialect::Anthropic => transcript.stream.find("message_stop").unwrap(),
            Dialect::Gemini => transcript.stream.find("finishReason").unwrap(),
            _ => transcript.stream.find("\"done\":true").unwrap(),
        };
        for end in 0..last {
            let (events, error) = decode(transcript.dialect, [&bytes[..end]]);
            assert_eq!(error.as_deref(), Some("ends before it is complete"), "{end}");
            assert!(!events.iter().any(|event| matches!(event, Event::Stop(_))));
        }
    }
}

proptest! {
    #[test]
    fn stream_decodes_alike_however_it_is_split(positions in vec(any::<Index>(), 0..20)) {
        for transcript in transcripts::all() {
            let bytes = transcript.stream.as_bytes();
            let whole = decode(transcript.dialect, [bytes]);
            prop_assert_eq!(decode(transcript.dialect, split_at(bytes, &positions)), whole);
        }
    }

    #[test]
    fn damaged_stream_decodes_alike_however_it_is_split(
        which in any::<Index>(),
        damages in vec((any::<Index>(), any::<u8>()), 1..4),
        positions in vec(any::<Index>(), 0..8),
    ) {
        let transcript = transcripts::all().swap_remove(which.index(4));
        let mut bytes = transcript.stream.into_bytes();
        for (place, byte) in damages {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let whole = decode(transcript.dialect, [bytes.as_slice()]);
        prop_assert_eq!(decode(transcript.dialect, split_at(&bytes, &positions)), whole);
    }

    #[test]
    fn arbitrary_bytes_are_an_error(
        dialect in dialects(),
        bytes in vec(any::<u8>(), 0..400),
    ) {
        let (events, error) = decode(dialect, [bytes.as_slice()]);
        prop_assert!(error.is_some() && events.is_empty());
        prop_assert!(tidegate_providers::response::decode(dialect, &bytes).is_err());
    }

    #[test]
    fn unexpected_json_never_panics(dialect in dialects(), json in shapes()) {
        let _ = tidegate_providers::response::decode(dialect, json.to_string().as_bytes());
        let _ = decode(dialect, [format!("data: {json}\n\n").as_bytes()]);
        let _ = decode(dialect, [format!("{json}\n").as_bytes()]);
    }
}

/// JSON with known member names in unexpected places.
fn shapes() -> impl Strategy<Value = serde_json::Value> {
    let names = vec![
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "index",
        "function",
        "arguments",
        "usage",
        "type",
        "content_block",
        "candidates",
        "parts",
        "functionCall",
        "args",
        "done",
        "finish_reason",
        "finishReason",
        "usageMetadata",
        "text",
        "name",
        "error",
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        select(vec!["tool_use", "content_block_start", "stop", "", "error"]).prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 5, move |inner| {
        let member = (select(names.clone()).prop_map(str::to_owned), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Into::into),
            vec(member, 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}
