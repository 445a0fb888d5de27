//! Inputs and results as Rust numbers, and weights from slices.

use orlop_alloc::Externals;
use orlop_backend::{DeviceError, RunOptions};
use orlop_graph::{DType, Element, Graph, TensorId};

use crate::{Error, PlanId, Session};

impl Session {
    /// Weights with these contents, by name, in memory of the first device.
    ///
    /// # Errors
    /// As [`Externals::from_slices`].
    pub fn upload<T: Element>(&self, graph: &Graph, slices: &[(&str, &[T])]) -> Result<Externals, Error> {
        let first = self.machine.indices().next().unwrap_or_default();
        Ok(Externals::from_slices(graph, self.machine.arena(first), slices)?)
    }

    /// [`Session::set`] with numbers of the input's element type.
    ///
    /// # Errors
    /// [`DeviceError::WrongType`], and as there.
    pub fn set_values<T: Element>(
        &mut self,
        plan: PlanId,
        input: TensorId,
        values: &[T],
    ) -> Result<(), Error> {
        self.check_type(plan, input, T::DTYPE)?;
        self.set(plan, input, &T::to_bytes(values))
    }

    /// [`Session::get`] as numbers of the output's element type.
    ///
    /// # Errors
    /// [`DeviceError::WrongType`], and as there.
    pub fn get_values<T: Element>(&self, plan: PlanId, output: TensorId) -> Result<Vec<T>, Error> {
        let bytes = self.check_type(plan, output, T::DTYPE)?;
        let mut contents = vec![0; bytes as usize];
        self.get(plan, output, &mut contents)?;
        Ok(T::from_bytes(&contents))
    }

    /// [`Session::set_values`] of F32.
    ///
    /// # Errors
    /// As there.
    pub fn set_f32(&mut self, plan: PlanId, input: TensorId, values: &[f32]) -> Result<(), Error> {
        self.set_values(plan, input, values)
    }

    /// [`Session::get_values`] of F32.
    ///
    /// # Errors
    /// As there.
    pub fn get_f32(&self, plan: PlanId, output: TensorId) -> Result<Vec<f32>, Error> {
        self.get_values(plan, output)
    }

    /// Sets inputs, runs, and gives an output: [`Session::set_f32`], [`Session::run`] and [`Session::get_f32`].
    ///
    /// # Errors
    /// As there.
    pub fn run_f32(
        &mut self,
        plan: PlanId,
        inputs: &[(TensorId, &[f32])],
        output: TensorId,
    ) -> Result<Vec<f32>, Error> {
        for (input, values) in inputs {
            self.set_f32(plan, *input, values)?;
        }
        self.run(plan, &RunOptions::default())?;
        self.get_f32(plan, output)
    }

    /// [`Session::set_values`] of I32, such as row indices.
    ///
    /// # Errors
    /// As there.
    pub fn set_i32(&mut self, plan: PlanId, input: TensorId, values: &[i32]) -> Result<(), Error> {
        self.set_values(plan, input, values)
    }

    /// [`Session::get_values`] of I32.
    ///
    /// # Errors
    /// As there.
    pub fn get_i32(&self, plan: PlanId, output: TensorId) -> Result<Vec<i32>, Error> {
        self.get_values(plan, output)
    }

    /// The bytes of a tensor, if it has this element type.
    fn check_type(&self, plan: PlanId, id: TensorId, given: DType) -> Result<u64, Error> {
        let tensor = self.get_prepared(plan)?.tensor(id)?;
        let expected = tensor.desc.dtype;
        if given != expected {
            return Err(DeviceError::WrongType { tensor: tensor.name.clone(), expected, given }.into());
        }
        Ok(tensor.desc.bytes())
    }
}
