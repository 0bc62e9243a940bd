//! The sections of the configuration file: their keys, readers and validated types.

pub(crate) mod admin;
pub(crate) mod admission;
pub(crate) mod api;
pub(crate) mod database;
pub(crate) mod describe;
pub(crate) mod gateway;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod modules;
pub(crate) mod no_proxy;
pub(crate) mod policy;
pub(crate) mod providers;
pub(crate) mod proxy;
pub(crate) mod read_context;
pub(crate) mod redact;
pub(crate) mod store;
