//! Steps that become one: with the step that reads their result, so that it exists nowhere in memory, or with a neighbour
//! that reads the same.

use orlop_backend::{Overwrite, Step, StepEditor, StepValue};
use orlop_graph::{NodeId, TensorId};

use crate::kernels::{
    DECODE, EIGHT_BIT, FLOATS, FloatProducts, ROTATE, RotatedAttention, Rotation, SCALED_NORM, ScaledNorm,
    TILES, TileProduct, VECTOR, VectorProducts,
};

/// Two kernels whose work one step does.
struct Rule {
    first: &'static [&'static str],
    second: &'static [&'static str],
    /// The second is the only reader of what the first writes; if not set, the two are independent.
    feeds: bool,
    kernel: &'static str,
}

const GATES: &[&str] = &["reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu"];

/// In the order in which they are tried.
const RULES: [Rule; 11] = [
    Rule { first: &["rms_norm", "norm"], second: &["mul"], feeds: true, kernel: SCALED_NORM },
    Rule { first: &[SCALED_NORM], second: &["add"], feeds: true, kernel: SCALED_NORM },
    Rule { first: &[VECTOR], second: &["add"], feeds: true, kernel: VECTOR },
    Rule { first: &[TILES], second: &["add"], feeds: true, kernel: TILES },
    Rule { first: &[EIGHT_BIT], second: &["add"], feeds: true, kernel: EIGHT_BIT },
    Rule { first: &["rope"], second: &["set_rows"], feeds: true, kernel: ROTATE },
    Rule { first: &[FLOATS], second: &["set_rows"], feeds: true, kernel: FLOATS },
    // Neighbours.
    Rule { first: &[VECTOR], second: &[VECTOR], feeds: false, kernel: VECTOR },
    Rule { first: &[FLOATS], second: &[FLOATS], feeds: false, kernel: FLOATS },
    Rule {
        first: &["rope", "set_rows", ROTATE],
        second: &["rope", "set_rows", ROTATE],
        feeds: false,
        kernel: ROTATE,
    },
    // Once they are together.
    Rule { first: &[VECTOR], second: GATES, feeds: true, kernel: VECTOR },
];

const NORM_INTO_PRODUCTS: Rule =
    Rule { first: &[SCALED_NORM], second: &[VECTOR], feeds: true, kernel: VECTOR };

pub(super) fn fuse(editor: &mut StepEditor<'_>) {
    for rule in RULES.iter().chain([&NORM_INTO_PRODUCTS]) {
        apply(editor, rule);
    }
    attend_at_once(editor);
    write_rows(editor);
}

/// Rows that nothing went together with are written by the kernel for all of them, too.
fn write_rows(editor: &mut StepEditor<'_>) {
    let graph = editor.segment.graph;
    for step in editor.steps.iter_mut().filter(|step| step.kernel == "set_rows") {
        if Rotation::parse(graph, &step.nodes).is_some() {
            step.kernel = ROTATE.into();
        }
    }
}

/// Attention of one token right behind the rotation that it reads turns the heads by itself.
fn attend_at_once(editor: &mut StepEditor<'_>) {
    let graph = editor.segment.graph;
    let mut index = 0;
    while index + 1 < editor.steps.len() {
        let [first, second] = [&editor.steps[index], &editor.steps[index + 1]];
        let nodes = [&first.nodes[..], &second.nodes].concat();
        let fits = first.kernel == ROTATE && second.kernel == "flash_attention";
        let parsed =
            if fits { RotatedAttention::parse(graph, &nodes, editor.options.precision) } else { None };
        let alone = |attention: &RotatedAttention| {
            let queries = attention.queries();
            let readers = editor.steps.iter().filter(|step| editor.roots(&step.reads).contains(&queries));
            // As where sinks are some of them.
            let again = attention.reads(graph).into_iter().any(|read| editor.root(read) == queries);
            let early: Vec<StepValue> =
                attention.reads_early(graph).into_iter().map(StepValue::Tensor).collect();
            let early = editor.roots(&early);
            let others = editor.steps.iter().enumerate().filter(|(other, _)| *other != index);
            let mut written = others.flat_map(|(_, step)| editor.roots(&step.writes));
            !editor.escapes(queries)
                && readers.count() == 1
                && !again
                && !written.any(|root| early.contains(&root))
        };
        if let Some(attention) = parsed.filter(alone) {
            let values = |ids: Vec<TensorId>| ids.into_iter().map(StepValue::Tensor).collect();
            editor.steps[index + 1] = Step {
                kernel: DECODE.into(),
                nodes,
                reads: values(attention.reads(graph)),
                writes: values(attention.writes(graph)),
                may_overwrite: Vec::new(),
            };
            editor.steps.remove(index);
        }
        index += 1;
    }
}

