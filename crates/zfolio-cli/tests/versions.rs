//! The version is written once, in the workspace's manifest; what cannot read it there says the same.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The versions that a manifest gives itself.
fn versions(text: &str) -> Vec<&str> {
    let lines = text.lines();
    let versions = lines.filter_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    versions.collect()
}

#[test]
fn every_manifest_has_the_workspaces_version() {
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(versions(&read("Cargo.toml")), [own]);
    assert_eq!(versions(&read("python/Cargo.toml")), [own]);
    assert!(read("python/pyproject.toml").contains("dynamic = [\"version\"]"));
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        assert!(text.contains("\nversion.workspace = true\n"), "{text}");
        count += 1;
    }
    assert!(count > 10, "{count}");
    assert!(read("CHANGELOG.md").contains(own));
}
