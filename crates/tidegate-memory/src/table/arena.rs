//! Memory of the table: one reservation of address space, divided into slabs of equal size.
//!
//! Pages are committed when they are first written, and pages of closed lines are released. The
//! addresses stay valid: a delayed thread may still access a line that no longer belongs to a
//! segment, finds it closed, and starts again. So moving a segment needs no reference counts and no
//! waiting. On systems that use huge pages everywhere, a small table uses more memory than it
//! reports.

use crate::sync::{Mutex, lock};
use crate::table::line::Line;
use crate::table::segment::Header;

/// Allocator of slabs. Lines are numbered consecutively across slabs.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Memory,
    slab_lines: usize,
    slabs: usize,
    free_slabs: Mutex<FreeSlabs>,
}

/// Slabs that are not in use.
#[derive(Debug, Default)]
struct FreeSlabs {
    /// This slab and all later ones have never been used.
    never_used: usize,
    returned: Vec<usize>,
}

impl Arena {
    /// Reserves `slabs` slabs of `slab_lines` lines; `None` if there is no address space for them.
    pub(crate) fn new(slabs: usize, slab_lines: usize) -> Option<Self> {
        let memory = Memory::reserve(slabs, slab_lines)?;
        Some(Self { memory, slab_lines, slabs, free_slabs: Mutex::default() })
    }

    /// Allocates a slab of closed lines. Returns the number of its first line.
    pub(crate) fn take_slab(&self) -> Option<usize> {
        let mut free_slabs = lock(&self.free_slabs);
        let slab = free_slabs.returned.pop().or_else(|| {
            let next = free_slabs.never_used;
            free_slabs.never_used += usize::from(next < self.slabs);
            (next < self.slabs).then_some(next)
        })?;
        Some(slab * self.slab_lines)
    }

    /// Frees a slab whose lines are all closed.
    pub(crate) fn return_slab(&self, first: usize) {
        self.memory.release(first, first + self.slab_lines);
        lock(&self.free_slabs).returned.push(first / self.slab_lines);
    }

    /// Releases the memory of closed lines, from `line` to the end of its slab.
    pub(crate) fn release_from(&self, line: usize) {
        let end = line.next_multiple_of(self.slab_lines);
        self.memory.release(line, end);
    }

    /// Returns the first line of every slab that has ever been used.
    pub(crate) fn used_slabs(&self) -> impl Iterator<Item = usize> + use<> {
        let (slabs, lines) = (lock(&self.free_slabs).never_used, self.slab_lines);
        (0..slabs).map(move |slab| slab * lines)
    }

    #[inline]
    pub(crate) fn line(&self, number: usize) -> &Line {
        self.memory.line(number)
    }

    /// Returns the header of the slab that begins at line `first`, which it replaces.
    #[inline]
    pub(crate) fn header(&self, first: usize) -> &Header {
        self.memory.header(first, self.slab_lines)
    }
}

#[cfg(any(loom, shuttle))]
#[derive(Debug)]
struct Memory {
    lines: Vec<Line>,
    headers: Vec<Header>,
}

#[cfg(any(loom, shuttle))]
impl Memory {
    #[expect(clippy::unnecessary_wraps, reason = "same signature as the real implementation")]
    fn reserve(slabs: usize, slab_lines: usize) -> Option<Self> {
        let lines = (0..slabs * slab_lines).map(|_| Line::new()).collect();
        let headers = (0..slabs).map(|_| Header::default()).collect();
        Some(Self { lines, headers })
    }

    fn line(&self, number: usize) -> &Line {
        &self.lines[number]
    }

    fn header(&self, first: usize, slab_lines: usize) -> &Header {
        &self.headers[first / slab_lines]
    }

    fn release(&self, _first: usize, _end: usize) {}
}

#[cfg(not(any(loom, shuttle)))]
use mapped::Memory;

#[cfg(not(any(loom, shuttle)))]
#[allow(unsafe_code, reason = "lazily committed memory, released by page")]
mod mapped {
    use std::ptr::NonNull;

    use crate::table::line::Line;
    use crate::table::segment::Header;

    /// Zero-initialised memory for `lines` lines.
    #[derive(Debug)]
    pub(super) struct Memory {
        base: NonNull<Line>,
        lines: usize,
    }

