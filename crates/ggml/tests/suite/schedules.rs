//! Schedules of graphs over several backends.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use orlop_ggml::{
    Backend, Buffer, BufferType, GgmlScheduler, RawGraphView, RawTensor, STATUS_FAILED, STATUS_SUCCESS,
    USAGE_COMPUTE, USAGE_WEIGHTS, ggml_backend_sched_alloc_graph, ggml_backend_sched_free,
    ggml_backend_sched_get_backend, ggml_backend_sched_get_buffer_size, ggml_backend_sched_get_buffer_type,
    ggml_backend_sched_get_n_backends, ggml_backend_sched_get_n_copies, ggml_backend_sched_get_n_splits,
    ggml_backend_sched_get_tensor_backend, ggml_backend_sched_graph_compute,
    ggml_backend_sched_graph_compute_async, ggml_backend_sched_new, ggml_backend_sched_reserve,
    ggml_backend_sched_reserve_size, ggml_backend_sched_reset, ggml_backend_sched_set_eval_callback,
    ggml_backend_sched_set_tensor_backend, ggml_backend_sched_split_graph, ggml_backend_sched_synchronize,
};

use crate::backends::{Journal, MockBackend, hold, set_values, values, watch};
use crate::host::{self, at};
use crate::rig::Rig;

/// Backends, the last one the CPU, and a scheduler over them.
#[allow(clippy::vec_box)] // addresses of backends stay
pub(crate) struct Machine {
    pub(crate) scheduler: *mut GgmlScheduler,
    pub(crate) backends: Vec<Box<MockBackend>>,
    pub(crate) journal: Journal,
    pub(crate) held: Vec<*mut Buffer>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: it was made below, and is not used again.
        unsafe { ggml_backend_sched_free(self.scheduler) };
        self.held.iter().for_each(|buffer| host::release(*buffer));
        assert!(self.backends.iter().all(|backend| backend.kind.total() == 0), "memory was leaked");
    }
}

impl Machine {
    /// Devices with these names and a CPU; `change` sets what they can do.
    pub(crate) fn new(names: &[&str], change: impl FnOnce(&mut [Box<MockBackend>])) -> Machine {
        Machine::of(names, false, change)
    }

    /// A machine whose scheduler runs several graphs at a time, on devices with events.
    fn parallel(names: &[&str]) -> Machine {
        Machine::of(names, true, |backends| {
            let devices = backends.len() - 1;
            backends[..devices].iter_mut().for_each(|device| device.with_events());
        })
    }

    fn of(names: &[&str], parallel: bool, change: impl FnOnce(&mut [Box<MockBackend>])) -> Machine {
        let journal = Journal::default();
        let names = names.iter().chain(&["CPU"]);
        let mut backends: Vec<_> = names.map(|name| MockBackend::new(name, &journal)).collect();
        change(&mut backends);
        // A rig tells the library where the host's functions are.
        drop(Rig::new());
        backends.iter().for_each(|backend| watch(backend));
        let scheduler = scheduler(&backends, parallel);
        Machine { scheduler, backends, journal, held: Vec::new() }
    }

    pub(crate) fn hold(&mut self, tensors: &[*mut RawTensor], backend: usize, usage: c_int) {
        self.held.push(hold(tensors, &self.backends[backend].kind, usage));
    }

    pub(crate) fn allocate(&self, rig: &Rig) -> bool {
        // SAFETY: both live.
        unsafe { ggml_backend_sched_alloc_graph(self.scheduler, rig.graph) }
    }

    pub(crate) fn compute(&self, rig: &Rig) -> c_int {
        // SAFETY: both live.
        unsafe { ggml_backend_sched_graph_compute(self.scheduler, rig.graph) }
    }

    fn reserve(&self, rig: &Rig) -> bool {
        // SAFETY: both live.
        unsafe { ggml_backend_sched_reserve(self.scheduler, rig.graph) }
    }

    fn split(&self, rig: &Rig) {
        // SAFETY: both live.
        unsafe { ggml_backend_sched_split_graph(self.scheduler, rig.graph) };
    }

