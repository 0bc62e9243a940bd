//! Reads token usage from an answer while it passes; the answer itself is not changed.
//!
//! Events of a stream are told to the reservation, which counts what the provider does not. A body
//! that cannot be read ends the reading, not the answer: what cannot be read is estimated by its size.
//! Memory is bounded.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;
use tidegate::clock::wall_now;
use tidegate_llm::rate_limit::Reservation;
use tidegate_llm::{Broken, CallError};
use tidegate_providers::classify::Rules;
use tidegate_providers::response::{DecodeError, Decoder, decode_events};
use tidegate_providers::{Dialect, Event, Failure, Provider, Usage};

use crate::content_coding::ContentCoding;

/// The most bytes of an answer in one piece that are kept until its end: 4 MiB.
const MAX_KEPT: usize = 4 * 1_024 * 1_024;
/// How much is kept of the end of a longer one, where the counts are: 16 KiB.
const MAX_END: usize = 16 * 1_024;
/// Bytes of an answer that count as a token where its words cannot be read.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes that count as a token in a content coding that cannot be decoded.
const CODED_BYTES_PER_TOKEN: u64 = 2;

/// Reads the usage of one answer.
#[derive(Debug)]
pub(crate) struct UsageReader {
    dialect: Dialect,
    coding: ContentCoding,
    mode: ReadMode,
    /// Events of a stream that are not told to the reservation yet.
    events: Vec<Event>,
    answer: ExpectedAnswer,
    /// The size that the head announces.
    announced: Option<u64>,
    /// Bytes that came and could not be read.
    unread: u64,
}

#[derive(Debug)]
enum ReadMode {
    /// Event by event; whether any of them was one of an answer.
    Stream { decoder: Box<Decoder>, is_known: bool },
    /// When the body is complete.
    Whole { first: Bytes, more: Vec<Bytes>, size: usize },
    /// By the end of the body, which is longer than is kept.
    End { kept: Vec<u8>, size: u64 },
    /// Not, or no longer.
    Off,
}

/// What is known of an answer before it comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedAnswer {
    /// Whether it is made of words, so that its size tells of tokens.
    pub(crate) has_words: bool,
    /// Whether tokens are used for it, also if the provider does not say so. Counting tokens uses none.
    pub(crate) uses_tokens: bool,
    /// The most output tokens that the request allows.
    pub(crate) max_output: Option<u64>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stream,
    Whole,
}

/// Whether a body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Incomplete,
}

impl Form {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let streams = ["text/event-stream", "application/x-ndjson"];
        let is_stream = |kind: &str| {
            streams.iter().any(|known| {
                kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known))
            })
        };
        if kind.is_some_and(is_stream) { Self::Stream } else { Self::Whole }
    }
}

