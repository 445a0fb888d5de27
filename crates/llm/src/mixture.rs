//! The element type of each tensor in a quantized model, by the rules of llama.cpp's
//! [`llama-quantize`](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-quant.cpp): a file of type `Q4_K_M` has more
//! bits for the tensors that matter most.

use std::fmt;

use orlop_graph::DType;

/// The type of a model's file: the type of most matrices, and a rule for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, non_camel_case_types)] // the names are those in use
pub enum FileType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K_S,
    Q3_K_M,
    Q3_K_L,
    Q4_K_S,
    Q4_K_M,
    Q5_K_S,
    Q5_K_M,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4_MOE,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ2_M,
    Q2_K_S,
    IQ3_XXS,
    IQ3_XS,
    IQ3_S,
    IQ3_M,
    TQ1_0,
    TQ2_0,
    NVFP4,
    Q1_0,
    Q2_0,
}

/// One row per type: the type, its name, its number as `general.file_type`, the type of most matrices.
const TABLE: [(FileType, &str, u32, DType); 36] = [
    (FileType::F32, "F32", 0, DType::F32),
    (FileType::F16, "F16", 1, DType::F16),
    (FileType::BF16, "BF16", 32, DType::BF16),
    (FileType::Q4_0, "Q4_0", 2, DType::Q4_0),
    (FileType::Q4_1, "Q4_1", 3, DType::Q4_1),
    (FileType::Q5_0, "Q5_0", 8, DType::Q5_0),
    (FileType::Q5_1, "Q5_1", 9, DType::Q5_1),
    (FileType::Q8_0, "Q8_0", 7, DType::Q8_0),
    (FileType::Q2_K, "Q2_K", 10, DType::Q2_K),
    (FileType::Q3_K_S, "Q3_K_S", 11, DType::Q3_K),
    (FileType::Q3_K_M, "Q3_K_M", 12, DType::Q3_K),
    (FileType::Q3_K_L, "Q3_K_L", 13, DType::Q3_K),
    (FileType::Q4_K_S, "Q4_K_S", 14, DType::Q4_K),
    (FileType::Q4_K_M, "Q4_K_M", 15, DType::Q4_K),
    (FileType::Q5_K_S, "Q5_K_S", 16, DType::Q5_K),
    (FileType::Q5_K_M, "Q5_K_M", 17, DType::Q5_K),
    (FileType::Q6_K, "Q6_K", 18, DType::Q6_K),
    (FileType::IQ4_NL, "IQ4_NL", 25, DType::IQ4_NL),
    (FileType::IQ4_XS, "IQ4_XS", 30, DType::IQ4_XS),
    (FileType::MXFP4_MOE, "MXFP4_MOE", 38, DType::MXFP4),
    (FileType::IQ1_S, "IQ1_S", 24, DType::IQ1_S),
    (FileType::IQ1_M, "IQ1_M", 31, DType::IQ1_M),
    (FileType::IQ2_XXS, "IQ2_XXS", 19, DType::IQ2_XXS),
    (FileType::IQ2_XS, "IQ2_XS", 20, DType::IQ2_XS),
    (FileType::IQ2_S, "IQ2_S", 28, DType::IQ2_XS),
    (FileType::IQ2_M, "IQ2_M", 29, DType::IQ2_S),
    (FileType::Q2_K_S, "Q2_K_S", 21, DType::Q2_K),
    (FileType::IQ3_XXS, "IQ3_XXS", 23, DType::IQ3_XXS),
    (FileType::IQ3_XS, "IQ3_XS", 22, DType::IQ3_S),
    (FileType::IQ3_S, "IQ3_S", 26, DType::IQ3_S),
    (FileType::IQ3_M, "IQ3_M", 27, DType::IQ3_S),
    (FileType::TQ1_0, "TQ1_0", 36, DType::TQ1_0),
    (FileType::TQ2_0, "TQ2_0", 37, DType::TQ2_0),
    (FileType::NVFP4, "NVFP4", 39, DType::NVFP4),
    (FileType::Q1_0, "Q1_0", 40, DType::Q1_0),
    (FileType::Q2_0, "Q2_0", 41, DType::Q2_0),
];

