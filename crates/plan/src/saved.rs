//! Plans that outlive the process that made them.

use crate::{Plan, Problem, Signature, Violation, verify};

/// A plan and the signature of the problem that it is a plan of.
///
/// ```
/// use orlop_plan::{Buffer, Options, Problem, SavedPlan, SavedPlanError, solve};
/// let mut problem = Problem::default();
/// problem.push(Buffer::new(256, 64, 0..2))?;
/// let saved = SavedPlan::new(&problem, solve(&problem, &Options::default())?);
/// assert_eq!(saved.clone().open(&problem).map(|plan| plan.peak), Ok(256));
///
/// problem.push(Buffer::new(128, 64, 1..2))?;
/// assert!(matches!(saved.open(&problem), Err(SavedPlanError::Other { .. })));
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedPlan {
    /// Of the problem.
    pub signature: Signature,
    /// The plan.
    pub plan: Plan,
}

/// Why a saved plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// It was made for another problem.
    #[error("the plan was made for a problem with signature {planned}, this one has {given}")]
    Other {
        /// The signature in the plan.
        planned: Signature,
        /// That of the problem at hand.
        given: Signature,
    },
    /// The signature is right but the plan is not: somebody changed it.
    #[error("the plan is damaged")]
    Damaged(#[source] Violation),
}

impl SavedPlan {
    /// A plan of `problem`, to be kept.
    pub fn new(problem: &Problem, plan: Plan) -> Self {
        Self { signature: problem.signature(), plan }
    }

    /// The plan, if it is one of `problem`, whose capacity does not matter.
    ///
    /// # Errors
    /// [`SavedPlanError::Other`] for another problem, [`SavedPlanError::Damaged`] if [`verify`] objects.
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