    fn reset(&self) {
        // SAFETY: it lives.
        unsafe { ggml_backend_sched_reset(self.scheduler) };
    }

    pub(crate) fn splits(&self) -> c_int {
        // SAFETY: it lives.
        unsafe { ggml_backend_sched_get_n_splits(self.scheduler) }
    }

    fn choose(&self, tensor: *mut RawTensor, backend: usize) {
        let backend = self.backends[backend].as_ptr();
        // SAFETY: all live.
        unsafe { ggml_backend_sched_set_tensor_backend(self.scheduler, tensor, backend) };
    }

    /// The position of a tensor's backend.
    fn backend_of(&self, tensor: *mut RawTensor) -> Option<usize> {
        // SAFETY: both live.
        let backend = unsafe { ggml_backend_sched_get_tensor_backend(self.scheduler, tensor) };
        self.backends.iter().position(|known| known.as_ptr() == backend)
    }

    fn bytes(&self, backend: usize) -> usize {
        let backend = self.backends[backend].as_ptr();
        // SAFETY: both live.
        unsafe { ggml_backend_sched_get_buffer_size(self.scheduler, backend) }
    }

    fn took_place(&self) -> Vec<String> {
        std::mem::take(&mut *self.journal.lock().unwrap())
    }
}

fn scheduler(backends: &[Box<MockBackend>], parallel: bool) -> *mut GgmlScheduler {
    let mut list: Vec<*mut Backend> = backends.iter().map(|backend| backend.as_ptr()).collect();
    let mut kinds: Vec<*mut BufferType> = backends.iter().map(|backend| backend.kind.as_ptr()).collect();
    let count = list.len() as c_int;
    // SAFETY: the lists have as many entries as they say.
    unsafe { ggml_backend_sched_new(list.as_mut_ptr(), kinds.as_mut_ptr(), count, 64, parallel, true) }
}

/// Two products with weights of two devices, and the input.
struct Model {
    rig: Rig,
    input: *mut RawTensor,
    weights: [*mut RawTensor; 2],
    /// The first product, a sum with the input, the second product, a sum of both.
    nodes: [*mut RawTensor; 4],
}

fn model() -> Model {
    let rig = Rig::new();
    let input = rig.input(64);
    let weights = [rig.leaf(64), rig.leaf(64)];
    model_of(rig, input, weights)
}

/// A model with weights of another one.
fn model_over(weights: [*mut RawTensor; 2]) -> Model {
    let rig = Rig::new();
    let input = rig.input(64);
    model_of(rig, input, weights)
}

fn model_of(rig: Rig, input: *mut RawTensor, weights: [*mut RawTensor; 2]) -> Model {
    let first = rig.map("MUL_MAT", &[input, weights[0]]);
    let sum = rig.map("ADD", &[first, input]);
    let second = rig.map("MUL_MAT", &[sum, weights[1]]);
    let last = rig.map("CONCAT", &[second, sum]);
    rig.output(last);
    Model { rig, input, weights, nodes: [first, sum, second, last] }
}

fn two_devices(model: &Model) -> Machine {
    let mut machine = Machine::new(&["A", "B"], |_| {});
    machine.hold(&[model.weights[0]], 0, USAGE_WEIGHTS);
    machine.hold(&[model.weights[1]], 1, USAGE_WEIGHTS);
    machine
}

/// Integers that differ between tensors.
fn fill(tensor: *mut RawTensor, first: u32) {
    let count = host::nbytes(tensor) as u32 / 4;
    set_values(tensor, &(0..count).map(|index| first + index * index).collect::<Vec<_>>());
}

fn fill_all(model: &Model) {
    let tensors = [model.input, model.weights[0], model.weights[1]];
    tensors.into_iter().zip([5, 70, 900]).for_each(|(tensor, first)| fill(tensor, first));
}

