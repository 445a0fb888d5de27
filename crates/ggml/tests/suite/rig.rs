//! Graphs to allocate, and checks of the result.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Once;

use orlop_ggml::{
    BufferType, Context, FLAG_INPUT, FLAG_OUTPUT, GgmlGraphAllocator, InitParams, RawGraph, RawTensor,
    ggml_gallocr_alloc_graph, ggml_gallocr_free, ggml_gallocr_get_buffer_size, ggml_gallocr_new,
    ggml_gallocr_new_n, ggml_gallocr_reserve, ggml_gallocr_reserve_n, ggml_gallocr_reserve_n_size,
    use_symbols,
};

use crate::backends;
use crate::host::{self, Kind, at};

/// A context and a graph in it.
pub(crate) struct Rig {
    pub(crate) context: *mut Context,
    pub(crate) graph: *mut RawGraph,
}

impl Drop for Rig {
    fn drop(&mut self) {
        host::free(self.context);
    }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        static HOST: Once = Once::new();
        HOST.call_once(|| assert!(use_symbols(backends::symbols)));
        let context = host::init(InitParams { mem_size: 0, mem_buffer: null_mut(), no_alloc: true });
        Rig { context, graph: host::new_graph_custom(context, 4096, false) }
    }

    /// A tensor that is not computed.
    pub(crate) fn leaf(&self, bytes: usize) -> *mut RawTensor {
        host::make(self.context, 0, &[], bytes)
    }

    /// An input tensor.
    pub(crate) fn input(&self, bytes: usize) -> *mut RawTensor {
        let made = self.leaf(bytes);
        at(made).flags |= FLAG_INPUT;
        made
    }

    /// The result of an op.
    pub(crate) fn op(&self, name: &str, operands: &[*mut RawTensor], bytes: usize) -> *mut RawTensor {
        host::make(self.context, host::op(name), operands, bytes)
    }

    /// An element-wise op: the result is as large as the first operand.
    pub(crate) fn map(&self, name: &str, operands: &[*mut RawTensor]) -> *mut RawTensor {
        self.op(name, operands, host::nbytes(operands[0]))
    }

    pub(crate) fn view(&self, of: *mut RawTensor, bytes: usize, offset: usize) -> *mut RawTensor {
        host::view_1d(self.context, of, (bytes / 4) as i64, offset)
    }

    /// Marks the output of the graph.
    pub(crate) fn output(&self, tensor: *mut RawTensor) {
        at(tensor).flags |= FLAG_OUTPUT;
        host::build_forward_expand(self.graph, tensor);
    }

    /// Simulates the graph: every tensor's bytes get a unique mark when written, which must be intact when read. Scratch
    /// bytes of an op must not overlap its operands.
    pub(crate) fn run(&self) {
        let nodes = host::nodes(self.graph);
        let root = |tensor: *mut RawTensor| {
            let root = at(tensor).view_src;
            if root.is_null() { tensor } else { root }
        };
        let mut marks: HashMap<*mut RawTensor, u32> = HashMap::new();
        let sources = |node: &*mut RawTensor| at(*node).src.into_iter().filter(|source| !source.is_null());
        let is_made = |tensor: &*mut RawTensor| nodes.contains(tensor);
        let mut given: Vec<*mut RawTensor> = host::leaves(self.graph);
        given.extend(nodes.iter().flat_map(sources).map(root).filter(|tensor| !is_made(tensor)));
        given.sort();
        given.dedup();
        given
            .into_iter()
            .filter(|tensor| at(*tensor).view_src.is_null())
            .for_each(|it| write(&mut marks, it));
        for node in &nodes {
            let read: Vec<*mut RawTensor> = sources(node).map(root).filter(|source| source != node).collect();
            for source in &read {
                assert!(is_whole(*source, &marks), "a tensor was overwritten before it was read");
            }
            if at(*node).view_src.is_null() {
                write(&mut marks, *node);
                let apart = |source: &&*mut RawTensor| at(**source).data != at(*node).data;
                let apart = read.iter().filter(apart).all(|source| is_whole(*source, &marks));
                assert!(apart, "a tensor is overwritten while it is read");
            }
        }
        for output in nodes.iter().filter(|node| at(**node).flags & FLAG_OUTPUT != 0) {
            assert!(is_whole(root(*output), &marks), "an output was overwritten");
        }
    }
}

/// Fills a tensor and its scratch bytes with a unique mark.
fn write(marks: &mut HashMap<*mut RawTensor, u32>, tensor: *mut RawTensor) {
    let mark = marks.len() as u32 + 1;
    marks.insert(tensor, mark);
    words(tensor, host::buffer_get_alloc_size(at(tensor).buffer, tensor)).fill(mark);
}

fn is_whole(tensor: *mut RawTensor, marks: &HashMap<*mut RawTensor, u32>) -> bool {
    words(tensor, host::nbytes(tensor)).iter().all(|word| *word == marks[&tensor])
}

