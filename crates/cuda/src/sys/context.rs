//! A GPU's primary context, which all other objects belong to and keep alive.

use std::sync::Arc;

use super::driver::{Driver, RawContext, call};
use crate::Error;

/// A GPU's primary context. Released when the last object that belongs to it is dropped.
#[derive(Debug)]
pub(crate) struct PrimaryContext {
    pub(super) driver: Arc<Driver>,
    pub(super) raw: RawContext,
    device: i32,
}

impl PrimaryContext {
    pub(crate) fn retain(driver: &Arc<Driver>, device: i32) -> Result<Arc<PrimaryContext>, Error> {
        let mut raw = RawContext::NULL;
        // SAFETY: `cuDevicePrimaryCtxRetain` asks for a place for a handle, and refuses unknown devices.
        unsafe { call!(driver, context_retain(&mut raw, device)) }?;
        Ok(Arc::new(PrimaryContext { driver: Arc::clone(driver), raw, device }))
    }

    /// Makes it this thread's current context. Without one, or with another GPU's, the driver refuses most calls.
    pub(crate) fn make_current(&self) -> Result<(), Error> {
        // SAFETY: `cuCtxSetCurrent` asks for a live context: this one is retained until it is dropped.
        unsafe { call!(self.driver, context_set(self.raw)) }
    }

    /// Bytes of GPU memory that are free.
    pub(crate) fn free_memory(&self) -> Result<u64, Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: `cuMemGetInfo` asks for places for two numbers.
        unsafe { call!(self.driver, memory_info(&mut free, &mut total)) }.map(|()| free as u64)
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        // SAFETY: `cuDevicePrimaryCtxRelease` asks for a retained context of the device: this object retained it, and objects
        // that belong to it hold this one.
        let _ = unsafe { call!(self.driver, context_release(self.device)) };
    }
}
