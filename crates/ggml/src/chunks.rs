//! Buffers allocated by the host.

use std::ffi::c_void;

use crate::error::Error;
use crate::host::{Host, text};
use crate::raw::{Buffer, BufferType, USAGE_COMPUTE};

/// The buffers of one arena, freed when dropped.
#[derive(Debug)]
pub(crate) struct Chunks {
    host: &'static Host,
    buffers: Vec<*mut Buffer>,
}

impl Chunks {
    pub(crate) fn new(host: &'static Host, buft: *mut BufferType, sizes: &[u64]) -> Result<Chunks, Error> {
        let mut chunks = Chunks { host, buffers: Vec::with_capacity(sizes.len()) };
        for bytes in sizes {
            let no_memory = || Error::NoMemory { buffer: text(host.buft_name(buft)), bytes: *bytes };
            let size = usize::try_from(*bytes).map_err(|_| no_memory())?;
            let buffer = host.buft_alloc_buffer(buft, size);
            if buffer.is_null() {
                return Err(no_memory());
            }
            chunks.buffers.push(buffer);
            host.buffer_set_usage(buffer, USAGE_COMPUTE);
        }
        Ok(chunks)
    }

    /// Whether these are large enough for a plan.
    pub(crate) fn hold(&self, sizes: &[u64]) -> bool {
        let large =
            |(buffer, bytes): (&*mut Buffer, &u64)| self.host.buffer_get_size(*buffer) as u64 >= *bytes;
        self.buffers.len() >= sizes.len() && self.buffers.iter().zip(sizes).all(large)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| self.host.buffer_get_size(*buffer)).sum()
    }

    /// Buffers and their base addresses.
    pub(crate) fn list(&self) -> Vec<(*mut Buffer, *mut c_void)> {
        self.buffers.iter().map(|buffer| (*buffer, self.host.buffer_get_base(*buffer))).collect()
    }

    /// Resets all buffers.
    pub(crate) fn reset(&self) {
        self.buffers.iter().for_each(|buffer| self.host.buffer_reset(*buffer));
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.buffers.iter().for_each(|buffer| self.host.buffer_free(*buffer));
    }
}
