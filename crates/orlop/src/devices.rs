//! The devices of this machine by name: `cpu`; `cuda`, `cuda1`, …; `wgpu`, `wgpu1`, …. Which kinds exist depends on the
//! features of this crate. Devices of other machines are named by their server: `rpc:host:port`.

use std::path::PathBuf;
use std::sync::Arc;

use orlop_backend::Device;
use orlop_cpu::{CpuDevice, CpuOptions, ThreadPool};
use orlop_rpc::{RpcAddress, RpcDevice, RpcError, RpcOptions};

pub use crate::cores::physical_cores;

/// How devices are opened.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Threads of the CPU device. Default: [`physical_cores`].
    pub threads: usize,
    /// Store weights in the layout that a device's kernels read fastest. Default: `true`.
    pub repack: bool,
    /// Folder for compiled CUDA kernels. Default `None`: they are compiled at every start.
    pub kernel_cache: Option<PathBuf>,
    /// Folder with CUDA kernels that replace the built-in ones. Default: `None`.
    pub kernel_sources: Option<PathBuf>,
    /// Time limits of connections to servers.
    pub rpc: RpcOptions,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            threads: physical_cores(),
            repack: true,
            kernel_cache: None,
            kernel_sources: None,
            rpc: RpcOptions::default(),
        }
    }
}

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The CPU's threads could not be started.
    #[error("cannot start {threads} threads ({source})")]
    Threads {
        /// Requested threads.
        threads: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// This machine has no device with this name.
    #[error("no device `{name}`{}", .reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default())]
    Unknown {
        /// The requested name.
        name: String,
        /// Why this kind of device is missing, if known.
        reason: Option<String>,
    },
    /// A server cannot be used.
    #[error(transparent)]
    Remote(#[from] RpcError),
}

/// Every usable device, the CPU first. Software adapters of wgpu are listed only if there is no hardware one.
///
/// # Errors
/// [`DiscoveryError::Threads`].
pub fn all(options: &DeviceOptions) -> Result<Vec<Arc<dyn Device>>, DiscoveryError> {
    let mut devices = vec![cpu(options)?];
    devices.extend(cuda(options).unwrap_or_default());
    devices.extend(wgpu(None).unwrap_or_default());
    Ok(devices)
}

/// The devices with these names, in this order. Only the drivers of these devices are loaded. The name of a server stands for
/// all of its devices.
///
/// # Errors
/// [`DiscoveryError`].
pub fn named(names: &[String], options: &DeviceOptions) -> Result<Vec<Arc<dyn Device>>, DiscoveryError> {
    Ok(named_apart(names, options)?.into_iter().flatten().collect())
}

/// As [`named`], with the devices of each name apart.
///
/// # Errors
/// [`DiscoveryError`].
pub fn named_apart(
    names: &[String],
    options: &DeviceOptions,
) -> Result<Vec<Vec<Arc<dyn Device>>>, DiscoveryError> {
    let mut known = vec![cpu(options)?];
    let mut missing: Vec<(&str, String)> = Vec::new();
    let mut discover = |kind: &'static str, find: &dyn Fn() -> Found| {
        if names.iter().any(|name| name.starts_with(kind)) {
            match find() {
                Ok(devices) => known.extend(devices),
                Err(reason) => missing.push((kind, reason)),
            }
        }
    };
    discover("wgpu", &|| wgpu(Some(names)));
    discover("cuda", &|| cuda(options));
    let servers: Vec<RpcAddress> = names
        .iter()
        .filter_map(|name| name.strip_prefix(SERVER))
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let remote = RpcDevice::connect(&servers, &options.rpc)?;
    let find = |name: &String| {
        if let Some(address) = name.strip_prefix(SERVER) {
            let address: RpcAddress = address.parse()?;
            let own = remote.iter().filter(|device| *device.server() == address);
            return Ok(own.map(|device| Arc::clone(device) as Arc<dyn Device>).collect());
        }
        let found = known.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
            let reason = missing.iter().find(|(kind, _)| name.starts_with(kind));
            let reason = reason.map(|(kind, reason)| format!("{kind}: {reason}"));
            DiscoveryError::Unknown { name: name.clone(), reason }
        });
        found.map(|device| vec![device])
    };
    names.iter().map(find).collect()
}

/// What names of servers begin with.
const SERVER: &str = "rpc:";

/// Devices of one kind, or why there are none.
type Found = Result<Vec<Arc<dyn Device>>, String>;

fn cpu(options: &DeviceOptions) -> Result<Arc<dyn Device>, DiscoveryError> {
    let DeviceOptions { threads, repack, .. } = *options;
    let pool = ThreadPool::new(threads).map_err(|source| DiscoveryError::Threads { threads, source })?;
    Ok(CpuDevice::with_options(pool, &CpuOptions { repack, ..CpuOptions::default() }))
}

#[cfg(feature = "cuda")]
fn cuda(options: &DeviceOptions) -> Found {
    let options = orlop_cuda::CudaOptions {
        cache: options.kernel_cache.clone(),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        plain_weights: !options.repack,
        sources: options.kernel_sources.clone(),
    };
    orlop_cuda::devices(&options).map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &DeviceOptions) -> Found {
    Err(left_out("cuda"))
}

/// All adapters, or those with these names, without those that fail to open. Software adapters are included if names are
/// given, or if there are no others.
#[cfg(feature = "wgpu")]
fn wgpu(names: Option<&[String]>) -> Found {
    use orlop_wgpu::{WgpuDevice, WgpuOptions, adapters};
    let name = |number: usize| if number == 0 { "wgpu".to_owned() } else { format!("wgpu{number}") };
    let open = |(number, adapter)| -> Option<Arc<dyn Device>> {
        let name = Some(name(number)).filter(|name| names.is_none_or(|names| names.contains(name)))?;
        Some(WgpuDevice::with_options(adapter, &WgpuOptions { name, ..WgpuOptions::default() }).ok()?)
    };
    Ok(adapters(names.is_some()).iter().enumerate().filter_map(open).collect())
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: Option<&[String]>) -> Found {
    Err(left_out("wgpu"))
}

#[cfg(not(all(feature = "wgpu", feature = "cuda")))]
fn left_out(feature: &str) -> String {
    format!("this orlop was built without the feature `{feature}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_apart_by_their_names() {
        let names = ["cpu", "cpu"].map(str::to_owned);
        let options = DeviceOptions { threads: 1, ..DeviceOptions::default() };
        let apart = named_apart(&names, &options).unwrap();
        assert_eq!(apart.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(Arc::ptr_eq(&apart[0][0], &apart[1][0]), "opened once");
        assert_eq!(named(&names, &options).unwrap().len(), 2);
    }
}
