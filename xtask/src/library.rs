//! `cargo xtask library`: the C interface, installed: header, libraries and a file for pkg-config.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo;

/// Builds the libraries, and installs them under a folder.
pub(crate) fn run(prefix: &Path) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-capi", "--features", "cuda"]))?;
    install(&cargo::target().join("release"), prefix)?;
    println!("installed under {}", prefix.display());
    Ok(())
}

/// Installs libraries from the folder in which cargo built them.
fn install(built: &Path, prefix: &Path) -> Result<()> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let shared = format!("{}orlop_capi{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let name = format!("{}orlop{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    fs::copy(cargo::workspace().join("crates/capi/include/orlop.h"), include.join("orlop.h"))?;
    fs::copy(built.join("liborlop_capi.a"), lib.join("liborlop.a"))?;
    if cfg!(target_os = "linux") {
        // Programs find it under the name that it carries.
        fs::copy(built.join(shared), lib.join(format!("{name}.0")))?;
        let link = lib.join(&name);
        let _ = fs::remove_file(&link);
        #[cfg(unix)]
        std::os::unix::fs::symlink(format!("{name}.0"), link)?;
    } else {
        fs::copy(built.join(shared), lib.join(&name))?;
    }
    let prefix = prefix.canonicalize()?;
    fs::write(pkgconfig.join("orlop.pc"), pkg_config(&prefix.display().to_string()))?;
    Ok(())
}

/// What pkg-config reads.
fn pkg_config(prefix: &str) -> String {
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: orlop\n\
         Description: Language models, tensor graphs and memory plans\nVersion: {}\nCflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lorlop\nLibs.private: -lpthread -ldl -lm\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program, and gives what it prints.
    #[cfg(target_os = "linux")]
    fn output(command: &mut std::process::Command) -> String {
        let done = command.output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {errors}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// With a stand-in for the libraries, which would take minutes to build: names, folders and flags are what is installed.
    #[cfg(target_os = "linux")]
    #[test]
    fn programs_find_what_is_installed_by_pkg_config() {
        use std::process::Command;
        let folder = std::env::temp_dir().join(format!("orlop-library-{}", std::process::id()));
        let (built, prefix) = (folder.join("built"), folder.join("prefix"));
        fs::create_dir_all(&built).unwrap();
        let (library, object, program) = (built.join("a.c"), built.join("a.o"), built.join("b.c"));
        fs::write(&library, "const char *orlop_version(void) { return \"1.2.3\"; }\n").unwrap();
        fs::write(
            &program,
            "#include <orlop.h>\n#include <stdio.h>\nint main(void) { return puts(orlop_version()) < 0; }\n",
        )
        .unwrap();
        output(Command::new("cc").args(["-fPIC", "-c", "-o"]).args([&object, &library]));
        output(Command::new("ar").arg("rcs").args([&built.join("liborlop_capi.a"), &object]));
        let mut link = Command::new("cc");
        link.args(["-shared", "-Wl,-soname,liborlop.so.0", "-o"]);
        output(link.args([&built.join("liborlop_capi.so"), &object]));

        install(&built, &prefix).unwrap();
        let lib = prefix.join("lib");
        let flags = |more: &[&str]| {
            let mut command = Command::new("pkg-config");
            command.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args(["--cflags", "--libs"]).args(more);
            output(command.arg("orlop"))
        };
        assert!(flags(&["--static"]).contains("-lpthread -ldl -lm"));
        let binary = built.join("b");
        let mut compile = Command::new("cc");
        compile.arg("-Wall").arg("-Werror").arg("-o").args([&binary, &program]);
        output(compile.args(flags(&[]).split_whitespace()));
        let mut run = Command::new(&binary);
        assert_eq!(output(run.env("LD_LIBRARY_PATH", &lib)), "1.2.3\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_file_for_pkg_config_names_the_library() {
        let text = pkg_config("/opt/orlop");
        assert!(
            text.starts_with("prefix=/opt/orlop\n") && text.contains("Libs: -L${libdir} -lorlop\n"),
            "{text}"
        );
    }
}
