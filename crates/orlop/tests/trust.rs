//! What a session does not take on trust: steps that a device makes, and memory that a caller hands over.

use std::sync::Arc;

use orlop::alloc::{Error as AllocError, Externals, SetTensor, TensorSet};
use orlop::backend::{
    BufferType, Device, DeviceError, HostBufferType, LowerOptions, Overwrite, Segment, Slot, Steps,
    StoredTensor,
};
use orlop::graph::{DType, Graph, GraphBuilder, TensorDesc};
use orlop::sched::{Error, Machine, Session, SessionOptions};
use orlop_testkit::{DeviceHooks, Forward, ReferenceDevice};

/// Changes what the device lowers.
#[derive(Debug)]
struct Liar(fn(&mut Steps));

impl DeviceHooks for Liar {
    fn lower(
        &self,
        inner: &dyn Device,
        segment: &Segment<'_>,
        options: &LowerOptions,
    ) -> Result<Steps, DeviceError> {
        let mut steps = inner.lower(segment, options)?;
        (self.0)(&mut steps);
        Ok(steps)
    }
}

/// `relu(a b)`.
fn graph() -> Graph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 4]);
    let y = b.mul_mat(x, x);
    let z = b.relu(y);
    b.output(z);
    b.build().unwrap()
}

fn prepared_with(lie: fn(&mut Steps)) -> Result<(), Error> {
    let device = Forward::new(ReferenceDevice::new(), Liar(lie));
    let mut session = Session::new(Machine::new([device as _])?, SessionOptions::default())?;
    session.prepare(&graph(), &Externals::new()).map(|_| ())
}

#[test]
fn steps_overwrite_no_more_than_their_op_may() {
    assert_eq!(prepared_with(|_| {}), Ok(()));
    let product = prepared_with(|steps| steps.steps[0].may_overwrite.push(Overwrite { write: 0, read: 0 }));
    let bad = |outcome: &Result<(), Error>| {
        let error = outcome.as_ref().err().and_then(Error::alloc_error);
        matches!(error, Some(AllocError::BadLowering { .. }))
    };
    assert!(bad(&product), "{product:?}");
    let nowhere = prepared_with(|steps| steps.steps[0].may_overwrite.push(Overwrite { write: 0, read: 9 }));
    assert!(bad(&nowhere), "{nowhere:?}");
}

#[test]
fn what_a_step_reads_was_written_before() {
    let dropped = prepared_with(|steps| drop(steps.steps.remove(0)));
    let error = dropped.as_ref().err().and_then(Error::alloc_error);
    let never = AllocError::NeverWritten { value: "t1".to_owned(), step: 0 };
    assert_eq!(error, Some(&never), "{dropped:?}");
}

#[test]
fn the_result_behind_a_view_that_is_an_output_is_not_fused_away() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 4]);
    let y = b.sqr(x);
    let view = b.reshape(y, &[16]);
    b.output(view);
    let graph = b.build().unwrap();
    // Drops every step whose result does not escape, as a device may that has fused it into another.
    #[derive(Debug)]
    struct Fusing;
    impl DeviceHooks for Fusing {
        fn lower(
            &self,
            inner: &dyn Device,
            segment: &Segment<'_>,
            options: &LowerOptions,
        ) -> Result<Steps, DeviceError> {
            let mut steps = inner.lower(segment, options)?;
            steps.steps.retain(|step| segment.escapes[segment.graph.node(step.nodes[0]).output.index()]);
            Ok(steps)
        }
    }
    let machine = Machine::new([Forward::new(ReferenceDevice::new(), Fusing) as _]).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    session.set(plan, x, &orlop_testkit::f32_bytes(&[3.0; 16])).unwrap();
    session.run(plan, &Default::default()).unwrap();
    let mut bytes = [0; 64];
    session.get(plan, view, &mut bytes).unwrap();
    assert_eq!(bytes[..], orlop_testkit::f32_bytes(&[9.0; 16]));
}

fn desc(length: u64) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, &[length]).unwrap()
}

#[test]
fn a_state_shares_no_bytes_with_another_leaf() {
    let host: Arc<dyn BufferType> = HostBufferType::new("host");
    let buffer = Arc::clone(&host).allocate(256).unwrap();
    let at = |name: &str, offset| {
        StoredTensor::new(name, desc(16), Slot { buffer: Arc::clone(&buffer), offset }).unwrap()
    };
    let build = |state: bool| {
        let mut b = GraphBuilder::new();
        let a = if state { b.state("a", DType::F32, &[16]) } else { b.weight("a", DType::F32, &[16]) };
        let w = b.weight("w", DType::F32, &[16]);
        let y = b.add(a, w);
        b.output(y);
        b.build().unwrap()
    };
    for (state, offset, fine) in [(true, 64, true), (true, 32, false), (false, 32, true), (true, 0, false)] {
        let graph = build(state);
        let externals = Externals::by_name(&graph, &[at("a", 0), at("w", offset), at("unused", 128)]);
        let checked = externals.check(&graph);
        match fine {
            true => assert_eq!(checked, Ok(())),
            false => assert!(matches!(checked, Err(AllocError::ExternalsOverlap { .. })), "{checked:?}"),
        }
    }
}

#[test]
fn graphs_with_other_ids_find_their_tensors_by_name() {
    let host: Arc<dyn BufferType> = HostBufferType::new("host");
    let set =
        TensorSet::allocate(&host, &[SetTensor::new("k", desc(8)), SetTensor::new("v", desc(8))]).unwrap();
    let build = |extra: bool| {
        let mut b = GraphBuilder::new();
        if extra {
            b.input("extra", DType::F32, &[1]);
        }
        let (k, v) = (b.state("k", DType::F32, &[8]), b.state("v", DType::F32, &[8]));
        let y = b.add(k, v);
        b.output(y);
        (b.build().unwrap(), k, v)
    };
    for extra in [false, true] {
        let (graph, k, v) = build(extra);
        let externals = Externals::by_name(&graph, set.tensors());
        assert_eq!(externals.get(k).unwrap().name(), "k");
        assert_eq!(externals.get(v).unwrap().name(), "v");
        assert_eq!(externals.check(&graph), Ok(()));
    }
}
