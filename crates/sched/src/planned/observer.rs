//! Watching what is planned: how often, and which graphs.

use std::fmt;
use std::sync::Arc;

use orlop_graph::Graph;

type Observe = dyn Fn(&Graph) + Send + Sync;

/// Is told of every graph that is planned, before it is. Default: nothing listens.
#[derive(Clone, Default)]
pub struct PlanObserver(Option<Arc<Observe>>);

impl PlanObserver {
    /// An observer that calls a function.
    pub fn new(observe: impl Fn(&Graph) + Send + Sync + 'static) -> PlanObserver {
        PlanObserver(Some(Arc::new(observe)))
    }

    pub(crate) fn planning(&self, graph: &Graph) {
        if let Some(observe) = &self.0 {
            observe(graph);
        }
    }
}

impl fmt::Debug for PlanObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlanObserver").field(&self.0.is_some()).finish()
    }
}
