//! `cargo xtask library`: the C interface, installed: header, libraries and a file for pkg-config.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo;

/// Builds the libraries, and installs them under a folder.
pub(crate) fn run(prefix: &Path) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-capi", "--features", "cuda"]))?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let built = cargo::target().join("release");
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
    println!("installed under {}", prefix.display());
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

    #[test]
    fn the_file_for_pkg_config_names_the_library() {
        let text = pkg_config("/opt/orlop");
        assert!(
            text.starts_with("prefix=/opt/orlop\n") && text.contains("Libs: -L${libdir} -lorlop\n"),
            "{text}"
        );
    }
}
