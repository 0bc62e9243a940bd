//! Spans of time as providers write them.
