//! Tools for lowering: steps in the making, and the analysis that fusing them needs.
//!
//! A device begins with one step per node ([`StepEditor::new`]), lets its rules change [`StepEditor::steps`], and ends with
//! [`StepEditor::finish`]. What devices share is here: temporaries, the storage that values lie in, who reads a result, and
//! whether a step's work can be done later ([`FusionPass`]). Which kernels go together is each device's own knowledge.

use std::collections::HashSet;

use orlop_graph::{Origin, TensorId};

use crate::{Device, DeviceError, LowerOptions, Segment, Step, StepValue, Steps};

/// Most steps from one step to another that takes over its work: longer ones would keep its operands in memory for long.
const REACH: usize = 64;

/// Steps of a segment in the making.
#[derive(Debug)]
pub struct StepEditor<'a> {
    /// What is lowered.
    pub segment: &'a Segment<'a>,
    /// What it is lowered with.
    pub options: &'a LowerOptions,
    /// The steps so far, in order.
    pub steps: Vec<Step>,
    /// Names and bytes.
    temporaries: Vec<(String, u64)>,
    /// Storage of which something is read outside the segment.
    escaping: HashSet<TensorId>,
}

impl<'a> StepEditor<'a> {
    /// One step per node.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for the first node that the device refuses.
    pub fn new(
        device: &dyn Device,
        segment: &'a Segment<'a>,
        options: &'a LowerOptions,
    ) -> Result<StepEditor<'a>, DeviceError> {
        let Steps { steps, .. } = segment.one_step_per_node(device, options)?;
        let escapes = |id: &TensorId| segment.escapes.get(id.index()).copied().unwrap_or(true);
        let escaping = segment.graph.tensor_ids().filter(escapes);
        let escaping = escaping.map(|id| segment.graph.tensor(id).storage.root).collect();
        Ok(StepEditor { segment, options, steps, temporaries: Vec::new(), escaping })
    }

    /// The steps with their temporaries, each of which lives from the first step that touches it to the last.
    pub fn finish(self) -> Steps {
        Steps::new(self.options.clone(), self.steps, self.temporaries)
    }

    /// A new temporary.
    pub fn temporary(&mut self, name: String, bytes: u64) -> StepValue {
        self.temporaries.push((name, bytes));
        StepValue::Temporary(self.temporaries.len() - 1)
    }

    /// Makes a temporary as large as this, if it is smaller. Tensors of the graph stay what they are.
    pub fn grow(&mut self, temporary: StepValue, bytes: u64) {
        if let StepValue::Temporary(number) = temporary {
            let known = &mut self.temporaries[number].1;
            *known = bytes.max(*known);
        }
    }

    /// The storage that a tensor lies in.
    pub fn root(&self, id: TensorId) -> TensorId {
        self.segment.graph.tensor(id).storage.root
    }

    /// The storage of the tensors among values.
    pub fn roots(&self, values: &[StepValue]) -> Vec<TensorId> {
        let root = |value: &StepValue| match value {
            StepValue::Tensor(id) => Some(self.root(*id)),
            StepValue::Temporary(_) => None,
        };
        values.iter().filter_map(root).collect()
    }

    /// Whether something of a storage is read outside the segment.
    pub fn escapes(&self, root: TensorId) -> bool {
        self.escaping.contains(&root)
    }

    /// Goes through the steps in order and lets later ones take over the work of earlier ones. `fuse` is given the number of
    /// a step and says which later step does its work, and what that one becomes; the first is then removed.
    pub fn fuse(&mut self, fuse: impl Fn(&FusionPass<'_>, usize) -> Option<(usize, Step)>) {
        let mut readers = vec![Vec::new(); self.segment.graph.tensors().len()];
        for (index, step) in self.steps.iter().enumerate() {
            for root in self.roots(&step.reads) {
                readers[root.index()].push(index);
            }
        }
        let mut removed = vec![false; self.steps.len()];
        for index in 0..self.steps.len() {
            let pass = FusionPass { editor: self, readers: &readers, removed: &removed };
            let Some((later, fused)) = fuse(&pass, index) else { continue };
            for root in self.roots(&self.steps[index].reads) {
                let reads = readers[root.index()].iter_mut().filter(|step| **step == index);
                reads.for_each(|step| *step = later);
            }
            self.steps[later] = fused;
            removed[index] = true;
        }
        let mut removed = removed.into_iter();
        self.steps.retain(|_| removed.next() == Some(false));
    }
}

/// What [`StepEditor::fuse`] knows of the steps while it goes through them.
#[derive(Debug)]
pub struct FusionPass<'a> {
    editor: &'a StepEditor<'a>,
    /// For each storage, the steps that read it, with repeats.
    readers: &'a [Vec<usize>],
    removed: &'a [bool],
}

impl<'a> FusionPass<'a> {
    /// The steps, those included whose work others have taken over.
    pub fn editor(&self) -> &'a StepEditor<'a> {
        self.editor
    }

    /// The only step that reads what a step writes, if nothing outside the segment does and it follows closely.
    pub fn sole_reader(&self, index: usize) -> Option<usize> {
        let mut found = None;
        for value in &self.editor.steps[index].writes {
            let StepValue::Tensor(result) = value else { return None };
            let tensor = self.editor.segment.graph.tensor(*result);
            let own = tensor.storage.root == *result && matches!(tensor.origin, Origin::Node(_));
            let readers = &self.readers[result.index()];
            let reader = *readers.first()?;
            let alone =
                readers.iter().all(|other| *other == reader) && found.is_none_or(|found| found == reader);
            if !own || self.editor.escapes(*result) || !alone || reader <= index {
                return None;
            }
            found = Some(reader);
        }
        found.filter(|reader| reader - index <= REACH)
    }

    /// Whether a step's work can be done where a later one's is: no step between them reads or writes what it writes, or
    /// writes what it reads, and neither does the later one write what it reads.
    pub fn can_wait(&self, index: usize, later: usize) -> bool {
        let editor = self.editor;
        let step = &editor.steps[index];
        let (reads, writes) = (editor.roots(&step.reads), editor.roots(&step.writes));
        let clash = |values: &[StepValue], roots: &[TensorId]| {
            editor.roots(values).iter().any(|root| roots.contains(root))
        };
        let mut between =
            (index + 1..later).filter(|step| !self.removed[*step]).map(|step| &editor.steps[step]);
        !between.any(|step| {
            clash(&step.reads, &writes) || clash(&step.writes, &writes) || clash(&step.writes, &reads)
        }) && !clash(&editor.steps[later].writes, &reads)
    }
}
