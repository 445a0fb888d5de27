//! Graphs to allocate, and a look at whether that went well.
#![allow(clippy::unwrap_used)] // whatever is here is a test

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Once;

use orlop_ggml::{
    BufferType, Context, FLAG_INPUT, FLAG_OUTPUT, Graph, GraphAllocator, InitParams, Tensor,
    ggml_gallocr_alloc_graph, ggml_gallocr_free, ggml_gallocr_get_buffer_size, ggml_gallocr_new,
    ggml_gallocr_new_n, ggml_gallocr_reserve, ggml_gallocr_reserve_n, ggml_gallocr_reserve_n_size,
    use_symbols,
};

use crate::host::{self, Kind, at};

/// A context and a graph in it.
pub(crate) struct Rig {
    pub(crate) context: *mut Context,
    pub(crate) graph: *mut Graph,
}

impl Drop for Rig {
    fn drop(&mut self) {
        host::free(self.context);
    }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        static HOST: Once = Once::new();
        HOST.call_once(|| assert!(use_symbols(host::symbols)));
        let context = host::init(InitParams { mem_size: 0, mem_buffer: null_mut(), no_alloc: true });
        Rig { context, graph: host::new_graph_custom(context, 4096, false) }
    }

    /// A tensor that nobody computes.
    pub(crate) fn leaf(&self, bytes: usize) -> *mut Tensor {
        host::make(self.context, 0, &[], bytes)
    }

    /// A tensor that is set from outside.
    pub(crate) fn input(&self, bytes: usize) -> *mut Tensor {
        let made = self.leaf(bytes);
        at(made).flags |= FLAG_INPUT;
        made
    }

    /// What an op makes of its operands.
    pub(crate) fn op(&self, name: &str, operands: &[*mut Tensor], bytes: usize) -> *mut Tensor {
        host::make(self.context, host::op(name), operands, bytes)
    }

    /// An element-wise op: the result is as large as the first operand.
    pub(crate) fn map(&self, name: &str, operands: &[*mut Tensor]) -> *mut Tensor {
        self.op(name, operands, host::nbytes(operands[0]))
    }

    pub(crate) fn view(&self, of: *mut Tensor, bytes: usize, offset: usize) -> *mut Tensor {
        host::view_1d(self.context, of, (bytes / 4) as i64, offset)
    }

    /// Ends the graph with a result that is read from outside.
    pub(crate) fn output(&self, tensor: *mut Tensor) {
        at(tensor).flags |= FLAG_OUTPUT;
        host::build_forward_expand(self.graph, tensor);
    }

    /// Runs the graph in spirit: every tensor's bytes get its own mark when it is computed, and have to have it still
    /// when they are read.
    pub(crate) fn run(&self) {
        let nodes = host::nodes(self.graph);
        let root = |tensor: *mut Tensor| {
            let root = at(tensor).view_src;
            if root.is_null() { tensor } else { root }
        };
        let mut marks: HashMap<*mut Tensor, u32> = HashMap::new();
        let mut write = |tensor: *mut Tensor| {
            let mark = marks.len() as u32 + 1;
            marks.insert(tensor, mark);
            words(tensor).fill(mark);
        };
        let sources = |node: &*mut Tensor| at(*node).src.into_iter().filter(|source| !source.is_null());
        let is_made = |tensor: &*mut Tensor| nodes.contains(tensor);
        let mut given: Vec<*mut Tensor> = host::leafs(self.graph);
        given.extend(nodes.iter().flat_map(sources).map(root).filter(|tensor| !is_made(tensor)));
        given.sort();
        given.dedup();
        given.into_iter().filter(|tensor| at(*tensor).view_src.is_null()).for_each(&mut write);
        let mut known: HashMap<*mut Tensor, Vec<u32>> = HashMap::new();
        for node in &nodes {
            for source in sources(node).map(root).filter(|source| source != node) {
                let now = words(source).to_vec();
                let first = now.first().copied();
                assert!(now.iter().all(|word| Some(*word) == first), "a tensor is torn");
                let mark = known.entry(source).or_insert_with(|| now.clone());
                assert_eq!(*mark, now, "a tensor was overwritten before it was read");
            }
            if at(*node).view_src.is_null() {
                write(*node);
                known.insert(*node, words(*node).to_vec());
            }
        }
        for output in nodes.iter().filter(|node| at(**node).flags & FLAG_OUTPUT != 0) {
            let root = root(*output);
            assert_eq!(words(root).to_vec(), known[&root], "an output was overwritten");
        }
    }
}

fn words<'a>(tensor: *mut Tensor) -> &'a mut [u32] {
    assert!(!at(tensor).data.is_null() && !at(tensor).buffer.is_null(), "a tensor has no memory");
    // SAFETY: the tensor lies in a buffer of the host's, which checked that it ends inside; one thread uses it.
    unsafe { std::slice::from_raw_parts_mut(at(tensor).data.cast(), host::nbytes(tensor) / 4) }
}

/// An allocator that is given back at the end.
pub(crate) struct Allocator(pub(crate) *mut GraphAllocator);

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

    /// Reserves with buffers by tensor; those that are not named get the first.
    pub(crate) fn reserve_n(&self, rig: &Rig, ids: &HashMap<*mut Tensor, c_int>) -> bool {
        let (nodes, leafs) = numbers(rig, ids);
        // SAFETY: both live; there is a number for each node and leaf.
        unsafe { ggml_gallocr_reserve_n(self.0, rig.graph, nodes.as_ptr(), leafs.as_ptr()) }
    }

    pub(crate) fn measure(&self, rig: &Rig, ids: &HashMap<*mut Tensor, c_int>, count: usize) -> Vec<usize> {
        let (nodes, leafs) = numbers(rig, ids);
        let mut sizes = vec![usize::MAX; count];
        let to = sizes.as_mut_ptr();
        // SAFETY: as above; there is room for as many sizes as there are buffers.
        unsafe { ggml_gallocr_reserve_n_size(self.0, rig.graph, nodes.as_ptr(), leafs.as_ptr(), to) };
        sizes
    }

    pub(crate) fn bytes(&self, id: c_int) -> usize {
        // SAFETY: it lives.
        unsafe { ggml_gallocr_get_buffer_size(self.0, id) }
    }
}

fn numbers(rig: &Rig, ids: &HashMap<*mut Tensor, c_int>) -> (Vec<c_int>, Vec<c_int>) {
    let of =
        |list: Vec<*mut Tensor>| list.iter().map(|tensor| ids.get(tensor).copied().unwrap_or(0)).collect();
    (of(host::nodes(rig.graph)), of(host::leafs(rig.graph)))
}

/// Offset of a tensor in its buffer, and the buffer.
pub(crate) fn place(tensor: *mut Tensor) -> (usize, usize) {
    (at(tensor).buffer.addr(), at(tensor).data.addr())
}
