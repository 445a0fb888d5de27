//! Speeds of devices, measured once for each device, build and precision, and kept in the cache folder.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlop::backend::{Device, LowerOptions};
use orlop::gguf::TemporaryFile;
use orlop::graph::DType;
use orlop::sched::{CalibrateOptions, DeviceSpeeds, Machine, calibrate};
use serde::{Deserialize, Serialize};

use crate::commands::devices::processor;
use crate::default_model::cache_folder;
use crate::style::note;

/// Whether speeds from the cache are good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renew {
    IfMissing,
    Always,
}

/// What all devices of a machine may take to be measured.
const TIME: Duration = Duration::from_secs(2);

/// Speeds with what they were measured for.
#[derive(Serialize, Deserialize)]
struct CachedSpeeds {
    key: String,
    /// Types of weights whose products were measured, as far as the device has them.
    types: Vec<DType>,
    speeds: DeviceSpeeds,
}

/// The machine with measured speeds. What cannot be measured keeps the speeds that it states, and a note says why.
pub(crate) fn measured(machine: Machine, lower: &LowerOptions, types: &[DType], renew: Renew) -> Machine {
    let mut options = CalibrateOptions { lower: lower.clone(), ..CalibrateOptions::default() };
    if !types.is_empty() {
        options.types = types.to_vec();
    }
    let devices = machine.devices().to_vec();
    options.time = TIME / devices.len().max(1) as u32;
    let indices = machine.indices();
    indices.zip(&devices).fold(machine, |machine, (ix, device)| match speeds(device, &options, renew) {
        Ok(speeds) => machine.clone().calibrated(ix, speeds).unwrap_or(machine),
        Err(error) => {
            let name = device.name();
            note(format_args!("orlop: cannot measure {name} ({error}); using the speeds that it states"));
            machine
        }
    })
}

fn speeds(
    device: &Arc<dyn Device>,
    options: &CalibrateOptions,
    renew: Renew,
) -> Result<DeviceSpeeds, orlop::sched::Error> {
    let key = key(&**device, &options.lower);
    let path = path(&key);
    let read = || serde_json::from_str::<CachedSpeeds>(&fs::read_to_string(path.as_ref()?).ok()?).ok();
    let known = read().filter(|cached| cached.key == key);
    let mut options = options.clone();
    let known = match renew {
        Renew::IfMissing => known,
        Renew::Always => {
            let types = known.map(|known| known.types).unwrap_or_default();
            let further = types.into_iter().filter(|dtype| !options.types.contains(dtype));
            options.types = options.types.iter().copied().chain(further.collect::<Vec<DType>>()).collect();
            None
        }
    };
    // Types that are known take none of the time.
    options.types.retain(|dtype| known.as_ref().is_none_or(|known| !known.types.contains(dtype)));
    if let (Some(CachedSpeeds { speeds, .. }), []) = (&known, options.types.as_slice()) {
        return Ok(speeds.clone());
    }
    let mut speeds = calibrate(device, &options)?;
    let mut types = options.types;
    if let Some(known) = known {
        speeds.products.extend(known.speeds.products);
        speeds.quantized_flops = speeds.quantized_flops.max(known.speeds.quantized_flops);
        types.extend(known.types);
    }
    if let Some(path) = path {
        // Without a cache, devices are measured again the next time.
        let _ = write(&path, &CachedSpeeds { key, types, speeds: speeds.clone() });
    }
    Ok(speeds)
}

/// Whole or not at all: other processes may measure, too.
fn write(path: &Path, cached: &CachedSpeeds) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let (temporary, mut file) = TemporaryFile::beside(path)?;
    file.write_all(serde_json::to_string(cached)?.as_bytes())?;
    temporary.rename(path)
}

/// What speeds depend on.
fn key(device: &dyn Device, lower: &LowerOptions) -> String {
    let LowerOptions { max_threads, precision, fusion } = lower;
    format!(
        "orlop {}; {}: {}; {}; {max_threads} threads, {precision:?}, fusion {fusion}",
        env!("CARGO_PKG_VERSION"),
        device.name(),
        device.facts().description,
        processor::name().unwrap_or_default(),
    )
}

fn path(key: &str) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    Some(cache_folder().ok()?.join("speeds").join(format!("{:016x}.json", hasher.finish())))
}
