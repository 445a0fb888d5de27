use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, DeviceError, MemoryLayout, Program, StepValue, Steps, Touch, touched};

use crate::context::Context;
use crate::flights::overlap;
use crate::kernels::{Launch, LaunchContext, launches};
use crate::modules::Modules;
use crate::supports::word;
use crate::sys::{DevicePtr, Graph, LaunchAttribute, LaunchConfig, Stream};

/// Launches at fixed places. The second run records them as a CUDA graph, which the runs after it replay.
pub(crate) struct CudaProgram {
    context: Arc<Context>,
    launches: Vec<Launch>,
    marks: Arc<Marks>,
    touches: Vec<Touch>,
    /// Where on the card its values are.
    places: Vec<Range<DevicePtr>>,
    steps: usize,
    replay: Mutex<Replay>,
}

#[derive(Debug, Default)]
struct Replay {
    runs: u64,
    graph: Option<Graph>,
}

/// Below this, starting launches one by one costs no more than a graph.
const LEAST_RECORDED: usize = 3;

impl CudaProgram {
    pub(crate) fn new(
        context: &Arc<Context>,
        modules: &Arc<Modules>,
        multiprocessors: u32,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<CudaProgram, DeviceError> {
        let touches = touched(steps, bindings)?;
        let marks = Arc::new(Marks::new(context, modules, steps, bindings)?);
        let site = LaunchContext {
            context,
            modules,
            multiprocessors,
            bindings,
            options: &steps.options,
            marks: marks.device,
        };
        let places = places(&site, steps)?;
        let launches = launches(&site, steps)?;
        Ok(CudaProgram {
            context: Arc::clone(context),
            launches,
            marks,
            touches,
            places,
            steps: steps.steps.len(),
            replay: Mutex::default(),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn marks(&self) -> &Arc<Marks> {
        &self.marks
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
    /// What the program touches must stay claimed until the stream has come here, and conflicting work be ordered.
    pub(crate) unsafe fn run(&self, stream: Stream) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        replay.runs += 1;
        if replay.runs == 2 && self.launches.len() >= LEAST_RECORDED {
            self.context.note(driver.begin_capture(stream))?;
            // SAFETY: as for the caller; what is captured runs below.
            let started = unsafe { self.start(stream) };
            let graph = self.context.note(driver.end_capture(stream));
            started?;
            replay.graph = Some(graph?);
        }
        match replay.graph {
            Some(graph) => self.context.note(driver.replay(graph, stream)),
            // SAFETY: as for the caller.
            None => unsafe { self.start(stream) },
        }
    }

    /// # Safety
    /// As [`CudaProgram::run`].
    unsafe fn start(&self, stream: Stream) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        for launch in &self.launches {
            let overlap = [LaunchAttribute::OVERLAP];
            let config = LaunchConfig {
                grid: launch.grid,
                block: [launch.block, 1, 1],
                shared_bytes: launch.shared_bytes,
                stream,
                attributes: overlap.as_ptr(),
                attribute_count: u32::from(launch.overlaps),
            };
            // SAFETY: `launch` asks for the kernel's parameter: `kernels` pairs each kernel with the structure that its
            // source declares, and takes the places in it from the bindings, whose buffers the touches keep alive.
            let started = unsafe { driver.launch(&config, launch.function, &launch.parameter) };
            self.context.note(started)?;
        }
        Ok(())
    }
}

/// How many bytes a kernel reads at a time where the graph says that it can.
const WIDEST: u64 = 16;

/// Refuses a place that is less aligned than the graph makes kernels believe.
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

/// Where the values of steps are, but for weights in planes, which lie by themselves.
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

impl Drop for CudaProgram {
    fn drop(&mut self) {
        let graph = self.replay.get_mut().unwrap_or_else(PoisonError::into_inner).graph.take();
        if let (Some(graph), Ok(driver)) = (graph, self.context.enter()) {
            driver.destroy_graph(graph);
        }
    }
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

/// A page of the host's memory in which kernels say what was wrong with their data: the step, counted from 1, the number
/// found, and how many rows there are.
#[derive(Debug)]
pub(crate) struct Marks {
    context: Arc<Context>,
    host: *mut u8,
    device: DevicePtr,
    /// Op and result of each step.
    names: Vec<(String, String)>,
    /// The kernels: like the page, they stay for as long as a program or work under way needs them.
    #[allow(dead_code)]
    modules: Arc<Modules>,
}

// SAFETY: the page is only reached through atomics, by the host and by the card.
unsafe impl Send for Marks {}
// SAFETY: as above.
unsafe impl Sync for Marks {}

const PAGE: u64 = 64;

impl Marks {
    fn new(
        context: &Arc<Context>,
        modules: &Arc<Modules>,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<Marks, DeviceError> {
        let name = |step: &orlop_backend::Step| {
            let node = step.nodes.last().map(|node| bindings.graph.node(*node));
            let result = node.map(|node| bindings.graph.tensor(node.output).name.clone());
            (
                node.map_or_else(|| step.kernel.to_string(), |node| node.op.name().to_owned()),
                result.unwrap_or_default(),
            )
        };
        let driver = context.enter()?;
        let (host, device) = context.note_memory(driver.allocate_host(PAGE), "marks", PAGE)?;
        let marks = Marks {
            context: Arc::clone(context),
            host,
            device,
            names: steps.steps.iter().map(name).collect(),
            modules: Arc::clone(modules),
        };
        marks.clear();
        Ok(marks)
    }

    fn words(&self) -> (&AtomicU64, &AtomicI64, &AtomicU64) {
        let base = self.host;
        // SAFETY: `from_ptr` asks for aligned memory that lives as long as the result and is reached through atomics
        // only: the page is this object's, whole pages are aligned, and only this function reaches it.
        let step = unsafe { AtomicU64::from_ptr(base.cast()) };
        // SAFETY: as above; `add` stays within the page.
        let index = unsafe { AtomicI64::from_ptr(base.wrapping_add(8).cast()) };
        // SAFETY: as above.
        let rows = unsafe { AtomicU64::from_ptr(base.wrapping_add(16).cast()) };
        (step, index, rows)
    }

    /// The error that a kernel noted, if one did.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        let (step, index, rows) = self.words();
        let Some(step) = step.load(Ordering::Acquire).checked_sub(1) else { return Ok(()) };
        let (op, tensor) = self.names.get(step as usize).cloned().unwrap_or_default();
        Err(DeviceError::BadIndex {
            op,
            tensor,
            index: index.load(Ordering::Relaxed),
            rows: rows.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn clear(&self) {
        self.words().0.store(0, Ordering::Release);
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
            driver.free_host(self.host);
        }
    }
}
