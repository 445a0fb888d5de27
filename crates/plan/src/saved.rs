//! Plans saved for later runs.

use crate::{Plan, Problem, Signature, Violation, verify};

/// A plan and the signature of its problem.
///
/// ```
/// use orlop_plan::{BufferSpec, Problem, SavedPlan, SavedPlanError, SolveOptions, solve};
/// let mut problem = Problem::default();
/// problem.push(BufferSpec::new(256, 64, 0..2))?;
/// let saved = SavedPlan::new(&problem, solve(&problem, &SolveOptions::default())?);
/// assert_eq!(saved.clone().open(&problem).map(|plan| plan.peak), Ok(256));
///
/// problem.push(BufferSpec::new(128, 64, 1..2))?;
/// assert!(matches!(saved.open(&problem), Err(SavedPlanError::Other { .. })));
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedPlan {
    /// The problem's signature.
    pub signature: Signature,
    /// The plan.
    pub plan: Plan,
}

/// A saved plan cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// The plan was made for another problem.
    #[error("the plan was made for a problem with signature {planned}, this one has {given}")]
    Other {
        /// The signature in the plan.
        planned: Signature,
        /// The signature of the given problem.
        given: Signature,
    },
    /// The signature matches, but the plan is invalid.
    #[error("the plan is damaged")]
    Damaged(#[source] Violation),
}

impl SavedPlan {
    /// Pairs a plan with the signature of `problem`.
    pub fn new(problem: &Problem, plan: Plan) -> Self {
        Self { signature: problem.signature(), plan }
    }

    /// The plan, if it was made for `problem`. The capacity is ignored.
    ///
    /// # Errors
    /// [`SavedPlanError::Other`] for another problem, [`SavedPlanError::Damaged`] if [`verify`] fails.
    pub fn open(self, problem: &Problem) -> Result<Plan, SavedPlanError> {
        let given = problem.signature();
        if self.signature != given {
            return Err(SavedPlanError::Other { planned: self.signature, given });
        }
        let problem = Problem { capacity: None, ..problem.clone() };
        verify(&problem, &self.plan).map_err(SavedPlanError::Damaged)?;
        Ok(self.plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, SolveOptions, solve};

    #[test]
    fn a_plan_that_was_tampered_with_is_refused() {
        let problem = Problem { buffers: vec![BufferSpec::new(8, 1, 0..2); 2], ..Problem::default() };
        let mut saved = SavedPlan::new(&problem, solve(&problem, &SolveOptions::default()).unwrap());
        assert!(saved.clone().open(&problem).is_ok());
        saved.plan.places[1] = saved.plan.places[0];
        assert!(matches!(saved.open(&problem), Err(SavedPlanError::Damaged(_))));
    }
}
