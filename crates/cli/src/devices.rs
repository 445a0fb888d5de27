//! The devices of this machine.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use orlop::backend::Device;
use orlop::cpu::{CpuDevice, CpuOptions, Pool};
use orlop::sched::Machine;

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Every device there is, the CPU first.
pub(crate) fn all(threads: usize, repack: bool) -> Result<Vec<Arc<dyn Device>>, Failure> {
    let mut devices = vec![cpu(threads, repack)?];
    devices.extend(cards(repack).unwrap_or_default());
    devices.extend(gpus(None));
    Ok(devices)
}

/// The adapters that there are drivers for, or those with these names; one that cannot be opened is left out, as it
/// could not be used either. Those that compute in software are there if they are named, or if there are no others.
#[cfg(feature = "wgpu")]
fn gpus(names: Option<&[String]>) -> Vec<Arc<dyn Device>> {
    use orlop::wgpu::{WgpuDevice, WgpuOptions, adapters};
    // Drivers are not woken for nothing.
    if names.is_some_and(|names| !names.iter().any(|name| name.starts_with("wgpu"))) {
        return Vec::new();
    }
    let name = |number: usize| if number == 0 { "wgpu".to_owned() } else { format!("wgpu{number}") };
    let open = |(number, adapter)| -> Option<Arc<dyn Device>> {
        let name = Some(name(number)).filter(|name| names.is_none_or(|names| names.contains(name)))?;
        Some(WgpuDevice::with_options(adapter, &WgpuOptions { name, ..WgpuOptions::default() }).ok()?)
    };
    adapters(names.is_some()).iter().enumerate().filter_map(open).collect()
}

#[cfg(not(feature = "wgpu"))]
fn gpus(_: Option<&[String]>) -> Vec<Arc<dyn Device>> {
    Vec::new()
}

/// The cards of this machine, or why there are none.
#[cfg(feature = "cuda")]
fn cards(repack: bool) -> Result<Vec<Arc<dyn Device>>, String> {
    let options = orlop::cuda::CudaOptions {
        cache: crate::default_model::cache_folder().ok().map(|folder| folder.join("kernels")),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        plain_weights: !repack,
        sources: std::env::var_os("ORLOP_KERNELS").map(Into::into),
    };
    orlop::cuda::devices(&options).map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn cards(_: bool) -> Result<Vec<Arc<dyn Device>>, String> {
    Err("this orlop was built without the feature `cuda`".to_owned())
}

/// The devices with these names, in this order.
pub(crate) fn machine(names: &[String], threads: usize, repack: bool) -> Result<Machine, Failure> {
    let mut known = vec![cpu(threads, repack)?];
    known.extend(gpus(Some(names)));
    let mut missing = String::new();
    // Looking for cards takes a while, and memory on each.
    if names.iter().any(|name| name.starts_with("cuda")) {
        match cards(repack) {
            Ok(cards) => known.extend(cards),
            Err(reason) => missing = format!(" (no cuda: {reason})"),
        }
    }
    let find = |name: &String| {
        known.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
            Failure::BadInput(format!(
                "there is no device `{name}`{missing}; `orlop devices` lists those there are"
            ))
        })
    };
    let devices = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    Machine::new(devices).map_err(bad)
}

fn cpu(threads: usize, repack: bool) -> Result<Arc<dyn Device>, Failure> {
    let pool = Pool::new(threads)
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