/// Other names for types.
const ALIASES: [(&str, FileType); 4] = [
    ("MXFP4", FileType::MXFP4_MOE),
    ("Q3_K", FileType::Q3_K_M),
    ("Q4_K", FileType::Q4_K_M),
    ("Q5_K", FileType::Q5_K_M),
];

impl FileType {
    /// Every type.
    pub fn all() -> impl Iterator<Item = FileType> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (FileType, &'static str, u32, DType) {
        &TABLE[self as usize]
    }

    /// Its usual name, such as `Q4_K_M`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type with this name; upper and lower case are the same, and `Q4_K` is short for `Q4_K_M`.
    pub fn from_name(name: &str) -> Option<FileType> {
        let named = TABLE.iter().map(|row| (row.1, row.0));
        named
            .chain(ALIASES)
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, file_type)| file_type)
    }

    /// Its number, the value of `general.file_type`.
    pub fn id(self) -> u32 {
        self.row().2
    }

    /// The type of most matrices.
    pub fn dtype(self) -> DType {
        self.row().3
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the choice depends on, besides the tensors themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits<'a> {
    /// `general.architecture`.
    pub architecture: &'a str,
    /// Layers.
    pub layers: u64,
    /// Heads of queries that share one of keys and values.
    pub sharing: u64,
    /// Experts in a layer; 0 for none.
    pub experts: u64,
    /// Whether there is importance data.
    pub importance: bool,
}

/// A tensor for which a type is to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name, which says what it is for.
    pub name: &'a str,
    /// Its extents, the row first.
    pub extents: &'a [u64],
    /// What it is stored as now.
    pub dtype: DType,
}

/// How types are spread over the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MixturePolicy {
    /// The tensors that matter most to quality get more bits, as in llama.cpp.
    #[default]
    Mixed,
    /// All matrices get the same type.
    Pure,
}

/// The type of each tensor in a file of a given type, in the order of `tensors`.
///
/// Norms, biases, routers of experts and everything of one dimension keep their types. A row that does not fill whole
/// blocks gets a type with smaller blocks, or F16 if there is none.
///
/// ```
/// use orlop_graph::DType;
/// use orlop_llm::{Candidate, FileType, MixturePolicy, Traits, mixture};
///
/// let tensor = |name, extents| Candidate { name, extents, dtype: DType::F32 };
/// let tensors = [
///     tensor("output_norm.weight", &[512]),
///     tensor("output.weight", &[512, 1000]),
///     tensor("blk.0.ffn_up.weight", &[512, 2048]),
///     tensor("blk.0.ffn_down.weight", &[2048, 512]),
/// ];
/// let traits = Traits { architecture: "llama", layers: 1, sharing: 1, experts: 0, importance: false };
/// assert_eq!(
///     mixture(FileType::Q4_K_M, MixturePolicy::Mixed, &traits, &tensors),
///     [DType::F32, DType::Q6_K, DType::Q4_K, DType::Q6_K],
/// );
/// ```
pub fn mixture(
    file_type: FileType,
    spread: MixturePolicy,
    traits: &Traits<'_>,
    tensors: &[Candidate<'_>],
) -> Vec<DType> {
    let count = |wanted: Role| tensors.iter().filter(|tensor| role(tensor.name) == wanted).count() as u64;
    let mix = Mix { file_type, traits, tied: count(Role::Output) == 0, values: count(Role::Values) };
    let ranks = ranks(tensors);
    let chosen = |(tensor, rank): (&Candidate<'_>, &u64)| {
        if !is_matrix(tensor) {
            return tensor.dtype;
        }
        if !file_type.dtype().is_quantized() {
            return file_type.dtype();
        }
        let dtype = match spread {
            MixturePolicy::Mixed => mix.choose(tensor, *rank),
            MixturePolicy::Pure => file_type.dtype(),
        };
        fitting(dtype, tensor.extents[0])
    };
    tensors.iter().zip(&ranks).map(chosen).collect()
}

/// What a matrix is for, as far as the rules distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Output,
    Embedding,
    /// Values alone, or together with what else is made from the same input.
    Values,
    Keys,
    Queries,
    AttentionOutput,
    Gate,
    Up,
    Down,
    Other,
}

