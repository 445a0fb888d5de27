//! The devices of this machine.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use orlop::backend::Device;
use orlop::cpu::{CpuDevice, CpuOptions, Pool};
use orlop::sched::Machine;

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Every device there is, most preferred first.
pub(crate) fn all(threads: usize, repack: bool) -> Result<Vec<Arc<dyn Device>>, Failure> {
    let mut devices = gpus();
    devices.push(cpu(threads, repack)?);
    Ok(devices)
}

/// The adapters that there are drivers for; one that cannot be opened is left out, as it could not be used either.
#[cfg(feature = "wgpu")]
fn gpus() -> Vec<Arc<dyn Device>> {
    use orlop::wgpu::{WgpuDevice, WgpuOptions, adapters};
    let name = |number: usize| if number == 0 { "wgpu".to_owned() } else { format!("wgpu{number}") };
    let open = |(number, adapter)| -> Option<Arc<dyn Device>> {
        let options = WgpuOptions { name: name(number), ..WgpuOptions::default() };
        Some(WgpuDevice::with_options(adapter, &options).ok()?)
    };
    adapters(false).iter().enumerate().filter_map(open).collect()
}

#[cfg(not(feature = "wgpu"))]
fn gpus() -> Vec<Arc<dyn Device>> {
    Vec::new()
}

/// The devices with these names, in this order.
pub(crate) fn machine(names: &[String], threads: usize, repack: bool) -> Result<Machine, Failure> {
    // Drivers are not woken for nothing.
    let known = if names == ["cpu"] { vec![cpu(threads, repack)?] } else { all(threads, repack)? };
    let find = |name: &String| {
        known.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|device| device.name()).collect();
            Failure::BadInput(format!("there is no device `{name}`; there are: {}", names.join(", ")))
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
