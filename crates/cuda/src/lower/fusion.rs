//! Steps that become one: with the step that reads their result, so that it exists nowhere in memory, or with a neighbour
//! that reads the same.

use orlop_backend::{Overwrite, Step, StepValue};
use orlop_graph::{NodeId, Origin, TensorId};

use super::Draft;
use crate::kernels::{
    DECODE, EIGHT_BIT, ROTATE, RotatedAttention, Rotation, SCALED_NORM, ScaledNorm, TILES, TileProduct,
    VECTOR, VectorProducts,
};

/// How far apart two steps may be that become one.
const REACH: usize = 64;

/// Steps before and after: what kernels one step does the work of.
struct Rule {
    first: &'static [&'static str],
    second: &'static [&'static str],
    /// The second reads what the first writes, and nobody else does; or they have nothing to do with each other.
    feeds: bool,
    kernel: &'static str,
}

const GATES: &[&str] = &["reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu"];

/// In the order in which they are tried.
const RULES: [Rule; 9] = [
    Rule { first: &["rms_norm", "norm"], second: &["mul"], feeds: true, kernel: SCALED_NORM },
    Rule { first: &[SCALED_NORM], second: &["add"], feeds: true, kernel: SCALED_NORM },
    Rule { first: &[VECTOR], second: &["add"], feeds: true, kernel: VECTOR },
    Rule { first: &[TILES], second: &["add"], feeds: true, kernel: TILES },
    Rule { first: &[EIGHT_BIT], second: &["add"], feeds: true, kernel: EIGHT_BIT },
    Rule { first: &["rope"], second: &["set_rows"], feeds: true, kernel: ROTATE },
    // Neighbours.
    Rule { first: &[VECTOR], second: &[VECTOR], feeds: false, kernel: VECTOR },
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

pub(super) fn fuse(draft: &mut Draft<'_>) {
    for rule in RULES.iter().chain([&NORM_INTO_PRODUCTS]) {
        apply(draft, rule);
    }
    attend_at_once(draft);
}

/// Attention of one token right behind the rotation that it reads turns the heads by itself.
fn attend_at_once(draft: &mut Draft<'_>) {
    let graph = draft.segment.graph;
    let mut index = 0;
    while index + 1 < draft.steps.len() {
        let [first, second] = [&draft.steps[index], &draft.steps[index + 1]];
        let nodes = [&first.nodes[..], &second.nodes].concat();
        let fits = first.kernel == ROTATE && second.kernel == "flash_attention";
        let parsed =
            if fits { RotatedAttention::parse(graph, &nodes, draft.options.precision) } else { None };
        let alone = |attention: &RotatedAttention| {
            let queries = attention.queries();
            let readers = draft.steps.iter().filter(|step| draft.roots(&step.reads).contains(&queries));
            // As where sinks are some of them.
            let again = attention.reads(graph).into_iter().any(|read| draft.root(read) == queries);
            let early: Vec<StepValue> =
                attention.reads_early(graph).into_iter().map(StepValue::Tensor).collect();
            let early = draft.roots(&early);
            let others = draft.steps.iter().enumerate().filter(|(other, _)| *other != index);
            let mut written = others.flat_map(|(_, step)| draft.roots(&step.writes));
            !draft.seen.contains(&queries)
                && readers.count() == 1
                && !again
                && !written.any(|root| early.contains(&root))
        };
        if let Some(attention) = parsed.filter(alone) {
            let values = |ids: Vec<TensorId>| ids.into_iter().map(StepValue::Tensor).collect();
            draft.steps[index + 1] = Step {
                kernel: DECODE.into(),
                nodes,
                reads: values(attention.reads(graph)),
                writes: values(attention.writes(graph)),
                may_overwrite: Vec::new(),
            };
            draft.steps.remove(index);
        }
        index += 1;
    }
}

fn apply(draft: &mut Draft<'_>, rule: &Rule) {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); draft.segment.graph.tensors().len()];
    for (index, step) in draft.steps.iter().enumerate() {
        for root in draft.roots(&step.reads) {
            readers[root.index()].push(index);
        }
    }
    let mut gone = vec![false; draft.steps.len()];
    for index in 0..draft.steps.len() {
        if !rule.first.contains(&&*draft.steps[index].kernel) {
            continue;
        }
        let other =
            if rule.feeds { sole_reader(draft, &readers, index) } else { neighbour(draft, rule, index) };
        let Some(other) = other.filter(|other| rule.second.contains(&&*draft.steps[*other].kernel)) else {
            continue;
        };
        if !can_wait(draft, &gone, index, other) {
            continue;
        }
        let Some(fused) = together(draft, rule, index, other) else { continue };
        for root in draft.roots(&draft.steps[index].reads) {
            readers[root.index()].iter_mut().filter(|step| **step == index).for_each(|step| *step = other);
        }
        draft.steps[other] = fused;
        gone[index] = true;
    }
    let mut gone = gone.into_iter();
    draft.steps.retain(|_| gone.next() == Some(false));
}

/// The only step that reads what a step writes, if nobody else sees it.
fn sole_reader(draft: &Draft<'_>, readers: &[Vec<usize>], index: usize) -> Option<usize> {
    let mut found = None;
    for value in &draft.steps[index].writes {
        let StepValue::Tensor(result) = value else { return None };
        let tensor = draft.segment.graph.tensor(*result);
        let own = tensor.storage.root == *result && matches!(tensor.origin, Origin::Node(_));
        let readers = &readers[result.index()];
        let reader = *readers.first()?;
        let alone = readers.iter().all(|other| *other == reader) && found.is_none_or(|found| found == reader);
        if !own || draft.seen.contains(result) || !alone || reader <= index {
            return None;
        }
        found = Some(reader);
    }
    found.filter(|reader| reader - index <= REACH)
}

/// The next step that a rule would join this one with.
fn neighbour(draft: &Draft<'_>, rule: &Rule, index: usize) -> Option<usize> {
    let after = index + 1..(index + 4).min(draft.steps.len());
    after.into_iter().find(|other| rule.second.contains(&&*draft.steps[*other].kernel))
}

/// Whether a step's work can be done where a later one's is: nothing between reads or writes what it writes, or writes what
/// it reads; and the later one, unless it is fed by it, neither.
fn can_wait(draft: &Draft<'_>, gone: &[bool], index: usize, other: usize) -> bool {
    let step = &draft.steps[index];
    let (reads, writes) = (draft.roots(&step.reads), draft.roots(&step.writes));
    let clash = |values: &[StepValue], roots: &[TensorId]| {
        draft.roots(values).iter().any(|root| roots.contains(root))
    };
    let mut between = (index + 1..other).filter(|step| !gone[*step]).map(|step| &draft.steps[step]);
    !between.any(|step| {
        clash(&step.reads, &writes) || clash(&step.writes, &writes) || clash(&step.writes, &reads)
    }) && !clash(&draft.steps[other].writes, &reads)
}

fn together(draft: &Draft<'_>, rule: &Rule, index: usize, other: usize) -> Option<Step> {
    let (first, second) = (&draft.steps[index], &draft.steps[other]);
    if !rule.feeds {
        // Neither may read what the other writes.
        let (reads, writes) = (draft.roots(&second.reads), draft.roots(&first.writes));
        if reads.iter().any(|root| writes.contains(root)) {
            return None;
        }
    }
    let nodes = [&first.nodes[..], &second.nodes].concat();
    let Touched { reads, writes, replaced } = touched(draft, rule.kernel, &nodes)?;
    // What exists nowhere cannot be read, as where the second step takes it twice.
    let unwritten =
        draft.roots(&first.writes).into_iter().filter(|root| rule.feeds && !writes.contains(root));
    if unwritten.into_iter().any(|gone| reads.iter().any(|read| draft.root(*read) == gone)) {
        return None;
    }
    let may_overwrite = replaced.map_or_else(Vec::new, |id| overwrites(draft, id, &reads, &writes));
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
struct Touched {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    /// What its only result may take the place of: it is read only where, and before, the result is written.
    replaced: Option<TensorId>,
}

/// What nodes touch as one step of a kernel, if it takes them.
fn touched(draft: &Draft<'_>, kernel: &str, nodes: &[NodeId]) -> Option<Touched> {
    let graph = draft.segment.graph;
    Some(match kernel {
        SCALED_NORM => {
            let norm = ScaledNorm::parse(graph, nodes)?;
            let reads = [Some(norm.x), Some(norm.weight), norm.bias].into_iter().flatten().collect();
            Touched { reads, writes: vec![norm.output], replaced: Some(norm.x) }
        }
        VECTOR => {
            let products = VectorProducts::parse(graph, nodes)?;
            let replaced = if let [part] = products.parts[..] { part.sum } else { None };
            Touched { reads: products.reads(), writes: products.writes(), replaced }
        }
        TILES | EIGHT_BIT => {
            let TileProduct { x, part } = TileProduct::parse(graph, nodes)?;
            let reads = [Some(part.matrix), Some(x), part.sum].into_iter().flatten().collect();
            Touched { reads, writes: vec![part.output], replaced: part.sum }
        }
        _ => {
            let rotation = Rotation::parse(graph, nodes)?;
            Touched { reads: rotation.reads(graph), writes: rotation.writes(), replaced: None }
        }
    })
}

fn overwrites(
    draft: &Draft<'_>,
    replaced: TensorId,
    reads: &[TensorId],
    writes: &[TensorId],
) -> Vec<Overwrite> {
    let desc = |id: TensorId| &draft.segment.graph.tensor(id).desc;
    let ([output], Some(read)) = (writes, reads.iter().position(|read| *read == replaced)) else {
        return Vec::new();
    };
    let root = draft.root(replaced);
    // Other operands are read by everybody.
    let once = reads.iter().filter(|other| draft.root(**other) == root).count() == 1;
    let fits = once && desc(replaced) == desc(*output);
    fits.then_some(Overwrite { write: 0, read }).into_iter().collect()
}
