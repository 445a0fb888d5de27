use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{DType, Graph, NodeId, Op, Rope, TensorId};

use super::{Launch, LaunchContext, Spread, misfit, numbers};
use crate::modules::{Source, Variant};

/// Heads of a token that one warp takes.
const TOGETHER: u64 = 8;
/// Most jobs of one launch.
pub(crate) const MAX_JOBS: usize = 4;

/// Heads that are turned, and rows that go into caches, turned before or not: each head's into a plane of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    /// How heads are turned, if any are: parameters, positions, factors.
    turn: Option<(Rope, TensorId, Option<TensorId>)>,
    jobs: Vec<Job>,
    tokens: u64,
}

/// One token's heads: what goes in, and what comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OneToken {
    pub(crate) q: (TensorId, TensorId),
    pub(crate) k: (TensorId, TensorId),
    pub(crate) v: (TensorId, TensorId),
    /// The row of both caches.
    pub(crate) indices: TensorId,
    pub(crate) positions: TensorId,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    x: TensorId,
    output: TensorId,
    /// Rows of the output that the tokens go to.
    indices: Option<TensorId>,
    turned: bool,
}

impl Rotation {
    /// What nodes mean as one step, if its kernel takes them.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<Rotation> {
        let desc = |id: TensorId| &graph.tensor(id).desc;
        let mut rotation = Rotation { turn: None, jobs: Vec::new(), tokens: 0 };
        for node in nodes.iter().map(|node| graph.node(*node)) {
            match &node.op {
                Op::Rope(rope) => {
                    let turn = (*rope, node.inputs[1], node.inputs.get(2).copied());
                    if *rotation.turn.get_or_insert(turn) != turn {
                        return None;
                    }
                    let x = desc(node.inputs[0]);
                    let plain = x.dtype == DType::F32
                        && x.strides[0] == 4
                        && x.extents[3] == 1
                        && desc(node.output).dtype == DType::F32
                        && desc(node.output).is_contiguous()
                        && desc(node.inputs[1]).is_contiguous()
                        && turn.2.is_none_or(|id| desc(id).dtype == DType::F32 && desc(id).is_contiguous());
                    if !plain {
                        return None;
                    }
                    rotation.add(
                        x.extents[2],
                        Job { x: node.inputs[0], output: node.output, indices: None, turned: true },
                    )?;
                }
                Op::SetRows => {
                    let [into, rows, indices] = node.inputs[..] else { return None };
                    let (target, source) = (desc(into), desc(rows));
                    let is_block = matches!(target.dtype, DType::Q8_0 | DType::Q4_0);
                    let fits = (is_block || matches!(target.dtype, DType::F32 | DType::F16 | DType::BF16))
                        && target.strides[0] == target.dtype.block_bytes()
                        && source.extents[3] == 1
                        && source.dtype == DType::F32
                        && source.strides[0] == 4
                        && desc(indices).is_contiguous()
                        && desc(indices).extents[1..] == [1; 3];
                    if !fits {
                        return None;
                    }
                    let root = graph.tensor(rows).storage;
                    let turned = rotation.jobs.iter_mut().find(|job| job.turned && job.output == root.root);
                    match turned {
                        // A block is of elements that different lanes turn.
                        Some(_) if is_block => return None,
                        Some(job) => {
                            let [element, next_head, token, _] = desc(job.output).strides;
                            let [head, heads, tokens, _] = desc(job.output).extents;
                            let planes = root.offset == 0
                                && source.extents == [head, tokens, heads, 1]
                                && source.strides[..2] == [element, token]
                                && (heads == 1 || source.strides[2] == next_head);
                            if !planes || job.indices.is_some() {
                                return None;
                            }
                            (job.output, job.indices) = (node.output, Some(indices));
                        }
                        None => rotation.add(
                            source.extents[1],
                            Job { x: rows, output: node.output, indices: Some(indices), turned: false },
                        )?,
                    }
                }
                _ => return None,
            }
        }
        (!rotation.jobs.is_empty()).then_some(rotation)
    }

    fn add(&mut self, tokens: u64, job: Job) -> Option<()> {
        let fits =
            self.jobs.len() < MAX_JOBS && tokens > 0 && (self.jobs.is_empty() || self.tokens == tokens);
        self.tokens = tokens;
        self.jobs.push(job);
        fits.then_some(())
    }

    pub(crate) fn reads(&self, graph: &Graph) -> Vec<TensorId> {
        let turn = self.turn.into_iter().flat_map(|(_, positions, factors)| [Some(positions), factors]);
        // What is written by rows is read too: the rows that are left stay.
        let written = |job: &Job| job.indices.map(|_| graph.tensor(job.output).storage.root);
        let jobs = self.jobs.iter().flat_map(|job| [Some(job.x), job.indices, written(job)]);
        turn.chain(jobs).flatten().collect()
    }

    /// What angles are divided by.
    pub(super) fn factors(&self) -> Option<TensorId> {
        self.turn.and_then(|(_, _, factors)| factors)
    }

    pub(crate) fn writes(&self) -> Vec<TensorId> {
        self.jobs.iter().map(|job| job.output).collect()
    }

    /// The jobs by what they are, if they are one token's queries, and its key and value on their way to a cache.
    pub(crate) fn one_token(&self) -> Option<OneToken> {
        let [q, k, v] = self.jobs[..] else { return None };
        let (_, positions, _) = self.turn.filter(|_| self.tokens == 1)?;
        let fits = q.turned
            && q.indices.is_none()
            && k.turned
            && k.indices.is_some()
            && !v.turned
            && k.indices == v.indices;
        let indices = k.indices.filter(|_| fits)?;
        Some(OneToken { q: (q.x, q.output), k: (k.x, k.output), v: (v.x, v.output), indices, positions })
    }

    pub(super) fn turn(&self, site: &LaunchContext<'_>) -> Result<TurnParameter, DeviceError> {
        let rope = self.turn.map_or_else(Rope::default, |(rope, ..)| rope);
        let (ramp, magnitude) = yarn(&rope);
        let (mode, sections) = numbers::rope(rope.mode);
        Ok(TurnParameter {
            positions: self.turn.map_or(Ok(0), |(_, positions, _)| site.at(positions))?,
            factors: self.factors().map_or(Ok(0), |factors| site.at(factors))?,
            mode,
            dims: rope.dims as i32,
            sections: sections.map(|size| size as i32),
            base: rope.freq_base,
            scale: rope.freq_scale,
            weight: rope.ext_factor,
            ramp,
            magnitude,
        })
    }
}

