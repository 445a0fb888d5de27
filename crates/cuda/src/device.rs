//! A GPU as a device: what it is, what it takes, and how its parts are made.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, Link, LowerOptions, Memory,
    NodeQuery, Program, Queue, Role, Segment, StagingMemory, Steps, Support,
};

use crate::Error;
use crate::buffer::{CudaBufferType, MemoryKind};
use crate::context::{Context, TransferStaging};
use crate::kernels::TILE_SHARED;
use crate::lower::{Limits, lower};
use crate::modules::Modules;
use crate::program::CudaProgram;
use crate::queue::CudaQueue;
use crate::queue_staging::QUEUE_STAGING;
use crate::supports::supports;
use crate::sys::{Attribute, Driver, Nvrtc};

/// Choices of [`devices`].
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// Where compiled kernels are kept. Default nowhere: they are compiled at every start.
    pub cache: Option<PathBuf>,
    /// Folders to look for NVRTC in, before those of the system.
    pub libraries: Vec<PathBuf>,
    /// Use weights as they are in the file instead of taking their blocks apart. Default no.
    pub plain_weights: bool,
    /// A folder with kernels to use in place of this crate's, for those who write some. Default none.
    pub sources: Option<PathBuf>,
}

/// The driver's version from which on kernels can be started as they are here: CUDA 12.3.
const LEAST_DRIVER: i32 = 12030;
const LEAST_CAPABILITY: u32 = 80;

/// Every GPU of this machine: `cuda`, then `cuda1` and so on.
///
/// # Errors
/// What is missing: the driver, NVRTC, or a GPU that is new enough. A machine without GPUs has no devices and no error.
pub fn devices(options: &CudaOptions) -> Result<Vec<Arc<dyn Device>>, Error> {
    let driver = Arc::new(Driver::load()?);
    let version = driver.version()?;
    if version < LEAST_DRIVER {
        return Err(Error::OldDriver { found: version, needed: LEAST_DRIVER });
    }
    let ordinals = 0..driver.device_count()?;
    let open = |ordinal| Ok(CudaDevice::open(&driver, ordinal, options)? as Arc<dyn Device>);
    ordinals.map(open).collect()
}

/// One GPU.
pub struct CudaDevice {
    context: Arc<Context>,
    modules: Arc<Modules>,
    gpu: GpuInfo,
    plain: [Arc<dyn BufferType>; 1],
    weights: Vec<Arc<dyn BufferType>>,
}

/// What does not change about a GPU.
#[derive(Clone, Debug)]
struct GpuInfo {
    description: String,
    memory: u64,
    multiprocessors: u32,
    /// Most bytes of shared memory of a block.
    shared: u32,
    bytes_per_second: f64,
    cache_bytes: u64,
    flops: f64,
}

/// F16 products, summed in F32, that a multiprocessor's tensor cores do per clock.
fn products_a_clock(capability: u32) -> f64 {
    match capability {
        80 => 1024.0,
        81..90 => 512.0,
        _ => 2048.0,
    }
}

impl CudaDevice {
    fn open(driver: &Arc<Driver>, ordinal: i32, options: &CudaOptions) -> Result<Arc<CudaDevice>, Error> {
        let device = driver.device(ordinal)?;
        let number = |attribute| driver.attribute(device, attribute);
        let capability = 10 * number(Attribute::Major)? + number(Attribute::Minor)?;
        if capability < LEAST_CAPABILITY {
            return Err(Error::OldGpu(capability));
        }
        let multiprocessors = number(Attribute::Multiprocessors)?;
        // Two transfers a clock on each wire of the bus.
        let bytes_per_second = f64::from(number(Attribute::MemoryClockKilohertz)?)
            * 1e3
            * 2.0
            * f64::from(number(Attribute::BusBits)?)
            / 8.0;
        let clock = f64::from(number(Attribute::ClockKilohertz)?) * 1e3;
        let arch = if capability == 90 { "sm_90a".to_owned() } else { format!("sm_{capability}") };
        let name = if ordinal == 0 { "cuda".to_owned() } else { format!("cuda{ordinal}") };
        let gpu = GpuInfo {
            description: format!(
                "{}, compute capability {}.{}",
                driver.device_name(device)?,
                capability / 10,
                capability % 10
            ),
            memory: driver.device_memory(device)?,
            multiprocessors,
            shared: number(Attribute::SharedOfBlock)?,
            bytes_per_second,
            cache_bytes: number(Attribute::L2Bytes)?.into(),
            // F16 products on tensor cores per clock and multiprocessor; a product is two operations.
            flops: 2.0 * products_a_clock(capability) * f64::from(multiprocessors) * clock,
        };
        let context = Context::new(driver, device, &name)?;
        let modules = Arc::new(Modules::new(&context, Nvrtc::load(&options.libraries)?, arch, options));
        let plain = CudaBufferType::of(&context, MemoryKind::Plain);
        let planes = (!options.plain_weights).then(|| CudaBufferType::of(&context, MemoryKind::Planes));
        Ok(Arc::new(CudaDevice {
            weights: planes.into_iter().chain([Arc::clone(&plain)]).collect(),
            plain: [plain],
            context,
            modules,
            gpu,
        }))
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.context.name
    }

    fn facts(&self) -> DeviceFacts {
        let free = self.context.enter().ok().and_then(|context| context.free_memory().ok());
        DeviceFacts {
            description: self.gpu.description.clone(),
            class: DeviceClass::Gpu,
            memory: free.map(|free| Memory { total: self.gpu.memory, free }),
            flops: self.gpu.flops,
            bytes_per_second: self.gpu.bytes_per_second,
            cache_bytes: self.gpu.cache_bytes,
            launch_seconds: 3e-6,
            host_link: Link { bytes_per_second: 2e10, latency_seconds: 1e-5 },
            staging: StagingMemory { device: TransferStaging::BYTES, queue: QUEUE_STAGING },
            asynchronous: true,
            lost: self.context.is_lost(),
        }
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        match role {
            Role::Arena => &self.plain,
            Role::Weight => &self.weights,
        }
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        supports(node, &self.plain[0], &self.weights, self.gpu.shared >= TILE_SHARED)
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        let limits = Limits { shared: self.gpu.shared, warp_groups: self.modules.has_warp_groups() };
        lower(self, segment, options, limits)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        let program =
            CudaProgram::new(&self.context, &self.modules, self.gpu.multiprocessors, steps, bindings)?;
        Ok(Arc::new(program))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(CudaQueue::new(&self.context)?))
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.context.name, self.gpu.description)
    }
}
