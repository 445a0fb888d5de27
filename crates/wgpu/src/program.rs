//! Compiled programs.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_backend::{Bindings, DeviceError, Program, Slot, Step, StepValue, Steps, Touch, touched};
use orlop_graph::{DType, Graph, TensorDesc};

use crate::buffer::OwnBuffer;
use crate::gpu::{Gpu, Pipeline};
use crate::kernels::{self, Task};
use crate::staging::read_mapped;
use crate::wgsl::{Kernel, Place, Work};

/// Bytes of the status words, which hold the first invalid index.
const STATUS: u64 = 16;
/// Index of the status among a program's buffers.
const STATUS_BUFFER: usize = 0;

/// Compiled steps, with every object that a run needs.
pub(crate) struct WgpuProgram {
    pub(crate) gpu: Arc<Gpu>,
    dispatches: Vec<Dispatch>,
    steps: usize,
    touches: Vec<Touch>,
    status: Option<Status>,
    /// The parameters of all dispatches.
    _parameters: Option<OwnBuffer>,
}

/// The dispatch of one kernel.
pub(crate) struct Dispatch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) bind_group: wgpu::BindGroup,
    pub(crate) groups: [u32; 3],
    pub(crate) work: Work,
    pub(crate) label: String,
}

/// The status written by kernels, and the buffer through which the host reads it.
struct Status {
    noted: OwnBuffer,
    read: OwnBuffer,
    /// By code minus 1: op, result, rows.
    checks: Vec<(String, String, u64)>,
    /// Whether the status was reported and must be cleared.
    reported: AtomicBool,
}

impl WgpuProgram {
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<WgpuProgram, DeviceError> {
        let mut draft = Draft::new(gpu)?;
        for step in &steps.steps {
            draft.add(step, bindings)?;
        }
        let Draft { buffers, kernels, checks, status, .. } = draft;
        let parameters = parameters(gpu, kernels.iter().map(|(kernel, _)| kernel))?;
        let mut dispatches = Vec::with_capacity(kernels.len());
        for (index, (kernel, label)) in kernels.into_iter().enumerate() {
            let Some((parameters, places)) = &parameters else { break };
            let written: Vec<bool> = kernel.bindings.iter().map(|(_, written)| *written).collect();
            let pipeline = gpu.pipeline(&kernel.source, &written)?;
            let bound: Vec<&wgpu::Buffer> =
                kernel.bindings.iter().map(|(buffer, _)| &buffers[*buffer].1).collect();
            let (offset, bytes) = places[index];
            let size = std::num::NonZeroU64::new(bytes);
            let own = wgpu::BufferBinding { buffer: &parameters.raw, offset, size };
            let made = gpu.scoped(|| gpu.bind_group(&pipeline.layout, own, &bound));
            let bind_group =
                made.map_err(|error| gpu.lost_error(&format!("a bind group is invalid: {error}")))?;
            dispatches.push(Dispatch {
                pipeline,
                bind_group,
                groups: kernel.groups,
                work: kernel.work,
                label,
            });
        }
        let status = if checks.is_empty() {
            None
        } else {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let read = OwnBuffer::new(gpu, "status", STATUS, usage)?;
            Some(Status { noted: status, read, checks, reported: AtomicBool::new(true) })
        };
        Ok(WgpuProgram {
            gpu: Arc::clone(gpu),
            dispatches,
            steps: steps.steps.len(),
            touches: touched(steps, bindings)?,
            status,
            _parameters: parameters.map(|(buffer, _)| buffer),
        })
    }

    /// The program, if it belongs to this device.
    pub(crate) fn of<'a>(
        program: &'a Arc<dyn Program>,
        gpu: &Arc<Gpu>,
    ) -> Result<&'a WgpuProgram, DeviceError> {
        match program.as_any().downcast_ref::<WgpuProgram>() {
            Some(program) if Arc::ptr_eq(&program.gpu, gpu) => Ok(program),
            other => Err(DeviceError::Foreign {
                what: "a program",
                owner: other.map_or("another kind of device", |program| &program.gpu.name).to_owned(),
                device: gpu.name.to_string(),
            }),
        }
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    pub(crate) fn dispatches(&self) -> &[Dispatch] {
        &self.dispatches
    }

    /// Encodes the commands of a run.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(status) = &self.status
            && status.reported.swap(false, Ordering::AcqRel)
        {
            encoder.clear_buffer(&status.noted.raw, 0, None);
        }
        if !self.dispatches.is_empty() {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            self.dispatches.iter().for_each(|dispatch| dispatch.encode(&mut pass));
        }
        if let Some(status) = &self.status {
            encoder.copy_buffer_to_buffer(&status.noted.raw, 0, &status.read.raw, 0, STATUS);
        }
    }

    /// The error of the completed runs up to the last submission. A status stays until it is reported.
    pub(crate) fn outcome(&self, submitted: &wgpu::SubmissionIndex) -> Result<(), DeviceError> {
        let Some(status) = &self.status else { return Ok(()) };
        let mut words = [0; STATUS as usize];
        read_mapped(&self.gpu, &status.read.raw, submitted.clone(), &mut words)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| words[at * 4 + byte]));
        let Some(check) = (word(0) as usize).checked_sub(1).and_then(|code| status.checks.get(code)) else {
            return Ok(());
        };
        status.reported.store(true, Ordering::Release);
        let (op, tensor, rows) = check.clone();
        Err(DeviceError::BadIndex { op, tensor, index: i64::from(word(1) as i32), rows })
    }
}

