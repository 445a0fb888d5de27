//! llama.cpp as shared libraries, so that its allocator can be replaced with `LD_PRELOAD`.
//!
//! ```text
//! driver tokens -m FILE [-b 512] [-fa 0] [-t 1]
//! driver time [-r 200]
//! ```
//!
//! `tokens` reads one line of JSON per prompt, `{"tokens": […], "greedy": […]}`, and prints as many tokens as `greedy` has.
//! `time` compares the current allocator with ggml's own. llama.cpp's log goes to standard error.

mod graph;
mod time;

use std::io::BufRead;
use std::num::NonZeroU32;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Context size, equal to the largest batch.
const CONTEXT: u32 = 2048;

struct Question {
    model: String,
    batch: u32,
    flash: bool,
    threads: i32,
    rounds: usize,
}

fn question(mut words: impl Iterator<Item = String>) -> Result<Question> {
    let mut question = Question { model: String::new(), batch: 512, flash: false, threads: 1, rounds: 200 };
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "-m" => question.model = value,
            "-b" => question.batch = value.parse()?,
            "-fa" => question.flash = value == "1",
            "-t" => question.threads = value.parse()?,
            "-r" => question.rounds = value.parse()?,
            _ => return Err(format!("{word} is unknown").into()),
        }
    }
    Ok(question)
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let question = question(words)?;
    let answer = match command.as_str() {
        "tokens" => tokens(&question)?,
        "time" => time::compare(question.rounds)?,
        _ => return Err("say tokens or time".into()),
    };
    println!("{answer}");
    Ok(())
}

fn tokens(question: &Question) -> Result<Value> {
    let backend = LlamaBackend::init()?;
    let model = LlamaModel::load_from_file(&backend, &question.model, &LlamaModelParams::default())?;
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(CONTEXT))
        .with_n_batch(question.batch)
        .with_n_ubatch(question.batch)
        .with_n_threads(question.threads)
        .with_n_threads_batch(question.threads)
        .with_flash_attention_policy(match question.flash {
            true => llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            false => llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        });
    let mut context = model.new_context(&backend, params)?;
    let mut all = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let list = |key: &str| line[key].as_array().ok_or(format!("a line has no {key}"));
        let prompt: Vec<LlamaToken> =
            list("tokens")?.iter().filter_map(Value::as_i64).map(|id| LlamaToken(id as i32)).collect();
        context.clear_kv_cache();
        all.push(generate(&mut context, &prompt, list("greedy")?.len(), question.batch as usize)?);
    }
    Ok(json!({ "tokens": all }))
}

/// The most likely tokens after a prompt.
fn generate(context: &mut LlamaContext<'_>, prompt: &[LlamaToken], count: usize, batch: usize) -> Result<Vec<i32>> {
    for tokens in prompt.chunks(batch) {
        context.decode(&mut LlamaBatch::get_one(tokens)?)?;
    }
    let mut made = Vec::new();
    while made.len() < count {
        let logits = context.get_logits_ith(-1);
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        let token = LlamaToken(i32::try_from(best.ok_or("there are no logits")?)?);
        made.push(token.0);
        context.decode(&mut LlamaBatch::get_one(&[token])?)?;
    }
    Ok(made)
}
