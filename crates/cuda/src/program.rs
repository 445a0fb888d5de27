//! Compiled steps: kernel launches at fixed addresses.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, DeviceError, MemoryLayout, Program, StepValue, Steps, Touch, touched};

use crate::async_uploads::overlap;
use crate::context::Context;
use crate::kernel_errors::KernelErrors;
use crate::kernels::{Launch, LaunchContext, launches};
use crate::modules::Modules;
use crate::supports::word;
use crate::sys::{DevicePtr, GraphExec, LaunchShape, Stream};

/// Launches at fixed addresses. The second run records them as a [CUDA
/// graph](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs), which later runs replay.
pub(crate) struct CudaProgram {
    context: Arc<Context>,
    launches: Vec<Launch>,
    errors: Arc<KernelErrors>,
    touches: Vec<Touch>,
    /// Where on the GPU its values are.
    places: Vec<Range<DevicePtr>>,
    steps: usize,
    replay: Mutex<Replay>,
}

#[derive(Debug, Default)]
struct Replay {
    runs: u64,
    graph: Option<GraphExec>,
}

/// Programs with fewer launches are not recorded: a graph would cost as much as they do.
const MIN_RECORDED: usize = 3;

impl CudaProgram {
    pub(crate) fn new(
        context: &Arc<Context>,
        modules: &Arc<Modules>,
        multiprocessors: u32,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<CudaProgram, DeviceError> {
        let touches = touched(steps, bindings)?;
        let errors = Arc::new(KernelErrors::new(context, modules, steps, bindings)?);
        let site = LaunchContext {
            context,
            modules,
            multiprocessors,
            bindings,
            options: &steps.options,
            errors: errors.address(),
        };
        let places = places(&site, steps)?;
        let launches = launches(&site, steps)?;
        Ok(CudaProgram {
            context: Arc::clone(context),
            launches,
            errors,
            touches,
            places,
            steps: steps.steps.len(),
            replay: Mutex::default(),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where its kernels report bad indices.
    pub(crate) fn errors(&self) -> &Arc<KernelErrors> {
        &self.errors
    }

    /// Whether it reads or writes any of some bytes.
    pub(crate) fn is_at(&self, bytes: &Range<DevicePtr>) -> bool {
        self.places.iter().any(|place| overlap(place, bytes))
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Gives the work to a stream.
    ///
    /// # Safety
    /// Until the stream has passed this point, the program and its [`KernelErrors`] live, what it touches stays claimed, and
    /// work that conflicts with it is ordered with it.
    pub(crate) unsafe fn run(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.context.enter()?;
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        replay.runs += 1;
        if replay.runs == 2 && self.launches.len() >= MIN_RECORDED {
            self.context.note(stream.begin_capture())?;
            // SAFETY: `start` asks for `run`'s contract; recorded launches run when the graph is replayed, here alone.
            let started = unsafe { self.start(stream) };
            let graph = self.context.note(stream.end_capture());
            started?;
            replay.graph = Some(graph?);
        }
        match &replay.graph {
            // SAFETY: `Stream::replay` asks, for each launch, for what `start` answers under `run`'s contract.
            Some(graph) => self.context.note(unsafe { stream.replay(graph) }),
            // SAFETY: `start` asks for `run`'s contract.
            None => unsafe { self.start(stream) },
        }
    }

    /// # Safety
    /// As [`CudaProgram::run`].
    unsafe fn start(&self, stream: &Stream) -> Result<(), DeviceError> {
        for launch in &self.launches {
            let Launch { grid, block, shared_bytes, overlaps, .. } = *launch;
            let shape = LaunchShape { grid, block, shared_bytes, overlaps };
            // SAFETY: `Stream::launch` asks for the kernel's parameter: `kernels` pairs each kernel with the structure that its
            // source declares. The addresses in it are those of the bindings, whose buffers the touches keep, and of
            // `errors`, which keeps the modules; by `run`'s contract all stay, and conflicting work is ordered.
            let started = unsafe { stream.launch(&launch.function, shape, &launch.parameter) };
            self.context.note(started)?;
        }
        Ok(())
    }
}

/// Bytes that a kernel reads at a time where the graph's offsets and strides allow it.
const WIDEST: u64 = 16;

/// Refuses an offset that is less aligned than kernels assume by the graph.
fn check_alignment(site: &LaunchContext<'_>, value: StepValue, offset: u64) -> Result<(), DeviceError> {
    let tensor = match value {
        StepValue::Tensor(id) => Some(site.graph().tensor(id)),
        StepValue::Temporary(_) => None,
    };
    let aside = tensor.filter(|tensor| !tensor.storage.offset.is_multiple_of(WIDEST));
    let alignment = aside.map_or(WIDEST, |tensor| word(tensor.desc.dtype));
    if offset.is_multiple_of(alignment) {
        return Ok(());
    }
    let tensor = tensor.map_or_else(|| "a temporary".to_owned(), |tensor| tensor.name.clone());
    Err(DeviceError::MisalignedOffset { tensor, offset, alignment })
}

/// Where the values of steps are, except weights in planes, which share no memory with others.
fn places(site: &LaunchContext<'_>, steps: &Steps) -> Result<Vec<Range<DevicePtr>>, DeviceError> {
    let mut places: Vec<Range<DevicePtr>> = Vec::new();
    for value in steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes)) {
        let bytes = match value {
            StepValue::Tensor(id) => site.desc(*id).bytes(),
            StepValue::Temporary(number) => steps.temporaries.get(*number).map_or(0, |value| value.bytes),
        };
        let slot = site.bindings.slot(*value)?;
        check_alignment(site, *value, slot.offset)?;
        let plain = slot.buffer.buffer_type().layout() == MemoryLayout::Plain;
        let at = site.address(*value)?;
        let place = at..at + bytes;
        if plain && !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

impl Program for CudaProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for CudaProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} launches on {}", self.launches.len(), self.context.name)
    }
}
