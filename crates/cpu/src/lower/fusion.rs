//! Steps that become one with the step that reads their result, so that the result exists nowhere in memory.

use std::ops::Range;

use orlop_backend::{FusionPass, Overwrite, Step, StepEditor, StepValue};
use orlop_graph::TensorDesc;

use crate::kernels::{
    self, ATTENTION, GATED_VALUES, PRODUCT, PRODUCT_AND_SUMS, ROPE_INTO_ROWS, ROUND, Rounding, SCALED_NORM,
};
use crate::task::{StepOperand, StepOperands};

/// Two kernels whose work one kernel does. That kernel decides which nodes go together. Names are without the ends that say
/// what activations are rounded to; the kernel's has the end that one of the others has.
struct Fusion {
    kernel: &'static str,
    first: &'static [&'static str],
    second: &'static str,
    /// The reads whose place the result may take, as each thread reads of them only what it writes, and before.
    overwrites: Range<usize>,
}

const GATES: &[&str] = &["reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu"];

const FUSIONS: [Fusion; 7] = [
    Fusion { kernel: SCALED_NORM, first: &["rms_norm", "norm"], second: "mul", overwrites: 0..1 },
    Fusion { kernel: SCALED_NORM, first: &[SCALED_NORM], second: "add", overwrites: 0..1 },
    Fusion { kernel: SCALED_NORM, first: &[SCALED_NORM], second: ROUND, overwrites: 0..0 },
    Fusion { kernel: GATED_VALUES, first: GATES, second: ROUND, overwrites: 0..0 },
    Fusion { kernel: ATTENTION, first: &["flash_attention"], second: ROUND, overwrites: 0..0 },
    Fusion { kernel: PRODUCT_AND_SUMS, first: &[PRODUCT, PRODUCT_AND_SUMS], second: "add", overwrites: 2..4 },
    Fusion { kernel: ROPE_INTO_ROWS, first: &["rope"], second: "set_rows", overwrites: 0..0 },
];

/// Lets steps do the work of earlier steps whose results no other step reads.
pub(super) fn fuse(editor: &mut StepEditor<'_>) {
    if editor.options.fusion {
        editor.fuse(fused);
    }
}

/// The step that can do a step's work beside its own, and what it is then.
fn fused(pass: &FusionPass<'_>, index: usize) -> Option<(usize, Step)> {
    let editor = pass.editor();
    let first = &editor.steps[index];
    let [StepValue::Tensor(_)] = first.writes[..] else { return None };
    let reader = pass.sole_reader(index)?;
    let second = &editor.steps[reader];
    let [first_name, second_name] = [first, second].map(|step| Rounding::split(&step.kernel).0);
    let fits = |fusion: &&Fusion| fusion.first.contains(&first_name) && fusion.second == second_name;
    let mut fusions = FUSIONS.iter().filter(fits).peekable();
    fusions.peek()?;
    if !pass.can_wait(index, reader) {
        return None;
    }
    fusions.find_map(|fusion| step(editor, fusion, first, second)).map(|step| (reader, step))
}

fn step(editor: &StepEditor<'_>, fusion: &Fusion, first: &Step, second: &Step) -> Option<Step> {
    let graph = editor.segment.graph;
    let same = if fusion.kernel == ATTENTION { heads_as_rows } else { same_rows };
    if fusion.second == ROUND && !same(editor, first, second) {
        return None;
    }
    let rounding = [second, first].into_iter().find_map(|step| Rounding::of_kernel(&step.kernel));
    let kernel = rounding.map_or(fusion.kernel.to_owned(), |rounding| rounding.kernel(fusion.kernel));
    let mut step = Step {
        kernel: kernel.into(),
        nodes: [&first.nodes[..], &second.nodes].concat(),
        reads: Vec::new(),
        writes: Vec::new(),
        may_overwrite: Vec::new(),
    };
    let StepOperands { reads, writes } = (kernels::named(&step.kernel)?.operands)(graph, &step)?;
    let value = |operand: &StepOperand, values: &[StepValue]| match operand {
        StepOperand::Tensor(id) => Some(StepValue::Tensor(*id)),
        StepOperand::Rounded(..) => {
            values.iter().copied().find(|value| matches!(value, StepValue::Temporary(_)))
        }
    };
    step.reads = reads.iter().map(|operand| value(operand, &first.reads)).collect::<Option<_>>()?;
    // What exists nowhere cannot be read, as where the second step takes it twice.
    if editor.roots(&step.reads).iter().any(|root| editor.roots(&first.writes).contains(root)) {
        return None;
    }
    step.writes = writes.iter().map(|operand| value(operand, &second.writes)).collect::<Option<_>>()?;
    if let [StepValue::Tensor(result)] = step.writes[..] {
        let same = |read: &usize| matches!(step.reads[*read], StepValue::Tensor(id) if graph.tensor(id).desc == graph.tensor(result).desc);
        let slots = fusion.overwrites.clone().take_while(|read| *read < step.reads.len());
        step.may_overwrite = slots.filter(same).map(|read| Overwrite { write: 0, read }).collect();
    }
    Some(step)
}

/// The first step's result, and what the second rounds.
fn rounded<'a>(editor: &StepEditor<'a>, first: &Step, second: &Step) -> Option<[&'a TensorDesc; 2]> {
    let ([StepValue::Tensor(result)], [StepValue::Tensor(rounded)]) = (&first.writes[..], &second.reads[..])
    else {
        return None;
    };
    Some([result, rounded].map(|id| &editor.segment.graph.tensor(*id).desc))
}

/// Whether what is rounded are the heads of the first step's result, those of a token as one row.
fn heads_as_rows(editor: &StepEditor<'_>, first: &Step, second: &Step) -> bool {
    let Some([result, rounded]) = rounded(editor, first, second) else { return false };
    let [head, heads, ..] = result.extents;
    result.is_contiguous()
        && rounded.is_contiguous()
        && head.checked_mul(heads) == Some(rounded.extents[0])
        && result.bytes() == rounded.bytes()
}

/// Whether what is rounded are the rows of the first step's result, in their order.
fn same_rows(editor: &StepEditor<'_>, first: &Step, second: &Step) -> bool {
    let Some([result, rounded]) = rounded(editor, first, second) else { return false };
    result == rounded
        || result.is_contiguous()
            && rounded.is_contiguous()
            && result.extents[0] == rounded.extents[0]
            && result.bytes() == rounded.bytes()
}
