//! Random sequences of calls with all that the header allows: NULL, wrong sizes, wrong versions, objects in any order.
//!
//! `ORLOP_CALL_SEQUENCES=FROM..TO` sets which sequences run; `cargo xtask test --on sanitizers` runs many, in several processes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Range;
use std::ptr;

use orlop_capi::*;
use orlop_testkit::Random;

use crate::tiny_model;

/// As many as take a second.
const SEQUENCES: Range<u64> = 0..60;

/// The sequences to run, by their seeds.
fn sequences() -> Range<u64> {
    let Ok(given) = std::env::var("ORLOP_CALL_SEQUENCES") else { return SEQUENCES };
    let ends = given.split_once("..").map(|(from, to)| (from.parse(), to.parse()));
    let Some((Ok(from), Ok(to))) = ends else { panic!("ORLOP_CALL_SEQUENCES={given}: not FROM..TO") };
    from..to
}

/// Objects that live, and what was counted.
struct Caller {
    random: Random,
    models: Vec<*mut orlop_model>,
    sequences: Vec<*mut orlop_sequence>,
    graphs: Vec<*mut orlop_graph>,
    sessions: Vec<*mut orlop_session>,
    prepared: Vec<*mut orlop_prepared>,
    /// Calls by status.
    counts: [usize; 7],
}

/// Stops after some pieces.
unsafe extern "C" fn count_down(text: *const c_char, length: usize, left: *mut c_void) -> bool {
    assert!(!text.is_null() && length > 0);
    // SAFETY: the caller passes a number of its own.
    let left = unsafe { left.cast::<u32>().as_mut() }.expect("a number");
    *left = left.saturating_sub(1);
    *left > 0
}

impl Caller {
    fn new(seed: u64) -> Caller {
        Caller {
            random: Random::new(seed),
            models: Vec::new(),
            sequences: Vec::new(),
            graphs: Vec::new(),
            sessions: Vec::new(),
            prepared: Vec::new(),
            counts: [0; 7],
        }
    }

    /// Objects with which the calls that follow can succeed, for some of the sequences.
    fn begin(&mut self) {
        if self.random.one_in(2) {
            self.open();
        }
        if self.random.one_in(2) {
            self.session();
        }
        if self.random.one_in(4) {
            return;
        }
        let (mut graph, mut tensor, extents, mut error) = (ptr::null_mut(), 0, [4, 4], ptr::null_mut());
        // SAFETY: the places are ours.
        let status = unsafe { orlop_graph_new(&mut graph, &mut error) };
        Self::keep(&mut self.graphs, graph, status);
        self.done(status, error);
        let (name, dtype) = (c"x".as_ptr(), c"f32".as_ptr());
        // SAFETY: the graph lives, texts end with a zero, and the places are ours.
        let status =
            unsafe { orlop_graph_leaf(graph, 0, name, dtype, extents.as_ptr(), 2, &mut tensor, &mut error) };
        self.done(status, error);
        let op = c"{\"unary\": \"relu\"}";
        // SAFETY: as before.
        let status =
            unsafe { orlop_graph_node(graph, op.as_ptr(), &raw const tensor, 1, &mut tensor, &mut error) };
        self.done(status, error);
        // SAFETY: as before.
        let status = unsafe { orlop_graph_output(graph, tensor, &mut error) };
        self.done(status, error);
    }

    /// A living object, or NULL.
    fn any<T>(random: &mut Random, objects: &[*mut T]) -> *mut T {
        if objects.is_empty() || random.one_in(20) { ptr::null_mut() } else { random.pick(objects) }
    }

    /// A place for an object, or none.
    fn keep<T>(objects: &mut Vec<*mut T>, made: *mut T, status: orlop_status) {
        assert_eq!(made.is_null(), status != orlop_status::OrlopOk);
        if !made.is_null() {
            objects.push(made);
        }
    }

