//! The tap on an answer: copies of its pieces are read for what was used, and nothing is changed.
//!
//! What cannot be read ends the reading and not the answer. What is kept for reading is bounded;
//! beyond that the reservation is settled by estimate.

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

/// Reads along.
pub(crate) struct Tap {
    dialect: Dialect,
    reading: Reading,
    usage: Option<Usage>,
}

enum Reading {
    /// Piece by piece.
    Stream { decoder: Box<Decoder>, events: Vec<Event> },
    /// At the end.
    Whole { kept: Vec<Bytes>, size: usize },
    /// Not, or not any more.
    Nothing,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stream,
    Whole,
}

impl Form {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let kind = fields.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let streams = ["text/event-stream", "application/x-ndjson"];
        let is_stream = |kind: &str| {
            streams.iter().any(|known| {
                kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known))
            })
        };
        if kind.is_some_and(is_stream) { Self::Stream } else { Self::Whole }
    }
}

impl Tap {
    pub(crate) fn new(dialect: Dialect, form: Form, fields: &HeaderMap) -> Self {
        let is_coded = fields
            .get(CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        let reading = match form {
            // A provider that compresses all the same is not read.
            _ if is_coded => Reading::Nothing,
            Form::Stream => {
                Reading::Stream { decoder: Box::new(Decoder::new(dialect)), events: Vec::new() }
            }
            Form::Whole => Reading::Whole { kept: Vec::new(), size: 0 },
        };
        Self { dialect, reading, usage: None }
    }

    /// A tap on what is none of our business.
    pub(crate) const fn nothing(dialect: Dialect) -> Self {
        Self { dialect, reading: Reading::Nothing, usage: None }
    }

    /// Reads a piece. An error is one that the provider reports in the stream.
    pub(crate) fn piece(&mut self, data: &Bytes, provider: &Provider) -> Result<(), CallError> {
        match &mut self.reading {
            Reading::Nothing => Ok(()),
            Reading::Whole { kept, size } => {
                *size = size.saturating_add(data.len());
                if *size > MAX_KEPT {
                    self.reading = Reading::Nothing;
                } else {
                    kept.push(data.clone());
                }
                Ok(())
            }
            Reading::Stream { decoder, events } => match decoder.feed(data, events) {
                Ok(()) => Ok(()),
                Err(DecodeError::Failed(body)) => {
                    let rules = Rules::new();
                    let body = body.as_value();
                    let failure =
                        Failure::in_stream(self.dialect, provider, body, &rules, wall_now());
                    Err(CallError::Provider(Box::new(failure)))
                }
                Err(_) => {
                    self.reading = Reading::Nothing;
                    Ok(())
                }
            },
        }
    }

    /// Tells a reservation of what was read since it was last told.
    pub(crate) fn tell(&mut self, reservation: Option<&mut Reservation>) {
        let Reading::Stream { events, .. } = &mut self.reading else { return };
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

    /// Whether anything is read of what comes.
    pub(crate) const fn is_reading(&self) -> bool {
        !matches!(self.reading, Reading::Nothing)
    }

    /// Whether the answer has said that nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.reading, Reading::Stream { decoder, .. } if decoder.is_over())
    }

    /// What was used, as far as it was told so far.
    pub(crate) const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The body has ended.
    pub(crate) fn end(&mut self, reservation: Option<&mut Reservation>) {
        match &mut self.reading {
            Reading::Stream { decoder, events } => {
                // A line without an end may have the counts in it.
                let _ = decoder.end(events);
                self.tell(reservation);
            }
            Reading::Whole { kept, .. } => {
                self.usage = match kept.as_slice() {
                    [] => None,
                    [one] => Usage::read(self.dialect, one),
                    many => Usage::read(self.dialect, &many.concat()),
                };
            }
            Reading::Nothing => {}
        }
        self.reading = Reading::Nothing;
    }
}
