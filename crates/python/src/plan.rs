//! Plans of buffers with lifetimes.

use orlop::plan::{PlanError, Strategy, verify};
use orlop::view::Picture;
use orlop::{BufferSpec, Plan, Problem, SolveOptions, solve};
use pyo3::prelude::*;

use crate::error::{bad_value, raised};
use crate::picture::Pictures;

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BufferPlan>()?;
    module.add_function(wrap_pyfunction!(plan_buffers, module)?)
}

/// Where each buffer lies.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct BufferPlan {
    plan: Plan,
    pictures: Pictures,
}

/// Plans buffers of these sizes and alignments that are live from step `lower` to before step `upper`.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // columns of a table, and options by name
fn plan_buffers(
    py: Python<'_>,
    names: Vec<String>,
    sizes: Vec<u64>,
    lower: Vec<u64>,
    upper: Vec<u64>,
    aligns: Vec<u64>,
    capacity: Option<u64>,
    strategy: &str,
    effort: Option<u64>,
) -> PyResult<BufferPlan> {
    let count = sizes.len();
    if [names.len(), lower.len(), upper.len(), aligns.len()].iter().any(|other| *other != count) {
        return Err(bad_value("the columns of a problem must have the same length"));
    }
    let known: Strategy = strategy.parse().map_err(bad_value)?;
    py.detach(|| {
        let mut problem = Problem { capacity, ..Problem::default() };
        for index in 0..count {
            let spec = BufferSpec::new(sizes[index], aligns[index], lower[index]..upper[index]);
            problem.push(spec).map_err(raised)?;
        }
        let defaults = SolveOptions::with(known);
        let plan = solve(&problem, &SolveOptions { effort: effort.unwrap_or(defaults.effort), ..defaults });
        let plan = plan.map_err(|error: PlanError| raised(error))?;
        verify(&problem, &plan).map_err(raised)?;
        let name = |index: usize| names.get(index).cloned().unwrap_or_default();
        let picture = Picture::of_problem("buffers", &problem, &plan, name);
        Ok(BufferPlan { plan, pictures: Pictures(vec![picture]) })
    })
}

#[pymethods]
impl BufferPlan {
    #[getter]
    fn offsets(&self) -> Vec<u64> {
        self.plan.places.iter().map(|place| place.offset).collect()
    }

    #[getter]
    fn peak(&self) -> u64 {
        self.plan.peak
    }

    #[getter]
    fn bound(&self) -> u64 {
        self.plan.bound
    }

    #[getter]
    fn optimal(&self) -> bool {
        self.plan.optimal
    }

    #[getter]
    fn strategy(&self) -> &'static str {
        self.plan.strategy.name()
    }

    fn html(&self) -> PyResult<String> {
        self.pictures.html()
    }

    fn svg(&self) -> PyResult<String> {
        self.pictures.svg()
    }

    fn beside(&self, other: &BufferPlan) -> PyResult<(String, String)> {
        self.pictures.beside(&other.pictures)
    }
}
