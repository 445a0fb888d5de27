//! The tests of the Python package: pytest, mypy and the notebook, in a virtual environment in cargo's target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use orlop::llm::Synth;

/// What the tests need, with the packages of the notebook. Missing ones are installed with pip.
const PACKAGES: [&str; 7] = ["ipykernel", "mypy", "nbclient", "nbformat", "numpy", "pandas", "pytest"];

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}

/// The folder of the built libraries: this program's.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

/// Python of a virtual environment with the needed packages, and a folder with the package as it was just built.
struct Environment {
    python: PathBuf,
    site: PathBuf,
    temporary: PathBuf,
}

impl Environment {
    fn new() -> Environment {
        let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let venv = temporary.join("python");
        let python = venv.join("bin/python");
        if !python.exists() {
            run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        }
        let stamp = venv.join("packages");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(&PACKAGES.join(" ")) {
            let mut pip = Command::new(&python);
            run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES));
            fs::write(&stamp, PACKAGES.join(" ")).unwrap();
        }
        let site = temporary.join("site");
        let folder = site.join("orlop");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for entry in package().join("python/orlop").read_dir().unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                fs::copy(&from, folder.join(from.file_name().unwrap())).unwrap();
            }
        }
        let library = format!("{}_orlop{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        fs::copy(built().join(library), folder.join("_orlop.abi3.so")).unwrap();
        Environment { python, site, temporary }
    }

    fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        let cache = std::env::var_os("ORLOP_CACHE").unwrap_or_else(|| self.temporary.join("cache").into());
        command.env("ORLOP_TINY_MODEL", self.temporary.join("tiny.gguf"));
        command.env("PYTHONPATH", &self.site).env("ORLOP_CACHE", cache).current_dir(package());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// One test, as its parts share an environment.
#[test]
fn the_package_passes_its_tests_and_mypy() {
    let environment = Environment::new();
    let tiny = Synth { layers: 2, width: 64, heads: 2, kv_heads: 1, key: 32, value: 32, ..Synth::default() };
    let tiny = Synth { hidden: 128, vocabulary: 300, context: 128, ..tiny };
    tiny.create(environment.temporary.join("tiny.gguf"), &mut |_, _| ()).unwrap();
    let cache = environment.temporary.join("mypy");
    let root = package();
    let checked = run(environment
        .python()
        .args(["-m", "mypy", "--strict", "--cache-dir"])
        .arg(&cache)
        .arg(environment.site.join("orlop"))
        .arg(root.join("../../examples/python")));
    assert!(checked.contains("no issues found"), "{checked}");
    let mut stubtest = environment.python();
    run(stubtest.env("MYPYPATH", &environment.site).args([
        "-m",
        "mypy.stubtest",
        "orlop._orlop",
        "--allowlist",
        "tests/stubtest.txt",
        "--ignore-unused-allowlist",
    ]));
    let tests = run(environment.python().args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]));
    print!("{tests}");
    assert!(!tests.contains("skipped") && !tests.contains("xfailed"), "{tests}");
}
