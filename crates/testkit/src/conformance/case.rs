//! A case, and the drafts from which the table of cases is made.

use std::fmt;

use orlop_graph::{DIMS, DType, Graph, GraphBuilder, Leaf, TensorDesc, TensorId};

use super::Tolerance;
use crate::fill::{Fill, feeds};
use crate::{Feeds, OpFailure};

/// A small graph, what its leaves hold, and how exact its results must be.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    kind_length: usize,
    graph: Graph,
    fills: Vec<(TensorId, Fill)>,
    tolerance: Tolerance,
}

impl Case {
    /// A name that no other case has: the kind, and what is special about this case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The op and its variant, such as `rope neox`.
    pub fn kind(&self) -> &str {
        &self.name[..self.kind_length]
    }

    /// The op, such as `rope`; for graphs of many ops what they have in common.
    pub fn op(&self) -> &str {
        self.kind().split(' ').next().unwrap_or_default()
    }

    /// The graph. Its declared outputs and its states are what is judged.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How exact the results must be.
    pub fn tolerance(&self) -> Tolerance {
        self.tolerance
    }

    /// The contents of its leaves, which follow from its name.
    ///
    /// # Errors
    /// [`OpFailure::NoCodec`] if a leaf's type cannot be encoded, which is a mistake in the table.
    pub fn feeds(&self) -> Result<Feeds, OpFailure> {
        feeds(&self.graph, &self.name, &self.fills)
    }
}

/// The table of cases, while it is being written.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) cases: Vec<Case>,
}

impl Table {
    /// Adds a case whose graph has one output, which `build` returns.
    pub(super) fn add(
        &mut self,
        kind: &str,
        detail: impl fmt::Display,
        tolerance: Tolerance,
        build: impl FnOnce(&mut Draft) -> TensorId,
    ) {
        let mut draft = Draft::default();
        let output = build(&mut draft);
        draft.b.output(output);
        self.add_graph(kind, detail, tolerance, draft.b, draft.fills);
    }

    /// Adds a case whose graph is built elsewhere, outputs included.
    pub(super) fn add_graph(
        &mut self,
        kind: &str,
        detail: impl fmt::Display,
        tolerance: Tolerance,
        builder: GraphBuilder,
        fills: Vec<(TensorId, Fill)>,
    ) {
        let name = format!("{kind}: {detail}");
        let graph = match builder.build() {
            Ok(graph) => graph,
            // Graphs here follow from constants of this crate alone, and a test builds them all.
            Err(error) => panic!("the case `{name}` is no graph: {error}"),
        };
        self.cases.push(Case { name, kind_length: kind.len(), graph, fills, tolerance });
    }
}

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Without gaps.
    Plain,
    /// Rows and planes are further apart than they are long; NaN between them.
    Padded,
    /// In the middle of a larger tensor.
    Window,
    /// Dimensions 1 and 2 exchanged.
    Permuted,
    /// Dimensions 0 and 1 exchanged.
    Transposed,
    /// Every other element; NaN between them.
    Spread,
}

impl Lie {
    /// Everything but plain.
    pub(super) const ODD: [Lie; 5] = [Lie::Padded, Lie::Window, Lie::Permuted, Lie::Transposed, Lie::Spread];
    /// Those in which rows have no gaps, as blocks demand and many kernels like.
    pub(super) const ROWS: [Lie; 3] = [Lie::Padded, Lie::Window, Lie::Permuted];
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lie::Plain => "plain",
            Lie::Padded => "padded",
            Lie::Window => "window",
            Lie::Permuted => "permuted",
            Lie::Transposed => "transposed",
            Lie::Spread => "spread",
        })
    }
}

/// A case's graph, while it is being built.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) b: GraphBuilder,
    fills: Vec<(TensorId, Fill)>,
}

impl Draft {
    fn leaf(&mut self, leaf: Leaf, desc: Result<TensorDesc, orlop_graph::DescError>, fill: Fill) -> TensorId {
        let name = format!("x{}", self.fills.len());
        let id = self.b.leaf(leaf, &name, desc);
        self.fills.push((id, fill));
        id
    }

    pub(super) fn input(&mut self, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        self.leaf(Leaf::Input, TensorDesc::contiguous(dtype, extents), fill)
    }

    pub(super) fn weight(&mut self, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        self.leaf(Leaf::Weight, TensorDesc::contiguous(dtype, extents), fill)
    }

    pub(super) fn state(&mut self, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        self.leaf(Leaf::State, TensorDesc::contiguous(dtype, extents), fill)
    }

    pub(super) fn persistent(&mut self, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        self.leaf(Leaf::Persistent, TensorDesc::contiguous(dtype, extents), fill)
    }

    /// An F32 input of both signs.
    pub(super) fn f32(&mut self, extents: &[u64]) -> TensorId {
        self.input(DType::F32, extents, Fill::SIGNED)
    }

    /// An I32 input of whole numbers below a limit.
    pub(super) fn indices(&mut self, extents: &[u64], below: i64) -> TensorId {
        self.input(DType::I32, extents, Fill::Whole { low: 0, high: below })
    }

    /// An operand that lies in memory as asked.
    pub(super) fn lying(&mut self, lie: Lie, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        self.lying_in(Leaf::Input, lie, dtype, extents, fill)
    }

    pub(super) fn lying_in(
        &mut self,
        leaf: Leaf,
        lie: Lie,
        dtype: DType,
        extents: &[u64],
        fill: Fill,
    ) -> TensorId {
        let full = full(extents);
        let [a, b, c, d] = full;
        let (block, step) = (dtype.block_bytes(), dtype.block_elements());
        let row = a / step * block;
        let plain = |extents: [u64; DIMS]| TensorDesc::contiguous(dtype, &extents);
        match lie {
            Lie::Plain => self.leaf(leaf, plain(full), fill),
            Lie::Padded => {
                let s1 = row + block;
                let s2 = s1 * b + 2 * block;
                let strides = [block, s1, s2, s2 * c + block];
                self.leaf(leaf, TensorDesc::strided(dtype, full, strides), fill)
            }
            Lie::Spread => {
                let s1 = 2 * block * a;
                let strides = [2 * block, s1, s1 * b, s1 * b * c];
                self.leaf(leaf, TensorDesc::strided(dtype, full, strides), fill)
            }
            Lie::Window => {
                let around = self.leaf(leaf, plain([a + 2 * step, b + 1, c + 1, d]), fill);
                let strides = self.b.desc(around).strides;
                self.b.view(around, full, strides, strides[0] + strides[1])
            }
            Lie::Permuted => {
                let source = self.leaf(leaf, plain([a, c, b, d]), fill);
                self.b.permute(source, [0, 2, 1, 3])
            }
            Lie::Transposed => {
                let source = self.leaf(leaf, plain([b, a, c, d]), fill);
                self.b.transpose(source)
            }
        }
    }
}

/// Extents filled up with 1.
pub(super) fn full(extents: &[u64]) -> [u64; DIMS] {
    std::array::from_fn(|dim| extents.get(dim).copied().unwrap_or(1))
}

/// Extents as they are written in names: `5 3 1 1` as `5x3`.
pub(super) fn shape(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}
