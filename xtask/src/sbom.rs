//! `cargo xtask sbom`: what the `orlop` command is built from, in [CycloneDX](https://cyclonedx.org)'s form. Equal lock files give
//! equal lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cargo;

/// The package whose dependencies are listed.
const PACKAGE: &str = "orlop-cli";

/// Writes the list to a file.
pub(crate) fn run(output: &Path) -> Result<()> {
    let mut command = cargo::cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let metadata =
        command.stderr(std::process::Stdio::inherit()).output().context("starting cargo metadata")?;
    ensure!(metadata.status.success(), "cargo metadata ended with {}", metadata.status);
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("reading cargo's metadata")?;
    let lock = cargo::workspace().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let list = list(&metadata, &checksums(&lock)).context("reading cargo's metadata")?;
    let components = list["components"].as_array().map_or(0, Vec::len);
    fs::write(output, serde_json::to_string_pretty(&list)? + "\n")
        .with_context(|| format!("writing {}", output.display()))?;
    println!("{}: {components} components", output.display());
    Ok(())
}

/// Checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    let entry =
        |package| Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?));
    packages.filter_map(entry).collect()
}

/// The list, in order of names and versions.
fn list(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Value> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages: BTreeMap<String, &Value> =
        metadata["packages"].as_array()?.iter().filter_map(|one| Some((text(&one["id"])?, one))).collect();
    let uses: BTreeMap<String, BTreeSet<String>> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|node| Some((text(&node["id"])?, built_with(node)?)))
        .collect();
    let (root, own) = packages.iter().find(|(_, package)| package["name"] == PACKAGE)?;
    let (mut found, mut left) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = left.pop() {
        if found.insert(id.clone()) {
            left.extend(uses.get(&id).into_iter().flatten().cloned());
        }
    }
    let reference = |id: &String| packages.get(id).map(|package| purl(package));
    let sorted: BTreeMap<String, &Value> =
        found.iter().filter_map(|id| Some((reference(id)?, *packages.get(id)?))).collect();
    let component = |(purl, package): (&String, &&Value)| {
        let key = (text(&package["name"])?, text(&package["version"])?);
        let mut component = json!({
            "type": "library", "bom-ref": purl, "purl": purl, "name": key.0, "version": key.1,
        });
        if let Some(license) = package["license"].as_str() {
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(checksum) = checksums.get(&key) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        Some(component)
    };
    let own = purl(own);
    let components: Vec<Value> =
        sorted.iter().filter(|(purl, _)| **purl != own).filter_map(component).collect();
    let edges: BTreeMap<String, BTreeSet<String>> = found
        .iter()
        .filter_map(|id| Some((reference(id)?, uses.get(id)?.iter().filter_map(reference).collect())))
        .collect();
    let dependencies: Vec<Value> =
        edges.iter().map(|(purl, uses)| json!({ "ref": purl, "dependsOn": uses })).collect();
    let version = packages.get(root)?["version"].clone();
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "bom-ref": own, "purl": own, "name": PACKAGE, "version": version },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages that a package of the resolved graph is built with; those of its tests are left out.
fn built_with(node: &Value) -> Option<BTreeSet<String>> {
    let is_built_with = |dep: &&Value| {
        dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
    };
    let deps = node["deps"].as_array()?.iter().filter(is_built_with);
    Some(deps.filter_map(|dep| dep["pkg"].as_str().map(str::to_owned)).collect())
}

/// The [package URL](https://github.com/package-url/purl-spec) of a package.
fn purl(package: &Value) -> String {
    let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", field("name"), field("version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_built_and_nothing_of_tests() {
        let package =
            |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let packages = ["d", "c", "b", PACKAGE, "other"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": PACKAGE, "deps": [dep("b", Value::Null), dep("d", json!("dev"))] },
                { "id": "b", "deps": [dep("c", json!("build"))] },
                { "id": "c", "deps": [] },
                { "id": "d", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"12ab\"\n\n[[package]]\nname = \"c\"\n";
        let list = list(&metadata, &checksums(lock)).unwrap();
        let names: Vec<_> =
            list["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(list["components"][0]["hashes"][0]["content"], "12ab");
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list["dependencies"][1], json!({ "ref": "pkg:cargo/c@1.0.0", "dependsOn": [] }));
        assert_eq!(list["metadata"]["component"]["purl"], format!("pkg:cargo/{PACKAGE}@1.0.0"));
    }
}
