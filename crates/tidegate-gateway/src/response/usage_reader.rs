//! Reads token usage from an answer while it passes; the answer itself is not changed.
//!
//! A body that cannot be parsed ends the reading, not the answer. Memory is bounded; beyond the bound
//! the reservation is settled by estimate.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tidegate::clock::wall_now;
use tidegate_llm::CallError;
use tidegate_llm::rate_limit::Reservation;
use tidegate_providers::classify::Rules;
use tidegate_providers::response::{DecodeError, Decoder};
use tidegate_providers::{Dialect, Event, Failure, Provider, Usage};

/// The most bytes of an answer in one piece that are kept until its end: 4 MiB.
const MAX_KEPT: usize = 4 * 1_024 * 1_024;

/// Reads the usage of one answer.
pub(crate) struct UsageReader {
    dialect: Dialect,
    mode: ReadMode,
    usage: Option<Usage>,
}

enum ReadMode {
    /// Event by event.
    Stream { decoder: Box<Decoder>, events: Vec<Event> },
    /// When the body is complete.
    Whole { first: Bytes, more: Vec<Bytes>, size: usize },
    /// Not, or no longer.
    Off,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stream,
    Whole,
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
    pub(crate) fn new(dialect: Dialect, form: Form, headers: &HeaderMap) -> Self {
        let is_coded = headers
            .get(CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let mode = match form {
            // A provider that compresses all the same is not read.
            _ if is_coded => ReadMode::Off,
            Form::Stream => {
                ReadMode::Stream { decoder: Box::new(Decoder::new(dialect)), events: Vec::new() }
            }
            Form::Whole => ReadMode::Whole { first: Bytes::new(), more: Vec::new(), size: 0 },
        };
        Self { dialect, mode, usage: None }
    }

    /// Reads nothing, for calls that no limit counts.
    pub(crate) const fn disabled(dialect: Dialect) -> Self {
        Self { dialect, mode: ReadMode::Off, usage: None }
    }

    /// Reads a part of the body. The error is one that the provider reports in the stream.
    pub(crate) fn read(&mut self, data: &Bytes, provider: &Provider) -> Result<(), CallError> {
        match &mut self.mode {
            ReadMode::Off => Ok(()),
            ReadMode::Whole { first, more, size } => {
                *size = size.saturating_add(data.len());
                if *size > MAX_KEPT {
                    self.mode = ReadMode::Off;
                } else if first.is_empty() {
                    // Most bodies come in one part.
                    *first = data.clone();
                } else {
                    more.push(data.clone());
                }
                Ok(())
            }
            ReadMode::Stream { decoder, events } => match decoder.feed(data, events) {
                Ok(()) => Ok(()),
                Err(DecodeError::Failed(body)) => {
                    let rules = Rules::new();
                    let body = body.as_value();
                    let failure =
                        Failure::in_stream(self.dialect, provider, body, &rules, wall_now());
                    Err(CallError::Provider(Box::new(failure)))
                }
                Err(_) => {
                    self.mode = ReadMode::Off;
                    Ok(())
                }
            },
        }
    }

    /// Reports what was read since the last report to a reservation.
    pub(crate) fn report_to(&mut self, reservation: Option<&mut Reservation>) {
        let ReadMode::Stream { events, .. } = &mut self.mode else { return };
        let used = events.iter().rev().find_map(|event| match event {
            Event::Usage(usage) => Some(*usage),
            _ => None,
        });
        self.usage = used.or(self.usage);
        if let Some(reservation) = reservation {
            events.iter().for_each(|event| reservation.came(event));
            events.clear();
        }
    }

    /// Whether the body is still read.
    pub(crate) const fn is_reading(&self) -> bool {
        !matches!(self.mode, ReadMode::Off)
    }

    /// Whether the stream has announced its end.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.mode, ReadMode::Stream { decoder, .. } if decoder.is_over())
    }

    /// The usage reported so far.
    pub(crate) const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The body has ended.
    pub(crate) fn end(&mut self, reservation: Option<&mut Reservation>) {
        match &mut self.mode {
            ReadMode::Stream { decoder, events } => {
                // A line without an end may have the counts in it.
                let _ = decoder.end(events);
                self.report_to(reservation);
            }
            ReadMode::Whole { first, more, .. } => {
                self.usage = if more.is_empty() {
                    Usage::read(self.dialect, first)
                } else {
                    more.insert(0, std::mem::take(first));
                    Usage::read(self.dialect, &more.concat())
                };
            }
            ReadMode::Off => {}
        }
        self.mode = ReadMode::Off;
    }
}
