//! From steps to launches: which kernel, how many threads, and the one structure that it is given.
//!
//! Structures here are declared once more in the sources, as plain data without gaps; [`structures`] has their sizes
//! asserted there.

mod attention;
mod experts;
mod floats;
mod general;
mod mixture;
mod numbers;
mod product;
mod rotate;
mod rows;

pub(crate) use attention::{AttentionPlan, RotatedAttention, attention_plan};
pub(crate) use experts::{ExpertProducts, Sorted, experts_take, grouped_takes};
pub(crate) use floats::{FloatProducts, floats_take};
pub(crate) use mixture::{Mixture, Routing};
pub(crate) use numbers::header as numbers_header;
pub(crate) use product::{
    Part, TILE_SHARED, TileProduct, VectorProducts, opened_takes, suits_bringing, suits_eight_bits,
    tiles_take, vector_takes,
};
pub(crate) use rotate::Rotation;
pub(crate) use rows::{Rounded, Rounding, ScaledNorm, opened_bytes};

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use orlop_backend::{Bindings, DeviceError, LowerOptions, Step, StepValue, Steps};
use orlop_graph::{Graph, Leaf, Node, TensorDesc, TensorId};

use crate::buffer;
use crate::context::Context;
use crate::modules::{Modules, Source, Variant};
use crate::planes::Planes;
use crate::sys::{DevicePtr, Function};

/// Norm times a weight, plus a bias if there is one.
pub(crate) const SCALED_NORM: &str = "scaled_norm";
/// Products with one row of activations.
pub(crate) const VECTOR: &str = "vector_products";
/// Products with experts' matrices, for each token some.
pub(crate) const EXPERTS: &str = "expert_products";
/// The same for many tokens, in the order of their experts.
pub(crate) const GROUPED: &str = "grouped_products";
/// Tokens in the order of their experts.
pub(crate) const SORTED: &str = "sort";
/// The same, where tokens may have none.
pub(crate) const SORTED_SOME: &str = "sort_some";
/// The experts of each token, and how much each counts.
pub(crate) const ROUTE: &str = "route";
/// What the experts of each token have made of it, added up.
pub(crate) const MIX: &str = "mix";
/// Activations rounded to F16, for products on tensor cores.
pub(crate) const F16_ACTIVATIONS: &str = "round_to_f16";
/// Activations rounded to int8, for products on tensor cores.
pub(crate) const I8_ACTIVATIONS: &str = "round_to_int8";
/// Weights in a file's layout, dequantized to F16 for a product on tensor cores.
pub(crate) const DEQUANTIZED: &str = "dequantize";
/// A product with many rows of activations, in F16.
pub(crate) const TILES: &str = "tile_product";
/// A product with many rows of activations, in int8.
pub(crate) const EIGHT_BIT: &str = "eight_bit_product";
/// Products with a matrix of F32.
pub(crate) const FLOATS: &str = "float_products";
/// Rotations, and rows written to caches.
pub(crate) const ROTATE: &str = "rotate";
/// Attention of one token.
pub(crate) const DECODE: &str = "decode_attention";
/// Attention of many tokens.
pub(crate) const PROMPT: &str = "prompt_attention";

/// One start of a kernel.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) function: Function,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared_bytes: u32,
    /// It may begin before the one in front has ended, and waits for it by itself.
    pub(crate) overlaps: bool,
    pub(crate) parameter: Box<[u8]>,
}

/// What launches are made from.
pub(crate) struct LaunchContext<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) modules: &'a Modules,
    pub(crate) multiprocessors: u32,
    pub(crate) bindings: &'a Bindings,
    pub(crate) options: &'a LowerOptions,
    /// Where kernels report bad indices.
    pub(crate) errors: DevicePtr,
}

/// A tensor as kernels see it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct TensorParameter {
    pub(crate) at: u64,
    pub(crate) extents: [i64; 4],
    pub(crate) strides: [i64; 4],
    pub(crate) starts: [u64; 4],
    pub(crate) dtype: i32,
    pub(crate) planes: i32,
}

