//! Buffers that are given to the kernel in advance, for receives that name none of their own.
//!
//! One ring of entries in shared memory: a receive takes the next buffer, its completion says which, and the loop puts it
//! back without an entry of the submission queue. Lives as long as the process.

use io_uring::{IoUring, types::BufRingEntry};
use std::{
    alloc::{Layout, alloc_zeroed, handle_alloc_error},
    io,
    sync::atomic::{AtomicU16, Ordering},
};

/// The group that receives name.
pub(crate) const GROUP: u16 = 0;
const COUNT: u16 = 1024;
const PAGE_BYTES: usize = 4096;

pub(crate) struct Provided {
    ring: *mut BufRingEntry,
    memory: Vec<u8>,
    buffer_bytes: usize,
    tail: u16,
}

impl Provided {
    pub(crate) fn register(ring: &IoUring, buffer_bytes: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(usize::from(COUNT) * size_of::<BufRingEntry>(), PAGE_BYTES)
            .map_err(io::Error::other)?;
        // SAFETY: the layout is not empty.
        let entries = unsafe { alloc_zeroed(layout) };
        if entries.is_null() {
            handle_alloc_error(layout);
        }
        let memory = vec![0; usize::from(COUNT) * buffer_bytes];
        let mut provided = Provided { ring: entries.cast(), memory, buffer_bytes, tail: 0 };
        // SAFETY: the entries are page-aligned, as many as said, and are never freed.
        unsafe { ring.submitter().register_buf_ring(entries as u64, COUNT, GROUP)? };
        (0..COUNT).for_each(|index| provided.give_back(index));
        Ok(provided)
    }

    /// What was received into a buffer.
    pub(crate) fn received(&self, index: u16, count: usize) -> &[u8] {
        let start = usize::from(index) * self.buffer_bytes;
        &self.memory[start..start + count]
    }

    pub(crate) fn give_back(&mut self, index: u16) {
        let start = usize::from(index) * self.buffer_bytes;
        let address = self.memory[start..].as_mut_ptr() as u64;
        // SAFETY: the index is within the ring, which is initialised, and the kernel does not read an entry before the tail
        // passes it.
        let entry = unsafe { &mut *self.ring.add(usize::from(self.tail % COUNT)) };
        entry.set_addr(address);
        entry.set_len(u32::try_from(self.buffer_bytes).expect("small"));
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the ring's base is that of its first entry, in which the kernel reads the tail; it is aligned, and only
        // this thread writes it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
