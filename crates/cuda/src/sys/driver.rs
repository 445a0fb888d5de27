//! The driver. Handles here are plain values; who owns what is the business of the modules above.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::ptr::null_mut;

use super::{functions, open};
use crate::Error;

/// An address on a card.
pub(crate) type DevicePtr = u64;

/// Handles of the driver's objects: opaque, usable from any thread.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(*mut c_void);
        // SAFETY: the driver's functions take handles from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}
handles! { Context, Stream, Event, Module, Function, CapturedGraph, Graph, }

/// Facts about a card that are asked for by number.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    Multiprocessors = 16,
    MemoryClockKilohertz = 36,
    BusBits = 37,
    ClockKilohertz = 13,
    SharedOfBlock = 97,
    Major = 75,
    Minor = 76,
}

const NON_BLOCKING: c_uint = 1;
const NO_TIMING: c_uint = 2;
const HOST_MAPPED: c_uint = 3; // portable, mapped
const HOST_READ_ONLY: c_uint = 9; // portable, read only
const MOST_DYNAMIC_SHARED: i32 = 8;
const RELAXED_CAPTURE: i32 = 2;
/// The driver's number for want of memory.
pub(crate) const OUT_OF_MEMORY: i32 = 2;
const NOT_READY: i32 = 600;

/// How a kernel is started.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Stream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// One more thing to say about a launch.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    id: i32,
    pad: i32,
    value: [u32; 16],
}

impl LaunchAttribute {
    /// The kernel may begin while the one before it ends; it waits for that one's results itself.
    pub(crate) const OVERLAP: LaunchAttribute = {
        let mut value = [0; 16];
        value[0] = 1;
        LaunchAttribute { id: 6, pad: 0, value }
    };
}

functions!(Table of "the NVIDIA driver" {
    init = "cuInit" (c_uint);
    version = "cuDriverGetVersion" (*mut i32);
    device_count = "cuDeviceGetCount" (*mut i32);
    device_get = "cuDeviceGet" (*mut i32, i32);
    device_name = "cuDeviceGetName" (*mut c_char, i32, i32);
    device_attribute = "cuDeviceGetAttribute" (*mut i32, i32, i32);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, i32);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Context, i32);
    context_release = "cuDevicePrimaryCtxRelease_v2" (i32);
    context_set = "cuCtxSetCurrent" (Context);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2" (*mut DevicePtr, usize);
    memory_free = "cuMemFree_v2" (DevicePtr);
    host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    host_register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister" (*mut c_void);
    host_pointer = "cuMemHostGetDevicePointer_v2" (*mut DevicePtr, *mut c_void, c_uint);
    device_to_host_async = "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Stream);
    host_to_device_async = "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Stream);
    device_to_device_async = "cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, Stream);
    peer_async = "cuMemcpyPeerAsync" (DevicePtr, Context, DevicePtr, Context, usize, Stream);
    fill_async = "cuMemsetD8Async" (DevicePtr, u8, usize, Stream);
    stream_create = "cuStreamCreate" (*mut Stream, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (Stream);
    stream_sync = "cuStreamSynchronize" (Stream);
    stream_wait = "cuStreamWaitEvent" (Stream, Event, c_uint);
    event_create = "cuEventCreate" (*mut Event, c_uint);
    event_destroy = "cuEventDestroy_v2" (Event);
    event_record = "cuEventRecord" (Event, Stream);
    event_query = "cuEventQuery" (Event);
    event_sync = "cuEventSynchronize" (Event);
    module_load = "cuModuleLoadData" (*mut Module, *const c_void);
    module_unload = "cuModuleUnload" (Module);
    module_function = "cuModuleGetFunction" (*mut Function, Module, *const c_char);
    function_set = "cuFuncSetAttribute" (Function, i32, i32);
    launch = "cuLaunchKernelEx" (*const LaunchConfig, Function, *mut *mut c_void, *mut *mut c_void);
    capture_begin = "cuStreamBeginCapture_v2" (Stream, i32);
    capture_end = "cuStreamEndCapture" (Stream, *mut CapturedGraph);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Graph, CapturedGraph, u64);
    graph_destroy = "cuGraphDestroy" (CapturedGraph);
    graph_exec_destroy = "cuGraphExecDestroy" (Graph);
    graph_launch = "cuGraphLaunch" (Graph, Stream);
    error_text = "cuGetErrorString" (i32, *mut *const c_char);
});

