//! System packages that some tasks need.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// Installs the missing packages of `needed`, or reports what to install.
pub(crate) fn install(needed: &[Needed<'_>], purpose: &str) -> Result<()> {
    let names = missing(needed);
    if names.is_empty() {
        return Ok(());
    }
    if is_root() && runs("apt-get", "--version") {
        eprintln!("xtask: {purpose} needs {}: apt-get installs it", names.join(" "));
        let words = [&["install", "--yes", "--no-install-recommends"][..], &names].concat();
        let _ =
            succeeds("apt-get", &words) || (succeeds("apt-get", &["update"]) && succeeds("apt-get", &words));
    }
    let left = missing(needed).join(" ");
    ensure!(left.is_empty(), "{purpose} needs {left}, which could not be installed: install it");
    Ok(())
}

/// A package, and a test whether it is installed.
pub(crate) type Needed<'a> = (&'a str, &'a dyn Fn() -> bool);

fn missing<'a>(needed: &[Needed<'a>]) -> Vec<&'a str> {
    needed.iter().filter(|(_, is_there)| !is_there()).map(|(name, _)| *name).collect()
}

/// Whether a Vulkan driver is registered; always true on systems other than Linux.
pub(crate) fn has_vulkan_driver() -> bool {
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];
    let holds_one = |folder: &&str| std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
    !cfg!(target_os = "linux") || folders.iter().any(holds_one)
}

/// Whether a program runs with this argument.
pub(crate) fn runs(program: &str, word: &str) -> bool {
    succeeds(program, &[word])
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Runs a program and returns whether it succeeded.
pub(crate) fn succeeds(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing() {
        assert_eq!(missing(&[("cmake", &|| true), ("clang", &|| false)]), ["clang"]);
    }
}
