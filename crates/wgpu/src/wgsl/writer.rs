use std::collections::BTreeSet;
use std::fmt::Write;

use orlop_graph::TensorDesc;

use super::element;
use super::library;

/// Invocations of a workgroup.
pub(crate) const WORKGROUP: u32 = 64;
/// Limit on workgroups along one dimension, on every adapter.
const MAX_GROUPS: u64 = 65_535;

/// An operand's buffer, offset and description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Index among the distinct buffers of the step.
    pub(crate) buffer: usize,
    /// Bytes from the buffer's start.
    pub(crate) offset: u64,
    pub(crate) desc: TensorDesc,
}

/// Bytes and operations of a kernel, for benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) bytes: f64,
    pub(crate) operations: f64,
}

/// A kernel's source, bindings and parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    pub(crate) source: String,
    /// The step's buffers that it binds, in order, and whether it writes each.
    pub(crate) bindings: Vec<(usize, bool)>,
    pub(crate) parameters: Vec<u32>,
    pub(crate) groups: [u32; 3],
    pub(crate) work: Work,
}

struct Operand {
    name: &'static str,
    place: Place,
    binding: usize,
    written: bool,
}

/// Builds a kernel.
pub(crate) struct Writer {
    operands: Vec<Operand>,
    bindings: Vec<(usize, bool)>,
    parameters: Vec<(String, &'static str, u32)>,
    /// A table of floats after the other parameters.
    table: Vec<f32>,
    operations: f64,
    /// Whether invocations may write parts of the same word.
    atomic: bool,
    subgroups: bool,
    globals: String,
    functions: String,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer {
            operands: Vec::new(),
            bindings: Vec::new(),
            parameters: Vec::new(),
            table: Vec::new(),
            operations: 0.0,
            atomic: false,
            subgroups: false,
            globals: String::new(),
            functions: String::new(),
        }
    }

    /// Use subgroup operations in reductions.
    pub(crate) fn with_subgroups(mut self, subgroups: bool) -> Writer {
        self.subgroups = subgroups;
        self
    }

    /// An operand that is read.
    pub(crate) fn read(&mut self, name: &'static str, place: &Place) -> &mut Writer {
        self.operand(name, place, false)
    }

    /// An operand that is written, and may be read.
    pub(crate) fn write(&mut self, name: &'static str, place: &Place) -> &mut Writer {
        self.atomic |= element::writes_parts(place.desc.dtype);
        self.operand(name, place, true)
    }

    /// Buffers that are bound: the next one's number.
    pub(crate) fn bindings(&self) -> usize {
        self.bindings.len()
    }

    /// Overrides whether invocations may write parts of the same word.
    pub(crate) fn atomic(&mut self, atomic: bool) -> &mut Writer {
        self.atomic = atomic;
        self
    }

    fn operand(&mut self, name: &'static str, place: &Place, written: bool) -> &mut Writer {
        let known = self.bindings.iter().position(|(buffer, _)| *buffer == place.buffer);
        let binding = known.unwrap_or_else(|| {
            self.bindings.push((place.buffer, false));
            self.bindings.len() - 1
        });
        self.bindings[binding].1 |= written;
        self.operands.push(Operand { name, place: *place, binding, written });
        let [s0, s1, s2, s3] = place.desc.strides;
        self.number(&format!("{name}_o"), place.offset);
        for (dim, stride) in [s0, s1, s2, s3].into_iter().enumerate() {
            self.number(&format!("{name}_s{dim}"), stride);
        }
        for (dim, extent) in place.desc.extents.into_iter().enumerate() {
            self.number(&format!("{name}_n{dim}"), extent);
        }
        self
    }

    /// An integer that fits 32 bits, which `accepts` ensures.
    pub(crate) fn number(&mut self, name: &str, value: u64) -> &mut Writer {
        self.parameters.push((name.to_owned(), "u32", value as u32));
        self
    }

    pub(crate) fn signed(&mut self, name: &str, value: i64) -> &mut Writer {
        self.parameters.push((name.to_owned(), "i32", value as i32 as u32));
        self
    }

    pub(crate) fn float(&mut self, name: &str, value: f32) -> &mut Writer {
        // As bits, which preserves infinities and NaN.
        self.parameters.push((name.to_owned(), "u32", value.to_bits()));
        self
    }

    /// Precomputed floats, read by `table(i)`.
    pub(crate) fn table(&mut self, values: Vec<f32>) -> &mut Writer {
        self.table = values;
        self
    }

    /// Number of operations, for benchmarks.
    pub(crate) fn operations(&mut self, count: f64) -> &mut Writer {
        self.operations = count;
        self
    }

    /// Declarations before the functions.
    pub(crate) fn global(&mut self, text: &str) -> &mut Writer {
        self.globals.push_str(text);
        self.globals.push('\n');
        self
    }

    /// A function that the body calls.
    pub(crate) fn function(&mut self, text: &str) -> &mut Writer {
        self.functions.push_str(text);
        self.functions.push('\n');
        self
    }

    /// A kernel with one invocation per `index` below `count`.
    pub(crate) fn each(mut self, count: u64, body: &str) -> Kernel {
        self.number("count", count);
        let groups = count.div_ceil(u64::from(WORKGROUP));
        let body = format!(
            "  let index = (group.y * groups.x + group.x) * {WORKGROUP}u + lane;\n  if (index >= p.count) {{ return; }}\n{body}"
        );
        self.finish(spread(groups), &body)
    }