fn role(name: &str) -> Role {
    const PARTS: [(&str, Role); 9] = [
        ("attn_qkv.weight", Role::Values),
        ("attn_kv_b.weight", Role::Values),
        ("attn_v.weight", Role::Values),
        ("attn_k.weight", Role::Keys),
        ("attn_q.weight", Role::Queries),
        ("attn_output.weight", Role::AttentionOutput),
        ("ffn_gate", Role::Gate),
        ("ffn_up", Role::Up),
        ("ffn_down", Role::Down),
    ];
    match name {
        "output.weight" => Role::Output,
        "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
        _ => PARTS.iter().find(|(part, _)| name.contains(part)).map_or(Role::Other, |(_, role)| *role),
    }
}

/// Matrices that keep their types, by a part of their names: small ones, or ones that are not part of a product.
const KEPT: [&str; 36] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

fn is_matrix(tensor: &Candidate<'_>) -> bool {
    tensor.extents.iter().skip(1).any(|extent| *extent > 1)
        && !tensor.dtype.is_integer()
        && tensor.name.ends_with("weight")
        && !KEPT.iter().any(|part| tensor.name.contains(part))
}

/// The layer that a name gives.
fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// How many matrices of the same role come before each one, counted layer by layer.
fn ranks(tensors: &[Candidate<'_>]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..tensors.len()).filter(|index| is_matrix(&tensors[*index])).collect();
    order.sort_by_key(|index| (layer(tensors[*index].name), tensors[*index].name));
    let (mut values, mut downs, mut gates, mut ups) = (0, 0, 0, 0);
    let mut ranks = vec![0; tensors.len()];
    for index in order {
        let counter = match role(tensors[index].name) {
            Role::Values => &mut values,
            Role::Down => &mut downs,
            Role::Gate => &mut gates,
            Role::Up => &mut ups,
            _ => continue,
        };
        ranks[index] = *counter;
        *counter += 1;
    }
    ranks
}

struct Mix<'a> {
    file_type: FileType,
    traits: &'a Traits<'a>,
    /// There is no output matrix: the embedding serves as one.
    tied: bool,
    /// Matrices that make values.
    values: u64,
}

