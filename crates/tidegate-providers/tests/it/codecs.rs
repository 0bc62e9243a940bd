//! Encoding of requests and decoding of responses in every dialect.

mod answers;
mod pieces;
mod requests;
mod transcripts;
