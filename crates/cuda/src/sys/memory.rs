//! Memory: of a GPU, of the host where GPUs reach it, and the host's pages that are registered for a while.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::PrimaryContext;
use super::driver::{DevicePtr, call};
use crate::Error;

const HOST_MAPPED: u32 = 3; // portable, mapped
const HOST_READ_ONLY: u32 = 9; // portable, read only

/// Memory of a GPU. Freed when dropped.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    context: Arc<PrimaryContext>,
    address: DevicePtr,
}

impl DeviceMemory {
    /// Allocates at least one byte; its contents are arbitrary.
    pub(crate) fn allocate(context: &Arc<PrimaryContext>, bytes: u64) -> Result<DeviceMemory, Error> {
        let mut address = 0;
        // SAFETY: `cuMemAlloc` asks for a place for an address.
        unsafe { call!(context.driver, memory_alloc(&mut address, bytes.max(1) as usize)) }?;
        Ok(DeviceMemory { context: Arc::clone(context), address })
    }

    pub(crate) fn address(&self) -> DevicePtr {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuMemFree` asks for memory that was allocated and not freed yet: this object owns it. By the contracts
            // of streams' operations, no work that touches it is under way.
            let _ = unsafe { call!(self.context.driver, memory_free(self.address)) };
        }
    }
}

/// Page-locked host memory that GPUs reach, zeroed when allocated. Freed when dropped.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    context: Arc<PrimaryContext>,
    host: NonNull<u8>,
    address: DevicePtr,
}

// SAFETY: `Send` asks that another thread may use and free the memory: its uses are unsafe operations with their own
// contracts, and the driver frees from any thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: `Sync` asks that threads may share it: through a shared reference it only tells its addresses.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(crate) fn allocate(context: &Arc<PrimaryContext>, bytes: u64) -> Result<PinnedMemory, Error> {
        let bytes = bytes.max(1) as usize;
        let mut host = null_mut();
        // SAFETY: `cuMemHostAlloc` asks for a place for an address.
        unsafe { call!(context.driver, host_alloc(&mut host, bytes, HOST_MAPPED)) }?;
        let failed = || Error::Driver {
            call: "host_alloc",
            code: super::OUT_OF_MEMORY,
            reason: "no address was returned".to_owned(),
        };
        let host = NonNull::new(host.cast::<u8>()).ok_or_else(failed)?;
        let mut memory = PinnedMemory { context: Arc::clone(context), host, address: 0 };
        // SAFETY: `cuMemHostGetDevicePointer` asks for a place for an address, and for mapped memory of the context.
        unsafe { call!(context.driver, host_pointer(&mut memory.address, host.as_ptr().cast(), 0)) }?;
        // SAFETY: `write_bytes` asks for as many writable bytes: they were just allocated.
        unsafe { host.write_bytes(0, bytes) };
        Ok(memory)
    }

    /// Its first byte, as the host sees it. As many bytes as were asked for are initialized.
    pub(crate) fn host(&self) -> NonNull<u8> {
        self.host
    }

    /// Its first byte, as the GPU sees it.
    pub(crate) fn address(&self) -> DevicePtr {
        self.address
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuMemFreeHost` asks for memory that was allocated and not freed yet: this object owns it. By the
            // contracts of streams' operations, no work that touches it is under way.
            let _ = unsafe { call!(self.context.driver, host_free(self.host.as_ptr().cast())) };
        }
    }
}

/// Pages of the host, registered so that the GPU reads them by itself. Unregistered when dropped.
#[derive(Debug)]
pub(crate) struct RegisteredPages {
    context: Arc<PrimaryContext>,
    start: NonNull<u8>,
}

// SAFETY: `Send` asks that another thread may unregister the pages: the driver does that from any thread.
unsafe impl Send for RegisteredPages {}
// SAFETY: `Sync` asks that threads may share it: a shared reference gives nothing.
unsafe impl Sync for RegisteredPages {}

impl RegisteredPages {
    /// Registers whole pages for reading.
    ///
    /// # Safety
    /// The memory lives, and is not written, until the result is dropped.
    pub(crate) unsafe fn new(
        context: &Arc<PrimaryContext>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<RegisteredPages, Error> {
        let place = start.as_ptr().cast();
        // SAFETY: `cuMemHostRegister` asks for memory that lives until it is unregistered: `new`'s contract.
        unsafe { call!(context.driver, host_register(place, bytes, HOST_READ_ONLY)) }?;
        Ok(RegisteredPages { context: Arc::clone(context), start })
    }
}

impl Drop for RegisteredPages {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuMemHostUnregister` asks for the beginning of registered pages: `new` has registered these.
            let _ = unsafe { call!(self.context.driver, host_unregister(self.start.as_ptr().cast())) };
        }
    }
}
