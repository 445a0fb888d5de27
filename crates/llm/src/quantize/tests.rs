//! Tests of quantizing whole files.

use std::sync::atomic::{AtomicU64, Ordering};

use orlop_gguf::Text;
use orlop_quant::decode;

use super::*;
use crate::Synth;

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("orlop-quantize-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn model(&self, name: &str, synth: &Synth) -> File {
        let path = self.0.join(name);
        synth.create(&path, &mut |_, _| {}).unwrap();
        File::open(&path).unwrap()
    }

    fn quantize(&self, model: &File, quantization: &Quantization<'_>) -> (Quantized, File) {
        let out = self.0.join(format!("{}.gguf", quantization.file_type));
        let quantized = quantize(model, &out, quantization, &mut |_, _| {}).unwrap();
        (quantized, File::open(&out).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn to(file_type: FileType) -> Quantization<'static> {
    Quantization { file_type, spread: MixturePolicy::Mixed, threads: 3, importance: None }
}

fn small() -> Synth {
    Synth { width: 256, hidden: 512, vocabulary: 700, norm_deviation: 0.1, ..Synth::default() }
}

fn values(model: &File, tensor: &TensorInfo) -> Vec<f32> {
    let mut values = vec![0.0; tensor.desc.extents.iter().product::<u64>() as usize];
    decode(tensor.desc.dtype, model.bytes_of(tensor), &mut values).unwrap();
    values
}

/// How far two tensors lie apart, as a share of their size.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value).powi(2);
    let apart: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (apart / a.iter().map(|a| square(*a)).sum::<f64>()).sqrt()
}

#[test]
fn every_file_type_keeps_values_as_well_as_its_bits_allow() {
    let folder = Folder::new();
    let model = folder.model("in.gguf", &small());
    for file_type in FileType::all() {
        let (quantized, written) = folder.quantize(&model, &to(file_type));
        assert_eq!(quantized.to, written.bytes());
        assert_eq!(quantized.kept + quantized.changed, model.tensors().len());
        for (before, after) in model.tensors().iter().zip(written.tensors()) {
            assert_eq!((&before.name, before.extents()), (&after.name, after.extents()));
            let bits = after.desc.dtype.block_bytes() as f64 * 8.0 / after.desc.dtype.block_elements() as f64;
            let limit = match after.desc.dtype {
                same if same == before.desc.dtype => 0.0,
                // Their scale is the largest value of a block.
                DType::TQ1_0 | DType::TQ2_0 => 0.8,
                _ => 2.5 * 0.5f64.powf(bits) + 0.004,
            };
            let distance = distance(&values(&model, before), &values(&written, after));
            assert!(distance <= limit, "{file_type}, {} as {}: {distance}", before.name, after.desc.dtype);
        }
    }
}

#[test]
fn threads_do_not_change_the_bytes() {
    let folder = Folder::new();
    // The embedding is more than one round of any of these.
    let model = folder.model("in.gguf", &Synth { vocabulary: 9000, layers: 1, ..small() });
    let bytes = |threads| {
        folder.quantize(&model, &Quantization { threads, ..to(FileType::Q4_K_M) });
        fs::read(folder.0.join("Q4_K_M.gguf")).unwrap()
    };
    let one = bytes(1);
    assert!(one == bytes(2) && one == bytes(5) && one == bytes(0) && one == bytes(usize::MAX));
}

#[test]
fn types_are_the_mixtures_or_pure() {
    let folder = Folder::new();
    let model = folder.model("in.gguf", &small());
    let dtype = |model: &File, name: &str| model.tensor(name).unwrap().desc.dtype;
    let (_, mixed) = folder.quantize(&model, &to(FileType::Q4_0));
    assert_eq!(dtype(&mixed, "output.weight"), DType::Q6_K);
    assert_eq!(dtype(&mixed, "blk.1.ffn_up.weight"), DType::Q4_0);
    assert_eq!(dtype(&mixed, "blk.1.ffn_norm.weight"), DType::F32);
    let (_, pure) =
        folder.quantize(&model, &Quantization { spread: MixturePolicy::Pure, ..to(FileType::Q4_0) });
    assert_eq!(dtype(&pure, "output.weight"), DType::Q4_0);
    assert_eq!(dtype(&pure, "blk.1.ffn_norm.weight"), DType::F32);
}