    /// A kernel with one workgroup per `index` below `count`; `lane` is the invocation's number in it.
    pub(crate) fn each_group(mut self, count: u64, body: &str) -> Kernel {
        self.number("count", count);
        let body = format!(
            "  let index = group.y * groups.x + group.x;\n  if (index >= p.count) {{ return; }}\n{body}"
        );
        self.finish(spread(count), &body)
    }

    fn finish(self, groups: [u32; 3], body: &str) -> Kernel {
        let mut called = format!("{}{body}", self.functions);
        let mut chosen = Vec::new();
        let mut known = BTreeSet::new();
        let candidates = self.candidates();
        // Functions may call others.
        while let Some((name, text)) =
            candidates.iter().find(|(name, _)| !known.contains(name) && called.contains(&format!("{name}(")))
        {
            known.insert(name);
            called.push_str(text);
            chosen.push(text.as_str());
        }
        let mut source = String::new();
        let reduces = chosen.iter().any(|text| text.contains("subgroup"));
        source.push_str("struct Parameters {\n");
        for (name, kind, _) in &self.parameters {
            let _ = writeln!(source, "  {name}: {kind},");
        }
        let quads = self.table.len().div_ceil(4);
        if quads > 0 {
            let _ = writeln!(source, "  numbers: array<vec4<f32>, {quads}>,");
        }
        let books = self.codebooks();
        for (name, words) in &books {
            let _ = writeln!(source, "  {name}_book: array<vec4<u32>, {}>,", words.len() / 4);
        }
        source.push_str("}\n@group(0) @binding(0) var<uniform> p: Parameters;\n");
        for (index, (_, written)) in self.bindings.iter().enumerate() {
            let access = if *written { "read_write" } else { "read" };
            let word = if *written && self.atomic { "atomic<u32>" } else { "u32" };
            let _ = writeln!(
                source,
                "@group(0) @binding({}) var<storage, {access}> b{index}: array<{word}>;",
                index + 1
            );
        }
        for (name, kind) in [("partial", "f32"), ("partials", "vec4<f32>")] {
            if called.contains(&format!("{name}[")) {
                let _ = writeln!(source, "var<workgroup> {name}: array<{kind}, {WORKGROUP}>;");
            }
        }
        source.push_str("var<private> lane: u32;\n");
        if called.contains("block[") {
            source.push_str("var<private> block: array<f32, 32>;\n");
        }
        if reduces {
            source.push_str("var<private> team: u32;\nvar<private> teams: u32;\nvar<private> mate: u32;\n");
        }
        source.push_str(&self.globals);
        chosen.iter().rev().for_each(|text| source.push_str(text));
        source.push_str(&self.functions);
        let inputs = if reduces {
            ",\n  @builtin(subgroup_id) team_in: u32, @builtin(num_subgroups) teams_in: u32,\n  @builtin(subgroup_invocation_id) mate_in: u32"
        } else {
            ""
        };
        let noted = if reduces { "  team = team_in; teams = teams_in; mate = mate_in;\n" } else { "" };
        let _ = write!(
            source,
            "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,\n  @builtin(local_invocation_index) lane_in: u32{inputs}) {{\n  lane = lane_in;\n{noted}{body}}}\n"
        );
        let mut parameters: Vec<u32> = self.parameters.iter().map(|(_, _, value)| *value).collect();
        if quads > 0 {
            parameters.resize(parameters.len().next_multiple_of(4), 0);
            parameters.extend(self.table.iter().map(|value| value.to_bits()));
        }
        parameters.resize(parameters.len().next_multiple_of(4), 0);
        parameters.extend(books.into_iter().flat_map(|(_, words)| words));
        let (bindings, work) = (self.bindings.clone(), self.work());
        Kernel { source, bindings, parameters, groups, work }
    }

    /// The codebooks of the operands, after all other parameters.
    fn codebooks(&self) -> Vec<(&'static str, Vec<u32>)> {
        let operands = self.operands.iter();
        operands.filter_map(|it| Some((it.name, element::codebook(it.place.desc.dtype)?))).collect()
    }

    /// Bytes of the operands, each counted once.
    fn work(&self) -> Work {
        let bytes = |operand: &Operand| {
            let desc = &operand.place.desc;
            desc.row_bytes().saturating_mul(desc.rows()) as f64
        };
        Work { bytes: self.operands.iter().map(bytes).sum(), operations: self.operations }
    }

    /// Every function that a body could call.
    fn candidates(&self) -> Vec<(String, String)> {
        let mut all = library::functions(self.subgroups);
        for operand in &self.operands {
            let atomic = self.atomic && self.bindings[operand.binding].1;
            let Place { desc, offset, .. } = &operand.place;
            let whole = |dim: usize| desc.extents[dim] <= 1 || desc.strides[dim].is_multiple_of(4);
            let access = element::Access {
                name: operand.name,
                binding: operand.binding,
                desc,
                atomic,
                written: operand.written,
                words: offset.is_multiple_of(4) && (1..4).all(whole),
            };
            all.extend(access.functions());
        }
        all
    }
}

/// A two-dimensional grid of workgroups, because one dimension is limited.
fn spread(groups: u64) -> [u32; 3] {
    let y = groups.div_ceil(MAX_GROUPS).max(1);
    [groups.div_ceil(y).max(1) as u32, y as u32, 1]
}

/// A parameter that is a float, as an expression.
pub(crate) fn float_bits(name: &str) -> String {
    format!("bitcast<f32>(p.{name})")
}
