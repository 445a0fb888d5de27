//! Programs in C, among them the examples: compiled with all warnings as errors, linked with either library, run alone and
//! under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{crate_folder, tiny_model};

/// The folder of the built libraries: this program's.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}{errors}", output.status);
    text
}

/// Compiles a program of a folder.
fn compile(folder: &str, name: &str, library: &str) -> PathBuf {
    compile_file(&crate_folder().join(folder).join(format!("{name}.c")), name, library)
}

fn compile_file(source: &Path, name: &str, library: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{library}"));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"]);
    command.arg(crate_folder().join("include"));
    command.arg(source).arg("-o").arg(&program);
    match library {
        "static" => command.arg(built().join("liborlop_capi.a")).args(LIBRARIES),
        // The library's own name is the one that it is installed under.
        _ => {
            let shared = built().join("liborlop.so.0");
            let _ = std::fs::remove_file(&shared);
            std::os::unix::fs::symlink("liborlop_capi.so", &shared).unwrap();
            command.arg(&shared).arg(format!("-Wl,-rpath,{}", built().display())).args(LIBRARIES)
        }
    };
    run(&mut command);
    program
}

/// What the static library needs.
const LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

const EXAMPLES: &str = "../../examples/c";

fn under_valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=1", "--leak-check=full", "--fair-sched=yes"]);
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]).arg(program);
    command
}

/// As [`under_valgrind`], but a process may keep memory, as a forked one keeps that of its parent.
fn under_valgrind_with_leaks(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=1", "--fair-sched=yes"]).arg(program);
    command
}

#[cfg(target_os = "linux")]
#[test]
fn programs_in_c_compile_without_warnings_and_are_clean_under_valgrind() {
    let plan = compile(EXAMPLES, "plan", "static");
    let expected =
        "peak 5120 of at least 5120; the first and the last buffer share: yes\nrelu(w x) = 5 0 0\n";
    assert_eq!(run(&mut Command::new(&plan)), expected);
    assert_eq!(run(&mut under_valgrind(&plan)), expected);

    let generate = compile(EXAMPLES, "generate", "shared");
    let arguments = [tiny_model().to_str().unwrap(), "Once upon a time", "4"];
    let alone = run(Command::new(&generate).args(arguments));
    assert!(alone.contains("bytes written, ") && alone.ends_with("context 256\n"), "{alone}");
    let checked = run(under_valgrind(&generate).args(arguments));
    assert_eq!(alone.lines().last(), checked.lines().last());

    let missing = Command::new(&generate).args(["/nowhere.gguf", "a"]).output().unwrap();
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(1) && said.contains("/nowhere.gguf"), "{said}");
}

/// The blocks in C of the guide, in order, as one program that closes its model and gives 0 if it was opened.
fn program_of_the_guide() -> String {
    let page = std::fs::read_to_string(crate_folder().join("../../docs/src/guide/c.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    let body = blocks.concat();
    format!(
        "#include <orlop.h>\n#include <stdio.h>\nint main(void) {{\norlop_model *model = NULL;\n{body}\
         int failed = model == NULL;\norlop_model_free(model);\nreturn failed;\n}}\n"
    )
}

#[cfg(target_os = "linux")]
#[test]
fn the_blocks_of_the_guide_compile_and_run() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("guide.c");
    std::fs::write(&source, program_of_the_guide()).unwrap();
    let program = compile_file(&source, "guide", "static");
    let run = || Command::new(&program).current_dir(&folder).output().unwrap();

    let _ = std::fs::remove_file(folder.join("model.gguf"));
    let missing = run();
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(1) && said.contains("model.gguf"), "{said}");

    std::fs::copy(tiny_model(), folder.join("model.gguf")).unwrap();
    let opened = run();
    assert_eq!((opened.status.code(), opened.stderr), (Some(0), Vec::new()));
}

/// What the excerpts of ggml's API use without declaring it, in the order of the page: before the function, and its parameters.
const EXCERPTS: [(&str, &str); 4] = [
    ("struct ggml_cgraph *build_graph(void);", "void"),
    ("struct ggml_cgraph *build_graph(int tokens);", "void"),
    (
        "",
        "struct ggml_context *ctx, ggml_backend_buffer_type_t buft, struct ggml_tensor *a, struct ggml_tensor *b, \
         void *data",
    ),
    (
        "",
        "ggml_backend_t *backends, ggml_backend_t cpu, struct ggml_tensor *x, struct ggml_tensor *y, \
         struct ggml_cgraph *graph, void *data",
    ),
];

/// The halves in Rust run as tests of the documentation, and these in `cargo xtask test --on ggml`, with ggml.
#[test]
fn the_excerpts_of_ggml_compile_as_it_declares_its_functions() {
    let page = std::fs::read_to_string(crate_folder().join("../../docs/src/guide/from-ggml.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), EXCERPTS.len());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("excerpts");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, (block, (before, parameters))) in blocks.iter().zip(EXCERPTS).enumerate() {
        let source = folder.join(format!("{number}.c"));
        let text = format!(
            "#include \"ggml.h\"\n{before}\nvoid excerpt({parameters});\nvoid excerpt({parameters}) {{\n{block}}}\n"
        );
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new("cc");
        command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only", "-I"]);
        run(command.arg(crate_folder().join("tests/programs")).arg(&source));
    }
}

/// Threads that use the same objects get them one after the other, or the status of a busy object; a forked process gets the
/// status that says so, and ends.
#[cfg(target_os = "linux")]
#[test]
fn threads_and_forked_processes_get_statuses() {
    let [threads, fork] = ["threads", "fork"].map(|name| compile("tests/programs", name, "shared"));
    for mut command in [Command::new(&threads), under_valgrind(&threads)] {
        assert_eq!(run(command.arg(tiny_model())), "done\n");
    }
    for mut command in [Command::new(&fork), under_valgrind_with_leaks(&fork)] {
        assert_eq!(run(command.arg(tiny_model())), "done\n");
    }
}