fn words<'a>(tensor: *mut RawTensor, bytes: usize) -> &'a mut [u32] {
    assert!(!at(tensor).data.is_null() && !at(tensor).buffer.is_null(), "a tensor has no memory");
    // SAFETY: the tensor and its scratch lie in a buffer of the host's, which checked that they end inside; one thread
    // uses it.
    unsafe { std::slice::from_raw_parts_mut(at(tensor).data.cast(), bytes / 4) }
}

/// An allocator that is freed when dropped.
pub(crate) struct Allocator(pub(crate) *mut GgmlGraphAllocator);

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: it was made below, and is not used again.
        unsafe { ggml_gallocr_free(self.0) };
    }
}

impl Allocator {
    pub(crate) fn new(kind: &Kind) -> Allocator {
        // SAFETY: the kind outlives the allocator in every test.
        Allocator(unsafe { ggml_gallocr_new(kind.as_ptr()) })
    }

    pub(crate) fn over(kinds: &[&Kind]) -> Allocator {
        let mut bufts: Vec<*mut BufferType> = kinds.iter().map(|kind| kind.as_ptr()).collect();
        // SAFETY: as above; the list has as many as it says.
        Allocator(unsafe { ggml_gallocr_new_n(bufts.as_mut_ptr(), bufts.len() as c_int) })
    }

    pub(crate) fn allocate(&self, rig: &Rig) -> bool {
        // SAFETY: both live.
        unsafe { ggml_gallocr_alloc_graph(self.0, rig.graph) }
    }

    pub(crate) fn reserve(&self, rig: &Rig) -> bool {
        // SAFETY: both live.
        unsafe { ggml_gallocr_reserve(self.0, rig.graph) }
    }

    /// Reserves with buffer ids by tensor; the default is the first.
    pub(crate) fn reserve_n(&self, rig: &Rig, ids: &HashMap<*mut RawTensor, c_int>) -> bool {
        let (nodes, leaves) = numbers(rig, ids);
        // SAFETY: both live; there is a number for each node and leaf.
        unsafe { ggml_gallocr_reserve_n(self.0, rig.graph, nodes.as_ptr(), leaves.as_ptr()) }
    }

    pub(crate) fn measure(
        &self,
        rig: &Rig,
        ids: &HashMap<*mut RawTensor, c_int>,
        count: usize,
    ) -> Vec<usize> {
        let (nodes, leaves) = numbers(rig, ids);
        let mut sizes = vec![usize::MAX; count];
        let to = sizes.as_mut_ptr();
        // SAFETY: as above; there is room for as many sizes as there are buffers.
        unsafe { ggml_gallocr_reserve_n_size(self.0, rig.graph, nodes.as_ptr(), leaves.as_ptr(), to) };
        sizes
    }

    pub(crate) fn bytes(&self, id: c_int) -> usize {
        // SAFETY: it lives.
        unsafe { ggml_gallocr_get_buffer_size(self.0, id) }
    }
}

fn numbers(rig: &Rig, ids: &HashMap<*mut RawTensor, c_int>) -> (Vec<c_int>, Vec<c_int>) {
    let of =
        |list: Vec<*mut RawTensor>| list.iter().map(|tensor| ids.get(tensor).copied().unwrap_or(0)).collect();
    (of(host::nodes(rig.graph)), of(host::leaves(rig.graph)))
}

/// Offset of a tensor in its buffer, and the buffer.
pub(crate) fn place(tensor: *mut RawTensor) -> (usize, usize) {
    (at(tensor).buffer.addr(), at(tensor).data.addr())
}

/// A product of two inputs, 32 bytes each, at these bytes of a buffer, and its scratch.
fn run_at(inputs: [usize; 2], product: usize, scratch: usize) {
    let (rig, mut kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    kind.scratch = (host::op("MUL_MAT"), scratch);
    let x = inputs.map(|_| rig.input(32));
    let out = rig.map("MUL_MAT", &x);
    rig.output(out);
    let allocator = Allocator::new(&kind);
    assert!(allocator.allocate(&rig) && allocator.bytes(0) >= 96);
    let begin = [x[0], x[1], out].map(|tensor| at(tensor).data).into_iter().min().unwrap();
    for (tensor, offset) in [(x[0], inputs[0]), (x[1], inputs[1]), (out, product)] {
        at(tensor).data = begin.wrapping_byte_add(offset);
    }
    rig.run();
}

#[test]
fn tensors_apart_and_results_in_place_are_let_alone() {
    run_at([0, 32], 64, 32);
    run_at([0, 32], 0, 0);
    run_at([0, 64], 0, 32);
}

#[test]
#[should_panic(expected = "overwritten before it was read")]
fn two_inputs_in_one_place_are_seen() {
    run_at([0, 0], 64, 32);
}

#[test]
#[should_panic(expected = "overwritten while it is read")]
fn scratch_on_an_operand_is_seen() {
    run_at([0, 64], 32, 64);
}
