//! llama.cpp with the tests of `orlop bench`.
//!
//! ```text
//! peers info
//! peers bench  -m FILE [-p 512] [-n 128] [-d 0] [-t 1] [-r 2] [-ub 512]
//! peers first  -m FILE [-t 1] [-c 512] TEXT
//! peers memory -m FILE [-t 1] [-c 4096] [-ub 512]
//! peers logits -m FILE [-t 1] [-c 0] [-ub 512] [--last] "ID ID …"
//! ```
//!
//! Results are JSON on standard output; `first` prints the first token. llama.cpp's log, which includes buffer sizes, goes
//! to standard error.

use std::ffi::CStr;
use std::io::Write;
use std::num::NonZeroU32;
use std::time::Instant;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::{KvCacheType, LlamaContextParams};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The arguments.
struct Question {
    model: String,
    prompt: usize,
    generate: usize,
    depth: usize,
    threads: usize,
    repetitions: usize,
    context: usize,
    ubatch: u32,
    last: bool,
    text: String,
}

fn question(mut words: impl Iterator<Item = String>) -> Result<Question> {
    let mut question = Question {
        model: String::new(),
        prompt: 512,
        generate: 128,
        depth: 0,
        threads: 1,
        repetitions: 2,
        context: 0,
        ubatch: 512,
        last: false,
        text: String::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "-m" => question.model = value()?,
            "-p" => question.prompt = value()?.parse()?,
            "-n" => question.generate = value()?.parse()?,
            "-d" => question.depth = value()?.parse()?,
            "-t" => question.threads = value()?.parse()?,
            "-r" => question.repetitions = value()?.parse()?,
            "-c" => question.context = value()?.parse()?,
            "-ub" => question.ubatch = value()?.parse()?,
            "--last" => question.last = true,
            _ => question.text = word,
        }
    }
    Ok(question)
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let question = question(words)?;
    match command.as_str() {
        "info" => print(&info()),
        "bench" => bench(&question),
        "first" => first(&question),
        "memory" => memory(&question),
        "logits" => logits(&question),
        _ => Err("say info, bench, first, memory or logits".into()),
    }
}

fn print(value: &Value) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{value}")?)
}

fn info() -> Value {
    // SAFETY: llama.cpp gives a string that ends in a zero and stays until the next call; there is no other.
    let system = unsafe { CStr::from_ptr(llama_cpp_sys_2::llama_print_system_info()) };
    json!({ "system": system.to_string_lossy() })
}

fn load(backend: &LlamaBackend, question: &Question) -> Result<LlamaModel> {
    Ok(LlamaModel::load_from_file(backend, &question.model, &LlamaModelParams::default())?)
}

/// Flash attention and F16 caches, the defaults of `orlop`.
fn context<'a>(
    backend: &LlamaBackend,
    model: &'a LlamaModel,
    question: &Question,
    length: usize,
) -> Result<LlamaContext<'a>> {
    let params = settings(question, length)?
        .with_flash_attention_policy(llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED);
    Ok(model.new_context(backend, params)?)
}

fn settings(question: &Question, length: usize) -> Result<LlamaContextParams> {
    let threads = i32::try_from(question.threads)?;
    Ok(LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(u32::try_from(length)?))
        .with_n_batch(2048)
        .with_n_ubatch(question.ubatch)
        .with_n_threads(threads)
        .with_n_threads_batch(threads))
}

fn bench(question: &Question) -> Result<()> {
    let backend = LlamaBackend::init()?;
    let model = load(&backend, question)?;
    let length = question.depth + question.prompt.max(question.generate);
    let mut context = context(&backend, &model, question, length)?;
    let mut tests = Vec::new();
    for (kind, count, batch) in [("pp", question.prompt, 2048), ("tg", question.generate, 1)] {
        if count == 0 {
            continue;
        }
        let mut rates = Vec::new();
        for repetition in 0..=question.repetitions {
            let rate = measure(&mut context, model.n_vocab(), question.depth, count, batch)?;
            if repetition > 0 {
                rates.push(rate);
            }
        }
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        let stddev = (squares / (rates.len().max(2) - 1) as f64).sqrt();
        let depth = if question.depth > 0 { format!("@d{}", question.depth) } else { String::new() };
        tests.push(json!({
            "test": format!("{kind}{count}{depth}"),
            "threads": question.threads,
            "device": "llama.cpp",
            "tokens_per_second": mean,
            "stddev": stddev,
        }));
    }
    print(&Value::Array(tests))
}

/// Tokens per second with `depth` tokens in the context.
fn measure(
    context: &mut LlamaContext<'_>,
    vocabulary: i32,
    depth: usize,
    count: usize,
    batch: usize,
) -> Result<f64> {
    let token = |index: usize| LlamaToken((index * 7919 % vocabulary as usize) as i32);
    let tokens: Vec<LlamaToken> = (0..depth + count).map(token).collect();
    let filled = usize::try_from(context.kv_cache_seq_pos_max(0) + 1)?;
    if filled > depth {
        context.clear_kv_cache_seq(Some(0), Some(u32::try_from(depth)?), None)?;
    } else {
        feed(context, &tokens[filled..depth], 2048)?;
    }
    let begin = Instant::now();
    feed(context, &tokens[depth..], batch)?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

fn feed(context: &mut LlamaContext<'_>, tokens: &[LlamaToken], batch: usize) -> Result<()> {
    for tokens in tokens.chunks(batch) {
        context.decode(&mut LlamaBatch::get_one(tokens)?)?;
        context.synchronize();
    }
    Ok(())
}

/// The most likely token after a text.
fn first(question: &Question) -> Result<()> {
    let backend = LlamaBackend::init()?;
    let model = load(&backend, question)?;
    let mut context = context(&backend, &model, question, question.context)?;
    let tokens = model.vocab().tokenize(question.text.as_bytes(), true, true);
    feed(&mut context, &tokens, 2048)?;
    let logits = context.get_logits_ith(-1);
    let best =
        (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).ok_or("there are no logits")?;
    let mut out = std::io::stdout();
    out.write_all(&model.vocab().token_to_piece(LlamaToken(i32::try_from(best)?), true, None))?;
    Ok(out.flush()?)
}

/// Creates a context, for its log.
fn memory(question: &Question) -> Result<()> {
    let backend = LlamaBackend::init()?;
    let model = load(&backend, question)?;
    context(&backend, &model, question, question.context)?;
    Ok(())
}

/// The logits of each token or of the last, as exact as llama.cpp can: F32 caches, no flash attention.
fn logits(question: &Question) -> Result<()> {
    let backend = LlamaBackend::init()?;
    let model = load(&backend, question)?;
    let params = settings(question, question.context)?
        .with_type_k(KvCacheType::F32)
        .with_type_v(KvCacheType::F32)
        .with_flash_attention_policy(llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_DISABLED);
    let mut context = model.new_context(&backend, params)?;
    let ids: Vec<i32> =
        question.text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    let mut batch = LlamaBatch::new(ids.len(), 1);
    for (position, id) in ids.iter().enumerate() {
        let wanted = !question.last || position + 1 == ids.len();
        batch.add(LlamaToken(*id), i32::try_from(position)?, &[0], wanted)?;
    }
    context.decode(&mut batch)?;
    let first = if question.last { ids.len().saturating_sub(1) } else { 0 };
    let rows: Vec<&[f32]> =
        (i32::try_from(first)?..i32::try_from(ids.len())?).map(|row| context.get_logits_ith(row)).collect();
    print(&json!({ "tokens": ids, "logits": rows }))
}