/// The structures that a source shares with this crate: names there, and bytes here.
pub(crate) fn structures(source: Source) -> Vec<(&'static str, usize)> {
    let mut all =
        vec![("Tensor", size_of::<TensorParameter>()), ("Turn", size_of::<rotate::TurnParameter>())];
    all.extend_from_slice(match source {
        Source::General => general::STRUCTURES,
        Source::Rows => return [all, rows::STRUCTURES.to_vec(), rotate::STRUCTURES.to_vec()].concat(),
        Source::Vector => product::VECTOR_STRUCTURES,
        Source::Tiles | Source::Groups => product::TILES_STRUCTURES,
        Source::Int8Tiles => product::INT8_TILES_STRUCTURES,
        Source::Experts => {
            return [all, experts::SORT_STRUCTURES.to_vec(), mixture::STRUCTURES.to_vec()].concat();
        }
        Source::Floats => floats::STRUCTURES,
        Source::Decode => attention::DECODE_STRUCTURES,
        Source::Prompt => attention::PROMPT_STRUCTURES,
    });
    all
}

/// How a kernel is spread over the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared_bytes: u32,
}

impl Spread {
    pub(crate) fn new(blocks: u64, block: u32) -> Spread {
        // Kernels go on from block to block if there are more than this.
        Spread { grid: [blocks.clamp(1, 1 << 20) as u32, 1, 1], block, shared_bytes: 0 }
    }
}

/// The launches of all steps, in order.
pub(crate) fn launches(site: &LaunchContext<'_>, steps: &Steps) -> Result<Vec<Launch>, DeviceError> {
    let mut launches = Vec::with_capacity(steps.steps.len());
    for (index, step) in steps.steps.iter().enumerate() {
        let index = index as i32;
        match &*step.kernel {
            SCALED_NORM => rows::scaled_norm(site, step, &mut launches)?,
            DEQUANTIZED => rows::dequantize(site, step, &mut launches)?,
            F16_ACTIVATIONS | I8_ACTIVATIONS => rows::round(site, step, &mut launches)?,
            VECTOR => product::vector(site, step, &mut launches)?,
            EXPERTS => experts::experts(site, step, index, &mut launches)?,
            GROUPED => experts::grouped(site, step, &mut launches)?,
            SORTED | SORTED_SOME => experts::sort(site, step, index, &mut launches)?,
            ROUTE => mixture::route(site, step, &mut launches)?,
            MIX => mixture::mix(site, step, &mut launches)?,
            TILES => product::tiles(site, step, &mut launches)?,
            EIGHT_BIT => product::eight_bit(site, step, &mut launches)?,
            FLOATS => floats::floats(site, step, index, &mut launches)?,
            ROTATE => rotate::rotate(site, step, index, &mut launches)?,
            DECODE | PROMPT => attention::attention(site, step, index, &mut launches)?,
            _ => general::general(site, step, index, &mut launches)?,
        }
    }
    // What came before the program is another's: its end is waited for as a whole.
    if let Some(first) = launches.first_mut() {
        first.overlaps = false;
    }
    Ok(launches)
}

