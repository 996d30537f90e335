//! The system's allocator with a tally per thread.
//!
//! Counts are plain numbers of the calling thread, so that tests which run side by side do not count each
//! other's. A program that uses this says `#[global_allocator] static COUNTING: Counting = Counting;`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Counts, and leaves the work to the system.
#[derive(Debug)]
pub struct Counting;

/// What a thread has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks asked for, or grown, since the thread began.
    pub allocations: u64,
    /// Bytes of them.
    pub allocated_bytes: u64,
    /// Bytes asked for and not given back. Below zero for a thread that frees what others allocated.
    pub live_bytes: i64,
    /// What the allocator takes for the live blocks: their usable sizes and its own word before each.
    pub live_chunk_bytes: i64,
}

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally {
        allocations: 0,
        allocated_bytes: 0,
        live_bytes: 0,
        live_chunk_bytes: 0,
    }) };
}

/// The calling thread's tally.
pub fn tally() -> Tally {
    TALLY.get()
}

/// What `work` adds to the tally.
pub fn during<R>(work: impl FnOnce() -> R) -> (R, Tally) {
    let before = tally();
    let result = work();
    let after = tally();
    let added = Tally {
        allocations: after.allocations - before.allocations,
        allocated_bytes: after.allocated_bytes - before.allocated_bytes,
        live_bytes: after.live_bytes - before.live_bytes,
        live_chunk_bytes: after.live_chunk_bytes - before.live_chunk_bytes,
    };
    (result, added)
}

fn update(change: impl FnOnce(&mut Tally)) {
    // A thread that is being taken down frees without being counted.
    let _ = TALLY.try_with(|cell| {
        let mut tally = cell.get();
        change(&mut tally);
        cell.set(tally);
    });
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a block is smaller than half the address space")
}

/// What the allocator takes for a block of its own.
///
/// # Safety
/// `block` must be null or a live block of the system's allocator.
unsafe fn chunk_bytes(block: *mut u8) -> i64 {
    // SAFETY: the caller's obligation; null is allowed and has size 0.
    let usable = unsafe { libc::malloc_usable_size(block.cast()) };
    signed(usable + size_of::<usize>())
}

// SAFETY: every request goes to the system's allocator unchanged, and so does its answer. The tally neither
// allocates nor unwinds: it is a constant-initialised cell without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the system allocator's.
        let block = unsafe { System.alloc(layout) };
        // SAFETY: it was just allocated, or is null.
        let chunk = unsafe { chunk_bytes(block) };
        count_new(layout.size(), chunk);
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.alloc_zeroed(layout) };
        // SAFETY: as above.
        let chunk = unsafe { chunk_bytes(block) };
        count_new(layout.size(), chunk);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller says that it is a live block of ours, and ours are the system's.
        let chunk = unsafe { chunk_bytes(block) };
        update(|tally| {
            tally.live_bytes -= signed(layout.size());
            tally.live_chunk_bytes -= chunk;
        });
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let before = unsafe { chunk_bytes(block) };
        // SAFETY: as above.
        let grown = unsafe { System.realloc(block, layout, size) };
        if !grown.is_null() {
            // SAFETY: it was just allocated.
            let after = unsafe { chunk_bytes(grown) };
            count_new(size, after);
            update(|tally| {
                tally.live_bytes -= signed(layout.size());
                tally.live_chunk_bytes -= before;
            });
        }
        grown
    }
}

fn count_new(bytes: usize, chunk: i64) {
    update(|tally| {
        tally.allocations += 1;
        tally.allocated_bytes += bytes as u64;
        tally.live_bytes += signed(bytes);
        tally.live_chunk_bytes += chunk;
    });
}
