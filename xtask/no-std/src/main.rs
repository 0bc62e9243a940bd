//! The core without the standard library: one decision, answered by the exit code.
//!
//! The program brings its own panic handler and allocator. If the core or anything below it used
//! `std`, the compiler would find two of each and refuse.
#![no_std]
#![no_main]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use tidegate_core::{Account, Limit, Now, Policy, State, Time, WallTime, decide};

/// Decides once in an empty bucket and once in a full one. Zero means that both were right.
#[unsafe(no_mangle)]
extern "C" fn main(_count: i32, _arguments: *const *const u8) -> i32 {
    let Ok(policy) = Policy::per_second(10).capacity(10).build() else { return 1 };
    let Ok(limit) = Limit::named("client", policy) else { return 2 };
    let now = Now { time: Time::from_nanos(5_000_000_000), wall: WallTime::from_secs(5) };
    let mut accounts = [Account::new(limit.policy(), State::Fresh, Time::ZERO, 10)];
    let Some(start) = decide::start(&accounts, Duration::ZERO, now) else { return 3 };
    decide::spend(&mut accounts, start, now);
    let accounts = [Account::new(limit.policy(), accounts[0].state(), Time::ZERO, 1)];
    if decide::start(&accounts, Duration::ZERO, now).is_some() { 4 } else { 0 }
}

/// Takes memory from a fixed block and never gives it back; enough for one decision.
struct Block;

const SIZE: usize = 64 * 1024;
static USED: AtomicUsize = AtomicUsize::new(0);
static mut MEMORY: [u8; SIZE] = [0; SIZE];

// SAFETY: every call gets bytes that no other call got, because `USED` only grows, and they are
// aligned as asked, because the address is rounded up before it is compared with the end.
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

/// The prebuilt `core` and `alloc` name this for unwinding, which `panic = "abort"` rules out.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}
