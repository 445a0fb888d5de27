//! Streams, points in them, and recorded work.
//!
//! Operations on a stream are asynchronous: the memory and the code that they use must stay until the stream has passed
//! them. Plain addresses cannot keep that promise, so these operations are `unsafe` and say what they ask for.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::PrimaryContext;
use super::driver::{DevicePtr, RawEvent, RawGraph, RawGraphExec, RawStream, call};
use super::module::Function;
use crate::Error;

const NON_BLOCKING: c_uint = 1;
const NO_TIMING: c_uint = 2;
const RELAXED_CAPTURE: i32 = 2;
const NOT_READY: i32 = 600;

/// A queue of work on a GPU. Destroyed when dropped; the driver lets work under way finish.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<PrimaryContext>,
    raw: RawStream,
}

/// A point in a stream's work. Destroyed when dropped; the driver lets streams that wait for it finish.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<PrimaryContext>,
    raw: RawEvent,
}

/// Recorded work, a [CUDA graph](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs) that is ready
/// to be launched many times. Destroyed when dropped; the driver frees one that is under way when that has finished.
#[derive(Debug)]
pub(crate) struct GraphExec {
    context: Arc<PrimaryContext>,
    raw: RawGraphExec,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared_bytes: u32,
    /// The kernel may begin before the one in front has ended, and waits for it by itself: [programmatic dependent
    /// launch](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#programmatic-dependent-launch-and-synchronization).
    pub(crate) overlaps: bool,
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(super) struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: RawStream,
    attributes: *const LaunchAttribute,
    attribute_count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: i32,
    pad: i32,
    value: [u32; 16],
}

/// Programmatic stream serialization, on.
const OVERLAP: LaunchAttribute = {
    let mut value = [0; 16];
    value[0] = 1;
    LaunchAttribute { id: 6, pad: 0, value }
};

impl Stream {
    pub(crate) fn new(context: &Arc<PrimaryContext>) -> Result<Stream, Error> {
        let mut raw = RawStream::NULL;
        // SAFETY: `cuStreamCreate` asks for a place for a handle.
        unsafe { call!(context.driver, stream_create(&mut raw, NON_BLOCKING)) }?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    /// Waits on the host until all work is done.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SAFETY: `cuStreamSynchronize` asks for a live stream: this object owns it.
        unsafe { call!(self.context.driver, stream_sync(self.raw)) }
    }