/// The values of the model's last node, computed here.
fn expected(model: &Model) -> Vec<u32> {
    let [x, a, b] = [model.input, model.weights[0], model.weights[1]].map(values);
    let apply = |op: &str, sources: &[Vec<u32>]| crate::backends::result(host::op(op), sources, 16).unwrap();
    let first = apply("MUL_MAT", &[x.clone(), a]);
    let sum = apply("ADD", &[first, x]);
    let second = apply("MUL_MAT", &[sum.clone(), b]);
    apply("CONCAT", &[second, sum])
}

#[test]
fn one_backend_computes_in_one_split_without_copies() {
    let model = model();
    let mut machine = Machine::new(&[], |_| {});
    machine.hold(&model.weights, 0, USAGE_WEIGHTS);
    assert!(machine.reserve(&model.rig));
    let reserved = machine.bytes(0);
    assert!(machine.allocate(&model.rig));
    fill_all(&model);
    let expected = expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert_eq!(values(model.nodes[3]), expected);
    assert_eq!((machine.splits(), machine.bytes(0)), (1, reserved));
    assert_eq!(machine.took_place(), ["CPU computes 4"]);
    assert_eq!(host::usage(at(model.nodes[3]).buffer), USAGE_COMPUTE);
}

#[test]
fn nodes_run_at_their_weights_and_each_tensor_is_copied_once_to_a_device() {
    let model = model();
    let machine = two_devices(&model);
    assert!(machine.reserve(&model.rig));
    assert!(machine.allocate(&model.rig));
    fill_all(&model);
    let expected = expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert_eq!(values(model.nodes[3]), expected);
    let homes = model.nodes.map(|node| machine.backend_of(node));
    assert_eq!(homes, [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!((machine.backend_of(model.input), machine.splits()), (Some(2), 2));
    let sum = machine.took_place();
    assert_eq!(sum, ["copy 64 of A#x0", "A computes 2", "copy 64 of B#x4", "B computes 2"]);
    // It runs again with other inputs.
    fill(model.input, 6);
    let other = self::expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert!(values(model.nodes[3]) == other && other != expected);
}

#[test]
fn inputs_travel_before_results_are_waited_for() {
    let model = model();
    at(model.nodes[3]).src[2] = model.input;
    let machine = two_devices(&model);
    assert!(machine.allocate(&model.rig));
    machine.took_place();
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    let took = machine.took_place();
    assert_eq!(took[2..4], ["copy 64 of B#x0", "copy 64 of B#x4"]);
}

#[test]
fn a_graph_that_was_split_before_is_split_again() {
    let model = model();
    let machine = two_devices(&model);
    machine.split(&model.rig);
    assert_ne!(at(model.nodes[2]).src[0], model.nodes[1]);
    machine.split(&model.rig);
    machine.reset();
    assert!(machine.reserve(&model.rig) && machine.allocate(&model.rig));
    fill_all(&model);
    let expected = expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert_eq!(values(model.nodes[3]), expected);
    assert_eq!(machine.took_place().len(), 4);
}

#[test]
fn sizes_are_known_without_memory() {
    let model = model();
    let machine = two_devices(&model);
    let mut sizes = [0; 3];
    // SAFETY: both live, and there are as many sizes as backends.
    unsafe { ggml_backend_sched_reserve_size(machine.scheduler, model.rig.graph, sizes.as_mut_ptr()) };
    assert_eq!([machine.bytes(0), machine.bytes(1), machine.bytes(2)], [0; 3]);
    assert!(machine.reserve(&model.rig));
    assert_eq!([machine.bytes(0), machine.bytes(1), machine.bytes(2)], sizes);
    assert!(sizes.iter().all(|bytes| *bytes >= 64));
}

#[test]
fn a_tensor_that_was_written_since_is_copied_again() {
    let rig = Rig::new();
    let state = rig.leaf(64);
    let weights = [rig.leaf(64), rig.leaf(64)];
    let before = rig.map("MUL_MAT", &[state, weights[1]]);
    // A node that writes the state where it is.
    let written = rig.map("CPY", &[weights[0], state]);
    at(written).view_src = state;
    let after = rig.map("MUL_MAT", &[state, weights[1]]);
    let last = rig.map("ADD", &[before, after]);
    [before, written, after, last].into_iter().for_each(|node| host::push_node(rig.graph, node));
    let mut machine = Machine::new(&["A", "B"], |_| {});
    machine.hold(&[state], 0, USAGE_COMPUTE);
    machine.hold(&[weights[0]], 0, USAGE_WEIGHTS);
    machine.hold(&[weights[1]], 1, USAGE_WEIGHTS);
    assert!(machine.allocate(&rig));
    [(state, 3), (weights[0], 400), (weights[1], 17)]
        .into_iter()
        .for_each(|(tensor, first)| fill(tensor, first));
    let (was, w) = (values(state), values(weights[1]));
    assert_eq!(machine.compute(&rig), STATUS_SUCCESS);
    let apply = |op: &str, sources: &[Vec<u32>]| crate::backends::result(host::op(op), sources, 16).unwrap();
    let now = apply("CPY", &[values(weights[0]), was.clone()]);
    let expected = apply("ADD", &[apply("MUL_MAT", &[was, w.clone()]), apply("MUL_MAT", &[now, w])]);
    assert_eq!(values(last), expected);
    let copies = machine.took_place().iter().filter(|what| what.contains("B#")).count();
    assert_eq!(copies, 2);
}

#[test]
fn the_users_choice_of_a_backend_counts_until_reset() {
    let model = model();
    let machine = two_devices(&model);
    machine.choose(model.nodes[1], 1);
    assert_eq!(machine.backend_of(model.nodes[1]), Some(1));
    machine.split(&model.rig);
    assert_eq!(model.nodes.map(|node| machine.backend_of(node)), [Some(0), Some(1), Some(1), Some(1)]);
    machine.reset();
    assert_eq!(machine.backend_of(model.nodes[1]), None);
    machine.split(&model.rig);
    assert_eq!(machine.backend_of(model.nodes[1]), Some(0));
}

#[test]
fn what_a_device_does_not_compute_runs_on_the_cpu() {
    let model = model();
    let mut machine = Machine::new(&["A", "B"], |backends| {
        backends[0].lacks = vec![host::op("ADD")];
        backends[1].lacks = vec![host::op("ADD")];
    });
    machine.hold(&[model.weights[0]], 0, USAGE_WEIGHTS);
    machine.hold(&[model.weights[1]], 1, USAGE_WEIGHTS);
    assert!(machine.allocate(&model.rig));
    fill_all(&model);
    let expected = expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert_eq!(values(model.nodes[3]), expected);
    assert_eq!(machine.backend_of(model.nodes[1]), Some(2));
    assert_eq!(machine.splits(), 3);
}

#[test]
fn a_device_takes_products_over_and_their_weights_are_copied_split_by_split() {
    let model = model();
    let mut machine = Machine::new(&["A"], |backends| backends[0].takes = vec![host::op("MUL_MAT")]);
    machine.hold(&model.weights, 1, USAGE_WEIGHTS);
    assert!(machine.allocate(&model.rig));
    fill_all(&model);
    let expected = expected(&model);
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    assert_eq!(values(model.nodes[3]), expected);
    assert_eq!(model.nodes.map(|node| machine.backend_of(node)), [Some(0); 4]);
    assert_eq!(machine.splits(), 2);
    assert_eq!(
        machine.took_place(),
        ["copy 64 of A#x0", "copy 64 of A#x1", "A computes 2", "copy 64 of A#x2", "A computes 2"]
    );
}

#[test]
fn only_the_experts_that_a_batch_uses_are_copied() {
    let rig = Rig::new();
    let matrices = rig.leaf(4 * 1024);
    (at(matrices).ne, at(matrices).nb) = ([16, 16, 4, 1], [4, 64, 1024, 4096]);
    let (input, ids) = (rig.input(64), rig.input(8));
    at(ids).ne = [2, 1, 1, 1];
    let product = rig.op("MUL_MAT_ID", &[matrices, input, ids], 64);
    rig.output(product);
    let mut machine = Machine::new(&["A"], |backends| backends[0].takes = vec![host::op("MUL_MAT_ID")]);
    machine.hold(&[matrices], 1, USAGE_WEIGHTS);
    assert!(machine.allocate(&rig));
    set_values(ids, &[2, 1]);
    assert_eq!(machine.compute(&rig), STATUS_SUCCESS);
    let took = machine.took_place();
    assert!(took.contains(&"part 1024+2560 of A#x0".to_owned()), "{took:?}");
    assert!(!took.iter().any(|what| what.starts_with("copy 4096")), "{took:?}");
    // With a number that is no expert's, all are copied.
    set_values(ids, &[9, 1]);
    assert_eq!(machine.compute(&rig), STATUS_SUCCESS);
    assert!(machine.took_place().contains(&"copy 4096 of A#x0".to_owned()));
}

/// Answers of an observer, and what it was asked.
struct Watcher {
    wanted: *mut RawTensor,
    continues: bool,
    asked: Mutex<Vec<(*mut RawTensor, bool)>>,
}

unsafe extern "C" fn watcher(tensor: *mut RawTensor, ask: bool, data: *mut c_void) -> bool {
    // SAFETY: the test passes a watcher that lives.
    let watcher = unsafe { &*data.cast::<Watcher>() };
    watcher.asked.lock().unwrap().push((tensor, ask));
    if ask { tensor == watcher.wanted } else { watcher.continues }
}

/// Whether this process asks for schedulers of several graphs at a time; else they are the program's own.
fn serves_parallel() -> bool {
    std::env::var_os("ORLOP_GGML_SCHED").is_some_and(|value| value == "parallel")
}

#[test]
fn graphs_that_run_at_a_time_keep_their_inputs_apart() {
    let first = model();
    let mut machine = Machine::parallel(&["A", "B"]);
    if !serves_parallel() {
        return assert_eq!(machine.scheduler, std::ptr::dangling_mut());
    }
    machine.hold(&[first.weights[0]], 0, USAGE_WEIGHTS);
    machine.hold(&[first.weights[1]], 1, USAGE_WEIGHTS);
    assert!(machine.reserve(&first.rig));
    let reserved = [0, 1, 2].map(|backend| machine.bytes(backend));
    let mut sizes = [0; 3];
    // SAFETY: both live, and there are as many sizes as backends.
    unsafe { ggml_backend_sched_reserve_size(machine.scheduler, first.rig.graph, sizes.as_mut_ptr()) };
    assert_eq!(sizes, reserved);
    fill(first.weights[0], 70);
    fill(first.weights[1], 900);
    let mut kept = Vec::new();
    let mut in_flight = 0;
    for round in 0..9 {
        // A graph of its own each, over the same weights.
        let next = model_over(first.weights);
        assert!(machine.allocate(&next.rig));
        fill(next.input, 5 + round);
        let expected = expected(&next);
        // SAFETY: both live.
        let status = unsafe { ggml_backend_sched_graph_compute_async(machine.scheduler, next.rig.graph) };
        assert_eq!(status, STATUS_SUCCESS);
        kept.push((machine.backends[1].read_later(next.nodes[3]), expected, next));
        in_flight += machine.backends[1].waiting();
        machine.reset();
    }
    assert!(in_flight > 9 * 4, "work of several graphs was queued");
    // SAFETY: it lives.
    unsafe { ggml_backend_sched_synchronize(machine.scheduler) };
    for (found, expected, _) in &kept {
        assert_eq!(*found.lock().unwrap(), *expected);
    }
    assert_eq!([0, 1, 2].map(|backend| machine.bytes(backend)), reserved);
    // SAFETY: it lives.
    assert_eq!(unsafe { ggml_backend_sched_get_n_copies(machine.scheduler) }, 3);
}

#[test]
fn an_input_that_a_device_reads_where_it_is_lies_elsewhere_for_the_next_graph() {
    let mut machine = Machine::of(&["A"], true, |backends| {
        let cpu = backends[1].kind.as_ptr().addr();
        backends[0].with_events();
        backends[0].reads.push(cpu);
    });
    if !serves_parallel() {
        return assert_eq!(machine.scheduler, std::ptr::dangling_mut());
    }
    let weights = Rig::new();
    let weight = weights.leaf(64);
    machine.hold(&[weight], 0, USAGE_WEIGHTS);
    fill(weight, 8);
    let mut kept = Vec::new();
    for round in 0..5 {
        let rig = Rig::new();
        let input = rig.input(64);
        let product = rig.map("MUL_MAT", &[input, weight]);
        rig.output(product);
        assert!(machine.allocate(&rig));
        fill(input, round);
        let sources = [values(input), values(weight)];
        let expected = crate::backends::result(host::op("MUL_MAT"), &sources, 16).unwrap();
        // SAFETY: both live.
        let status = unsafe { ggml_backend_sched_graph_compute_async(machine.scheduler, rig.graph) };
        assert_eq!((status, machine.splits()), (STATUS_SUCCESS, 1));
        kept.push((machine.backends[0].read_later(product), expected, rig));
        machine.reset();
    }
    // SAFETY: it lives.
    unsafe { ggml_backend_sched_synchronize(machine.scheduler) };
    assert!(kept.iter().all(|(found, expected, _)| *found.lock().unwrap() == *expected));
}

#[test]
fn observers_are_asked_in_order_and_may_cancel() {
    for continues in [true, false] {
        let model = model();
        let machine = two_devices(&model);
        assert!(machine.allocate(&model.rig));
        let [first, sum, second, last] = model.nodes;
        let watch = Watcher { wanted: first, continues, asked: Mutex::default() };
        let data = std::ptr::from_ref(&watch).cast_mut().cast();
        // SAFETY: the watcher outlives the computation.
        unsafe { ggml_backend_sched_set_eval_callback(machine.scheduler, Some(watcher), data) };
        assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
        let begin = vec![(first, true), (first, false)];
        let rest = [(sum, true), (second, true), (last, true)];
        let asked = watch.asked.lock().unwrap().clone();
        assert_eq!(asked, if continues { [begin, rest.to_vec()].concat() } else { begin });
        let parts = machine.took_place().iter().filter(|what| what.contains("computes")).count();
        assert_eq!(parts, if continues { 3 } else { 1 });
        // SAFETY: as above.
        unsafe { ggml_backend_sched_set_eval_callback(machine.scheduler, None, null_mut()) };
        assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
        assert_eq!(machine.took_place().len(), 4);
    }
}

/// Swaps the first two nodes.
extern "C" fn swap(_backend: *mut Backend, graph: *mut RawGraphView) {
    // SAFETY: the library passes a view of a graph that lives.
    let graph = unsafe { &*graph };
    // SAFETY: the test's graph has more than two nodes.
    let nodes = unsafe { std::slice::from_raw_parts_mut(graph.nodes, 2) };
    nodes.swap(0, 1);
}

#[test]
fn a_backend_reorders_its_split_before_memory_is_planned() {
    let rig = Rig::new();
    let input = rig.input(64);
    let (a, b) = (rig.map("SQR", &[input]), rig.map("SCALE", &[input]));
    [a, b, rig.map("ADD", &[a, b])].into_iter().for_each(|node| host::push_node(rig.graph, node));
    let machine = Machine::new(&[], |backends| backends[0].set_optimizer(swap));
    assert!(machine.allocate(&rig));
    assert_eq!(host::nodes(rig.graph)[..2], [b, a]);
    fill(input, 2);
    assert_eq!(machine.compute(&rig), STATUS_SUCCESS);
}

#[test]
fn failures_are_reported_and_leave_the_scheduler_usable() {
    let model = model();
    let mut machine = two_devices(&model);
    let willing = &machine.backends[1].kind.willing;
    willing.store(0, std::sync::atomic::Ordering::SeqCst);
    assert!(!machine.reserve(&model.rig) && !machine.allocate(&model.rig));
    assert_eq!(machine.compute(&model.rig), orlop_ggml::STATUS_ALLOC_FAILED);
    machine.backends[1].kind.willing.store(-1, std::sync::atomic::Ordering::SeqCst);
    machine.backends[1].fails = true;
    assert_eq!(machine.compute(&model.rig), STATUS_FAILED);
    machine.backends[1].fails = false;
    assert_eq!(machine.compute(&model.rig), STATUS_SUCCESS);
    // SAFETY: a null graph is refused.
    let status =
        unsafe { ggml_backend_sched_graph_compute(two_devices(&self::model()).scheduler, null_mut()) };
    assert_eq!(status, STATUS_FAILED);
}

#[test]
fn an_operation_that_no_backend_computes_is_refused() {
    let model = model();
    let mut machine = Machine::new(&["A"], |backends| {
        backends.iter_mut().for_each(|backend| backend.lacks = vec![host::op("CONCAT")]);
    });
    machine.hold(&model.weights, 0, USAGE_WEIGHTS);
    assert!(!machine.reserve(&model.rig) && !machine.allocate(&model.rig));
    assert_eq!(machine.splits(), 0);
    // The graph before does not run in its place.
    let able = Rig::new();
    let sum = able.map("ADD", &[able.input(64), model.weights[0]]);
    able.output(sum);
    assert!(machine.allocate(&able));
    assert!(!machine.allocate(&model.rig));
    assert_eq!(machine.compute(&model.rig), STATUS_FAILED);
    assert!(machine.took_place().is_empty());
}

#[test]
fn unknown_backends_and_foreign_schedulers_are_the_programs_own() {
    let journal = Journal::default();
    let mut backends = vec![MockBackend::new("A", &journal), MockBackend::new("CPU", &journal)];
    let foreign = std::ptr::dangling_mut();
    backends[0].make_strange();
    assert_eq!(scheduler(&backends, false), foreign);
    backends.truncate(1);
    assert_eq!(scheduler(&backends, false), foreign);
    // SAFETY: the host's own function ignores its argument.
    assert_eq!(unsafe { ggml_backend_sched_get_n_splits(foreign) }, 99);
}

#[test]
fn the_programs_own_scheduler_serves_where_that_is_asked_for() {
    let journal = Journal::default();
    let backends = vec![MockBackend::new("CPU", &journal)];
    // A rig tells the library where the host's functions are.
    let _rig = Rig::new();
    let made = scheduler(&backends, false);
    let is_own = made == std::ptr::dangling_mut();
    assert_eq!(is_own, std::env::var_os("ORLOP_GGML_SCHED").is_some());
    if !is_own {
        // SAFETY: it was made here, and is not used again.
        unsafe { ggml_backend_sched_free(made) };
    }
}

#[test]
fn backends_and_their_buffer_types_can_be_asked_for() {
    let machine = Machine::new(&["A"], |_| {});
    let scheduler = machine.scheduler;
    let device = machine.backends[0].as_ptr();
    // SAFETY: it lives.
    assert_eq!(unsafe { ggml_backend_sched_get_n_backends(scheduler) }, 2);
    // SAFETY: it lives.
    assert_eq!(unsafe { ggml_backend_sched_get_n_copies(scheduler) }, 1);
    // SAFETY: it lives.
    assert_eq!(unsafe { ggml_backend_sched_get_backend(scheduler, 0) }, device);
    // SAFETY: it lives, and has no such backend.
    assert!(unsafe { ggml_backend_sched_get_backend(scheduler, 2) }.is_null());
    // SAFETY: both live.
    let kind = unsafe { ggml_backend_sched_get_buffer_type(scheduler, device) };
    assert_eq!(kind, machine.backends[0].kind.as_ptr());
    // SAFETY: it lives; null is no backend of it.
    assert!(unsafe { ggml_backend_sched_get_buffer_type(scheduler, null_mut()) }.is_null());
    // SAFETY: it lives.
    unsafe { ggml_backend_sched_synchronize(scheduler) };
}