#[test]
fn metadata_stays_but_for_types_and_parts() {
    let folder = Folder::new();
    let own = ("orlop.test".to_owned(), MetadataValue::String(Text::from("kept")));
    let model = folder.model("in.gguf", &Synth { metadata: vec![own], ..small() });
    let (_, written) = folder.quantize(&model, &to(FileType::Q5_K_S));
    let mut expected = model.metadata().clone();
    expected.set("general.file_type", 16u32).unwrap();
    assert_eq!(*written.metadata(), expected);
    assert_eq!(written.metadata().u32("general.quantization_version").unwrap(), 2);
}

#[test]
fn a_split_model_becomes_one_file() {
    let folder = Folder::new();
    let whole = folder.model("whole.gguf", &small());
    let (first, second) = whole.tensors().split_at(5);
    for (number, tensors) in [first, second].into_iter().enumerate() {
        let mut metadata = if number == 0 { whole.metadata().clone() } else { Metadata::new() };
        metadata.set("split.no", number as u16).unwrap();
        metadata.set("split.count", 2u16).unwrap();
        metadata.set("split.tensors.count", whole.tensors().len() as i32).unwrap();
        let mut writer = Writer::with_metadata(metadata);
        tensors.iter().for_each(|tensor| writer.copy(&whole.parts()[0], tensor).unwrap());
        writer.create(folder.0.join(format!("part-0000{}-of-00002.gguf", number + 1))).unwrap();
    }
    let parts = File::open(folder.0.join("part-00002-of-00002.gguf")).unwrap();
    assert_eq!(parts.parts().len(), 2);
    folder.quantize(&whole, &to(FileType::Q8_0));
    let of_whole = fs::read(folder.0.join("Q8_0.gguf")).unwrap();
    folder.quantize(&parts, &to(FileType::Q8_0));
    assert!(of_whole == fs::read(folder.0.join("Q8_0.gguf")).unwrap());
    let onto_a_part = folder.0.join("part-00001-of-00002.gguf");
    let refused = quantize(&parts, &onto_a_part, &to(FileType::Q4_0), &mut |_, _| {});
    assert!(matches!(refused, Err(Error::SameFile(path)) if path == onto_a_part));
}

