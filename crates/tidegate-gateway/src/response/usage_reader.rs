//! Reads token usage from a response while it is forwarded unchanged.
//!
//! Stream events are passed to the reservation, which counts tokens that the provider does not
//! report. If a body cannot be parsed, only the reading stops: the rest is estimated by its size.
//! Memory is bounded.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;
use tidegate::clock::wall_now;
use tidegate_llm::rate_limit::Reservation;
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::response::{DecodeError, Decoder, decode_events};
use tidegate_providers::{Dialect, Event, Failure, Provider, Usage};

use crate::content_coding::ContentCoding;

/// Maximum size of a non-streamed body kept until its end: 4 MiB.
const MAX_BUFFERED: usize = 4 * 1_024 * 1_024;
/// Size of the tail kept of a larger body, where the usage is expected: 16 KiB.
const MAX_TAIL: usize = 16 * 1_024;
/// Bytes per token where the text cannot be parsed.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes per token in a content coding that cannot be decoded.
const CODED_BYTES_PER_TOKEN: u64 = 2;

/// Reads the usage of one response.
#[derive(Debug)]
pub(crate) struct UsageReader {
    dialect: Dialect,
    coding: ContentCoding,
    mode: ReadMode,
    /// Stream events not yet passed to the reservation.
    events: Vec<Event>,
    expected: ExpectedResponse,
    /// The `content-length` of the response.
    content_length: Option<u64>,
    /// Received bytes that could not be parsed.
    unread: u64,
}

#[derive(Debug)]
enum ReadMode {
    /// Event by event. `has_events` tells whether an event was recognised.
    Stream { decoder: Box<Decoder>, has_events: bool },
    /// Parse the body when it is complete.
    Buffer { first: Bytes, more: Vec<Bytes>, size: usize },
    /// Parse only the tail of a body that is too large to keep.
    Tail { kept: Vec<u8>, size: u64 },
    /// Do not parse, or no longer.
    Off,
}

/// What the request tells about its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedResponse {
    /// Whether it is text, so that its size allows an estimate of tokens.
    pub(crate) is_text: bool,
    /// Whether it uses tokens even if the provider reports no usage. Token counting, for example,
    /// uses none.
    pub(crate) uses_tokens: bool,
    /// Maximum output tokens allowed by the request.
    pub(crate) max_output: Option<u64>,
}

/// Whether a response is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    Stream,
    Single,
}

/// Whether a body was received to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Incomplete,
}

impl ResponseForm {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let streams = ["text/event-stream", "application/x-ndjson"];
        let is_stream = |content_type: &str| {
            streams.iter().any(|known| {
                content_type
                    .get(..known.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(known))
            })
        };
        if content_type.is_some_and(is_stream) { Self::Stream } else { Self::Single }
    }
}

impl UsageReader {
    pub(crate) fn new(
        dialect: Dialect,
        form: ResponseForm,
        headers: &HeaderMap,
        expected: ExpectedResponse,
    ) -> Self {
        let coding = ContentCoding::from_headers(headers);
        let mode = match (&coding, form) {
            (ContentCoding::Unknown, _) => ReadMode::Off,
            (_, ResponseForm::Stream) => {
                ReadMode::Stream { decoder: Box::new(Decoder::lenient(dialect)), has_events: false }
            }
            (_, ResponseForm::Single) => {
                ReadMode::Buffer { first: Bytes::new(), more: Vec::new(), size: 0 }
            }
        };
        let content_length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let content_length = content_length.and_then(|length| length.trim().parse().ok());
        Self { dialect, coding, mode, events: Vec::new(), expected, content_length, unread: 0 }
    }

    /// Returns a reader that reads nothing, for free requests.
    pub(crate) fn disabled(dialect: Dialect) -> Self {
        Self {
            dialect,
            coding: ContentCoding::Identity,
            mode: ReadMode::Off,
            events: Vec::new(),
            expected: ExpectedResponse::default(),
            content_length: None,
            unread: 0,
        }
    }

