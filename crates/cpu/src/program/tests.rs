use orlop_backend::{BufferType, HostBufferType, Slot};
use orlop_graph::{DType, Graph, GraphBuilder, Op, TensorDesc};

use super::*;
use crate::access::{Dst, Scratch, SharedRows, Src};
use crate::task::{Kernel, KernelBody, Run, no_scratch, two_phases};
use crate::work_shares::WorkShares;

/// A program of one step with this kernel, on eight rows.
fn program(kernel: Kernel) -> CpuProgram {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 8]);
    let y = b.sqr(x);
    b.name(y, "y");
    let graph: Graph = b.build().unwrap();
    let host: Arc<dyn BufferType> = HostBufferType::new("cpu");
    let slots = [x, y].map(|id| {
        let bytes = graph.tensor(id).desc.bytes();
        Slot { buffer: Arc::clone(&host).allocate(bytes).unwrap(), offset: 0 }
    });
    let desc = graph.tensor(x).desc;
    let task = Task {
        op: graph.nodes()[0].op.clone(),
        more: Vec::new(),
        name: "y".to_owned(),
        // SAFETY: `Src::new` asks for a live buffer without writers: the program keeps it, and kernels only read it.
        src: vec![unsafe { Src::new(&slots[0], desc, "x", 0) }.unwrap()],
        // SAFETY: `Dst::new` asks for a live, exclusive buffer: the program keeps it, and threads write rows of their own.
        dst: unsafe { Dst::new(&slots[1], desc, "y", 1) }.unwrap(),
        also: Vec::new(),
        scratch: Scratch::none(),
        shared: SharedRows::none(),
        work_shares: WorkShares::none(),
        isa: Isa::detect(),
    };
    let checked = kernel.check.is_some();
    let tensors = graph.tensor_ids().zip(slots).collect();
    CpuProgram {
        stages: vec![Stage { kernel: SelectedKernel::Node(kernel), task, ahead: [Far::default(); AHEAD] }],
        groups: vec![(0..1, if checked { vec![0] } else { Vec::new() })],
        checks: Vec::new(),
        work_shares: ProgramShares::new(0, 3),
        max_threads: 3,
        device: "cpu".into(),
        touches: Vec::new(),
        bindings: Bindings { graph, tensors, temporaries: Vec::new() },
    }
}

fn anything(_: &Op, _: &[TensorDesc], _: &TensorDesc) -> Result<(), orlop_backend::Reason> {
    Ok(())
}

fn body(run: Run) -> KernelBody {
    // SAFETY: the phase rule: these kernels write rows of their own, or panic before they write any.
    unsafe { KernelBody::new(run) }
}

fn on_every_number_of_threads(pool: &ThreadPool, program: &CpuProgram) -> Vec<Result<(), DeviceError>> {
    // SAFETY: `run` asks for claims and that no other work touches the program's memory: only the program has it.
    (1..=3).map(|threads| unsafe { program.run(pool, threads, &RunOptions::default()) }).collect()
}

fn panicked() -> Result<(), DeviceError> {
    Err(DeviceError::KernelPanicked { op: "sqr".to_owned(), tensor: "y".to_owned() })
}

#[test]
fn a_kernel_that_panics_on_any_thread_ends_the_run_with_an_error_and_the_next_one_works() {
    let pool = ThreadPool::new(3).unwrap();
    // Each with a second phase, at which all threads meet once more.
    let kernels: [Run; 4] = [
        |_, thread, _| assert!(thread.index != 0, "on purpose"),
        |_, thread, _| assert!(thread.index + 1 != thread.count, "on purpose"),
        |_, _, _| panic!("on purpose"),
        |_, thread, _| assert!(thread.phase == 0, "on purpose"),
    ];
    let works = program(Kernel::simple(anything, no_scratch, body(|_, _, _| {})));
    for run in kernels {
        let fails =
            // SAFETY: the phase rule: nothing is read or written.
            program(Kernel::simple(anything, no_scratch, unsafe { KernelBody::in_phases(two_phases, run) }));
        assert_eq!(on_every_number_of_threads(&pool, &fails), [panicked(), panicked(), panicked()]);
        assert_eq!(on_every_number_of_threads(&pool, &works), [Ok(()), Ok(()), Ok(())]);
    }
}

#[test]
fn a_run_ends_though_no_helper_ever_runs() {
    let run: Run = |task, thread, _| {
        for row in thread.part(8) {
            let mut values = [0.0; 4];
            task.dst.as_src().read_row([row, 0, 0], &mut values);
            let factor = if thread.phase == 0 { 0.0 } else { 3.0 };
            task.dst.write_row([row, 0, 0], &values.map(|value| value * factor + row as f32));
        }
    };
    // SAFETY: the phase rule: each row is one thread's, in both phases.
    let program =
        program(Kernel::simple(anything, no_scratch, unsafe { KernelBody::in_phases(two_phases, run) }));
    let pool = ThreadPool::without_helpers(3);
    for result in on_every_number_of_threads(&pool, &program) {
        result.unwrap();
        for row in 0..8 {
            let mut values = [0.0; 4];
            program.stages[0].task.dst.as_src().read_row([row, 0, 0], &mut values);
            assert_eq!(values, [4.0 * row as f32; 4]);
        }
    }
}

#[test]
fn a_check_that_panics_ends_the_run_before_its_step() {
    let pool = ThreadPool::new(3).unwrap();
    let run: Run = |task, thread, _| {
        for row in thread.part(8) {
            task.dst.write_row([row, 0, 0], &[1.0; 4]);
        }
    };
    let check = Some((|_| panic!("on purpose")) as crate::task::Check);
    let program = program(Kernel { check, ..Kernel::simple(anything, no_scratch, body(run)) });
    assert_eq!(on_every_number_of_threads(&pool, &program), [panicked(), panicked(), panicked()]);
    let mut row = [2.0; 4];
    program.stages[0].task.dst.as_src().read_row([7, 0, 0], &mut row);
    assert_eq!(row, [0.0; 4]);
}

#[test]
fn rows_outside_a_tensor_are_a_panic_and_never_an_access() {
    let pool = ThreadPool::new(3).unwrap();
    let kernels: [Run; 5] = [
        |task, _, _| task.dst.write_row([8, 0, 0], &[0.0; 4]),
        |task, _, _| task.dst.write_row([0, 0, 1], &[0.0; 4]),
        |task, _, _| task.dst.write_elements(1, [0; 3], &[0.0; 4]),
        |task, _, _| task.src[0].read_elements(u64::MAX, [0; 3], &mut [0.0; 4]),
        |task, _, _| task.shared.fill(0, |_| {}),
    ];
    for run in kernels {
        let program = program(Kernel::simple(anything, no_scratch, body(run)));
        assert_eq!(on_every_number_of_threads(&pool, &program), [panicked(), panicked(), panicked()]);
    }
}
