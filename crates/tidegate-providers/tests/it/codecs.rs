//! Requests and answers of every dialect: written down, and in pieces.

mod answers;
mod pieces;
mod requests;
mod transcripts;