    /// Reads a chunk of the body. Fails if the provider reports an error in the stream.
    pub(crate) fn read(&mut self, data: &Bytes, provider: &Provider) -> Result<(), CallError> {
        match (&mut self.coding, &self.mode) {
            (_, ReadMode::Off) | (ContentCoding::Unknown, _) => {
                self.unread = self.unread.saturating_add(length(data));
                Ok(())
            }
            (ContentCoding::Known(decoder), _) => match decoder.decode(data) {
                Ok(decoded) => self.read_decoded(&decoded.into(), provider),
                Err(_) => {
                    self.coding = ContentCoding::Unknown;
                    self.stop(length(data));
                    Ok(())
                }
            },
            _ => self.read_decoded(data, provider),
        }
    }

    fn read_decoded(&mut self, data: &Bytes, provider: &Provider) -> Result<(), CallError> {
        match &mut self.mode {
            ReadMode::Off => Ok(()),
            ReadMode::Buffer { first, more, size } => {
                *size = size.saturating_add(data.len());
                if *size > MAX_BUFFERED {
                    let size = length(first) + more.iter().map(length).sum::<u64>();
                    self.mode = ReadMode::Tail { kept: Vec::new(), size };
                    return self.read_decoded(data, provider);
                } else if first.is_empty() {
                    // Most bodies arrive in one chunk.
                    *first = data.clone();
                } else {
                    more.push(data.clone());
                }
                Ok(())
            }
            ReadMode::Tail { kept, size } => {
                *size = size.saturating_add(length(data));
                let tail = data.get(data.len().saturating_sub(MAX_TAIL)..).unwrap_or_default();
                kept.extend_from_slice(tail);
                kept.drain(..kept.len().saturating_sub(MAX_TAIL));
                Ok(())
            }
            ReadMode::Stream { decoder, has_events } => {
                let read = decoder.feed(data, &mut self.events);
                *has_events |= !self.events.is_empty();
                match read {
                    Ok(()) => Ok(()),
                    Err(DecodeError::ProviderError(body)) => Err(self.failure(&body, provider)),
                    Err(_) => {
                        self.stop(length(data));
                        Ok(())
                    }
                }
            }
        }
    }

    /// Stops reading, with `unread` more bytes that could not be parsed.
    fn stop(&mut self, unread: u64) {
        let before = match &self.mode {
            ReadMode::Buffer { size, .. } => u64::try_from(*size).unwrap_or(u64::MAX),
            ReadMode::Tail { size, .. } => *size,
            ReadMode::Stream { .. } | ReadMode::Off => 0,
        };
        self.unread = self.unread.saturating_add(before).saturating_add(unread);
        self.mode = ReadMode::Off;
    }

    fn failure(&self, body: &Value, provider: &Provider) -> CallError {
        let rules = ClassificationRules::new();
        let failure = Failure::in_stream(self.dialect, provider, body, &rules, wall_now());
        CallError::Provider(Box::new(failure))
    }

    /// Passes the new events to a reservation.
    pub(crate) fn report_to(&mut self, reservation: Option<&mut Reservation>) {
        let Some(reservation) = reservation else { return };
        self.events.iter().for_each(|event| reservation.record_event(event));
        self.events.clear();
    }

    /// Whether the response uses tokens even if the provider reports no usage.
    pub(crate) const fn uses_tokens(&self) -> bool {
        self.expected.uses_tokens
    }

    /// Whether the body is still parsed.
    pub(crate) const fn is_reading(&self) -> bool {
        !matches!(self.mode, ReadMode::Off)
    }

    /// Whether the body has a content coding.
    pub(crate) const fn is_encoded(&self) -> bool {
        !matches!(self.coding, ContentCoding::Identity)
    }