impl LaunchContext<'_> {
    pub(crate) fn graph(&self) -> &Graph {
        &self.bindings.graph
    }

    pub(crate) fn desc(&self, id: TensorId) -> &TensorDesc {
        &self.bindings.graph.tensor(id).desc
    }

    /// Where a value is on the GPU.
    pub(crate) fn address(&self, value: StepValue) -> Result<DevicePtr, DeviceError> {
        let slot = self.bindings.slot(value)?;
        let own = buffer::own(&*slot.buffer, self.context).ok_or_else(|| DeviceError::Foreign {
            what: "a buffer",
            owner: slot.buffer.buffer_type().name().to_owned(),
            device: self.context.name.to_string(),
        })?;
        Ok(own.address() + slot.offset)
    }

    pub(crate) fn at(&self, id: TensorId) -> Result<DevicePtr, DeviceError> {
        self.address(StepValue::Tensor(id))
    }

    /// The temporaries among some values.
    pub(crate) fn temporaries(&self, values: &[StepValue]) -> Result<Vec<DevicePtr>, DeviceError> {
        let temporaries = values.iter().filter(|value| matches!(value, StepValue::Temporary(_)));
        temporaries.map(|value| self.address(*value)).collect()
    }

    /// The first of them.
    pub(crate) fn temporary(&self, values: &[StepValue]) -> Result<DevicePtr, DeviceError> {
        let first = self.temporaries(values)?.first().copied();
        first.ok_or_else(|| DeviceError::Unbound { value: "a temporary".to_owned() })
    }

    /// Where a weight and its planes begin.
    pub(crate) fn planes(&self, id: TensorId) -> Result<(DevicePtr, [u64; 4], bool), DeviceError> {
        let slot = self.bindings.slot(StepValue::Tensor(id))?;
        let private = slot.buffer.buffer_type().layout() == orlop_backend::MemoryLayout::Private;
        let mut starts = [0; 4];
        if let Some(planes) = Planes::of(self.desc(id)).filter(|_| private) {
            starts.iter_mut().zip(planes.starts()).for_each(|(to, from)| *to = from);
        }
        Ok((self.at(id)?, starts, private))
    }

    pub(crate) fn tensor(&self, id: TensorId) -> Result<TensorParameter, DeviceError> {
        let desc = self.desc(id);
        let (at, starts, planes) = self.planes(id)?;
        Ok(TensorParameter {
            at,
            extents: desc.extents.map(|extent| extent as i64),
            strides: desc.strides.map(|stride| stride as i64),
            starts,
            dtype: desc.dtype.gguf_id() as i32,
            planes: i32::from(planes),
        })
    }

    /// A launch of a kernel that waits for others by itself.
    pub(crate) fn launch(
        &self,
        variant: &Variant,
        name: &str,
        spread: Spread,
        parameter: &impl Pod,
    ) -> Result<Launch, DeviceError> {
        Ok(Launch {
            function: self.modules.function(variant, name, spread.shared_bytes)?,
            grid: spread.grid,
            block: spread.block,
            shared_bytes: spread.shared_bytes,
            overlaps: true,
            parameter: bytemuck::bytes_of(parameter).into(),
        })
    }
}

/// A step that does not fit its kernel, which `lower` never makes.
pub(crate) fn misfit(site: &LaunchContext<'_>, step: &Step) -> DeviceError {
    DeviceError::Unsupported {
        device: site.context.name.to_string(),
        op: step.kernel.to_string(),
        tensor: step
            .nodes
            .last()
            .map(|node| site.graph().tensor(site.graph().node(*node).output).name.clone())
            .unwrap_or_default(),
        reason: orlop_backend::Reason::Op,
    }
}

/// Whether a tensor's rows can be read 16 bytes at a time.
pub(crate) fn wide_rows(graph: &Graph, id: TensorId) -> bool {
    let tensor = graph.tensor(id);
    let desc = &tensor.desc;
    let element = desc.dtype.block_bytes();
    desc.strides[0] == element
        && tensor.storage.offset.is_multiple_of(16)
        && (1..4).all(|dim| desc.extents[dim] == 1 || desc.strides[dim].is_multiple_of(16))
}

/// Whether a value is there from the beginning of a run, and nothing in it writes there.
pub(crate) fn is_unwritten(graph: &Graph, id: TensorId) -> bool {
    let root = graph.tensor(id).storage.root;
    let written = |node: &Node| !node.op.is_view() && graph.tensor(node.output).storage.root == root;
    matches!(graph.root_leaf(id), Some(Leaf::Input | Leaf::Weight)) && !graph.nodes().iter().any(written)
}