#[test]
fn a_model_is_not_written_over_itself_by_any_name() {
    let folder = Folder::new();
    let model = folder.model("in.gguf", &small());
    let before = fs::read(folder.0.join("in.gguf")).unwrap();
    for name in ["in.gguf", "./in.gguf"] {
        let refused = quantize(&model, &folder.0.join(name), &to(FileType::Q4_0), &mut |_, _| {});
        assert!(matches!(refused, Err(Error::SameFile(_))), "{name}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.0.join("in.gguf"), folder.0.join("link.gguf")).unwrap();
        let refused = quantize(&model, &folder.0.join("link.gguf"), &to(FileType::Q4_0), &mut |_, _| {});
        assert!(matches!(refused, Err(Error::SameFile(_))));
    }
    assert!(before == fs::read(folder.0.join("in.gguf")).unwrap());
}

#[test]
fn what_cannot_be_read_or_is_not_finite_is_refused_and_leaves_nothing() {
    let folder = Folder::new();
    let write = |dtype: DType, bytes: &[u8]| {
        let mut writer = Writer::new();
        writer.set("general.architecture", "none").unwrap();
        writer.tensor("a.weight", dtype, &[256, 2], bytes).unwrap();
        let path = folder.0.join("in.gguf");
        writer.create(&path).unwrap();
        File::open(&path).unwrap()
    };
    let out = folder.0.join("out.gguf");
    let mut bytes = vec![0; 2048];
    bytes[1020..1024].copy_from_slice(&f32::NAN.to_le_bytes());
    let refused = quantize(&write(DType::F32, &bytes), &out, &to(FileType::Q4_0), &mut |_, _| {});
    let Err(Error::File(orlop_gguf::Error::Data { tensor, source })) = refused else { panic!("{refused:?}") };
    assert_eq!((tensor.as_str(), source.kind()), ("a.weight", std::io::ErrorKind::InvalidData));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn progress_ends_with_all_bytes_and_repeated_loss_is_counted() {
    let folder = Folder::new();
    let model = folder.model("in.gguf", &Synth { file_type: FileType::Q8_0, ..small() });
    let (mut last, mut steps) = (None, 0);
    let mut progress = |done, all| {
        assert!(last.is_none_or(|(before, _)| before <= done));
        last = Some((done, all));
        steps += 1;
    };
    let quantized = quantize(&model, &folder.0.join("out.gguf"), &to(FileType::Q4_0), &mut progress).unwrap();
    let all = model.tensors().iter().map(|tensor| tensor.bytes).sum::<u64>();
    assert_eq!(last, Some((all, all)));
    assert!(steps >= model.tensors().len());
    assert_eq!((quantized.again, quantized.changed), (16, 16));
}

/// Only the first eighth of the columns matters: there the error must be smaller than without that knowledge.
#[test]
fn importance_data_makes_important_columns_more_exact() {
    let folder = Folder::new();
    let model = folder.model("random.gguf", &Synth { file_type: FileType::F32, ..small() });
    let bytes = |value: f32, count: usize| value.to_le_bytes().repeat(count);
    // Every eighth column counts: one of each group that shares a place in a codebook.
    let (columns, ones) = ([bytes(100.0, 1), bytes(0.01, 7)].concat().repeat(32), bytes(1.0, 1));
    let matrix = |name: &str| name.contains("ffn_up") || name.contains("attn_q.weight");
    let names: Vec<&str> =
        model.tensors().iter().map(|it| it.name.as_str()).filter(|name| matrix(name)).collect();
    let mut writer = Writer::default();
    for name in &names {
        writer.tensor(&format!("{name}.in_sum2"), DType::F32, &[256, 1], &columns).unwrap();
        writer.tensor(&format!("{name}.counts"), DType::F32, &[1, 1], &ones).unwrap();
    }
    let path = folder.0.join("imatrix.gguf");
    writer.create(&path).unwrap();
    let importance = Importance::open(&path).unwrap();
    for file_type in [FileType::IQ2_XXS, FileType::IQ3_S, FileType::Q2_K, FileType::Q4_K_S] {
        let pure = Quantization { spread: MixturePolicy::Pure, ..to(file_type) };
        let (without, plain) = folder.quantize(&model, &pure);
        let error = |quantized: &File, name: &str| {
            let of = |file: &File| values(file, file.tensor(name).unwrap());
            let important = |values: Vec<f32>| -> Vec<f32> { values.into_iter().step_by(8).collect() };
            distance(&important(of(&model)), &important(of(quantized)))
        };
        let before: Vec<f64> = names.iter().map(|name| error(&plain, name)).collect();
        drop(plain);
        let (with, weighted) =
            folder.quantize(&model, &Quantization { importance: Some(&importance), ..pure });
        for (name, before) in names.iter().zip(before) {
            let after = error(&weighted, name);
            assert!(after < 0.97 * before, "{name} as {file_type}: {after} and {before}");
        }
        let counted = if file_type == FileType::IQ2_XXS { names.len() } else { 0 };
        assert_eq!(without.unweighted - with.unweighted, counted, "{file_type}");
    }
}

#[test]
fn importance_data_of_another_model_is_refused() {
    let folder = Folder::new();
    let model = folder.model("random.gguf", &Synth { file_type: FileType::F32, ..small() });
    let (sums, ones) = (1.0f32.to_le_bytes().repeat(128), 1.0f32.to_le_bytes());
    let mut writer = Writer::default();
    writer.tensor("blk.0.ffn_up.weight.in_sum2", DType::F32, &[128, 1], &sums).unwrap();
    writer.tensor("blk.0.ffn_up.weight.counts", DType::F32, &[1, 1], &ones).unwrap();
    let path = folder.0.join("imatrix.gguf");
    writer.create(&path).unwrap();
    let importance = Importance::open(&path).unwrap();
    let quantization = Quantization { importance: Some(&importance), ..to(FileType::IQ3_S) };
    let out = folder.0.join("out.gguf");
    let error = quantize(&model, &out, &quantization, &mut |_, _| {}).unwrap_err().to_string();
    assert!(
        error.contains("blk.0.ffn_up.weight") && error.contains("128 numbers for 256 columns"),
        "{error}"
    );
    assert!(!out.exists());
}
