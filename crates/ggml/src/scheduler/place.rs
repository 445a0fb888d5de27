//! Which backend computes each tensor: ggml's rules, as a function of a graph and of what backends can do. Results are bit for
//! bit the program's own only if every operation runs where it would.

use crate::error::Error;
use crate::graph_tensors::GraphTensors;

/// A type of buffers, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferKind(pub(crate) usize);

/// What decides where a tensor is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorFacts {
    pub(crate) kind: OpKind,
    pub(crate) is_input: bool,
    /// The memory that it, or the root of a view, already has.
    pub(crate) memory: Option<Memory>,
    /// It has weights in a buffer of its own.
    pub(crate) is_weight: bool,
}

/// Memory that a tensor already has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) kind: BufferKind,
    pub(crate) is_host: bool,
}

/// What matters about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// Another view of its operand: nothing is computed.
    Alias,
    /// Its weights are too small to decide where it runs.
    SmallWeights,
    /// A product with those of several matrices that the third operand names.
    Experts,
    /// Any other.
    Other,
}

/// What the backends of a scheduler can do. The first is preferred; the last is the CPU.
pub(crate) trait Backends {
    fn count(&self) -> usize;

    /// The buffers of a backend.
    fn kind(&self, backend: usize) -> BufferKind;

    /// Whether a backend computes a tensor.
    fn runs(&self, backend: usize, tensor: u32) -> bool;

    /// Whether a backend reads buffers of this kind.
    fn reads(&self, backend: usize, kind: BufferKind) -> bool;

    /// Whether a backend asks for an operation whose weights are in the CPU's memory.
    fn takes_over(&self, backend: usize, tensor: u32) -> bool;
}

/// A graph, and what is known about its tensors and the backends.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) graph: &'a GraphTensors,
    pub(crate) facts: &'a [TensorFacts],
    pub(crate) backends: &'a dyn Backends,
}

impl Scene<'_> {
    /// Whether a backend reads a tensor where it is, or will be.
    pub(crate) fn can_read(&self, backend: usize, tensor: u32, home: Option<usize>) -> bool {
        let memory = self.facts[tensor as usize].memory.map(|memory| memory.kind);
        let kind = memory.or(home.map(|home| self.backends.kind(home)));
        kind.is_some_and(|kind| self.backends.reads(backend, kind))
    }

    pub(crate) fn is_alias(&self, tensor: u32) -> bool {
        self.facts[tensor as usize].kind == OpKind::Alias
    }
}

/// The backend of each tensor that a graph computes or reads; `given` has the user's choices.
pub(crate) fn place(
    scene: Scene<'_>,
    given: Vec<Option<usize>>,
    offload: bool,
) -> Result<Vec<Option<usize>>, Error> {
    let mut placing = Placing { scene, offload, homes: given };
    placing.by_location()?;
    placing.spread();
    placing.prefer_first();
    placing.follow()?;
    Ok(placing.homes)
}

struct Placing<'a> {
    scene: Scene<'a>,
    offload: bool,
    homes: Vec<Option<usize>>,
}