    /// Lets later work wait for an event.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: `cuStreamWaitEvent` asks for a live stream and a live event: their objects own them.
        unsafe { call!(self.context.driver, stream_wait(self.raw, event.raw, 0)) }
    }

    /// Copies from the host to the GPU.
    ///
    /// # Safety
    /// `from` has as many readable bytes and `to` is the address of as many bytes of this GPU's memory. Until the stream has
    /// passed this point, both stay allocated, `from` is not written, and work that touches `to` is ordered with this.
    pub(crate) unsafe fn write(&self, to: DevicePtr, from: *const u8, bytes: u64) -> Result<(), Error> {
        // SAFETY: `cuMemcpyHtoDAsync` asks for what `write`'s contract says, and for a live stream.
        unsafe { call!(self.context.driver, host_to_device_async(to, from.cast(), bytes as usize, self.raw)) }
    }

    /// Copies from the GPU to the host.
    ///
    /// # Safety
    /// `to` has as many writable bytes and `from` is the address of as many bytes of this GPU's memory. Until the stream has
    /// passed this point, both stay allocated, `to` is not touched, and work that writes `from` is ordered with this.
    pub(crate) unsafe fn read(&self, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<(), Error> {
        // SAFETY: `cuMemcpyDtoHAsync` asks for what `read`'s contract says, and for a live stream.
        unsafe { call!(self.context.driver, device_to_host_async(to.cast(), from, bytes as usize, self.raw)) }
    }

    /// Copies within the GPU.
    ///
    /// # Safety
    /// Both are addresses of as many bytes of this GPU's memory, which do not overlap. Until the stream has passed this
    /// point, both stay allocated, and work that writes `from` or touches `to` is ordered with this.
    pub(crate) unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<(), Error> {
        // SAFETY: `cuMemcpyDtoDAsync` asks for what `copy`'s contract says, and for a live stream.
        unsafe { call!(self.context.driver, device_to_device_async(to, from, bytes as usize, self.raw)) }
    }

    /// Copies from another GPU.
    ///
    /// # Safety
    /// As [`Stream::copy`], but `from` is an address of the other GPU's memory.
    pub(crate) unsafe fn copy_from_peer(
        &self,
        to: DevicePtr,
        from: (DevicePtr, &PrimaryContext),
        bytes: u64,
    ) -> Result<(), Error> {
        let (driver, own) = (&self.context.driver, self.context.raw);
        // SAFETY: `cuMemcpyPeerAsync` asks for what `copy_from_peer`'s contract says, and for live contexts and a live stream.
        unsafe { call!(driver, peer_async(to, own, from.0, from.1.raw, bytes as usize, self.raw)) }
    }

    /// Sets bytes to one value.
    ///
    /// # Safety
    /// `at` is the address of as many bytes of this GPU's memory. Until the stream has passed this point, they stay
    /// allocated, and work that touches them is ordered with this.
    pub(crate) unsafe fn fill(&self, at: DevicePtr, value: u8, bytes: u64) -> Result<(), Error> {
        // SAFETY: `cuMemsetD8Async` asks for what `fill`'s contract says, and for a live stream.
        unsafe { call!(self.context.driver, fill_async(at, value, bytes as usize, self.raw)) }
    }

    /// Launches a kernel whose one parameter is a structure.
    ///
    /// # Safety
    /// `parameter` is the structure that the kernel declares, and the kernel is correct for it: it touches only memory that
    /// it may. Until the stream has passed this point, or the last launch of a graph that this is recorded in, that memory
    /// and the kernel's module stay, and work that conflicts with it is ordered with this.
    pub(crate) unsafe fn launch(
        &self,
        function: &Function,
        shape: LaunchShape,
        parameter: &[u8],
    ) -> Result<(), Error> {
        let overlap = [OVERLAP];
        let config = LaunchConfig {
            grid: shape.grid,
            block: [shape.block, 1, 1],
            shared_bytes: shape.shared_bytes,
            stream: self.raw,
            attributes: overlap.as_ptr(),
            attribute_count: u32::from(shape.overlaps),
        };
        let mut parameters = [parameter.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: `cuLaunchKernelEx` asks for what `launch`'s contract says, and for a live stream and function; it copies the
        // configuration and the parameter before it returns.
        unsafe {
            call!(self.context.driver, launch(&config, function.raw, parameters.as_mut_ptr(), null_mut()))
        }
    }

    /// From now on, work is recorded instead of run.
    pub(crate) fn begin_capture(&self) -> Result<(), Error> {
        // SAFETY: `cuStreamBeginCapture` asks for a live stream: this object owns it.
        unsafe { call!(self.context.driver, capture_begin(self.raw, RELAXED_CAPTURE)) }
    }

    /// The work since the recording began.
    pub(crate) fn end_capture(&self) -> Result<GraphExec, Error> {
        let driver = &self.context.driver;
        let (mut captured, mut raw) = (RawGraph::NULL, RawGraphExec::NULL);
        // SAFETY: `cuStreamEndCapture` asks for a live stream and a place for a handle.
        unsafe { call!(driver, capture_end(self.raw, &mut captured)) }?;
        // SAFETY: `cuGraphInstantiate` asks for a place for a handle and a live graph: it was just captured.
        let made = unsafe { call!(driver, graph_instantiate(&mut raw, captured, 0)) };
        // SAFETY: `cuGraphDestroy` asks for a live graph: it was just captured, and its instance is a copy.
        let _ = unsafe { call!(driver, graph_destroy(captured)) };
        made.map(|()| GraphExec { context: Arc::clone(&self.context), raw })
    }

    /// Runs recorded work.
    ///
    /// # Safety
    /// As [`Stream::launch`], for each launch that was recorded.
    pub(crate) unsafe fn replay(&self, graph: &GraphExec) -> Result<(), Error> {
        // SAFETY: `cuGraphLaunch` asks for a live graph and a live stream, and for what its kernels ask for: `replay`'s contract.
        unsafe { call!(self.context.driver, graph_launch(graph.raw, self.raw)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuStreamDestroy` asks for a stream that was not destroyed yet: this object owns it.
            let _ = unsafe { call!(self.context.driver, stream_destroy(self.raw)) };
        }
    }
}

impl Event {
    pub(crate) fn new(context: &Arc<PrimaryContext>) -> Result<Event, Error> {
        let mut raw = RawEvent::NULL;
        // SAFETY: `cuEventCreate` asks for a place for a handle.
        unsafe { call!(context.driver, event_create(&mut raw, NO_TIMING)) }?;
        Ok(Event { context: Arc::clone(context), raw })
    }

    /// Marks the point behind all that a stream was given.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: `cuEventRecord` asks for a live event and a live stream: their objects own them.
        unsafe { call!(self.context.driver, event_record(self.raw, stream.raw)) }
    }

    /// Whether the point was passed.
    pub(crate) fn is_passed(&self) -> Result<bool, Error> {
        // SAFETY: `cuEventQuery` asks for a live event: this object owns it.
        match unsafe { call!(self.context.driver, event_query(self.raw)) } {
            Err(Error::Driver { code: NOT_READY, .. }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Waits on the host until the point was passed.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SAFETY: `cuEventSynchronize` asks for a live event: this object owns it.
        unsafe { call!(self.context.driver, event_sync(self.raw)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuEventDestroy` asks for an event that was not destroyed yet: this object owns it.
            let _ = unsafe { call!(self.context.driver, event_destroy(self.raw)) };
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: `cuGraphExecDestroy` asks for a graph that was not destroyed yet: this object owns it.
            let _ = unsafe { call!(self.context.driver, graph_exec_destroy(self.raw)) };
        }
    }
}