impl UsageReader {
    pub(crate) fn new(
        dialect: Dialect,
        form: Form,
        headers: &HeaderMap,
        answer: ExpectedAnswer,
    ) -> Self {
        let coding = ContentCoding::of(headers);
        let mode = match (&coding, form) {
            (ContentCoding::Unknown, _) => ReadMode::Off,
            (_, Form::Stream) => {
                ReadMode::Stream { decoder: Box::new(Decoder::lenient(dialect)), is_known: false }
            }
            (_, Form::Whole) => ReadMode::Whole { first: Bytes::new(), more: Vec::new(), size: 0 },
        };
        let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|length| length.trim().parse().ok());
        Self { dialect, coding, mode, events: Vec::new(), answer, announced, unread: 0 }
    }

    /// Reads nothing, for requests that are free.
    pub(crate) fn disabled(dialect: Dialect) -> Self {
        Self {
            dialect,
            coding: ContentCoding::Identity,
            mode: ReadMode::Off,
            events: Vec::new(),
            answer: ExpectedAnswer::default(),
            announced: None,
            unread: 0,
        }
    }

    /// Reads a part of the body. The error is one that the provider reports in the stream.
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
            ReadMode::Whole { first, more, size } => {
                *size = size.saturating_add(data.len());
                if *size > MAX_KEPT {
                    let size = length(first) + more.iter().map(length).sum::<u64>();
                    self.mode = ReadMode::End { kept: Vec::new(), size };
                    return self.read_decoded(data, provider);
                } else if first.is_empty() {
                    // Most bodies come in one part.
                    *first = data.clone();
                } else {
                    more.push(data.clone());
                }
                Ok(())
            }
            ReadMode::End { kept, size } => {
                *size = size.saturating_add(length(data));
                let end = data.get(data.len().saturating_sub(MAX_END)..).unwrap_or_default();
                kept.extend_from_slice(end);
                kept.drain(..kept.len().saturating_sub(MAX_END));
                Ok(())
            }
            ReadMode::Stream { decoder, is_known } => {
                let read = decoder.feed(data, &mut self.events);
                *is_known |= !self.events.is_empty();
                match read {
                    Ok(()) => Ok(()),
                    Err(DecodeError::Failed(body)) => Err(self.failure(&body, provider)),
                    Err(_) => {
                        self.stop(length(data));
                        Ok(())
                    }
                }
            }
        }
    }

    /// Stops reading, with so many bytes that could not be read.
    fn stop(&mut self, unread: u64) {
        let before = match &self.mode {
            ReadMode::Whole { size, .. } => u64::try_from(*size).unwrap_or(u64::MAX),
            ReadMode::End { size, .. } => *size,
            ReadMode::Stream { .. } | ReadMode::Off => 0,
        };
        self.unread = self.unread.saturating_add(before).saturating_add(unread);
        self.mode = ReadMode::Off;
    }

    fn failure(&self, body: &Value, provider: &Provider) -> CallError {
        let rules = Rules::new();
        let failure = Failure::in_stream(self.dialect, provider, body, &rules, wall_now());
        CallError::Provider(Box::new(failure))
    }

    /// Tells a reservation what was read since it was told last.
    pub(crate) fn report_to(&mut self, reservation: Option<&mut Reservation>) {
        let Some(reservation) = reservation else { return };
        self.events.iter().for_each(|event| reservation.came(event));
        self.events.clear();
    }

    /// Whether the answer used tokens, also if the provider does not say so.
    pub(crate) const fn uses_tokens(&self) -> bool {
        self.answer.uses_tokens
    }

    /// Whether the body is still read.
    pub(crate) const fn is_reading(&self) -> bool {
        !matches!(self.mode, ReadMode::Off)
    }

    /// Whether the body has a content coding.
    pub(crate) const fn is_coded(&self) -> bool {
        !matches!(self.coding, ContentCoding::Identity)
    }

    /// Whether a first event of the stream was read.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(&self.mode, ReadMode::Stream { decoder, .. } if decoder.has_begun())
    }

    /// Whether the stream has announced its end.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.mode, ReadMode::Stream { decoder, .. } if decoder.is_over())
    }

    /// Nothing more comes. Tells the reservation what is left to tell, and what could not be read by
    /// its size. The error is that of an answer that says it failed, or that ends in the middle.
    pub(crate) fn end(
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
            ended = self.end_of_mode(end, reservation.as_deref_mut(), provider);
        }
        self.report_to(reservation.as_deref_mut());
        self.mode = ReadMode::Off;
        if let Some(reservation) = reservation {
            reservation.saw_unread(self.by_size());
        }
        self.unread = 0;
        ended
    }

    fn end_of_mode(
        &mut self,
        end: BodyEnd,
        reservation: Option<&mut Reservation>,
        provider: &Provider,
    ) -> Result<(), CallError> {
        let (usage, unread) = match &mut self.mode {
            ReadMode::Off => return Ok(()),
            ReadMode::Stream { decoder, is_known } => {
                // A line without an end may have the counts in it.
                let read = decoder.end(&mut self.events);
                return match (read, end) {
                    (Err(DecodeError::Failed(body)), _) => Err(self.failure(&body, provider)),
                    (Err(DecodeError::Cut), BodyEnd::Complete)
                        if *is_known && self.answer.has_words =>
                    {
                        let source = Some(DecodeError::Cut.into());
                        let provider = provider.clone();
                        Err(CallError::Connection { provider, broken: Broken::Cut, source })
                    }
                    _ => Ok(()),
                };
            }
            ReadMode::End { kept, size } => (Usage::read_end(self.dialect, kept), *size),
            ReadMode::Whole { first, more, size } => {
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
                                let words = events.iter().filter_map(Event::words);
                                words.for_each(|words| reservation.saw(words));
                            }
                            return Ok(());
                        }
                        Err(DecodeError::Failed(body)) => return Err(self.failure(&body, provider)),
                        Err(_) => (None, u64::try_from(*size).unwrap_or(u64::MAX)),
                    },
                }
            }
        };
        match (usage, reservation) {
            (Some(usage), Some(reservation)) => reservation.uses(usage),
            (Some(_), None) => {}
            (None, _) => self.unread = self.missing(end, unread),
        }
        Ok(())
    }

    /// The size of a body without counts. The provider has made all that it has announced, also if
    /// only a part of it came.
    fn missing(&self, end: BodyEnd, read: u64) -> u64 {
        match (end, &self.coding) {
            (BodyEnd::Incomplete, ContentCoding::Identity) => read.max(self.announced.unwrap_or(0)),
            _ => read,
        }
    }

    /// What could not be read, in tokens.
    fn by_size(&self) -> u64 {
        if !self.answer.has_words {
            return 0;
        }
        let per_token = match self.coding {
            ContentCoding::Unknown => CODED_BYTES_PER_TOKEN,
            ContentCoding::Identity | ContentCoding::Known(_) => BYTES_PER_TOKEN,
        };
        self.unread.div_ceil(per_token).min(self.answer.max_output.unwrap_or(u64::MAX))
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