impl Placing<'_> {
    fn home(&self, tensor: u32) -> Option<usize> {
        self.homes[tensor as usize]
    }

    fn runs(&self, backend: usize, tensor: u32) -> bool {
        self.scene.backends.runs(backend, tensor)
    }

    /// The last backend, the CPU.
    fn last(&self) -> usize {
        self.scene.backends.count() - 1
    }

    /// Tensors that have memory, inputs, and operations with weights.
    fn by_location(&mut self) -> Result<(), Error> {
        let graph = self.scene.graph;
        for leaf in &graph.leaves {
            self.locate(*leaf, std::iter::empty())?;
        }
        for (step, node) in graph.nodes.iter().enumerate() {
            self.locate(*node, graph.reads(step))?;
        }
        Ok(())
    }

    fn locate(&mut self, tensor: u32, sources: impl Iterator<Item = u32>) -> Result<(), Error> {
        if self.home(tensor).is_some() {
            return Ok(());
        }
        let home = match self.scene.facts[tensor as usize] {
            TensorFacts { memory: Some(memory), .. } => {
                let found = self.first_at(memory, tensor);
                let name = || self.scene.graph.tensors[tensor as usize].name();
                Some(found.ok_or_else(|| Error::NoBackend { tensor: name() })?)
            }
            TensorFacts { is_input: true, .. } => Some(self.last()),
            TensorFacts { kind: OpKind::SmallWeights, .. } => None,
            _ => self.at_weights(tensor, sources),
        };
        self.homes[tensor as usize] = home;
        Ok(())
    }

    /// The first backend that reads this memory and computes the tensor.
    fn first_at(&self, memory: Memory, tensor: u32) -> Option<usize> {
        let backends = self.scene.backends;
        (0..backends.count())
            .find(|backend| backends.reads(*backend, memory.kind) && self.runs(*backend, tensor))
    }

    /// The backend at the first operand with weights, or one that takes the operation over from the CPU.
    fn at_weights(&self, tensor: u32, mut sources: impl Iterator<Item = u32>) -> Option<usize> {
        let facts = |source: u32| &self.scene.facts[source as usize];
        let weights = sources.find(|source| facts(*source).is_weight)?;
        let memory = facts(weights).memory?;
        let home = self.first_at(memory, tensor);
        let takes =
            |backend: &usize| self.runs(*backend, tensor) && self.scene.backends.takes_over(*backend, tensor);
        let on_cpu = self.offload && memory.is_host && home == Some(self.last());
        let taken = on_cpu.then(|| (0..self.last()).find(takes)).flatten();
        taken.or(home)
    }

    /// Nodes without a backend join their neighbours: first those of devices, down and up, then all.
    fn spread(&mut self) {
        let last = self.last();
        let (graph, scene) = (self.scene.graph, self.scene);
        let computed = || graph.nodes.iter().filter(|node| !scene.is_alias(**node));
        for skips_cpu in [true, false] {
            let carried = |home: usize| (!skips_cpu || home != last).then_some(home);
            self.sweep(computed(), carried);
            self.sweep(computed().rev(), carried);
        }
    }

    fn sweep<'n>(&mut self, nodes: impl Iterator<Item = &'n u32>, carried: impl Fn(usize) -> Option<usize>) {
        let mut current = None;
        for node in nodes {
            match (self.home(*node), current) {
                (Some(home), _) => current = carried(home),
                (None, Some(backend)) if self.runs(backend, *node) => {
                    self.homes[*node as usize] = Some(backend);
                }
                _ => {}
            }
        }
    }

    /// A node moves to an earlier backend with equal buffers that reads all its operands; one that no neighbour's backend
    /// computes runs where most of its operands can be read.
    fn prefer_first(&mut self) {
        let backends = self.scene.backends;
        for (step, node) in self.scene.graph.nodes.iter().enumerate() {
            if self.scene.is_alias(*node) {
                continue;
            }
            let sources = || self.scene.graph.reads(step);
            self.homes[*node as usize] = match self.home(*node) {
                Some(home) => {
                    let mut earlier =
                        (0..home).filter(|earlier| backends.kind(*earlier) == backends.kind(home));
                    let better = earlier.find(|earlier| {
                        self.runs(*earlier, *node) && sources().all(|source| self.is_near(*earlier, source))
                    });
                    better.or(Some(home))
                }
                None => {
                    let near = |backend: usize| {
                        let placed = |source: &u32| self.home(*source).or(self.root_home(*source)).is_some();
                        sources().filter(placed).filter(|source| self.is_near(backend, *source)).count()
                    };
                    let able = (0..backends.count()).filter(|backend| self.runs(*backend, *node));
                    // Of equals, the first.
                    let best = able.map(|backend| (near(backend), std::cmp::Reverse(backend))).max();
                    best.map(|(_, backend)| backend.0)
                }
            };
        }
    }

    fn root_home(&self, tensor: u32) -> Option<usize> {
        let root = self.scene.graph.roots[tensor as usize];
        if root == tensor { None } else { self.home(root) }
    }

    fn is_near(&self, backend: usize, tensor: u32) -> bool {
        self.scene.can_read(backend, tensor, self.home(tensor).or(self.root_home(tensor)))
    }

    /// The first backend that reads the memory that a tensor already has.
    fn nearest(&self, tensor: u32) -> Option<usize> {
        let memory = self.scene.facts[tensor as usize].memory?;
        (0..self.scene.backends.count()).find(|backend| self.scene.backends.reads(*backend, memory.kind))
    }

    /// What is left: views follow their roots, operands the first node that reads them.
    fn follow(&mut self) -> Result<(), Error> {
        let graph = self.scene.graph;
        for (step, node) in graph.nodes.iter().enumerate() {
            let mut home = self.home(*node).or(self.root_home(*node));
            self.homes[*node as usize] = home;
            for source in graph.reads(step) {
                if self.home(source).is_none() {
                    let follows = if graph.is_view(source) { self.root_home(source) } else { home };
                    self.homes[source as usize] = self.nearest(source).or(follows);
                }
            }
            home =
                home.or_else(|| (0..self.scene.backends.count()).find(|backend| self.runs(*backend, *node)));
            let name = || graph.tensors[*node as usize].name();
            self.homes[*node as usize] = Some(home.ok_or_else(|| Error::NoBackend { tensor: name() })?);
        }
        Ok(())
    }
}
