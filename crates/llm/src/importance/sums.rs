//! Collecting importance data, and writing it as `llama-imatrix` does.

use std::collections::BTreeMap;
use std::path::Path;

use orlop_gguf::{Array, Strings, Writer};
use orlop_graph::DType;

use super::{COUNTS, SUMS};
use crate::Error;

/// Sums of squares of what each matrix was multiplied with ([`Engine::importance`](crate::Engine::importance)).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportanceSums {
    matrices: BTreeMap<String, MatrixSums>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct MatrixSums {
    /// A sum for each column; experts after one another.
    squares: Vec<f64>,
    /// Tokens; of each expert, for matrices that have some.
    counts: Vec<u64>,
}

/// The squares of what experts are multiplied with in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertSquares<'a> {
    pub(crate) columns: usize,
    /// Inputs of a token: one for all of its experts, or one for each.
    pub(crate) inputs: usize,
    /// `[columns, inputs, tokens]`
    pub(crate) squares: &'a [f32],
    /// `[used, tokens]`
    pub(crate) chosen: &'a [i32],
    pub(crate) used: usize,
    /// How many experts there are.
    pub(crate) count: usize,
}

impl ImportanceSums {
    /// The number of matrices that there is something of.
    pub fn matrices(&self) -> usize {
        self.matrices.len()
    }

    /// Adds sums over some tokens.
    pub(crate) fn add(&mut self, name: &str, sums: &[f32], tokens: u64) {
        let MatrixSums { squares, counts } = self.entry(name, sums.len(), 1);
        counts[0] += tokens;
        squares.iter_mut().zip(sums).for_each(|(sum, more)| *sum += f64::from(*more));
    }

    /// Adds what each token's experts were multiplied with.
    pub(crate) fn add_experts(&mut self, name: &str, run: ExpertSquares<'_>) {
        let ExpertSquares { columns, inputs, squares, chosen, used, count } = run;
        let entry = self.entry(name, columns * count, count);
        for (token, experts) in chosen.chunks_exact(used.max(1)).enumerate() {
            for (place, expert) in experts.iter().enumerate() {
                let row = token * inputs + place.min(inputs - 1);
                let expert = *expert as usize;
                let sums = entry.squares.chunks_exact_mut(columns.max(1)).nth(expert);
                let (Some(sums), Some(more)) = (sums, squares.chunks_exact(columns.max(1)).nth(row)) else {
                    continue;
                };
                entry.counts[expert] += 1;
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += f64::from(*more));
            }
        }
    }

    fn entry(&mut self, name: &str, columns: usize, counts: usize) -> &mut MatrixSums {
        self.matrices
            .entry(name.to_owned())
            .or_insert_with(|| MatrixSums { squares: vec![0.0; columns], counts: vec![0; counts] })
    }

    /// Writes a file that [`Importance::open`](crate::Importance::open) and llama.cpp read; `dataset` says what text it was, and
    /// how many chunks of how many tokens.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be written.
    pub fn write(&self, path: &Path, dataset: &str, chunks: u32, tokens: u32) -> Result<(), Error> {
        let bytes =
            |floats: &mut dyn Iterator<Item = f32>| floats.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        let data: Vec<(&str, u64, Vec<u8>, Vec<u8>)> = self
            .matrices
            .iter()
            .map(|(name, MatrixSums { squares, counts })| {
                let sums = bytes(&mut squares.iter().map(|sum| *sum as f32));
                (
                    name.as_str(),
                    counts.len() as u64,
                    sums,
                    bytes(&mut counts.iter().map(|count| *count as f32)),
                )
            })
            .collect();
        let mut writer = Writer::new();
        writer.set("general.type", "imatrix")?;
        writer.set("imatrix.datasets", Array::from([dataset].into_iter().collect::<Strings>()))?;
        writer.set("imatrix.chunk_count", chunks)?;
        writer.set("imatrix.chunk_size", tokens)?;
        for (name, counts, sums, numbers) in &data {
            let columns = sums.len() as u64 / 4 / counts.max(&1);
            writer.tensor(&format!("{name}{SUMS}"), DType::F32, &[columns, *counts], sums)?;
            writer.tensor(&format!("{name}{COUNTS}"), DType::F32, &[1, *counts], numbers)?;
        }
        writer.create(path)?;
        Ok(())
    }
}
