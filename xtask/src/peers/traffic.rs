//! Bytes of memory read per token.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::process::{Programs, ask};

/// Bytes read per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    /// All weights; of an embedding that is only looked up, one row.
    pub(super) weights: f64,
    /// Keys and values, per token of context.
    pub(super) kv: f64,
}

impl Traffic {
    /// From the output of `orlop inspect`.
    pub(super) fn of(programs: &Programs, model: &Path) -> Result<Traffic> {
        let report = ask(Command::new(&programs.ours).args(["inspect", "--json"]).arg(model))?.json()?;
        Traffic::from_report(&report)
    }

    fn from_report(report: &Value) -> Result<Traffic> {
        let metadata = &report["metadata"];
        let architecture =
            metadata["general.architecture"].as_str().context("the model names no architecture")?;
        // The sum of per-layer values, or one value times the number of layers.
        let layers =
            metadata[format!("{architecture}.block_count")].as_f64().context("the model counts no layers")?;
        let value = |key: &str| &metadata[format!("{architecture}.{key}")];
        let summed = |key: &str| match value(key) {
            Value::Array(items) => Some(items.iter().filter_map(Value::as_f64).sum()),
            one => one.as_f64().map(|one| one * layers),
        };
        let heads = summed("attention.head_count").context("the model counts no heads")?;
        let kv_heads: f64 = summed("attention.head_count_kv").unwrap_or(heads);
        let width = value("embedding_length").as_f64().context("the model has no width")?;
        let head = |key: &str| value(key).as_f64().unwrap_or(width * layers / heads);
        let used = value("expert_used_count").as_f64().zip(value("expert_count").as_f64());
        let share = used.filter(|(_, count)| *count > 0.0).map_or(1.0, |(used, count)| used / count);
        let tensors = report["tensors"].as_array().context("the model has no tensors")?;
        let name = |tensor: &Value| tensor["name"].as_str().unwrap_or_default().to_owned();
        let tied = !tensors.iter().any(|tensor| name(tensor) == "output.weight");
        let read = |tensor: &Value| {
            let bytes = tensor["bytes"].as_f64().unwrap_or(0.0);
            match name(tensor).as_str() {
                "token_embd.weight" if !tied => bytes / tensor["extents"][1].as_f64().unwrap_or(1.0),
                name if name.contains("_exps.") => bytes * share,
                _ => bytes,
            }
        };
        let f16 = 2.0;
        let kv = kv_heads * (head("attention.key_length") + head("attention.value_length")) * f16;
        Ok(Traffic { weights: tensors.iter().map(read).sum(), kv })
    }

    /// Bytes per token: the mean over `count` tokens after `depth` others.
    pub(super) fn per_token(&self, depth: usize, count: usize) -> f64 {
        self.weights + self.kv * (depth as f64 + (count as f64 + 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(output: bool) -> Value {
        let mut tensors = vec![
            json!({ "name": "token_embd.weight", "bytes": 64_000, "extents": [64, 500] }),
            json!({ "name": "blk.0.attn_q.weight", "bytes": 1000, "extents": [64, 64] }),
            json!({ "name": "blk.0.ffn_up_exps.weight", "bytes": 4000, "extents": [64, 64, 8] }),
        ];
        if output {
            tensors.push(json!({ "name": "output.weight", "bytes": 64_000, "extents": [64, 500] }));
        }
        json!({
            "metadata": {
                "general.architecture": "llama",
                "llama.block_count": 3,
                "llama.embedding_length": 64,
                "llama.attention.head_count": 4,
                "llama.attention.head_count_kv": 2,
                "llama.expert_count": 8,
                "llama.expert_used_count": 2,
            },
            "tensors": tensors,
        })
    }

    #[test]
    fn an_embedding_counts_whole_only_where_it_is_the_output() {
        let apart = Traffic::from_report(&report(true)).unwrap();
        assert_eq!(apart.weights, 64_000.0 + 128.0 + 1000.0 + 1000.0);
        let tied = Traffic::from_report(&report(false)).unwrap();
        assert_eq!(tied.weights, 64_000.0 + 1000.0 + 1000.0);
    }

    #[test]
    fn keys_and_values_of_all_layers_count_for_each_token_before() {
        let traffic = Traffic::from_report(&report(true)).unwrap();
        assert_eq!(traffic.kv, f64::from(3 * 2 * (16 + 16) * 2));
        assert_eq!(traffic.per_token(10, 1) - traffic.weights, 11.0 * traffic.kv);
        let mut by_layer = report(true);
        by_layer["metadata"]["llama.attention.head_count_kv"] = json!([1, 2, 3]);
        assert_eq!(Traffic::from_report(&by_layer).unwrap().kv, f64::from((1 + 2 + 3) * (16 + 16) * 2));
    }
}
