//! Checks that the memory layout of the host's objects matches [`crate::raw`].

use std::mem::offset_of;
use std::ptr::null_mut;

use crate::host::{Host, text};
use crate::raw::{
    Context, FLAG_INPUT, FLAG_OUTPUT, GraphRef, InitParams, OP_NONE, RawGraph, RawTensor, STATUS_SUCCESS,
    TensorRef,
};

/// A memory layout of ggml's objects. The fields read here have equal offsets in all of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectLayout {
    /// The ggml versions, for messages.
    pub(crate) versions: &'static str,
    /// Bytes of a tensor.
    tensor: usize,
    /// Bytes of a graph for one node and one leaf: the struct, two lists, and a hash table of two keys, their marks and use
    /// counts. Graphs have had a uid since 0.21 or earlier, which rounding hides.
    graph: usize,
}

const LAYOUTS: [ObjectLayout; 2] = [
    ObjectLayout { versions: "0.9 to 0.26", tensor: 336, graph: 144 },
    // `GGML_MAX_NAME` is 128, as in stable-diffusion.cpp.
    ObjectLayout { versions: "0.9 to 0.26 with long names", tensor: 400, graph: 144 },
];

/// Bytes of ggml's header before each object of a context.
const OBJECT: usize = 32;

/// Why the host's own allocator stays in use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("missing function {name}")]
    Missing { name: String },
    #[error("unknown layout: {tensor} bytes per tensor, {graph} for the smallest graph")]
    Sizes { tensor: usize, graph: usize },
    #[error("unknown layout: {what}")]
    Field { what: &'static str },
}

/// Creates objects through the host's functions and inspects them.
pub(crate) fn verify(host: &Host) -> Result<&'static ObjectLayout, Mismatch> {
    let tensor = host.tensor_overhead().wrapping_sub(OBJECT);
    let graph = host.graph_overhead_custom(1, false).wrapping_sub(OBJECT);
    let fits = |layout: &&ObjectLayout| layout.tensor == tensor && layout.graph == graph;
    let layout = LAYOUTS.iter().find(fits).ok_or(Mismatch::Sizes { tensor, graph })?;
    let bytes = 8 * host.tensor_overhead() + host.graph_overhead_custom(8, false) + 1024;
    let context = host.init(InitParams { mem_size: bytes, mem_buffer: null_mut(), no_alloc: true });
    let sample = Sample { host, context };
    let checked = if context.is_null() { Err("the first field of a context") } else { sample.check() };
    checked.map_err(|what| Mismatch::Field { what })?;
    Ok(layout)
}

/// Whether a graph ends with a uid, as [`crate::raw::RawGraphView`] does: the struct has 96 bytes, followed by two lists of two,
/// five use counts, and a hash table of five.
pub(crate) fn has_uid(host: &Host) -> bool {
    let lists = 2 * 2 * 8 + 5 * 4;
    let keys = (96usize + lists).next_multiple_of(8) + 5 * 8;
    host.graph_overhead_custom(2, false).wrapping_sub(OBJECT) == (keys + 4).next_multiple_of(16)
}

/// A test context.
struct Sample<'a> {
    host: &'a Host,
    context: *mut Context,
}

impl Drop for Sample<'_> {
    fn drop(&mut self) {
        if !self.context.is_null() {
            self.host.free(self.context);
        }
    }
}

fn all(facts: &[(&'static str, bool)]) -> Result<(), &'static str> {
    facts.iter().find(|(_, holds)| !holds).map_or(Ok(()), |(what, _)| Err(*what))
}

impl Sample<'_> {
    fn check(&self) -> Result<(), &'static str> {
        let (host, context) = (self.host, self.context);
        let make = || host.new_tensor_4d(context, 0, 3, 5, 7, 11);
        let (a, b) = (make(), make());
        let view = host.view_1d(context, a, 3, 8);
        let sum = host.add(context, a, b);
        let at = |tensor: *mut RawTensor| {
            // SAFETY: the host made it just now, as large as a layout has it, in a context that this object keeps.
            unsafe { TensorRef::new(tensor) }.ok_or("a tensor")
        };
        let (plain, second, view, sum) = (at(a)?, at(b)?, at(view)?, at(sum)?);
        let strides = [4, 4 * 3, 4 * 3 * 5, 4 * 3 * 5 * 7];
        all(&[
            ("a tensor's type, extents or strides", plain.layout() == (0, [3, 5, 7, 11], strides)),
            ("a tensor's op", plain.op() == OP_NONE && text(host.op_name(plain.op())) == "NONE"),
            ("a tensor's flags", plain.flags() == 0),
            ("a tensor's sources", plain.sources() == [None; 10]),
            ("a tensor's root", plain.view_src().is_none()),
            ("a tensor's memory", !plain.is_allocated()),
            ("a tensor's name", host.get_name(a).addr() == a.addr() + offset_of!(RawTensor, name)),
            ("a view's root", view.view_src() == Some(plain) && view.view_offs() == 8),
            ("a view's op", text(host.op_name(view.op())) == "VIEW"),
            ("a sum's op", text(host.op_name(sum.op())) == "ADD"),
            ("a sum's sources", sum.sources()[..3] == [Some(plain), Some(second), None]),
        ])?;
        host.set_input(a);
        host.set_output(b);
        all(&[("a tensor's flags", plain.flags() == FLAG_INPUT && second.flags() == FLAG_OUTPUT)])?;
        self.check_graph([plain, second, sum])?;
        self.check_binding(second)
    }

    fn check_graph(&self, [a, b, sum]: [TensorRef; 3]) -> Result<(), &'static str> {
        let graph: *mut RawGraph = self.host.new_graph_custom(self.context, 8, false);
        self.host.build_forward_expand(graph, sum.as_ptr());
        let nodes = self.host.graph_nodes(graph);
        // SAFETY: the host made it just now, as large as a layout has it.
        let first = unsafe { graph.as_ref() }.ok_or("a graph")?.nodes;
        all(&[("a graph's nodes", first == nodes && self.host.graph_n_nodes(graph) == 1)])?;
        // SAFETY: `GraphRef::new` asks for a live graph whose tensors live: the host made it just now, in this context, as it did
        // its tensors.
        let lists = unsafe { GraphRef::new(graph) }.ok_or("a graph")?;
        let counts = lists.node_count() == 1 && lists.leaf_count() == 2;
        all(&[("a graph's counts", counts)])?;
        all(&[
            ("a graph's nodes", lists.nodes().eq([Some(sum)])),
            ("a graph's leaves", lists.leaves().eq([Some(a), Some(b)])),
        ])
    }

    /// Checks the fields of a tensor that the host writes when it allocates.
    fn check_binding(&self, tensor: TensorRef) -> Result<(), &'static str> {
        let bytes = self.host.nbytes(tensor.as_ptr());
        let mut memory = vec![0u64; bytes.div_ceil(8) + 16];
        let address = memory.as_mut_ptr().cast::<u8>();
        let address = address.wrapping_add(address.align_offset(64)).cast();
        let buffer = self.host.cpu_buffer_from_ptr(address, bytes);
        if buffer.is_null() {
            return Err("a buffer over external memory");
        }
        let status = self.host.tensor_alloc(buffer, tensor.as_ptr(), address);
        let bound = status == STATUS_SUCCESS && tensor.data() == address && tensor.buffer() == buffer;
        tensor.unbind();
        self.host.buffer_free(buffer);
        all(&[("a tensor's memory", bound)])
    }
}
