use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::Error as AllocError;
use orlop_backend::{Bindings, Buffer, Program, Slot, StoredTensor, Touch, Value};
use orlop_graph::{AccessKind, DType, TensorDesc, TensorId};

use crate::session::{Prepared, failed, unbound};
use crate::{Error, Session};

/// What depends on addresses.
pub(crate) struct Compiled {
    pub(crate) programs: Vec<Arc<dyn Program>>,
    /// Source and destination of each copy that a run makes.
    pub(crate) copies: Vec<Option<(StoredTensor, StoredTensor)>>,
    /// Every buffer once.
    pub(crate) touches: Vec<Touch>,
    /// The observed result of each split.
    pub(crate) observed: Vec<Option<StoredTensor>>,
}

/// The buffers that a run touches, each once, however many splits do.
#[derive(Default)]
struct Touches {
    list: Vec<Touch>,
    /// Position in the list, by the address of the buffer's gate.
    known: HashMap<usize, usize>,
}

impl Touches {
    fn add(&mut self, buffer: &Arc<dyn Buffer>, kind: AccessKind) {
        let position = *self.known.entry(Arc::as_ptr(buffer.gate()).addr()).or_insert(self.list.len());
        match self.list.get_mut(position) {
            Some((_, known)) if kind == AccessKind::Write => *known = kind,
            Some(_) => {}
            None => self.list.push((Arc::clone(buffer), kind)),
        }
    }
}

impl Session {
    /// Programs and copies at the places that the arenas have now.
    pub(crate) fn compile(&self, prepared: &Prepared) -> Result<Compiled, Error> {
        let mut copies = Vec::with_capacity(prepared.schedule.copies.len());
        let mut touches = Touches::default();
        for (index, copy) in prepared.schedule.copies.iter().enumerate() {
            if prepared.resident.contains_key(&index) {
                copies.push(None);
                continue;
            }
            let source = match prepared.memory.tensor(copy.root) {
                Some(_) => self.in_arena(prepared, copy.root)?,
                None => prepared.outside(copy.root)?,
            };
            let from = part(Some(&source), copy)?;
            let slot = self.slot(prepared.memory.copy(index)).ok_or_else(|| unbound(&copy.name))?;
            let to = StoredTensor::new(copy.name.as_str(), *from.desc(), slot).map_err(AllocError::from)?;
            touches.add(&from.slot().buffer, AccessKind::Read);
            touches.add(&to.slot().buffer, AccessKind::Write);
            copies.push(Some((from, to)));
        }
        let mut programs = Vec::with_capacity(prepared.schedule.splits.len());
        for (index, (part, steps)) in prepared.schedule.splits.iter().zip(&prepared.steps).enumerate() {
            let device = self.machine.device(part.device);
            let bindings = self.bindings(prepared, index)?;
            let program =
                device.compile(steps, &bindings).map_err(|source| failed(device.name(), index, source))?;
            program.touches().iter().for_each(|(buffer, kind)| touches.add(buffer, *kind));
            programs.push(program);
        }
        let observed = |part: &crate::Split| match part.observed {
            Some(id) if prepared.memory.tensor(id).is_some() => self.in_arena(prepared, id).map(Some),
            Some(id) => prepared.outside(id).map(Some),
            None => Ok(None),
        };
        let observed = prepared.schedule.splits.iter().map(observed).collect::<Result<_, _>>()?;
        Ok(Compiled { programs, copies, touches: touches.list, observed })
    }

    pub(crate) fn bindings(&self, prepared: &Prepared, split: usize) -> Result<Bindings, Error> {
        let (graph, part, steps) =
            (&prepared.graph, &prepared.schedule.splits[split], &prepared.steps[split]);
        let mut tensors: HashMap<TensorId, Slot> = HashMap::new();
        for value in steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes)) {
            let Value::Tensor(id) = value else { continue };
            if tensors.contains_key(id) {
                continue;
            }
            let slot = match part.reads_copy.get(id) {
                Some(copy) => match prepared.resident.get(copy) {
                    Some(number) => Some(self.residents.stored(*number).slot().clone()),
                    None => self.slot(prepared.memory.copy(*copy)),
                },
                None => match prepared.memory.tensor(*id) {
                    Some(spot) => self.slot(Some(spot)),
                    None => Some(prepared.outside(*id)?.slot().clone()),
                },
            };
            let slot = slot.ok_or_else(|| unbound(&graph.tensor(*id).name))?;
            let desc = &graph.tensor(*id).desc;
            let ready = slot.buffer.init_tensor(desc, slot.offset);
            ready.map_err(|source| failed(self.machine.name(part.device), split, source))?;
            tensors.insert(*id, slot);
        }
        let temporary = |(number, temporary): (usize, &orlop_backend::Temporary)| {
            let slot = self.slot(prepared.memory.temporary(split, number));
            slot.ok_or_else(|| unbound(&temporary.name))
        };
        let temporaries = steps.temporaries.iter().enumerate().map(temporary).collect::<Result<_, _>>()?;
        Ok(Bindings { graph: Arc::clone(graph), tensors, temporaries })
    }
}

/// The bytes of a storage that a copy brings over, as a tensor.
pub(crate) fn part(whole: Option<&StoredTensor>, copy: &crate::Copy) -> Result<StoredTensor, Error> {
    let whole = whole.ok_or_else(|| unbound(&copy.name))?;
    let bytes = TensorDesc::contiguous(DType::I8, &[copy.range.end - copy.range.start]);
    let desc = bytes.map_err(|source| {
        AllocError::Graph(orlop_graph::GraphError::Leaf { name: copy.name.clone(), source: source.into() })
    })?;
    let slot = Slot { offset: whole.slot().offset + copy.range.start, ..whole.slot().clone() };
    Ok(StoredTensor::new(copy.name.as_str(), desc, slot).map_err(AllocError::from)?)
}
