//! The driver's functions, looked up when it is loaded, and its queries that need no handle.

use std::ffi::{CStr, c_char, c_uint, c_void};

use super::stream::LaunchConfig;
use super::{functions, open};
use crate::Error;

/// An address in a GPU's memory.
pub(crate) type DevicePtr = u64;

/// Handles of the driver's objects: opaque, and usable from any thread. The owned types of this module wrap them.
macro_rules! handles {
    ($($name:ident,)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(super) struct $name(pub(super) *mut c_void);

        impl $name {
            pub(super) const NULL: $name = $name(std::ptr::null_mut());
        }

        // SAFETY: `Send` asks that other threads may use the handle: the driver's functions take handles from any thread.
        unsafe impl Send for $name {}
        // SAFETY: `Sync` asks that threads may use it at the same time: the driver's functions are thread-safe.
        unsafe impl Sync for $name {}
    )*};
}
handles! { RawContext, RawStream, RawEvent, RawModule, RawFunction, RawGraph, RawGraphExec, }

/// Facts about a GPU that are asked for by number.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    Multiprocessors = 16,
    MemoryClockKilohertz = 36,
    BusBits = 37,
    L2Bytes = 38,
    ClockKilohertz = 13,
    SharedOfBlock = 97,
    Major = 75,
    Minor = 76,
}

/// The driver's code for a failed allocation.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

functions!(Table of "the NVIDIA driver" {
    init = "cuInit" (c_uint);
    version = "cuDriverGetVersion" (*mut i32);
    device_count = "cuDeviceGetCount" (*mut i32);
    device_get = "cuDeviceGet" (*mut i32, i32);
    device_name = "cuDeviceGetName" (*mut c_char, i32, i32);
    device_attribute = "cuDeviceGetAttribute" (*mut i32, i32, i32);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, i32);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut RawContext, i32);
    context_release = "cuDevicePrimaryCtxRelease_v2" (i32);
    context_set = "cuCtxSetCurrent" (RawContext);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2" (*mut DevicePtr, usize);
    memory_free = "cuMemFree_v2" (DevicePtr);
    host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    host_register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister" (*mut c_void);
    host_pointer = "cuMemHostGetDevicePointer_v2" (*mut DevicePtr, *mut c_void, c_uint);
    device_to_host_async = "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, RawStream);
    host_to_device_async = "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, RawStream);
    device_to_device_async = "cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, RawStream);
    peer_async = "cuMemcpyPeerAsync" (DevicePtr, RawContext, DevicePtr, RawContext, usize, RawStream);
    fill_async = "cuMemsetD8Async" (DevicePtr, u8, usize, RawStream);
    stream_create = "cuStreamCreate" (*mut RawStream, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (RawStream);
    stream_sync = "cuStreamSynchronize" (RawStream);
    stream_wait = "cuStreamWaitEvent" (RawStream, RawEvent, c_uint);
    event_create = "cuEventCreate" (*mut RawEvent, c_uint);
    event_destroy = "cuEventDestroy_v2" (RawEvent);
    event_record = "cuEventRecord" (RawEvent, RawStream);
    event_query = "cuEventQuery" (RawEvent);
    event_sync = "cuEventSynchronize" (RawEvent);
    module_load = "cuModuleLoadData" (*mut RawModule, *const c_void);
    module_unload = "cuModuleUnload" (RawModule);
    module_function = "cuModuleGetFunction" (*mut RawFunction, RawModule, *const c_char);
    function_set = "cuFuncSetAttribute" (RawFunction, i32, i32);
    launch = "cuLaunchKernelEx" (*const LaunchConfig, RawFunction, *mut *mut c_void, *mut *mut c_void);
    capture_begin = "cuStreamBeginCapture_v2" (RawStream, i32);
    capture_end = "cuStreamEndCapture" (RawStream, *mut RawGraph);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut RawGraphExec, RawGraph, u64);
    graph_destroy = "cuGraphDestroy" (RawGraph);
    graph_exec_destroy = "cuGraphExecDestroy" (RawGraphExec);
    graph_launch = "cuGraphLaunch" (RawGraphExec, RawStream);
    error_text = "cuGetErrorString" (i32, *mut *const c_char);
});

/// The loaded driver.
pub(crate) struct Driver {
    pub(super) table: Table,
    #[allow(dead_code)] // keeps the functions of the table loaded
    library: libloading::Library,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

/// Calls a function of the driver and turns its code into a result. An unsafe operation, as every foreign function is: the
/// caller answers what the function's documentation asks for.
macro_rules! call {
    ($driver:expr, $name:ident ( $($argument:expr),* )) => {
        $driver.check(stringify!($name), ($driver.table.$name)($($argument),*))
    };
}
pub(super) use call;

impl Driver {
    pub(crate) fn load() -> Result<Driver, Error> {
        let names = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"].map(str::to_owned);
        let library = open("the NVIDIA driver", &names)?;
        let driver = Driver { table: Table::load(&library)?, library };
        // SAFETY: `cuInit` asks for flags of 0.
        unsafe { call!(driver, init(0)) }?;
        Ok(driver)
    }

    pub(super) fn check(&self, call: &'static str, code: i32) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: `cuGetErrorString` asks for a place for a pointer to a static string.
        let known = unsafe { (self.table.error_text)(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: `from_ptr` asks for a terminated string that lives as long as the result: the driver's are static.
        let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        Err(Error::Driver { call, code, reason: text.unwrap_or_else(|| format!("error {code}")) })
    }

    pub(crate) fn version(&self) -> Result<i32, Error> {
        let mut version = 0;
        // SAFETY: `cuDriverGetVersion` asks for a place for a number.
        unsafe { call!(self, version(&mut version)) }.map(|()| version)
    }

    pub(crate) fn device_count(&self) -> Result<i32, Error> {
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount` asks for a place for a number.
        unsafe { call!(self, device_count(&mut count)) }.map(|()| count)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<i32, Error> {
        let mut device = 0;
        // SAFETY: `cuDeviceGet` asks for a place for a number, and refuses ordinals out of range.
        unsafe { call!(self, device_get(&mut device, ordinal)) }.map(|()| device)
    }

    pub(crate) fn device_name(&self, device: i32) -> Result<String, Error> {
        let mut name = [0u8; 128];
        // SAFETY: `cuDeviceGetName` asks for as many writable bytes as it is told, and refuses unknown devices.
        unsafe { call!(self, device_name(name.as_mut_ptr().cast(), 127, device)) }?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&name[..length]).into_owned())
    }

    pub(crate) fn attribute(&self, device: i32, attribute: Attribute) -> Result<u32, Error> {
        let mut value = 0;
        // SAFETY: `cuDeviceGetAttribute` asks for a place for a number, and refuses unknown devices.
        unsafe { call!(self, device_attribute(&mut value, attribute as i32, device)) }
            .map(|()| value.max(0) as u32)
    }

    pub(crate) fn device_memory(&self, device: i32) -> Result<u64, Error> {
        let mut bytes = 0;
        // SAFETY: `cuDeviceTotalMem` asks for a place for a number, and refuses unknown devices.
        unsafe { call!(self, device_memory(&mut bytes, device)) }.map(|()| bytes as u64)
    }
}