    /// Counts a call; a failed one has a message.
    fn done(&mut self, status: orlop_status, error: *mut orlop_error) {
        assert_ne!(status, orlop_status::OrlopPanic);
        assert_eq!(error.is_null(), status == orlop_status::OrlopOk);
        self.counts[status as usize] += 1;
        // SAFETY: it is NULL or an error of the last call.
        let message = unsafe { orlop_error_message(error) };
        assert_eq!(message.is_null(), error.is_null());
        // SAFETY: as before; it is not used again.
        unsafe { orlop_error_free(error) };
    }

    fn call(&mut self) {
        let mut error = ptr::null_mut();
        match self.random.below(23) {
            0..=6 if self.models.is_empty() && self.random.one_in(2) => self.open(),
            0 if self.models.len() < 2 && self.random.one_in(4) => self.open(),
            4..=6 if self.sequences.is_empty() => self.start(),
            0 | 1 => self.tokens(),
            2 => self.generate(),
            3 => self.start(),
            4 => {
                let (from, mut made) = (Self::any(&mut self.random, &self.sequences), ptr::null_mut());
                let length = self.random.pick(&[0, 1, 3, usize::MAX]);
                // SAFETY: the sequence is NULL or lives, and the places are ours.
                let status = unsafe { orlop_sequence_fork(from, length, &mut made, &mut error) };
                Self::keep(&mut self.sequences, made, status);
                self.done(status, error);
            }
            5 | 6 => self.feed(),
            7 => {
                let (sequence, mut length) = (Self::any(&mut self.random, &self.sequences), 0);
                // SAFETY: the sequence is NULL or lives, and the places are ours.
                let status = unsafe { orlop_sequence_length(sequence, &mut length, &mut error) };
                assert!(length <= 128);
                self.done(status, error);
            }
            8 => self.plan(),
            9 => {
                let mut made = ptr::null_mut();
                // SAFETY: the places are ours.
                let status = unsafe { orlop_graph_new(&mut made, &mut error) };
                Self::keep(&mut self.graphs, made, status);
                self.done(status, error);
            }
            10 | 11 => self.leaf(),
            12..=14 => self.node(),
            15 => {
                let (graph, tensor) =
                    (Self::any(&mut self.random, &self.graphs), self.random.below(6) as u32);
                // SAFETY: the graph is NULL or lives, and the place is ours.
                let status = unsafe { orlop_graph_output(graph, tensor, &mut error) };
                self.done(status, error);
            }
            16 => {
                let graph = Self::any(&mut self.random, &self.graphs);
                // SAFETY: the graph is NULL or lives, and the place is ours.
                let status = unsafe { orlop_graph_build(graph, &mut error) };
                self.done(status, error);
            }
            17 => self.session(),
            18 => self.prepare(),
            19 | 20 => self.run(),
            21 => self.facts(),
            _ => self.free_one(),
        }
    }

    fn open(&mut self) {
        let path = CString::new(tiny_model().to_str().expect("a text")).expect("a path");
        let path = if self.random.one_in(10) { c"/nowhere.gguf".to_owned() } else { path };
        let (mut made, mut error) = (ptr::null_mut(), ptr::null_mut());
        let mut options = std::mem::MaybeUninit::uninit();
        // SAFETY: the place is ours.
        unsafe { orlop_model_options_init(options.as_mut_ptr()) };
        // SAFETY: it was just set.
        let mut options: orlop_model_options = unsafe { options.assume_init() };
        options.threads = 1;
        options.context = self.random.pick(&[64, 128]);
        options.batch = self.random.pick(&[1, 16, 64]);
        options.sequences = self.random.pick(&[0, 2]);
        options.lookup = self.random.pick(&[0, 3]);
        options.devices = self.random.pick(&[ptr::null(), c"cpu".as_ptr(), c"nothing".as_ptr()]);
        if self.random.one_in(10) {
            options.version = 9;
        }
        // SAFETY: texts end with a zero, and the places are ours.
        let status = unsafe { orlop_model_open(path.as_ptr(), &options, &mut made, &mut error) };
        Self::keep(&mut self.models, made, status);
        self.done(status, error);
        // Planning every shape of a run takes ten times what opening takes.
        if !self.random.one_in(8) {
            return;
        }
        let version = self.random.pick(&[ORLOP_STRUCT_VERSION, ORLOP_STRUCT_VERSION, 0]);
        let mut plan = orlop_model_plan { version, ..orlop_model_plan::default() };
        let mut error = ptr::null_mut();
        // SAFETY: as before.
        let status = unsafe { orlop_plan_model(path.as_ptr(), &options, &mut plan, &mut error) };
        self.done(status, error);
    }