    // SAFETY: it owns its memory, which is only shared as `&Line` and `&Header`; both are `Sync`.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn reserve(slabs: usize, slab_lines: usize) -> Option<Self> {
            const { assert!(size_of::<Header>() <= size_of::<Line>()) };
            const { assert!(align_of::<Header>() <= align_of::<Line>()) };
            let lines = slabs.checked_mul(slab_lines)?;
            let bytes = lines.checked_mul(size_of::<Line>())?;
            Some(Self { base: pages::map(bytes)?, lines })
        }

        #[inline]
        pub(super) fn line(&self, number: usize) -> &Line {
            assert!(number < self.lines, "line number out of range");
            // SAFETY: the line is inside the mapping, which lives as long as `self`. Zeroed memory
            // is a valid `Line`. Only the first line of a slab is a `Header` instead; it is
            // accessed through `header` and never through this function.
            unsafe { self.base.add(number).as_ref() }
        }

        #[inline]
        pub(super) fn header(&self, first: usize, _slab_lines: usize) -> &Header {
            assert!(first < self.lines, "slab number out of range");
            // SAFETY: as above. A header is no larger than a line, has no stricter alignment, and
            // zeroed memory is a valid header.
            unsafe { self.base.add(first).cast::<Header>().as_ref() }
        }

        /// Releases the whole pages between two lines. All lines in between are closed.
        pub(super) fn release(&self, first: usize, end: usize) {
            let size = size_of::<Line>();
            pages::release(self.base, first * size, end * size);
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            pages::unmap(self.base, self.lines * size_of::<Line>());
        }
    }

    #[cfg(unix)]
    mod pages {
        use std::ptr::{NonNull, null_mut};

        use crate::table::line::Line;

        pub(super) fn map(bytes: usize) -> Option<NonNull<Line>> {
            let private = libc::MAP_PRIVATE | libc::MAP_ANON;
            #[cfg(target_os = "linux")]
            let flags = private | libc::MAP_NORESERVE;
            #[cfg(not(target_os = "linux"))]
            let flags = private;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address chosen by the system affects no other memory.
            let base = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
            if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast()) }
        }

        pub(super) fn unmap(base: NonNull<Line>, bytes: usize) {
            // SAFETY: this is the mapping created by `map`, and there are no references into it.
            let _ = unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
        }

        #[cfg(target_os = "linux")]
        pub(super) fn release(base: NonNull<Line>, from: usize, to: usize) {
            let Some(page) = page_size() else { return };
            let (from, to) = (from.next_multiple_of(page), to / page * page);
            if from < to {
                // SAFETY: the pages are inside the mapping. They contain only closed lines, which
                // are zero, and read as zero afterwards, so the contents do not change.
                let _ = unsafe {
                    let start = base.as_ptr().cast::<u8>().add(from).cast();
                    libc::madvise(start, to - from, libc::MADV_DONTNEED)
                };
            }
        }

        #[cfg(target_os = "linux")]
        fn page_size() -> Option<usize> {
            // SAFETY: `sysconf` has no preconditions.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
        }

        /// Other systems have no portable way to release pages that guarantees zeros afterwards.
        #[cfg(not(target_os = "linux"))]
        pub(super) fn release(_base: NonNull<Line>, _from: usize, _to: usize) {}
    }

    #[cfg(not(unix))]
    mod pages {
        use std::alloc::{Layout, alloc_zeroed, dealloc};
        use std::ptr::NonNull;

        use crate::table::line::Line;

        fn layout(bytes: usize) -> Option<Layout> {
            Layout::from_size_align(bytes.max(1), align_of::<Line>()).ok()
        }

        pub(super) fn map(bytes: usize) -> Option<NonNull<Line>> {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) }.cast())
        }

        pub(super) fn unmap(base: NonNull<Line>, bytes: usize) {
            if let Some(layout) = layout(bytes) {
                // SAFETY: `map` allocated it with this layout, and there are no references into it.
                unsafe { dealloc(base.as_ptr().cast(), layout) };
            }
        }

        pub(super) fn release(_base: NonNull<Line>, _from: usize, _to: usize) {}
    }
}
