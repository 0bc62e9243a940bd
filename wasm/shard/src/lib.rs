//! The boundary between a Durable Object and its shard.
//!
//! The host passes bytes through buffers in the memory of the module: [`input`] for requests,
//! [`entry`] for values it reads from its storage, [`output_ptr`] for responses. It lends its
//! storage as three imported functions. Wasm has one thread, and the host never calls
//! [`handle`] or [`coordinate`] from within an import, so nothing here is borrowed twice.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;
use core::cell::RefCell;

use tidegate_core::{Now, Time, WallTime};
use tidegate_shard::{Shard, Storage, Table, api};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The host sees a trap, rolls back and makes a new instance.
    core::arch::wasm32::unreachable()
}

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    /// Reads a value into the buffer that `entry` returns. Returns its length, or -1 if there is
    /// none.
    fn read(table: u32, key: *const u8, key_len: usize) -> i32;
    fn write(
        table: u32,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        full_at_ms: f64,
    );
    fn remove(table: u32, key: *const u8, key_len: usize);
    /// Returns a random number, once per instance.
    fn seed() -> u64;
}

/// A value for the only thread there is.
struct OneThread<T>(RefCell<T>);

// SAFETY: the module is built without threads, so no other thread can reach the value.
unsafe impl<T> Sync for OneThread<T> {}

static INPUT: OneThread<Vec<u8>> = OneThread(RefCell::new(Vec::new()));
static ENTRY: OneThread<Vec<u8>> = OneThread(RefCell::new(Vec::new()));
static OUTPUT: OneThread<Vec<u8>> = OneThread(RefCell::new(Vec::new()));
static SHARD: OneThread<Option<Shard<Host>>> = OneThread(RefCell::new(None));

/// The storage of the object.
#[derive(Debug)]
struct Host;

const fn number(table: Table) -> u32 {
    match table {
        Table::Buckets => 0,
        Table::Limits => 1,
    }
}

impl Storage for Host {
    fn read(&mut self, table: Table, key: &str) -> Option<Vec<u8>> {
        // SAFETY: the host only reads the key, and writes only to the buffer of `entry`.
        let len = unsafe { read(number(table), key.as_ptr(), key.len()) };
        usize::try_from(len).ok().map(|_| core::mem::take(&mut *ENTRY.0.borrow_mut()))
    }

    fn write(&mut self, table: Table, key: &str, value: &[u8], full_at: Option<u64>) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact")]
        let full_at = full_at.map_or(f64::INFINITY, |ms| ms as f64);
        let (table, key_len, value_len) = (number(table), key.len(), value.len());
        // SAFETY: the host only reads the key and the value, and keeps neither pointer.
        unsafe { write(table, key.as_ptr(), key_len, value.as_ptr(), value_len, full_at) };
    }

    fn remove(&mut self, table: Table, key: &str) {
        // SAFETY: the host only reads the key, and does not keep the pointer.
        unsafe { remove(number(table), key.as_ptr(), key.len()) };
    }
}

fn resize(buffer: &OneThread<Vec<u8>>, len: usize) -> *mut u8 {
    let mut buffer = buffer.0.borrow_mut();
    buffer.clear();
    buffer.resize(len, 0);
    buffer.as_mut_ptr()
}

fn respond(body: Vec<u8>) {
    *OUTPUT.0.borrow_mut() = body;
}

/// Returns a buffer for what the host passes next.
#[unsafe(no_mangle)]
pub extern "C" fn input(len: usize) -> *mut u8 {
    resize(&INPUT, len)
}

/// Returns a buffer for a value that the host has read.
#[unsafe(no_mangle)]
pub extern "C" fn entry(len: usize) -> *mut u8 {
    resize(&ENTRY, len)
}

/// Executes a POST request: the input is the path, then the body. Returns the HTTP status.
#[unsafe(no_mangle)]
pub extern "C" fn handle(path_len: usize, body_len: usize, now_ns: u64) -> u32 {
    let input = core::mem::take(&mut *INPUT.0.borrow_mut());
    let mut shard = SHARD.0.borrow_mut();
    // SAFETY: the host only returns a number.
    let shard = shard.get_or_insert_with(|| Shard::new(Host, unsafe { seed() }));
    let path = core::str::from_utf8(&input[..path_len]).unwrap_or_default();
    let now = Now { time: Time::from_nanos(now_ns), wall: WallTime::from_nanos(now_ns) };
    let response = api::respond(shard, path, &input[path_len..path_len + body_len], now);
    respond(response.body.into_bytes());
    response.status.into()
}

/// Returns the next step for a request that may span shards; input and output are JSON.
#[unsafe(no_mangle)]
pub extern "C" fn coordinate(len: usize) -> u32 {
    let input = core::mem::take(&mut *INPUT.0.borrow_mut());
    respond(api::coordinate(&input[..len]).into_bytes());
    200
}

/// Returns where the last response is.
#[unsafe(no_mangle)]
pub extern "C" fn output_ptr() -> *const u8 {
    OUTPUT.0.borrow().as_ptr()
}

/// Returns how long the last response is.
#[unsafe(no_mangle)]
pub extern "C" fn output_len() -> usize {
    OUTPUT.0.borrow().len()
}
