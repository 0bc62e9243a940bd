//! One shard of the Durable Objects store, without I/O: messages, stored buckets, decisions.
//!
//! A Durable Object runs a [`Shard`] as wasm and lends it its storage ([`Storage`]) and its clock.
//! The client `tidegate-durable` uses the same [`message`]s. [`route`] says which shard has a key,
//! and [`coordinate`] decides lists whose keys are in several shards. Decisions are made by
//! `tidegate-core`, like those of every other store.
//!
//! This crate is `no_std`, opens no socket, reads no clock and contains no unsafe code.
#![no_std]

extern crate alloc;

pub mod api;
pub mod coordinate;
mod entry;
mod history;
mod json;
pub mod message;
mod policy;
pub mod route;
mod shard;

pub use shard::{Shard, Storage, Table};
