//! The token bucket of `tidegate-core` behind plain numbers, for the in-memory limiter of the npm
//! package.
//!
//! One instance serves all limiters of a program, because an engine reserves gigabytes of address
//! space for every instance. A limiter owns blocks of this memory. Its first block has its policy
//! and its overflow buckets, the others have a bucket per key. The host finds the bucket of a key
//! and passes its address in; it passes in only addresses inside blocks that it owns.
//!
//! No call allocates, except [`block`]. Numbers cross the boundary as `f64`, exact up to 2^53, so
//! that the host needs no `BigInt`.
#![no_std]

mod memory;
mod text;

use core::str;
use core::time::Duration;

use tidegate_core::{Decimal, DecimalError, ExactTime, Policy, Rate, RateError, Time, TokenBucket};

use crate::text::Text;

/// Nanoseconds in a millisecond, the unit of the host's clocks.
const NANOS_PER_MILLI: u64 = 1_000_000;
/// The first time in milliseconds that does not fit into 64 bits of nanoseconds.
const MAX_MILLIS: i64 = (u64::MAX / NANOS_PER_MILLI + 1).cast_signed();

/// Text that goes in with [`create`] and comes out of it.
static mut TEXT: Text = Text::EMPTY;
/// The last denial that is not told by the number that [`consume`] returns.
static mut DENIAL: Denial = Denial { remaining: 0.0, retry_after: 0.0 };

/// A denial as the host reads it from memory.
#[repr(C)]
struct Denial {
    /// Tokens that remain.
    remaining: f64,
    /// Milliseconds until the cost fits; infinite if it never does.
    retry_after: f64,
}

/// Returns the address of the text buffer.
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *mut u8 {
    (&raw mut TEXT).cast()
}

/// Returns the size of the text buffer.
#[unsafe(no_mangle)]
pub extern "C" fn text_size() -> usize {
    text::SIZE
}

/// Returns the address of a denial: two `f64`, the remaining tokens and the milliseconds until the
/// cost fits, which are infinite if it never does.
#[unsafe(no_mangle)]
pub extern "C" fn denial() -> *const f64 {
    (&raw const DENIAL).cast()
}

/// Returns a zeroed block of [`block_size`] bytes, or null if memory has run out.
#[unsafe(no_mangle)]
pub extern "C" fn block() -> *mut u8 {
    memory::take()
}

/// Returns a block to the pool.
///
/// # Safety
/// `address` was returned by [`block`], and nothing in it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn release(address: *mut u8) {
    // SAFETY: the same condition.
    unsafe { memory::give_back(address) }
}

/// Returns the size of a block in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn block_size() -> usize {
    memory::BLOCK
}

/// Returns the size of a policy in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn policy_size() -> usize {
    size_of::<TokenBucket>()
}

/// Returns the size of a bucket in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn bucket_size() -> usize {
    size_of::<ExactTime>()
}

/// Creates a policy at `place`. The text buffer has the tokens per second as a decimal of `length`
/// bytes, or a rate with a unit such as `7/min`. Returns zero, or the length of the error's text.
///
/// # Safety
/// `place` is the beginning of a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn create(place: *mut TokenBucket, capacity: f64, length: usize) -> usize {
    let text = &raw mut TEXT;
    // SAFETY: there is one thread, and no other reference to the buffer.
    let text = unsafe { &mut *text };
    match policy(text.get(length), capacity) {
        Ok(policy) => {
            // SAFETY: the caller's block is large enough and aligned.
            unsafe { place.write(policy) };
            0
        }
        Err(error) => text.set(&error),
    }
}

fn policy(rate: &[u8], capacity: f64) -> Result<TokenBucket, tidegate_core::PolicyError> {
    let rate = str::from_utf8(rate).map_err(|_| RateError::Malformed)?;
    let rate = if rate.contains('/') {
        rate.parse()?
    } else {
        let tokens = match rate.parse::<Decimal>() {
            Err(DecimalError::Negative) => return Err(RateError::NotPositive.into()),
            // A number with so many digits has no representation as a rate.
            Err(DecimalError::TooLong) => return Err(RateError::TooFine.into()),
            other => other.map_err(RateError::Number)?,
        };
        Rate::decimal(tokens, Duration::from_secs(1))?
    };
    // No debts and no reservations: the clamp for a clock that stepped back is an empty bucket.
    let policy = Policy::rate(rate).capacity(whole(capacity)).max_debt(0);
    match policy.max_horizon(Duration::ZERO).build()? {
        Policy::Bucket(bucket) => Ok(bucket),
        _ => Err(tidegate_core::PolicyError::NotABucket),
    }
}

