//! Blocks of memory. Released blocks form a list and are used again; memory never shrinks.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32;
use core::ptr;

/// Size of a block in bytes: 256 buckets.
pub(crate) const BLOCK: usize = 4_096;
/// Size of a page of WebAssembly memory.
const PAGE: usize = 65_536;

/// The first released block. Each begins with the address of the next.
static mut RELEASED: *mut u8 = ptr::null_mut();
/// The part of the last page that was not handed out yet.
static mut UNUSED: (usize, usize) = (0, 0);

/// Returns a zeroed block, or null if memory has run out.
pub(crate) fn take() -> *mut u8 {
    // SAFETY: there is one thread. Released blocks are not used elsewhere, and new pages are
    // zeroed and belong to this function alone.
    unsafe {
        if !RELEASED.is_null() {
            let block = RELEASED;
            RELEASED = block.cast::<*mut u8>().read();
            block.write_bytes(0, BLOCK);
            return block;
        }
        let (mut next, mut end) = UNUSED;
        if next == end {
            let page = wasm32::memory_grow::<0>(1);
            if page == usize::MAX {
                return ptr::null_mut();
            }
            next = page * PAGE;
            end = next + PAGE;
        }
        UNUSED = (next + BLOCK, end);
        ptr::with_exposed_provenance_mut(next)
    }
}

/// Returns a block to the list.
///
/// # Safety
/// [`take`] returned it, and nothing in it is used any more.
pub(crate) unsafe fn give_back(block: *mut u8) {
    // SAFETY: there is one thread, and the block is unused.
    unsafe {
        block.cast::<*mut u8>().write(RELEASED);
        RELEASED = block;
    }
}

/// The core links `alloc`, but nothing that is called here allocates.
struct NoAllocation;

// SAFETY: null means that there is no memory, which is always a valid answer.
unsafe impl GlobalAlloc for NoAllocation {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _place: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoAllocation = NoAllocation;
