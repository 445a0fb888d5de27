use std::sync::Arc;

use orlop_backend::Device;
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_wgpu::{Adapter, WgpuDevice, WgpuOptions, adapters};

pub(crate) fn adapter() -> Adapter {
    adapters(true)
        .into_iter()
        .next()
        .expect("a Vulkan, Metal or DX12 driver; `cargo xtask test` installs one")
}

pub(crate) fn gpu() -> Arc<WgpuDevice> {
    WgpuDevice::new(&adapter()).unwrap()
}

pub(crate) fn gpu_with(options: WgpuOptions) -> Arc<WgpuDevice> {
    WgpuDevice::with_options(&adapter(), &options).unwrap()
}

pub(crate) fn cpu() -> Arc<dyn Device> {
    CpuDevice::new(ThreadPool::new(2).unwrap())
}

/// Numbers between -1 and 1 that do not repeat soon.
pub(crate) fn numbers(count: u64, seed: u64) -> Vec<f32> {
    (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}
