//! The devices of this machine.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use orlop::backend::Device;
use orlop::cpu::{CpuDevice, CpuOptions, ThreadPool};
use orlop::sched::Machine;

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Every device there is, the CPU first.
pub(crate) fn all(threads: usize, repack: bool) -> Result<Vec<Arc<dyn Device>>, Failure> {
    let mut devices = vec![cpu(threads, repack)?];
    devices.extend(cards(repack).unwrap_or_default());
    devices.extend(gpus(None).unwrap_or_default());
    Ok(devices)
}

/// Devices of one family, or why there are none.
type Found = Result<Vec<Arc<dyn Device>>, String>;

/// The adapters that there are drivers for, or those with these names; one that cannot be opened is left out, as it
/// could not be used either. Those that compute in software are there if they are named, or if there are no others.
#[cfg(feature = "wgpu")]
fn gpus(names: Option<&[String]>) -> Found {
    use orlop::wgpu::{WgpuDevice, WgpuOptions, adapters};
    let name = |number: usize| if number == 0 { "wgpu".to_owned() } else { format!("wgpu{number}") };
    let open = |(number, adapter)| -> Option<Arc<dyn Device>> {
        let name = Some(name(number)).filter(|name| names.is_none_or(|names| names.contains(name)))?;
        Some(WgpuDevice::with_options(adapter, &WgpuOptions { name, ..WgpuOptions::default() }).ok()?)
    };
    Ok(adapters(names.is_some()).iter().enumerate().filter_map(open).collect())
}

#[cfg(not(feature = "wgpu"))]
fn gpus(_: Option<&[String]>) -> Found {
    Err(left_out("wgpu"))
}

/// The cards of this machine, or why there are none.
#[cfg(feature = "cuda")]
fn cards(repack: bool) -> Found {
    let options = orlop::cuda::CudaOptions {
        cache: crate::default_model::cache_folder().ok().map(|folder| folder.join("kernels")),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        plain_weights: !repack,
        sources: std::env::var_os("ORLOP_KERNELS").map(Into::into),
    };
    orlop::cuda::devices(&options).map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn cards(_: bool) -> Found {
    Err(left_out("cuda"))
}

#[cfg(not(all(feature = "wgpu", feature = "cuda")))]
fn left_out(feature: &str) -> String {
    format!("this orlop was built without the feature `{feature}`")
}

/// The devices with these names, in this order.
pub(crate) fn machine(names: &[String], threads: usize, repack: bool) -> Result<Machine, Failure> {
    let mut known = vec![cpu(threads, repack)?];
    let mut missing: Vec<(&str, String)> = Vec::new();
    // Looking for devices takes a while, and wakes drivers.
    let mut look = |family: &'static str, found: &dyn Fn() -> Found| {
        if names.iter().any(|name| name.starts_with(family)) {
            match found() {
                Ok(devices) => known.extend(devices),
                Err(reason) => missing.push((family, reason)),
            }
        }
    };
    look("wgpu", &|| gpus(Some(names)));
    look("cuda", &|| cards(repack));
    let find = |name: &String| {
        known.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
            let reason = missing.iter().find(|(family, _)| name.starts_with(family));
            let reason = reason.map(|(family, reason)| format!(" (no {family}: {reason})"));
            Failure::BadInput(format!(
                "there is no device `{name}`{}; `orlop devices` lists those there are",
                reason.unwrap_or_default()
            ))
        })
    };
    let devices = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    Machine::new(devices).map_err(bad)
}

fn cpu(threads: usize, repack: bool) -> Result<Arc<dyn Device>, Failure> {
    let pool = ThreadPool::new(threads)
        .map_err(|error| Failure::Other(anyhow::anyhow!("no {threads} threads can be had ({error})")))?;
    Ok(CpuDevice::with_options(pool, &CpuOptions { repack, ..CpuOptions::default() }))
}

/// Cores that this process may use, threads of one core counted once.
pub(crate) fn physical_cores() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let siblings = |cpu: usize| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    };
    let cores: HashSet<String> = (0..).map_while(siblings).collect();
    if cores.is_empty() { usable } else { cores.len().min(usable) }
}
