//! Adapters: the GPUs that drivers offer.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A GPU, or a software implementation of one.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(crate) inner: wgpu::Adapter,
    info: wgpu::AdapterInfo,
}

/// The adapters of this machine, the fastest kind first. Software adapters are listed if `software` is set, or if there
/// are no others.
pub fn adapters(software: bool) -> Vec<Adapter> {
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    (description.backends, description.flags) = (backends, wgpu::InstanceFlags::empty());
    let instance = wgpu::Instance::new(description);
    let found = block_on(instance.enumerate_adapters(backends)).into_iter();
    let mut found: Vec<Adapter> =
        found.map(|inner| Adapter { info: inner.get_info(), inner }).filter(Adapter::is_usable).collect();
    found.sort_by_key(Adapter::rank);
    if !software && found.iter().any(|adapter| !adapter.is_software()) {
        found.retain(|adapter| !adapter.is_software());
    }
    found
}

impl Adapter {
    /// The driver's name of the adapter.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Whether it runs on the CPU.
    pub fn is_software(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Name, kind, API and driver.
    pub fn description(&self) -> String {
        let kind = match self.info.device_type {
            wgpu::DeviceType::Cpu => "software adapter",
            wgpu::DeviceType::IntegratedGpu => "integrated GPU",
            wgpu::DeviceType::DiscreteGpu => "discrete GPU",
            wgpu::DeviceType::VirtualGpu => "virtual GPU",
            wgpu::DeviceType::Other => "adapter",
        };
        let driver = [&self.info.driver, &self.info.driver_info].map(|text| text.trim());
        let driver = driver.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        format!("{} ({kind}, {:?}, {driver})", self.info.name, self.info.backend)
    }

    fn is_usable(&self) -> bool {
        self.inner.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    }

    fn rank(&self) -> u8 {
        match self.info.device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        }
    }

    /// Bytes of device-local memory, if the driver reports them.
    pub(crate) fn memory(&self) -> Option<u64> {
        vulkan_memory(&self.inner)
    }
}

#[cfg(any(target_os = "linux", target_os = "windows", target_os = "android"))]
fn vulkan_memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: `as_hal` asks that what it returns is not destroyed; it is only asked for numbers.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let (instance, device) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
    // SAFETY: the call asks for a physical device of this instance: both are of one adapter, which `hal` keeps alive.
    let properties = unsafe { instance.get_physical_device_memory_properties(device) };
    let heaps = properties.memory_heaps_as_slice().iter();
    // Bit 0: VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
    heaps.filter(|heap| heap.flags.as_raw() & 1 != 0).map(|heap| heap.size).max()
}

#[cfg(not(any(target_os = "linux", target_os = "windows", target_os = "android")))]
fn vulkan_memory(_: &wgpu::Adapter) -> Option<u64> {
    None
}

/// Waits for a future; those of native backends are ready at once.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
