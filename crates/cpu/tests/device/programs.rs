//! Compiled programs: what they hold, who may run them, how often and on how many threads.

use std::sync::Arc;

use orlop_backend::{
    Bindings, Buffer, Claim, Claims, Device, DeviceError, LowerOptions, Program, Reason, Role, RunOptions,
    Segment, Slot, StepValue, Steps,
};
use orlop_cpu::{CpuDevice, Isa, ThreadPool};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, NodeId, TensorId};
use orlop_testkit::{ReferenceDevice, f32_bytes};

use crate::{POOL, device, lower, run};

/// A graph at places of its own, one buffer a tensor.
struct Bound {
    steps: Steps,
    bindings: Bindings,
}

impl Bound {
    fn new(device: &dyn Device, graph: &Graph, options: &LowerOptions) -> Result<Bound, DeviceError> {
        let host = &device.buffer_types(Role::Arena)[0];
        let place = |bytes: u64| Slot { buffer: Arc::clone(host).allocate(bytes).unwrap(), offset: 0 };
        let nodes: Vec<NodeId> = graph.node_ids().collect();
        let types = vec![Some(Arc::clone(host)); graph.tensor_ids().len()];
        let escapes = vec![true; types.len()];
        let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
        let steps = device.lower(&segment, options)?;
        let tensors = graph.tensor_ids().map(|id| (id, place(graph.tensor(id).desc.bytes()))).collect();
        let temporaries = steps.temporaries.iter().map(|temporary| place(temporary.bytes)).collect();
        Ok(Bound { steps, bindings: Bindings { graph: graph.clone(), tensors, temporaries } })
    }

    fn buffer(&self, id: TensorId) -> Arc<dyn Buffer> {
        Arc::clone(&self.bindings.tensors[&id].buffer)
    }
}

fn write(buffer: &dyn Buffer, values: &[f32]) {
    let claim = Claim::take(buffer, AccessKind::Write).unwrap();
    buffer.write(&claim, 0, &f32_bytes(values)).unwrap();
}

fn read(buffer: &dyn Buffer) -> Vec<u8> {
    let claim = Claim::take(buffer, AccessKind::Read).unwrap();
    let mut bytes = vec![0; buffer.bytes() as usize];
    buffer.read(&claim, 0, &mut bytes).unwrap();
    bytes
}

fn submit(device: &dyn Device, program: &Arc<dyn Program>, options: &RunOptions) -> Result<(), DeviceError> {
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).unwrap();
    // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none.
    unsafe { device.queue()?.submit(program, &claims, options) }
}

/// `y`, the soft-max of `x`: a graph whose step needs scratch.
fn soft_max() -> (Graph, TensorId, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 7]);
    let y = b.soft_max(x, None, 1.0, 0.0);
    b.output(y);
    (b.build().unwrap(), x, y)
}

#[test]
fn a_program_runs_many_times_on_any_number_of_threads_up_to_its_own_maximum() {
    let (graph, x, y) = soft_max();
    let cpu = device(Isa::detect());
    let three = Bound::new(&*cpu, &graph, &lower(3)).unwrap();
    let program = cpu.compile(&three.steps, &three.bindings).unwrap();
    // What other programs are made for is not this one's business.
    let one = Bound::new(&*cpu, &graph, &lower(1)).unwrap();
    let other = cpu.compile(&one.steps, &one.bindings).unwrap();
    for turn in 0..30 {
        write(&*three.buffer(x), &[turn as f32; 28]);
        submit(&*cpu, &program, &run(1 + turn % 3)).unwrap();
        assert_eq!(read(&*three.buffer(y)), f32_bytes(&[0.25; 28]));
        submit(&*cpu, &other, &run(1)).unwrap();
    }
    let refused = |asked, max| Err(DeviceError::BadThreads { asked, max });
    assert_eq!(submit(&*cpu, &program, &run(4)), refused(4, 3));
    assert_eq!(submit(&*cpu, &program, &run(0)), refused(0, 3));
    assert_eq!(submit(&*cpu, &other, &run(2)), refused(2, 1));
}

#[test]
fn a_program_keeps_graph_buffers_and_scratch_after_everybody_else_let_go() {
    let (graph, x, y) = soft_max();
    let cpu = device(Isa::detect());
    let bound = Bound::new(&*cpu, &graph, &lower(2)).unwrap();
    let [from, to] = [x, y].map(|id| Arc::downgrade(&bound.buffer(id)));
    let scratch = Arc::downgrade(&bound.bindings.temporaries[0].buffer);
    let program = cpu.compile(&bound.steps, &bound.bindings).unwrap();
    drop((bound, graph));
    write(&*from.upgrade().unwrap(), &[3.0; 28]);
    submit(&*cpu, &program, &run(2)).unwrap();
    assert_eq!(read(&*to.upgrade().unwrap()), f32_bytes(&[0.25; 28]));
    drop(program);
    assert!([from, to, scratch].iter().all(|buffer| buffer.upgrade().is_none()), "a buffer is still held");
}

