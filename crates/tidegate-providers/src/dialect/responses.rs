//! Stream events of OpenAI's Responses API, as far as counting usage requires. The last event
//! contains the complete response.

use serde_json::Value;

use super::family::{Progress, State};
use super::json::{count, text};
use crate::reply::{Event, StopReason};
use crate::response::DecodeError;
use crate::usage::Usage;

/// Prefix of the event types.
const PREFIX: &str = "response.";

/// Returns whether this is an event of the Responses API.
pub(super) fn is_event(event: &Value) -> bool {
    event["type"].as_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// Reads one event of a stream.
pub(super) fn read(
    event: &Value,
    state: &mut State,
    events: &mut Vec<Event>,
) -> Result<(), DecodeError> {
    let name = event["type"].as_str().unwrap_or_default();
    let response = &event["response"];
    let delta = text(event, "delta").map(str::to_owned);
    match name.strip_prefix(PREFIX).unwrap_or_default() {
        "failed" => return Err(DecodeError::failed(event)),
        "output_text.delta" | "refusal.delta" => events.extend(delta.map(Event::Text)),
        "function_call_arguments.delta" | "custom_tool_call_input.delta" => {
            events.extend(delta.map(Event::Text));
        }
        "reasoning_text.delta" | "reasoning_summary_text.delta" => {
            events.extend(delta.map(Event::Reasoning));
        }
        "completed" | "incomplete" => {
            let is_complete = name.ends_with("completed");
            state.stop = Some(if is_complete { StopReason::End } else { StopReason::Length });
            state.progress = Progress::Over;
            let usage = &response["usage"];
            events.extend(usage.is_object().then(|| Event::Usage(used(usage))));
        }
        _ => {}
    }
    Ok(())
}

/// Reads the usage under the names of this API.
pub(super) fn used(usage: &Value) -> Usage {
    Usage {
        input: count(usage, "input_tokens"),
        output: count(usage, "output_tokens"),
        cache_read: count(&usage["input_tokens_details"], "cached_tokens"),
        reasoning: count(&usage["output_tokens_details"], "reasoning_tokens"),
        ..Usage::default()
    }
}