impl Dispatch {
    pub(crate) fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        let [x, y, z] = self.groups;
        pass.set_pipeline(&self.pipeline.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

/// Collects the kernels of a program.
struct Draft<'a> {
    gpu: &'a Arc<Gpu>,
    /// Buffers that kernels bind, each with the address of its gate.
    buffers: Vec<(usize, wgpu::Buffer)>,
    kernels: Vec<(Kernel, String)>,
    checks: Vec<(String, String, u64)>,
    status: OwnBuffer,
    status_place: Place,
}

impl<'a> Draft<'a> {
    fn new(gpu: &'a Arc<Gpu>) -> Result<Draft<'a>, DeviceError> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let status = OwnBuffer::new(gpu, "status", STATUS, usage)?;
        let extents = [STATUS / 4, 1, 1, 1];
        let desc = TensorDesc { dtype: DType::I32, extents, strides: [4, STATUS, STATUS, STATUS] };
        Ok(Draft {
            gpu,
            buffers: vec![(0, status.raw.clone())],
            kernels: Vec::new(),
            checks: Vec::new(),
            status,
            status_place: Place { buffer: STATUS_BUFFER, offset: 0, desc },
        })
    }

    /// Adds the kernels of a step.
    fn add(&mut self, step: &Step, bindings: &Bindings) -> Result<(), DeviceError> {
        let graph = &bindings.graph;
        let [id] = step.nodes[..] else { return Ok(()) };
        let node = graph.node(id);
        let mut inputs = Vec::with_capacity(step.reads.len());
        for value in &step.reads {
            inputs.push(self.place(graph, *value, bindings.slot(*value)?)?);
        }
        let output = StepValue::Tensor(node.output);
        let output = self.place(graph, output, bindings.slot(output)?)?;
        let subgroups = self.gpu.features.contains(wgpu::Features::SUBGROUP);
        let (cooperative, status) = (self.gpu.cooperative, self.status_place);
        let task = Task { op: &node.op, inputs, output, subgroups, cooperative, status };
        let name = &graph.tensor(node.output).name;
        let kernels = kernels::build(&task);
        let checks = if kernels.is_empty() { Vec::new() } else { kernels::checks(&task) };
        for check in checks {
            let code = self.checks.len() as u32 + 1;
            if let Some(kernel) = check.kernel(&task.status, code) {
                self.checks.push((node.op.name().to_owned(), name.clone(), check.rows));
                self.kernels.push((kernel, format!("check of {}", node.op)));
            }
        }
        self.kernels.extend(kernels.into_iter().map(|kernel| (kernel, label(&task))));
        Ok(())
    }

    fn place(&mut self, graph: &Graph, value: StepValue, slot: &Slot) -> Result<Place, DeviceError> {
        let gate = slot.buffer.gate();
        let address = Arc::as_ptr(gate).addr();
        let known = self.buffers.iter().position(|(known, _)| *known == address);
        let buffer = match known {
            Some(known) => known,
            None => {
                let raw = self.gpu.raw(gate).ok_or_else(|| DeviceError::Foreign {
                    what: "a buffer",
                    owner: slot.buffer.buffer_type().name().to_owned(),
                    device: self.gpu.name.to_string(),
                })?;
                self.buffers.push((address, raw));
                self.buffers.len() - 1
            }
        };
        let desc = match value {
            StepValue::Tensor(id) => graph.tensor(id).desc,
            // This device uses no temporaries.
            StepValue::Temporary(index) => {
                return Err(DeviceError::Unbound { value: format!("temporary {index}") });
            }
        };
        Ok(Place { buffer, offset: slot.offset, desc })
    }
}

/// The op and operands of a kernel, for benchmarks.
fn label(task: &Task<'_>) -> String {
    let operands: Vec<String> = task.inputs.iter().map(|place| place.desc.to_string()).collect();
    format!("{} {}", task.op, operands.join(" "))
}

/// A buffer with all parameters, and the offset and size of each kernel's.
type Parameters = (OwnBuffer, Vec<(u64, u64)>);

fn parameters<'a>(
    gpu: &Arc<Gpu>,
    kernels: impl Iterator<Item = &'a Kernel>,
) -> Result<Option<Parameters>, DeviceError> {
    let alignment = u64::from(gpu.limits.min_uniform_buffer_offset_alignment);
    let mut bytes: Vec<u8> = Vec::new();
    let mut places = Vec::new();
    for kernel in kernels {
        bytes.resize((bytes.len() as u64).next_multiple_of(alignment) as usize, 0);
        let start = bytes.len() as u64;
        bytes.extend(kernel.parameters.iter().flat_map(|word| word.to_le_bytes()));
        places.push((start, bytes.len() as u64 - start));
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
    let buffer = OwnBuffer::new(gpu, "parameters", bytes.len() as u64, usage)?;
    gpu.staging()?.write(gpu, &buffer.raw, 0, &bytes)?;
    Ok(Some((buffer, places)))
}

impl Program for WgpuProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for WgpuProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps on {}", self.steps, self.gpu.name)
    }
}