/// Spends `cost` tokens at `now`, in milliseconds, or nothing. Returns the remaining tokens if they
/// fit. If none remain, returns the milliseconds until they fit as a negative number. Returns NaN
/// for any other denial, which is then found at [`denial`].
///
/// # Safety
/// `policy` was filled by [`create`]; `bucket` is in a block of the same limiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn consume(
    policy: *const TokenBucket,
    bucket: *mut ExactTime,
    cost: f64,
    now: f64,
) -> f64 {
    // SAFETY: there is one thread, and the caller passes valid addresses of different places.
    let (policy, bucket) = unsafe { (&*policy, &mut *bucket) };
    let (cost, now) = (whole(cost), time(now));
    let effective = policy.effective_tat(*bucket, Time::ZERO, now);
    // `try_spend` has a branch for rates of whole nanoseconds. Without it, the compiler sees that
    // `earliest` computes the same sum.
    let after = policy.spend(effective, cost, now);
    if policy.fits(after, now) {
        *bucket = after;
        return number(policy.remaining(after, now));
    }
    // Lowered if the clock stepped back. Unless that is kept, the bucket stays empty until the
    // clock has caught up.
    *bucket = effective;
    // The cost does not fit, so a cost of one finds no token.
    let remaining = if cost == 1 { 0 } else { policy.remaining(effective, now) };
    let retry_after = match policy.earliest(effective, cost, now) {
        None => f64::INFINITY,
        // It is later than now, because the cost does not fit. Zero would mean an allowed call.
        Some(due) => number(whole_millis(due.as_nanos() - now.as_nanos())),
    };
    if remaining == 0 && retry_after < f64::INFINITY {
        return -retry_after;
    }
    // SAFETY: there is one thread, and no reference to this place.
    unsafe { DENIAL = Denial { remaining: number(remaining), retry_after } };
    f64::NAN
}

/// Returns whether the bucket is full at `now`, in milliseconds: equivalent to no bucket. Lowers it
/// if the clock stepped back, like [`consume`].
///
/// # Safety
/// As for [`consume`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn is_full(
    policy: *const TokenBucket,
    bucket: *mut ExactTime,
    now: f64,
) -> bool {
    // SAFETY: there is one thread, and the caller passes valid addresses of different places.
    let (policy, bucket) = unsafe { (&*policy, &mut *bucket) };
    let now = time(now);
    *bucket = policy.effective_tat(*bucket, Time::ZERO, now);
    *bucket <= ExactTime::from_nanos(now.as_nanos())
}

/// Copies the state of one bucket to another.
///
/// # Safety
/// Both are in blocks of a limiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy(from: *const ExactTime, to: *mut ExactTime) {
    // SAFETY: the caller passes valid addresses.
    unsafe { *to = *from }
}

/// Makes a bucket full.
///
/// # Safety
/// It is in a block of a limiter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clear(bucket: *mut ExactTime) {
    // SAFETY: the caller passes a valid address.
    unsafe { *bucket = ExactTime::ZERO }
}

/// Converts milliseconds to whole nanoseconds, to the nearest. Time before zero is zero.
fn time(millis: f64) -> Time {
    // Nearly all clocks count whole milliseconds. Engines convert signed numbers faster.
    let whole = millis as i64;
    if whole as f64 == millis && (0..MAX_MILLIS).contains(&whole) {
        return Time::from_nanos(whole.unsigned_abs() * NANOS_PER_MILLI);
    }
    // Conversions of floats saturate. The fraction of a millisecond is exact.
    let whole = millis as u64;
    let part = (millis - whole as f64) * NANOS_PER_MILLI as f64;
    Time::from_nanos(whole.saturating_mul(NANOS_PER_MILLI).saturating_add((part + 0.5) as u64))
}

/// Rounds up to milliseconds, to one at least. This divides once, `div_ceil` twice.
fn whole_millis(nanos: u64) -> u64 {
    (nanos.saturating_add(NANOS_PER_MILLI - 1) / NANOS_PER_MILLI).max(1)
}

/// The host checks that the number is whole and at most 2^53.
fn whole(number: f64) -> u64 {
    (number as i64).unsigned_abs()
}

/// The numbers are at most the capacity, or a span in milliseconds: below 2^53.
fn number(whole: u64) -> f64 {
    whole.cast_signed() as f64
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