fn apply(editor: &mut StepEditor<'_>, rule: &Rule) {
    editor.fuse(|pass, index| {
        let editor = pass.editor();
        if !rule.first.contains(&&*editor.steps[index].kernel) {
            return None;
        }
        let other = if rule.feeds { pass.sole_reader(index) } else { neighbour(editor, rule, index) }?;
        let fits = rule.second.contains(&&*editor.steps[other].kernel) && pass.can_wait(index, other);
        fits.then(|| together(editor, rule, index, other))?.map(|fused| (other, fused))
    });
}

/// The next step that a rule would join this one with.
fn neighbour(editor: &StepEditor<'_>, rule: &Rule, index: usize) -> Option<usize> {
    let after = index + 1..(index + 4).min(editor.steps.len());
    after.into_iter().find(|other| rule.second.contains(&&*editor.steps[*other].kernel))
}

fn together(editor: &StepEditor<'_>, rule: &Rule, index: usize, other: usize) -> Option<Step> {
    let (first, second) = (&editor.steps[index], &editor.steps[other]);
    if !rule.feeds {
        // Neither may read what the other writes.
        let (reads, writes) = (editor.roots(&second.reads), editor.roots(&first.writes));
        if reads.iter().any(|root| writes.contains(root)) {
            return None;
        }
    }
    let nodes = [&first.nodes[..], &second.nodes].concat();
    let FusedAccess { reads, writes, replaced } = touched(editor, rule.kernel, &nodes)?;
    // A value that is no longer stored cannot be read, as where the second step takes it twice.
    let unwritten =
        editor.roots(&first.writes).into_iter().filter(|root| rule.feeds && !writes.contains(root));
    if unwritten.into_iter().any(|gone| reads.iter().any(|read| editor.root(*read) == gone)) {
        return None;
    }
    let may_overwrite = replaced.map_or_else(Vec::new, |id| overwrites(editor, id, &reads, &writes));
    let values = |ids: Vec<TensorId>| ids.into_iter().map(StepValue::Tensor).collect();
    Some(Step {
        kernel: rule.kernel.into(),
        nodes,
        reads: values(reads),
        writes: values(writes),
        may_overwrite,
    })
}

/// What a step touches.
struct FusedAccess {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    /// What its only result may take the place of: it is read only where, and before, the result is written.
    replaced: Option<TensorId>,
}

/// What nodes touch as one step of a kernel, if it takes them.
fn touched(editor: &StepEditor<'_>, kernel: &str, nodes: &[NodeId]) -> Option<FusedAccess> {
    let graph = editor.segment.graph;
    Some(match kernel {
        SCALED_NORM => {
            let norm = ScaledNorm::parse(graph, nodes)?;
            let reads = [Some(norm.x), Some(norm.weight), norm.bias].into_iter().flatten().collect();
            FusedAccess { reads, writes: vec![norm.output], replaced: Some(norm.x) }
        }
        VECTOR => {
            let products = VectorProducts::parse(graph, nodes)?;
            let replaced = if let [part] = products.parts[..] { part.sum } else { None };
            FusedAccess { reads: products.reads(), writes: products.writes(), replaced }
        }
        TILES | EIGHT_BIT => {
            let TileProduct { x, part } = TileProduct::parse(graph, nodes)?;
            let reads = [Some(part.matrix), Some(x), part.sum].into_iter().flatten().collect();
            FusedAccess { reads, writes: vec![part.output], replaced: part.sum }
        }
        FLOATS => {
            let products = FloatProducts::parse(graph, nodes)?;
            FusedAccess { reads: products.reads(graph), writes: products.writes(), replaced: None }
        }
        _ => {
            let rotation = Rotation::parse(graph, nodes)?;
            FusedAccess { reads: rotation.reads(graph), writes: rotation.writes(), replaced: None }
        }
    })
}

pub(super) fn overwrites(
    editor: &StepEditor<'_>,
    replaced: TensorId,
    reads: &[TensorId],
    writes: &[TensorId],
) -> Vec<Overwrite> {
    let desc = |id: TensorId| &editor.segment.graph.tensor(id).desc;
    let ([output], Some(read)) = (writes, reads.iter().position(|read| *read == replaced)) else {
        return Vec::new();
    };
    let root = editor.root(replaced);
    // Other operands are read by all threads.
    let once = reads.iter().filter(|other| editor.root(**other) == root).count() == 1;
    let fits = once && desc(replaced) == desc(*output);
    fits.then_some(Overwrite { write: 0, read }).into_iter().collect()
}