impl Mix<'_> {
    fn choose(&self, tensor: &Candidate<'_>, rank: u64) -> DType {
        let eight_experts = self.traits.experts == 8;
        match role(tensor.name) {
            Role::Output => self.output(tensor),
            Role::Embedding if self.tied => self.output(tensor),
            _ if self.file_type == FileType::MXFP4_MOE => {
                if tensor.extents.get(2).is_some_and(|extent| *extent > 1) {
                    DType::MXFP4
                } else {
                    DType::Q8_0
                }
            }
            Role::Embedding => self.embedding(),
            role if self.is_below_three_bits() => self.below_three_bits(role, rank),
            Role::Values | Role::Keys if eight_experts => DType::Q8_0,
            Role::Values => self.values(rank),
            Role::Keys | Role::Queries => match self.file_type {
                FileType::IQ3_XS => DType::IQ3_XXS,
                FileType::IQ3_XXS => DType::IQ2_S,
                other => other.dtype(),
            },
            Role::AttentionOutput => self.attention_output(),
            Role::Gate | Role::Up => {
                let (layer, layers) = (self.layer(tensor, rank), self.traits.layers);
                let inner = layer >= layers / 8 && layer < layers - layers.div_ceil(8);
                if self.file_type == FileType::IQ3_XS && inner {
                    DType::IQ3_XXS
                } else {
                    self.file_type.dtype()
                }
            }
            Role::Down => self.down(self.layer(tensor, rank)),
            Role::Other => self.file_type.dtype(),
        }
    }

    /// The layer of a matrix of a feed-forward part: by its name if there are experts, which may be in several tensors.
    fn layer(&self, tensor: &Candidate<'_>, rank: u64) -> u64 {
        let by_name = (self.traits.experts > 1).then(|| layer(tensor.name)).flatten();
        by_name.unwrap_or(rank)
    }

    /// Whether the rules for the smallest files apply.
    fn is_below_three_bits(&self) -> bool {
        use FileType::{IQ1_M, IQ1_S, IQ2_M, IQ2_S, IQ2_XS, IQ2_XXS};
        matches!(self.file_type, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ2_M)
    }

    fn below_three_bits(&self, role: Role, rank: u64) -> DType {
        let (experts, larger) =
            (self.traits.experts, matches!(self.file_type, FileType::IQ2_S | FileType::IQ2_M));
        let more = if larger { DType::IQ3_S } else { DType::Q2_K };
        match (role, self.file_type) {
            (Role::Values, _) if self.traits.sharing >= 4 || experts >= 4 => DType::Q4_K,
            (Role::Values, _) => more,
            (Role::Keys, _) if experts == 8 => DType::Q4_K,
            (Role::Down, _) if rank < self.traits.layers / 8 => more,
            (Role::AttentionOutput, _) if experts == 8 => DType::Q5_K,
            (Role::AttentionOutput, FileType::IQ1_S | FileType::IQ1_M) => DType::IQ2_XXS,
            (Role::AttentionOutput, _) if larger => DType::IQ3_S,
            (_, other) => other.dtype(),
        }
    }

    fn embedding(&self) -> DType {
        match self.file_type {
            FileType::IQ1_S | FileType::IQ1_M | FileType::IQ2_XXS | FileType::IQ2_XS => DType::Q2_K,
            FileType::IQ2_S | FileType::IQ2_M | FileType::IQ3_XXS => DType::IQ3_S,
            FileType::TQ1_0 | FileType::TQ2_0 | FileType::Q2_0 => DType::Q4_K,
            other => other.dtype(),
        }
    }

    fn falcon(&self) -> bool {
        self.traits.architecture == "falcon"
    }

    fn output(&self, tensor: &Candidate<'_>) -> DType {
        let dtype = self.file_type.dtype();
        let whole = tensor.extents[0].is_multiple_of(dtype.block_elements());
        match self.file_type {
            FileType::MXFP4_MOE | FileType::Q8_0 => DType::Q8_0,
            _ if self.falcon() || !whole => DType::Q8_0,
            FileType::IQ3_XXS => DType::Q5_K,
            _ if self.is_below_three_bits() => DType::Q5_K,
            _ => DType::Q6_K,
        }
    }

    fn values(&self, rank: u64) -> DType {
        let much_shared = self.traits.sharing >= 4;
        let dtype = match self.file_type {
            FileType::Q2_K | FileType::Q2_K_S | FileType::IQ3_XXS | FileType::IQ3_XS | FileType::IQ3_S
                if much_shared =>
            {
                DType::Q4_K
            }
            FileType::Q2_K => DType::Q3_K,
            FileType::IQ3_XXS if !self.traits.importance => DType::IQ3_S,
            FileType::IQ3_M => DType::Q4_K,
            FileType::Q3_K_M if rank < 2 => DType::Q5_K,
            FileType::Q3_K_M => DType::Q4_K,
            FileType::Q3_K_L => DType::Q5_K,
            FileType::IQ4_NL | FileType::IQ4_XS if much_shared => DType::Q5_K,
            FileType::Q4_K_M | FileType::Q5_K_M if more_bits(rank, self.values) => DType::Q6_K,
            FileType::Q4_K_S if rank < 4 => DType::Q5_K,
            other => other.dtype(),
        };
        // The 70B models share one head of values among eight of queries: more bits there cost little.
        let is_70b = match self.traits.architecture {
            "llama" => self.traits.layers == 80 && self.traits.sharing > 1,
            "deci" | "olmo" | "qwen2" => self.traits.layers == 80,
            "jais2" => self.traits.layers == 68,
            _ => false,
        };
        match dtype {
            DType::Q3_K | DType::Q4_K if is_70b => DType::Q5_K,
            dtype => dtype,
        }
    }

    fn attention_output(&self) -> DType {
        match (self.file_type, self.falcon(), self.traits.experts == 8) {
            (FileType::Q3_K_L, true, _) => DType::Q4_K,
            (
                FileType::Q2_K
                | FileType::Q3_K_S
                | FileType::Q3_K_M
                | FileType::Q4_K_S
                | FileType::Q4_K_M
                | FileType::IQ3_XXS
                | FileType::IQ3_XS
                | FileType::IQ3_S
                | FileType::IQ3_M
                | FileType::IQ4_NL
                | FileType::IQ4_XS,
                false,
                true,
            ) => DType::Q5_K,
            (FileType::Q2_K, false, false) => DType::Q3_K,
            (FileType::IQ3_XXS, false, false) => DType::IQ3_S,
            (FileType::Q3_K_M | FileType::IQ3_M, false, false) => DType::Q4_K,
            (FileType::Q3_K_L, false, false) => DType::Q5_K,
            (other, ..) => other.dtype(),
        }
    }

    fn down(&self, layer: u64) -> DType {
        let (layers, falcon, importance) = (self.traits.layers, self.falcon(), self.traits.importance);
        let (first_eighth, first_sixteenth) = (layer < layers / 8, layer < layers / 16);
        match self.file_type {
            FileType::Q2_K => DType::Q3_K,
            FileType::Q2_K_S if first_eighth => DType::Q4_K,
            FileType::IQ3_XXS if !importance => {
                if first_eighth {
                    DType::Q4_K
                } else {
                    DType::Q3_K
                }
            }
            FileType::IQ3_M if first_eighth || (self.traits.experts == 8 && more_bits(layer, layers)) => {
                DType::Q4_K
            }
            FileType::Q3_K_M if first_sixteenth => DType::Q5_K,
            FileType::Q3_K_M if !falcon || more_bits(layer, layers) => DType::Q4_K,
            FileType::Q3_K_L if falcon => DType::Q4_K,
            FileType::Q3_K_L => DType::Q5_K,
            FileType::Q4_K_M if falcon && first_sixteenth => DType::Q6_K,
            FileType::Q4_K_M if falcon => {
                if more_bits(layer, layers) {
                    DType::Q5_K
                } else {
                    DType::Q4_K
                }
            }
            FileType::Q4_K_M | FileType::Q5_K_M if more_bits(layer, layers) => DType::Q6_K,
            FileType::IQ4_NL | FileType::IQ4_XS if first_eighth && !importance => DType::Q5_K,
            // Types without a minimum suffer most from the first layers' outliers.
            FileType::Q4_0 if first_eighth && importance => DType::Q4_1,
            FileType::Q5_0 if first_eighth && importance => DType::Q5_1,
            FileType::Q4_K_S if first_eighth && !falcon => DType::Q5_K,
            other => other.dtype(),
        }
    }
}

/// The first and the last eighth of the layers, and every third between them.
fn more_bits(layer: u64, layers: u64) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= layers - layers.div_ceil(8) || (layer - eighth) % 3 == 2
}

/// The type, or the nearest one in whose blocks a row of `elements` can be stored.
fn fitting(dtype: DType, elements: u64) -> DType {
    if elements.is_multiple_of(dtype.block_elements()) {
        return dtype;
    }
    let smaller = match dtype {
        DType::IQ1_S
        | DType::IQ1_M
        | DType::IQ2_XXS
        | DType::IQ2_XS
        | DType::IQ2_S
        | DType::IQ3_XXS
        | DType::IQ3_S
        | DType::IQ4_XS => DType::IQ4_NL,
        DType::Q2_0 | DType::Q2_K | DType::Q3_K | DType::TQ1_0 | DType::TQ2_0 => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        _ => DType::F16,
    };
    if elements.is_multiple_of(smaller.block_elements()) { smaller } else { DType::F16 }
}

#[cfg(test)]
mod tests;