/// The angles of YaRN: pairs from which the weight of the plain angle falls, and at which it is 0, and the magnitude.
pub(super) fn yarn(rope: &Rope) -> ([f32; 2], f32) {
    let dims = f64::from(rope.dims);
    let turns_at = |rotations: f32| {
        let length = f64::from(rope.original_context) / (f64::from(rotations) * std::f64::consts::TAU);
        dims * length.ln() / (2.0 * f64::from(rope.freq_base).ln())
    };
    let low = turns_at(rope.beta_fast).floor().max(0.0);
    let high = turns_at(rope.beta_slow).ceil().min(dims - 1.0);
    let correction =
        if rope.ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / f64::from(rope.freq_scale)).ln() };
    ([low as f32, high as f32], (f64::from(rope.attn_factor) * correction) as f32)
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct JobParameter {
    x: u64,
    y: u64,
    indices: u64,
    x_head: i64,
    x_token: i64,
    y_head: i64,
    y_row: i64,
    rows: i64,
    heads: i32,
    dim: i32,
    turned: i32,
    dtype: i32,
    wide: i32,
    gap: u32,
}

/// How heads are turned, as kernels see it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct TurnParameter {
    positions: u64,
    factors: u64,
    mode: i32,
    dims: i32,
    sections: [i32; 4],
    base: f32,
    scale: f32,
    weight: f32,
    ramp: [f32; 2],
    magnitude: f32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RotateParameter {
    jobs: [JobParameter; MAX_JOBS],
    turn: TurnParameter,
    marks: u64,
    count: i32,
    tokens: i32,
    step: i32,
    gap: u32,
}

/// Shared with `rows.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] =
    &[("Job", size_of::<JobParameter>()), ("Rotate", size_of::<RotateParameter>())];

/// The length of pieces that rows are cut into, so that no warp has a whole long row to itself.
fn piece(row: u64) -> u64 {
    [128, 64, 32].into_iter().find(|piece| row.is_multiple_of(*piece)).unwrap_or(row)
}

fn job(site: &LaunchContext<'_>, job: &Job) -> Result<JobParameter, DeviceError> {
    let (x, y) = (site.desc(job.x), site.desc(job.output));
    let (dim, heads, x_head, x_token) = match (job.turned, x.extents[2]) {
        (true, _) => (x.extents[0], x.extents[1], x.strides[1], x.strides[2]),
        (false, 1) => {
            let dim = piece(x.extents[0]);
            (dim, x.extents[0] / dim, dim * 4, x.strides[1])
        }
        (false, planes) => (x.extents[0], planes, x.strides[2], x.strides[1]),
    };
    let (y_head, y_row) = match (job.indices, y.extents[2]) {
        (None, _) => (y.strides[1], y.strides[2]),
        (Some(_), 1) => (dim / y.dtype.block_elements() * y.dtype.block_bytes(), y.strides[1]),
        (Some(_), _) => (y.strides[2], y.strides[1]),
    };
    Ok(JobParameter {
        x: site.at(job.x)?,
        y: site.at(job.output)?,
        indices: job.indices.map_or(Ok(0), |indices| site.at(indices))?,
        x_head: x_head as i64,
        x_token: x_token as i64,
        y_head: y_head as i64,
        y_row: y_row as i64,
        rows: y.extents[1] as i64,
        heads: heads as i32,
        dim: dim as i32,
        turned: i32::from(job.turned),
        dtype: y.dtype.gguf_id() as i32,
        wide: i32::from(job.indices.is_some_and(|indices| site.desc(indices).dtype == DType::I64)),
        gap: 0,
    })
}

pub(super) fn rotate(
    site: &LaunchContext<'_>,
    step: &Step,
    index: i32,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let rotation = Rotation::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let mut jobs = [JobParameter::zeroed(); MAX_JOBS];
    for (from, to) in rotation.jobs.iter().zip(&mut jobs) {
        *to = job(site, from)?;
    }
    let parameter = RotateParameter {
        jobs,
        turn: rotation.turn(site)?,
        marks: site.errors,
        count: rotation.jobs.len() as i32,
        tokens: rotation.tokens as i32,
        step: index,
        gap: 0,
    };
    let groups: u64 = jobs.iter().map(|job| (job.heads as u64).div_ceil(TOGETHER)).sum();
    let spread = Spread::new((groups * rotation.tokens).div_ceil(8), 256);
    launches.push(site.launch(&Variant::plain(Source::Rows), "rotate", spread, &parameter)?);
    Ok(())
}
