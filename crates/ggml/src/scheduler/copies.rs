//! Tensors that a scheduler adds to a graph.

use std::ffi::CString;

use super::devices::Devices;
use super::split::GraphSplits;
use crate::error::Error;
use crate::graph_tensors::GraphTensors;
use crate::host::Host;
use crate::raw::{Context, InitParams, RawTensor, TensorRef};

/// The copies of tensors in the memory of other backends, and views that keep the originals until they are copied.
#[derive(Debug)]
pub(crate) struct Copies {
    host: &'static Host,
    context: *mut Context,
    pub(crate) copies: Vec<CopiedTensor>,
}

/// A tensor and its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedTensor {
    pub(crate) original: TensorRef,
    pub(crate) copy: TensorRef,
    /// A view of the original.
    pub(crate) marker: TensorRef,
}

impl Copies {
    /// Creates the copies that splits ask for, without memory.
    pub(crate) fn new(
        host: &'static Host,
        devices: &Devices,
        graph: &GraphTensors,
        splits: &GraphSplits,
    ) -> Result<Copies, Error> {
        let bytes = (2 * splits.copies.len() + 1) * host.tensor_overhead();
        let params = InitParams { mem_size: bytes, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        let context = host.init(params);
        if context.is_null() {
            return Err(Error::NoContext { bytes });
        }
        let mut made = Copies { host, context, copies: Vec::with_capacity(splits.copies.len()) };
        for wanted in &splits.copies {
            let original = graph.tensors[wanted.tensor as usize];
            let new = |tensor: *mut RawTensor| {
                // SAFETY: `TensorRef::new` asks for null or a live tensor that no other thread uses: the host made it just now, in the
                // context that this object keeps.
                unsafe { TensorRef::new(tensor) }.ok_or(Error::NoContext { bytes })
            };
            let copy = new(devices.functions.dup_tensor(context, original.as_ptr()))?;
            copy.set_strides(original.layout().2);
            let name = format!("{}#{}", devices.name(wanted.backend), original.name());
            let name = CString::new(name).unwrap_or_default();
            devices.functions.set_name(copy.as_ptr(), name.as_ptr());
            let marker = new(devices.functions.view_tensor(context, original.as_ptr()))?;
            marker.set_source(0, original);
            made.copies.push(CopiedTensor { original, copy, marker });
        }
        Ok(made)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.host.free(self.context);
    }
}