    fn facts(&mut self) {
        let (model, mut error) = (Self::any(&mut self.random, &self.models), ptr::null_mut());
        let version = self.random.pick(&[ORLOP_STRUCT_VERSION, ORLOP_STRUCT_VERSION, 0]);
        let mut info = orlop_model_info { version, ..orlop_model_info::default() };
        // SAFETY: the model is NULL or lives, and the places are ours.
        let status = unsafe { orlop_model_facts(model, &mut info, &mut error) };
        assert!(status != orlop_status::OrlopOk || [64, 128].contains(&info.context));
        self.done(status, error);
        // SAFETY: the text ends with a zero and lives as long as the library.
        let version = unsafe { CStr::from_ptr(orlop_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }

    fn start(&mut self) {
        let (model, mut made) = (Self::any(&mut self.random, &self.models), ptr::null_mut());
        let mut error = ptr::null_mut();
        // SAFETY: the model is NULL or lives, and the places are ours.
        let status = unsafe { orlop_sequence_start(model, &mut made, &mut error) };
        Self::keep(&mut self.sequences, made, status);
        self.done(status, error);
    }

    fn tokens(&mut self) {
        let (model, mut error) = (Self::any(&mut self.random, &self.models), ptr::null_mut());
        let text = self.random.pick(&[&b"Once upon a time"[..], b"", b"\xff\xfe", "\u{20ac}<s>".as_bytes()]);
        let (mut tokens, mut count) = ([0; 16], 0);
        let capacity = self.random.pick(&[0, 3, 16]);
        // SAFETY: the model is NULL or lives, and the places are ours.
        let status = unsafe {
            orlop_tokenize(
                model,
                text.as_ptr().cast(),
                text.len(),
                true,
                tokens.as_mut_ptr(),
                capacity,
                &mut count,
                &mut error,
            )
        };
        self.done(status, error);
        let (mut bytes, mut length, mut error) = ([0 as c_char; 8], 0, ptr::null_mut());
        let count = count.min(tokens.len());
        // SAFETY: as before.
        let status = unsafe {
            orlop_detokenize(model, tokens.as_ptr(), count, bytes.as_mut_ptr(), 8, &mut length, &mut error)
        };
        self.done(status, error);
    }

    fn some_tokens(&mut self) -> Vec<u32> {
        let count = self.random.pick(&[0, 1, 5, 40, 200]);
        let most = if self.random.one_in(10) { 400 } else { 300 };
        (0..count).map(|_| self.random.below(most) as u32).collect()
    }

    fn generate(&mut self) {
        let (model, tokens) = (Self::any(&mut self.random, &self.models), self.some_tokens());
        let mut options = std::mem::MaybeUninit::uninit();
        // SAFETY: the place is ours.
        unsafe { orlop_text_options_init(options.as_mut_ptr()) };
        // SAFETY: it was just set.
        let mut options: orlop_text_options = unsafe { options.assume_init() };
        options.max_tokens = self.random.pick(&[1, 6]);
        options.temperature = self.random.pick(&[-1.0, 0.0, 0.7, f32::NAN]);
        options.top_p = self.random.pick(&[0.0, 0.9, f32::INFINITY]);
        let (mut left, mut end, mut error) = (3_u32, orlop_end::OrlopEndToken, ptr::null_mut());
        let callback: orlop_text_callback = if self.random.one_in(2) { Some(count_down) } else { None };
        // SAFETY: the model is NULL or lives, the places are ours, and the callback takes the number.
        let status = unsafe {
            orlop_generate(
                model,
                tokens.as_ptr(),
                tokens.len(),
                &options,
                callback,
                (&raw mut left).cast(),
                &mut end,
                &mut error,
            )
        };
        self.done(status, error);
    }

    fn feed(&mut self) {
        let (sequence, tokens) = (Self::any(&mut self.random, &self.sequences), self.some_tokens());
        let (mut logits, mut error) = (vec![0.0; 300], ptr::null_mut());
        let (place, capacity) =
            self.random.pick(&[(logits.as_mut_ptr(), 300), (logits.as_mut_ptr(), 20), (ptr::null_mut(), 0)]);
        // SAFETY: the sequence is NULL or lives, and the places are ours.
        let status = unsafe {
            orlop_sequence_feed(sequence, tokens.as_ptr(), tokens.len(), place, capacity, &mut error)
        };
        self.done(status, error);
    }

    fn plan(&mut self) {
        let count = self.random.index(6);
        let random = &mut self.random;
        let buffer = |_| orlop_buffer {
            version: if random.one_in(10) { 9 } else { ORLOP_STRUCT_VERSION },
            size: random.pick(&[0, 1, 100, 4096, u64::MAX]),
            align: random.pick(&[1, 64, 3]),
            lower: random.pick(&[0, 1, 2]),
            upper: random.pick(&[1, 2, 5]),
        };
        let buffers: Vec<orlop_buffer> = (0..count).map(buffer).collect();
        let (mut offsets, mut error) = (vec![0; count], ptr::null_mut());
        let version = self.random.pick(&[ORLOP_STRUCT_VERSION, ORLOP_STRUCT_VERSION, 0]);
        let mut summary = orlop_plan_summary { version, ..orlop_plan_summary::default() };
        let capacity = self.random.pick(&[0, 50, 1 << 20]);
        // SAFETY: the places are ours.
        let status = unsafe {
            orlop_plan_buffers(
                buffers.as_ptr(),
                count,
                capacity,
                offsets.as_mut_ptr(),
                &mut summary,
                &mut error,
            )
        };
        self.done(status, error);
    }

    fn leaf(&mut self) {
        let graph = Self::any(&mut self.random, &self.graphs);
        let kind = self.random.pick(&[0, 0, 0, 1, 2, 3, 7]);
        let name = self.random.pick(&[c"x".as_ptr(), c"w".as_ptr(), c"\xff".as_ptr(), ptr::null()]);
        let dtype = self.random.pick(&[c"f32", c"f32", c"f16", c"q4_0", c"nothing"]);
        let extents: [u64; 5] = std::array::from_fn(|_| self.random.pick(&[1, 2, 4, 32, 0, u64::MAX]));
        let extents = if self.random.one_in(4) { extents } else { [4, 4, 1, 1, 1] };
        let (dimensions, mut tensor) = (self.random.pick(&[1, 2, 4, 5]), 0);
        let mut error = ptr::null_mut();
        // SAFETY: the graph is NULL or lives, texts end with a zero, and the places are ours.
        let status = unsafe {
            orlop_graph_leaf(
                graph,
                kind,
                name,
                dtype.as_ptr(),
                extents.as_ptr(),
                dimensions,
                &mut tensor,
                &mut error,
            )
        };
        self.done(status, error);
    }

    fn node(&mut self) {
        let graph = Self::any(&mut self.random, &self.graphs);
        let op = self.random.pick(&[
            c"\"add\"",
            c"\"mul_mat\"",
            c"{\"unary\": \"relu\"}",
            c"{\"scale\": {\"scale\": 2.0, \"bias\": 1.0}}",
            c"{\"top_k\": {\"k\": 2}}",
            c"\"nothing\"",
            c"{",
        ]);
        let inputs: [u32; 3] = std::array::from_fn(|_| self.random.below(5) as u32);
        let (count, mut tensor, mut error) = (self.random.index(4), 0, ptr::null_mut());
        // SAFETY: the graph is NULL or lives, texts end with a zero, and the places are ours.
        let status =
            unsafe { orlop_graph_node(graph, op.as_ptr(), inputs.as_ptr(), count, &mut tensor, &mut error) };
        self.done(status, error);
    }

    fn session(&mut self) {
        if self.sessions.len() > 1 {
            return;
        }
        let names = self.random.pick(&[ptr::null(), c"cpu".as_ptr(), c"cpu,cpu".as_ptr(), c"".as_ptr()]);
        let (mut made, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: texts end with a zero, and the places are ours.
        let status = unsafe { orlop_session_new(names, 1, &mut made, &mut error) };
        Self::keep(&mut self.sessions, made, status);
        self.done(status, error);
    }

    fn prepare(&mut self) {
        let session = Self::any(&mut self.random, &self.sessions);
        let graph = Self::any(&mut self.random, &self.graphs);
        let contents = [0_u8; 64];
        let length = self.random.pick(&[16, 64]);
        let version = if self.random.one_in(10) { 9 } else { ORLOP_STRUCT_VERSION };
        let external = orlop_external { version, name: c"w".as_ptr(), bytes: contents.as_ptr(), length };
        let (mut made, mut error) = (ptr::null_mut(), ptr::null_mut());
        let count = self.random.index(2);
        // SAFETY: objects are NULL or live, and the places are ours.
        let status =
            unsafe { orlop_session_prepare(session, graph, &external, count, &mut made, &mut error) };
        Self::keep(&mut self.prepared, made, status);
        self.done(status, error);
    }

    fn run(&mut self) {
        let prepared = Self::any(&mut self.random, &self.prepared);
        let (tensor, mut bytes) = (self.random.below(5) as u32, [0_u8; 64]);
        for tensor in [0, tensor] {
            let (length, mut error) = (self.random.pick(&[16, 64, 7]), ptr::null_mut());
            // SAFETY: the object is NULL or lives, and the places are ours.
            let status = unsafe { orlop_prepared_set(prepared, tensor, bytes.as_ptr(), length, &mut error) };
            self.done(status, error);
        }
        let mut error = ptr::null_mut();
        // SAFETY: as before.
        let status = unsafe { orlop_prepared_run(prepared, &mut error) };
        self.done(status, error);
        let (length, mut error) = (self.random.pick(&[8, 16, 64]), ptr::null_mut());
        // SAFETY: as before.
        let status = unsafe { orlop_prepared_get(prepared, tensor, bytes.as_mut_ptr(), length, &mut error) };
        self.done(status, error);
        let (mut text, mut length, mut error) = ([0 as c_char; 300], 0, ptr::null_mut());
        // SAFETY: as before.
        let status =
            unsafe { orlop_prepared_placement(prepared, text.as_mut_ptr(), 300, &mut length, &mut error) };
        self.done(status, error);
    }

    fn free_one(&mut self) {
        match self.random.below(5) {
            // SAFETY: it lives, and is not used again; NULL may be freed.
            0 => unsafe { orlop_model_free(self.models.pop().unwrap_or(ptr::null_mut())) },
            // SAFETY: as before.
            1 => unsafe { orlop_sequence_free(self.sequences.pop().unwrap_or(ptr::null_mut())) },
            // SAFETY: as before.
            2 => unsafe { orlop_graph_free(self.graphs.pop().unwrap_or(ptr::null_mut())) },
            // SAFETY: as before.
            3 => unsafe { orlop_session_free(self.sessions.pop().unwrap_or(ptr::null_mut())) },
            // SAFETY: as before.
            _ => unsafe { orlop_prepared_free(self.prepared.pop().unwrap_or(ptr::null_mut())) },
        }
    }

    fn end(mut self) -> [usize; 7] {
        while self.models.len() + self.sequences.len() + self.graphs.len() > 0
            || self.sessions.len() + self.prepared.len() > 0
        {
            self.free_one();
        }
        self.counts
    }
}

#[test]
fn random_calls_return_errors_and_never_crash() {
    let seeds = sequences();
    let mut counts = [0; 7];
    for seed in seeds.clone() {
        let mut caller = Caller::new(seed);
        caller.begin();
        for _ in 0..60 {
            caller.call();
        }
        for (sum, count) in counts.iter_mut().zip(caller.end()) {
            *sum += count;
        }
    }
    println!("sequences {seeds:?}; calls by status: {counts:?}");
    let [done, bad, failed, busy, small, panicked, forked] = counts;
    assert!(done > 15 * seeds.count() && bad > 0 && failed > 0 && small > 0, "{counts:?}");
    assert_eq!((busy, panicked, forked), (0, 0, 0));
}

#[test]
fn every_function_of_the_header_is_called() {
    let header = std::fs::read_to_string(crate::crate_folder().join("include/orlop.h")).unwrap();
    let names =
        header.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '(');
    let mut functions: Vec<&str> =
        names.filter_map(|word| word.split_once('(')).map(|(name, _)| name).collect();
    functions.retain(|name| name.starts_with("orlop_"));
    assert!(functions.len() > 30, "{functions:?}");
    let calls = include_str!("calls.rs");
    let left: Vec<&str> = functions.into_iter().filter(|name| !calls.contains(&format!("{name}("))).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_call_from_a_callback_finds_the_model_busy() {
    unsafe extern "C" fn call_again(_: *const c_char, _: usize, model: *mut c_void) -> bool {
        let mut info = std::mem::MaybeUninit::uninit();
        // SAFETY: the place is ours.
        unsafe { orlop_text_options_init(info.as_mut_ptr()) };
        // SAFETY: it was just set.
        let options = unsafe { info.assume_init() };
        let (mut end, tokens) = (orlop_end::OrlopEndToken, [1_u32]);
        let model = model.cast::<orlop_model>();
        // SAFETY: the caller passes a model that lives.
        let status = unsafe {
            orlop_generate(
                model,
                tokens.as_ptr(),
                1,
                &options,
                None,
                ptr::null_mut(),
                &mut end,
                ptr::null_mut(),
            )
        };
        assert_eq!(status, orlop_status::OrlopBusy);
        false
    }
    let path = CString::new(tiny_model().to_str().expect("a text")).expect("a path");
    let mut options = std::mem::MaybeUninit::uninit();
    // SAFETY: the place is ours.
    unsafe { orlop_model_options_init(options.as_mut_ptr()) };
    // SAFETY: it was just set.
    let mut options: orlop_model_options = unsafe { options.assume_init() };
    options.threads = 1;
    let (mut model, mut end) = (ptr::null_mut(), orlop_end::OrlopEndToken);
    // SAFETY: texts end with a zero, and the places are ours.
    let status = unsafe { orlop_model_open(path.as_ptr(), &options, &mut model, ptr::null_mut()) };
    assert_eq!(status, orlop_status::OrlopOk);
    let mut text = std::mem::MaybeUninit::uninit();
    // SAFETY: the place is ours.
    unsafe { orlop_text_options_init(text.as_mut_ptr()) };
    // SAFETY: it was just set.
    let mut text: orlop_text_options = unsafe { text.assume_init() };
    (text.temperature, text.max_tokens) = (0.0, 20);
    let tokens = [1_u32, 2, 3];
    // SAFETY: the model lives, and the callback takes it.
    let status = unsafe {
        orlop_generate(
            model,
            tokens.as_ptr(),
            3,
            &text,
            Some(call_again),
            model.cast(),
            &mut end,
            ptr::null_mut(),
        )
    };
    assert_eq!((status, end), (orlop_status::OrlopOk, orlop_end::OrlopEndStopped));
    // SAFETY: it lives, and is not used again.
    unsafe { orlop_model_free(model) };
}
