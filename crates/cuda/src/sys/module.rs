//! Machine code on a GPU, and the kernels in it.

use std::ffi::CString;
use std::sync::Arc;

use super::PrimaryContext;
use super::driver::{RawFunction, RawModule, call};
use crate::Error;

const MAX_DYNAMIC_SHARED: i32 = 8;

/// Loaded machine code. Unloaded when dropped.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<PrimaryContext>,
    raw: RawModule,
}

/// A kernel. Keeps its module loaded.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    module: Arc<Module>,
    pub(super) raw: RawFunction,
}

impl Module {
    /// Loads machine code.
    ///
    /// # Safety
    /// `cubin` is what NVRTC made: the driver finds its length in its header, and does not check it.
    pub(crate) unsafe fn load(context: &Arc<PrimaryContext>, cubin: &[u8]) -> Result<Arc<Module>, Error> {
        let mut raw = RawModule::NULL;
        // SAFETY: `cuModuleLoadData` asks for a place for a handle and for a whole image: `load`'s contract.
        unsafe { call!(context.driver, module_load(&mut raw, cubin.as_ptr().cast())) }?;
        Ok(Arc::new(Module { context: Arc::clone(context), raw }))
    }

    pub(crate) fn function(self: &Arc<Module>, name: &str) -> Result<Function, Error> {
        let mut raw = RawFunction::NULL;
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: `cuModuleGetFunction` asks for a place for a handle, a live module and a terminated name.
        unsafe { call!(self.context.driver, module_function(&mut raw, self.raw, name.as_ptr())) }?;
        Ok(Function { module: Arc::clone(self), raw })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuModuleUnload` asks for a module that was loaded and not unloaded yet: this object owns it. By
            // `Stream::launch`'s contract, no kernel of it is under way.
            let _ = unsafe { call!(self.context.driver, module_unload(self.raw)) };
        }
    }
}

impl Function {
    /// Lets all launches of the kernel use up to this much shared memory.
    pub(crate) fn limit_shared(&self, bytes: u32) -> Result<(), Error> {
        let driver = &self.module.context.driver;
        // SAFETY: `cuFuncSetAttribute` asks for a live function: its module is kept.
        unsafe { call!(driver, function_set(self.raw, MAX_DYNAMIC_SHARED, bytes as i32)) }
    }
}