pub(crate) struct Driver {
    table: Table,
    #[allow(dead_code)] // the functions are its
    library: libloading::Library,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

/// Calls a function of the table and turns its number into a result.
macro_rules! call {
    ($driver:expr, $name:ident ( $($argument:expr),* )) => {{
        // SAFETY: the function's documentation asks for live handles, which the types here stand for and whoever calls
        // this module keeps alive, for a current context (`context_set`), and for places of the right type for results.
        let code = unsafe { ($driver.table.$name)($($argument),*) };
        $driver.check(stringify!($name), code)
    }};
}

impl Driver {
    pub(crate) fn load() -> Result<Driver, Error> {
        let names = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"].map(str::to_owned);
        let library = open("the NVIDIA driver", &names)?;
        let driver = Driver { table: Table::load(&library)?, library };
        call!(driver, init(0))?;
        Ok(driver)
    }

    fn check(&self, call: &'static str, code: i32) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: asks for a place for a pointer to a static string.
        let known = unsafe { (self.table.error_text)(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: `from_ptr` asks for a terminated string, which the driver's are.
        let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        Err(Error::Driver { call, code, reason: text.unwrap_or_else(|| format!("error {code}")) })
    }

    pub(crate) fn version(&self) -> Result<i32, Error> {
        let mut version = 0;
        call!(self, version(&mut version)).map(|()| version)
    }

    pub(crate) fn device_count(&self) -> Result<i32, Error> {
        let mut count = 0;
        call!(self, device_count(&mut count)).map(|()| count)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<i32, Error> {
        let mut device = 0;
        call!(self, device_get(&mut device, ordinal)).map(|()| device)
    }

    pub(crate) fn device_name(&self, device: i32) -> Result<String, Error> {
        let mut name = [0u8; 128];
        call!(self, device_name(name.as_mut_ptr().cast(), 127, device))?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&name[..length]).into_owned())
    }

    pub(crate) fn attribute(&self, device: i32, attribute: Attribute) -> Result<u32, Error> {
        let mut value = 0;
        call!(self, device_attribute(&mut value, attribute as i32, device)).map(|()| value.max(0) as u32)
    }

    pub(crate) fn device_memory(&self, device: i32) -> Result<u64, Error> {
        let mut bytes = 0;
        call!(self, device_memory(&mut bytes, device)).map(|()| bytes as u64)
    }

    pub(crate) fn retain_context(&self, device: i32) -> Result<Context, Error> {
        let mut context = Context(null_mut());
        call!(self, context_retain(&mut context, device)).map(|()| context)
    }

    pub(crate) fn release_context(&self, device: i32) {
        let _ = call!(self, context_release(device));
    }

    /// Makes a context this thread's, as all that follow ask for.
    pub(crate) fn set_context(&self, context: Context) -> Result<(), Error> {
        call!(self, context_set(context))
    }

    pub(crate) fn free_memory(&self) -> Result<u64, Error> {
        let (mut free, mut total) = (0, 0);
        call!(self, memory_info(&mut free, &mut total)).map(|()| free as u64)
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<DevicePtr, Error> {
        let mut place = 0;
        call!(self, memory_alloc(&mut place, bytes as usize)).map(|()| place)
    }

    pub(crate) fn free(&self, place: DevicePtr) {
        let _ = call!(self, memory_free(place));
    }

    /// Host memory that the card reaches, and its address there.
    pub(crate) fn allocate_host(&self, bytes: u64) -> Result<(*mut u8, DevicePtr), Error> {
        let (mut host, mut device) = (null_mut(), 0);
        call!(self, host_alloc(&mut host, bytes as usize, HOST_MAPPED))?;
        let mapped = call!(self, host_pointer(&mut device, host, 0));
        if mapped.is_err() {
            self.free_host(host.cast());
        }
        mapped.map(|()| (host.cast(), device))
    }

    pub(crate) fn free_host(&self, place: *mut u8) {
        let _ = call!(self, host_free(place.cast()));
    }

    /// Keeps pages of the host that nobody writes where they are, so that the card reads them itself.
    ///
    /// # Safety
    /// The memory must live until it is let go again.
    pub(crate) unsafe fn pin(&self, place: *mut u8, bytes: u64) -> Result<(), Error> {
        call!(self, host_register(place.cast(), bytes as usize, HOST_READ_ONLY))
    }

    /// Lets pages go.
    pub(crate) fn unpin(&self, address: usize) {
        let _ = call!(self, host_unregister(std::ptr::without_provenance_mut(address)));
    }

    /// # Safety
    /// The host's bytes must stay as they are until the stream has come here.
    pub(crate) unsafe fn write_async(
        &self,
        to: DevicePtr,
        from: *const u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        call!(self, host_to_device_async(to, from.cast(), bytes as usize, stream))
    }

    /// # Safety
    /// Nobody else may touch the host's bytes until the stream has come here.
    pub(crate) unsafe fn read_async(
        &self,
        to: *mut u8,
        from: DevicePtr,
        bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        call!(self, device_to_host_async(to.cast(), from, bytes as usize, stream))
    }

    pub(crate) fn copy_async(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        call!(self, device_to_device_async(to, from, bytes as usize, stream))
    }

    pub(crate) fn copy_peer_async(
        &self,
        [to, from]: [(DevicePtr, Context); 2],
        bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        call!(self, peer_async(to.0, to.1, from.0, from.1, bytes as usize, stream))
    }

    pub(crate) fn fill_async(
        &self,
        at: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<(), Error> {
        call!(self, fill_async(at, value, bytes as usize, stream))
    }

    pub(crate) fn stream(&self) -> Result<Stream, Error> {
        let mut stream = Stream(null_mut());
        call!(self, stream_create(&mut stream, NON_BLOCKING)).map(|()| stream)
    }

    pub(crate) fn destroy_stream(&self, stream: Stream) {
        let _ = call!(self, stream_destroy(stream));
    }

    pub(crate) fn sync(&self, stream: Stream) -> Result<(), Error> {
        call!(self, stream_sync(stream))
    }

    pub(crate) fn wait(&self, stream: Stream, event: Event) -> Result<(), Error> {
        call!(self, stream_wait(stream, event, 0))
    }

    pub(crate) fn event(&self) -> Result<Event, Error> {
        let mut event = Event(null_mut());
        call!(self, event_create(&mut event, NO_TIMING)).map(|()| event)
    }

    pub(crate) fn destroy_event(&self, event: Event) {
        let _ = call!(self, event_destroy(event));
    }

    pub(crate) fn record(&self, event: Event, stream: Stream) -> Result<(), Error> {
        call!(self, event_record(event, stream))
    }

    /// Whether an event's point is passed.
    pub(crate) fn is_passed(&self, event: Event) -> Result<bool, Error> {
        match call!(self, event_query(event)) {
            Err(Error::Driver { code: NOT_READY, .. }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    pub(crate) fn sync_event(&self, event: Event) -> Result<(), Error> {
        call!(self, event_sync(event))
    }

    pub(crate) fn load_module(&self, cubin: &[u8]) -> Result<Module, Error> {
        let mut module = Module(null_mut());
        call!(self, module_load(&mut module, cubin.as_ptr().cast())).map(|()| module)
    }

    pub(crate) fn unload_module(&self, module: Module) {
        let _ = call!(self, module_unload(module));
    }

    pub(crate) fn function(&self, module: Module, name: &str) -> Result<Function, Error> {
        let mut function = Function(null_mut());
        let name = CString::new(name).unwrap_or_default();
        call!(self, module_function(&mut function, module, name.as_ptr())).map(|()| function)
    }

    /// Lets all launches of a kernel use so much shared memory, and no more.
    pub(crate) fn limit_shared(&self, function: Function, bytes: u32) -> Result<(), Error> {
        call!(self, function_set(function, MOST_DYNAMIC_SHARED, bytes as i32))
    }

    /// Starts a kernel whose one parameter is a structure.
    ///
    /// # Safety
    /// `parameter` must be as long as the kernel's parameter, and whatever it points to must be what the kernel asks for.
    pub(crate) unsafe fn launch(
        &self,
        config: &LaunchConfig,
        function: Function,
        parameter: &[u8],
    ) -> Result<(), Error> {
        let mut parameters = [parameter.as_ptr().cast_mut().cast::<c_void>()];
        call!(self, launch(config, function, parameters.as_mut_ptr(), null_mut()))
    }

    pub(crate) fn begin_capture(&self, stream: Stream) -> Result<(), Error> {
        call!(self, capture_begin(stream, RELAXED_CAPTURE))
    }

    /// What was given to a stream since the capture began, ready to be replayed.
    pub(crate) fn end_capture(&self, stream: Stream) -> Result<Graph, Error> {
        let mut captured = CapturedGraph(null_mut());
        call!(self, capture_end(stream, &mut captured))?;
        let mut graph = Graph(null_mut());
        let made = call!(self, graph_instantiate(&mut graph, captured, 0));
        let _ = call!(self, graph_destroy(captured));
        made.map(|()| graph)
    }

    pub(crate) fn destroy_graph(&self, graph: Graph) {
        let _ = call!(self, graph_exec_destroy(graph));
    }

    pub(crate) fn replay(&self, graph: Graph, stream: Stream) -> Result<(), Error> {
        call!(self, graph_launch(graph, stream))
    }
}