    /// Whether the first event of the stream was read.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(&self.mode, ReadMode::Stream { decoder, .. } if decoder.has_begun())
    }

    /// Whether the stream has announced its end.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(&self.mode, ReadMode::Stream { decoder, .. } if decoder.is_finished())
    }

    /// Ends the body: passes the remaining events to the reservation, and an estimate for what
    /// could not be parsed. Fails if the response reports an error or ends in the middle.
    pub(crate) fn finish(
        &mut self,
        end: BodyEnd,
        mut reservation: Option<&mut Reservation>,
        provider: &Provider,
    ) -> Result<(), CallError> {
        let rest = match &mut self.coding {
            ContentCoding::Known(decoder) => decoder.finish().unwrap_or_default(),
            ContentCoding::Identity | ContentCoding::Unknown => Vec::new(),
        };
        let mut ended = match rest.is_empty() {
            true => Ok(()),
            false => self.read_decoded(&rest.into(), provider),
        };
        if ended.is_ok() {
            ended = self.finish_mode(end, reservation.as_deref_mut(), provider);
        }
        self.report_to(reservation.as_deref_mut());
        self.mode = ReadMode::Off;
        if let Some(reservation) = reservation {
            reservation.record_unread_tokens(self.estimated_tokens());
        }
        self.unread = 0;
        ended
    }

    fn finish_mode(
        &mut self,
        end: BodyEnd,
        reservation: Option<&mut Reservation>,
        provider: &Provider,
    ) -> Result<(), CallError> {
        let (usage, unread) = match &mut self.mode {
            ReadMode::Off => return Ok(()),
            ReadMode::Stream { decoder, has_events } => {
                // An unterminated last line may contain the usage.
                let read = decoder.end(&mut self.events);
                return match (read, end) {
                    (Err(DecodeError::ProviderError(body)), _) => {
                        Err(self.failure(&body, provider))
                    }
                    (Err(DecodeError::Truncated), BodyEnd::Complete)
                        if *has_events && self.expected.is_text =>
                    {
                        let source = Some(DecodeError::Truncated.into());
                        let provider = provider.clone();
                        Err(CallError::Connection {
                            provider,
                            kind: ConnectionFailure::Closed,
                            source,
                        })
                    }
                    _ => Ok(()),
                };
            }
            ReadMode::Tail { kept, size } => (Usage::read_end(self.dialect, kept), *size),
            ReadMode::Buffer { first, more, size } => {
                if !more.is_empty() {
                    more.insert(0, std::mem::take(first));
                    *first = more.concat().into();
                }
                match (Usage::read(self.dialect, first), end) {
                    (Some(usage), _) => (Some(usage), 0),
                    (None, BodyEnd::Incomplete) => (None, length(first)),
                    (None, BodyEnd::Complete) => match decode_events(self.dialect, first) {
                        Ok(events) => {
                            if let Some(reservation) = reservation {
                                let words = events.iter().filter_map(Event::text);
                                words.for_each(|words| reservation.record_text(words));
                            }
                            return Ok(());
                        }
                        Err(DecodeError::ProviderError(body)) => {
                            return Err(self.failure(&body, provider));
                        }
                        Err(_) => (None, u64::try_from(*size).unwrap_or(u64::MAX)),
                    },
                }
            }
        };
        match (usage, reservation) {
            (Some(usage), Some(reservation)) => reservation.record_usage(usage),
            (Some(_), None) => {}
            (None, _) => self.unread = self.unread_size(end, unread),
        }
        Ok(())
    }

    /// Returns the size of a body without usage. The provider has generated everything it
    /// announced, even if only a part arrived.
    fn unread_size(&self, end: BodyEnd, read: u64) -> u64 {
        match (end, &self.coding) {
            (BodyEnd::Incomplete, ContentCoding::Identity) => {
                read.max(self.content_length.unwrap_or(0))
            }
            _ => read,
        }
    }

    /// Estimates the tokens of the bytes that could not be parsed.
    fn estimated_tokens(&self) -> u64 {
        if !self.expected.is_text {
            return 0;
        }
        let per_token = match self.coding {
            ContentCoding::Unknown => CODED_BYTES_PER_TOKEN,
            ContentCoding::Identity | ContentCoding::Known(_) => BYTES_PER_TOKEN,
        };
        self.unread.div_ceil(per_token).min(self.expected.max_output.unwrap_or(u64::MAX))
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