#[test]
fn programs_of_other_devices_are_refused() {
    let (graph, x, y) = soft_max();
    let cpu = device(Isa::detect());
    let bound = Bound::new(&*cpu, &graph, &lower(1)).unwrap();
    let program = cpu.compile(&bound.steps, &bound.bindings).unwrap();
    write(&*bound.buffer(x), &[1.0; 28]);

    let second = CpuDevice::with_isa("second", Arc::clone(&POOL), Isa::detect());
    let foreign = |owner: &str, device: &str| {
        let (owner, device) = (owner.to_owned(), device.to_owned());
        Err(DeviceError::Foreign { what: "a program", owner, device })
    };
    assert_eq!(submit(&*second, &program, &run(1)), foreign("cpu", "second"));

    let reference = ReferenceDevice::new();
    let other = Bound::new(&*reference, &graph, &lower(1)).unwrap();
    let other = reference.compile(&other.steps, &other.bindings).unwrap();
    assert_eq!(submit(&*cpu, &other, &run(1)), foreign("another kind of device", "cpu"));
    assert_eq!(read(&*bound.buffer(y)), [0; 112]);
}

#[test]
fn claims_that_leave_out_a_buffer_are_refused() {
    let (graph, x, _) = soft_max();
    let cpu = device(Isa::detect());
    let bound = Bound::new(&*cpu, &graph, &lower(1)).unwrap();
    let program = cpu.compile(&bound.steps, &bound.bindings).unwrap();
    let claims = Claims::take([(&bound.buffer(x), AccessKind::Write)]).unwrap();
    // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none.
    let run = unsafe { cpu.queue().unwrap().submit(&program, &claims, &run(1)) };
    assert_eq!(run, Err(DeviceError::NotClaimed { buffer_type: "cpu".to_owned() }));
}

#[test]
fn steps_that_do_not_say_what_their_node_touches_are_refused() {
    let (graph, ..) = soft_max();
    let cpu = device(Isa::detect());
    let bound = Bound::new(&*cpu, &graph, &lower(1)).unwrap();
    let changes: [fn(&mut Steps); 4] = [
        |steps| steps.steps[0].reads.clear(),
        |steps| steps.steps[0].writes.clear(),
        |steps| steps.steps[0].writes.truncate(1),
        |steps| steps.steps[0].nodes.clear(),
    ];
    for change in changes {
        let mut steps = bound.steps.clone();
        change(&mut steps);
        let refused = cpu.compile(&steps, &bound.bindings).unwrap_err();
        assert!(matches!(refused, DeviceError::Foreign { what: "a lowered step", .. }), "{refused:?}");
    }
    let smaller = GraphBuilder::new().build().unwrap();
    let bindings = Bindings { graph: smaller, ..bound.bindings.clone() };
    assert!(cpu.compile(&bound.steps, &bindings).is_err());
    let mut steps = bound.steps.clone();
    steps.steps[0].writes[1] = StepValue::Temporary(7);
    let unbound = DeviceError::Unbound { value: "temporary 7".to_owned() };
    assert_eq!(cpu.compile(&steps, &bound.bindings).unwrap_err(), unbound);
}

#[test]
fn temporaries_that_say_less_than_what_lies_there_are_refused_and_odd_ones_are_not() {
    let mut b = GraphBuilder::new();
    let (w, x) = (b.weight("w", DType::Q8_0, &[64, 8]), b.input("x", DType::F32, &[64, 3]));
    let y = b.mul_mat(w, x);
    b.output(y);
    let products = b.build().unwrap();
    let cpu = device(Isa::detect());
    for graph in [products, soft_max().0] {
        let bound = Bound::new(&*cpu, &graph, &lower(2)).unwrap();
        for number in 0..bound.steps.temporaries.len() {
            let mut steps = bound.steps.clone();
            steps.temporaries[number].bytes -= 1;
            let refused = cpu.compile(&steps, &bound.bindings).unwrap_err();
            assert!(matches!(refused, DeviceError::Foreign { what: "a lowered step", .. }), "{refused:?}");
            // Two threads' parts of an odd size would not be floats.
            steps.temporaries[number].bytes += 3;
            let program = cpu.compile(&steps, &bound.bindings).unwrap();
            submit(&*cpu, &program, &run(2)).unwrap();
        }
        let mut steps = bound.steps.clone();
        steps.options.max_threads = 0;
        cpu.compile(&steps, &bound.bindings).unwrap();
    }
}

