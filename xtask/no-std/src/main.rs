//! The core without the standard library: two decisions, reported by the exit code.
//!
//! The program has its own panic handler and allocator. If the core or one of its dependencies used
//! `std`, there would be two panic handlers, and the build would fail.
#![no_std]
#![no_main]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use tidegate_core::{BucketEntry, Limit, Now, Policy, State, Time, WallTime, decide};

/// Takes all tokens of a full bucket, then one more. Returns zero if both decisions are right.
#[unsafe(no_mangle)]
extern "C" fn main(_count: i32, _arguments: *const *const u8) -> i32 {
    let Ok(policy) = Policy::per_second(10).capacity(10).build() else { return 1 };
    let Ok(limit) = Limit::named("client", policy) else { return 2 };
    let now = Now { time: Time::from_nanos(5_000_000_000), wall: WallTime::from_secs(5) };
    let mut accounts = [BucketEntry::new(limit.policy(), State::Fresh, Time::ZERO, 10)];
    let Some(start) = decide::earliest_start(&accounts, Duration::ZERO, now) else { return 3 };
    decide::spend(&mut accounts, start, now);
    let accounts = [BucketEntry::new(limit.policy(), accounts[0].state(), Time::ZERO, 1)];
    if decide::earliest_start(&accounts, Duration::ZERO, now).is_some() { 4 } else { 0 }
}

/// Allocates from a fixed block and never frees; enough for these decisions.
struct Block;

const SIZE: usize = 64 * 1024;
static USED: AtomicUsize = AtomicUsize::new(0);
static mut MEMORY: [u8; SIZE] = [0; SIZE];

// SAFETY: every call gets bytes that no other call got, because `USED` only grows. The bytes are
// aligned as requested, because `needed` includes the padding and is checked against the end.
unsafe impl GlobalAlloc for Block {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = (&raw mut MEMORY).cast::<u8>();
        let needed = layout.size() + layout.align();
        let offset = USED.fetch_add(needed, Ordering::Relaxed);
        if offset + needed > SIZE {
            return ptr::null_mut();
        }
        let padding = base.wrapping_add(offset).align_offset(layout.align());
        base.wrapping_add(offset + padding)
    }

    unsafe fn dealloc(&self, _place: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Block = Block;

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes nothing and does not return.
    unsafe { abort() }
}

/// The prebuilt `core` and `alloc` refer to this for unwinding, which `panic = "abort"` disables.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}