#[test]
fn steps_do_not_depend_on_the_instructions_of_the_device_that_made_them() {
    let mut b = GraphBuilder::new();
    let (w, x) = (b.weight("w", DType::Q6_K, &[512, 16]), b.input("x", DType::F32, &[512, 17]));
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build().unwrap();
    let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
    let mut weights = vec![0; graph.tensor(w).desc.bytes() as usize];
    orlop_quant::encode(DType::Q6_K, &numbers(512 * 16), &mut weights).unwrap();
    let scalar = CpuDevice::with_isa("scalar", Arc::clone(&POOL), Isa::Scalar);
    let here = device(Isa::detect());
    let results = [&*scalar, &*here].map(|maker| {
        let bound = Bound::new(maker, &graph, &lower(1)).unwrap();
        let claim = Claim::take(&*bound.buffer(w), AccessKind::Write).unwrap();
        bound.buffer(w).write(&claim, 0, &weights).unwrap();
        drop(claim);
        write(&*bound.buffer(x), &numbers(512 * 17));
        let program = here.compile(&bound.steps, &bound.bindings).unwrap();
        submit(&*here, &program, &run(1)).unwrap();
        read(&*bound.buffer(y))
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn places_that_are_too_small_crooked_or_read_only_are_refused() {
    let (graph, _, y) = soft_max();
    let cpu = device(Isa::detect());
    let bound = Bound::new(&*cpu, &graph, &lower(2)).unwrap();
    let host = &cpu.buffer_types(Role::Arena)[0];
    let at = |bytes: u64, offset| Slot { buffer: Arc::clone(host).allocate(bytes).unwrap(), offset };

    let mut small = bound.bindings.clone();
    small.tensors.insert(y, at(112, 4));
    let refused = cpu.compile(&bound.steps, &small).unwrap_err();
    assert!(matches!(refused, DeviceError::OutOfBounds { offset: 4, bytes: 112, .. }), "{refused:?}");

    let mut small = bound.bindings.clone();
    let scratch = bound.steps.temporaries[0].bytes;
    small.temporaries[0] = at(scratch - 1, 0);
    let refused = cpu.compile(&bound.steps, &small).unwrap_err();
    assert!(matches!(refused, DeviceError::OutOfBounds { offset: 0, .. }), "{refused:?}");

    let mut crooked = bound.bindings.clone();
    crooked.temporaries[0] = at(scratch + 2, 2);
    let refused = cpu.compile(&bound.steps, &crooked).unwrap_err();
    assert!(matches!(refused, DeviceError::MisalignedOffset { offset: 2, .. }), "{refused:?}");

    let mut read_only = bound.bindings.clone();
    let buffer = cpu.mapped().over_bytes(Arc::new(vec![0; 112])).unwrap();
    read_only.tensors.insert(y, Slot { buffer, offset: 0 });
    let refused = cpu.compile(&bound.steps, &read_only).unwrap_err();
    assert_eq!(refused, DeviceError::ReadOnly { buffer_type: "cpu mapped".to_owned() });
}

#[test]
fn f64_is_moved_but_not_computed_with() {
    let refusal = |build: fn(&mut GraphBuilder, TensorId, TensorId) -> TensorId| {
        let mut b = GraphBuilder::new();
        let (x, y) = (b.input("x", DType::F64, &[4, 4]), b.input("y", DType::F64, &[4, 4]));
        let result = build(&mut b, x, y);
        b.name(result, "result");
        let graph = b.build().unwrap();
        Bound::new(&*device(Isa::detect()), &graph, &lower(2)).err()
    };
    let computed: [fn(&mut GraphBuilder, TensorId, TensorId) -> TensorId; 5] = [
        |b, x, y| b.add(x, y),
        |b, x, _| b.sqr(x),
        |b, x, _| b.soft_max(x, None, 1.0, 0.0),
        |b, x, _| b.sum_rows(x),
        |b, x, _| b.rms_norm(x, 1e-5),
    ];
    for build in computed {
        let refusal = refusal(build);
        let Some(DeviceError::Unsupported { tensor, reason, .. }) = &refusal else { panic!("{refusal:?}") };
        assert_eq!(tensor, "result");
        assert_eq!(*reason, Reason::DType { operand: 0, dtype: DType::F64 });
    }
    assert!(refusal(|b, x, y| b.concat(&[x, y], 0)).is_none());
}

#[test]
fn a_scratch_beyond_all_memory_is_a_size_and_no_panic() {
    // Weights so long that a tile of them in F32 does not fit 64 bits.
    let mut b = GraphBuilder::new();
    let row = 1 << 60;
    let (w, x) = (b.weight("w", DType::Q4_0, &[row, 1]), b.input("x", DType::F16, &[row, 1]));
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build().unwrap();
    let cpu = CpuDevice::new(ThreadPool::new(2).unwrap());
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let (types, escapes) = (vec![None; graph.tensor_ids().len()], vec![true; graph.tensor_ids().len()]);
    let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    let steps = cpu.lower(&segment, &lower(2)).unwrap();
    assert!(steps.temporaries.iter().any(|temporary| temporary.bytes == u64::MAX));
}
