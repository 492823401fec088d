//! The project that is compiled: fetched as a Debian source package, or what lies in a directory.

use crate::rig::is_installed;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where apt has the machine's list of archives.
const LISTS: [&str; 2] = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"];

/// A project, unpacked.
#[derive(Debug)]
pub(super) struct Project {
    /// As it was unpacked; nothing is built here.
    pristine: PathBuf,
    /// Where it is built, each time anew.
    pub(super) build: PathBuf,
}

impl Project {
    /// What lies in `source`; or the source package `package`, which is fetched into `scratch`.
    ///
    /// # Errors
    /// Why it cannot be had, in a sentence.
    pub(super) fn find(
        source: Option<&Path>,
        package: &str,
        scratch: &Path,
    ) -> Result<Self, String> {
        for tool in ["make", "cc"] {
            if !is_installed(tool) {
                return Err(format!("there is no {tool} here"));
            }
        }
        let pristine = match source {
            Some(directory) => directory.to_owned(),
            None => fetch(package, &scratch.join("package"))?,
        };
        if !pristine.is_dir() {
            return Err(format!("{} is no directory", pristine.display()));
        }
        Ok(Self {
            pristine,
            build: scratch.join("build"),
        })
    }

    /// A copy in which nothing was built, in place of the last.
    pub(super) fn renew(&self) -> Result<(), String> {
        let _ = fs::remove_dir_all(&self.build);
        copy(&self.pristine, &self.build)
            .map_err(|error| format!("copying {}: {error}", self.pristine.display()))
    }

    /// What was built: a number for each object file, by its path.
    pub(super) fn objects(&self) -> Result<BTreeMap<PathBuf, u64>, String> {
        let mut found = BTreeMap::new();
        objects(&self.build, &mut found).map_err(|error| error.to_string())?;
        if found.is_empty() {
            return Err("it made no object file".to_owned());
        }
        Ok(found)
    }
}

/// Fetches and unpacks a source package with lists of its own: those of the machine may have
/// binary packages only, and stay as they are.
fn fetch(package: &str, directory: &Path) -> Result<PathBuf, String> {
    if !is_installed("apt-get") || !is_installed("dpkg-source") {
        return Err("source packages need apt-get and dpkg-source".to_owned());
    }
    let (parts, lists) = (directory.join("parts"), directory.join("lists"));
    let made = fs::create_dir_all(&parts).and_then(|()| fs::create_dir_all(lists.join("partial")));
    made.map_err(|error| format!("{}: {error}", directory.display()))?;
    for list in LISTS {
        sources_of(Path::new(list), &parts).map_err(|error| format!("{list}: {error}"))?;
    }
    let option = |name: &str, path: &Path| format!("Dir::{name}={}", path.display());
    let options = [
        option("Etc::SourceList", Path::new("/dev/null")),
        option("Etc::SourceParts", &parts),
        option("State::Lists", &lists),
        "APT::Sandbox::User=root".to_owned(),
    ];
    for words in [&["update"][..], &["source", "--only-source", package]] {
        let mut command = Command::new("apt-get");
        for option in &options {
            command.args(["-o", option]);
        }
        let ran = command
            .args(words)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("apt-get: {error}"))?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            let last = said.lines().next_back().unwrap_or("it said nothing");
            return Err(format!("apt-get {}: {last}", words.join(" ")));
        }
    }
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let mut unpacked = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && *path != parts && *path != lists);
    unpacked
        .next()
        .ok_or_else(|| format!("apt-get source {package} unpacked nothing"))
}

/// Writes the archives that `list`, a file or a directory of files, names into `parts`, for
/// source packages.
fn sources_of(list: &Path, parts: &Path) -> std::io::Result<()> {
    let files: Vec<PathBuf> = if list.is_dir() {
        let entries = fs::read_dir(list)?;
        entries.flatten().map(|entry| entry.path()).collect()
    } else {
        vec![list.to_owned()]
    };
    for file in files.iter().filter(|file| file.is_file()) {
        let kind = file.extension().and_then(|kind| kind.to_str());
        let (Some("sources" | "list"), Some(name)) = (kind, file.file_name()) else {
            continue;
        };
        fs::write(parts.join(name), for_sources(&fs::read_to_string(file)?))?;
    }
    Ok(())
}

/// A list of archives with source packages in place of binary ones.
fn for_sources(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("deb ") {
        Some(rest) => format!("deb-src {rest}\n"),
        None if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, to)?;
        } else if kind.is_file() && to.extension().is_none_or(|kind| kind != "o") {
            // (Whoever unpacked it may have built it as well.)
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn objects(directory: &Path, found: &mut BTreeMap<PathBuf, u64>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let (path, kind) = {
            let entry = entry?;
            (entry.path(), entry.file_type()?)
        };
        if kind.is_dir() {
            objects(&path, found)?;
        } else if kind.is_file() && path.extension().is_some_and(|kind| kind == "o") {
            let bytes = fs::read(&path)?;
            found.insert(path, crate::workloads::fingerprint(&bytes));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_archives_become_those_of_sources() {
        let text = "# a list\nTypes: deb\nURIs: https://archive.example/debian\n";
        assert_eq!(
            for_sources(text),
            text.replace("Types: deb", "Types: deb-src")
        );
        let old = for_sources("deb https://archive.example/debian stable main");
        assert_eq!(old, "deb-src https://archive.example/debian stable main\n");
        assert_eq!(for_sources(&old), old);
    }

    #[test]
    fn a_copy_has_all_and_nothing_of_what_was_built() {
        let scratch = tempfile::tempdir().unwrap();
        let pristine = scratch.path().join("project");
        fs::create_dir_all(pristine.join("lib")).unwrap();
        fs::write(pristine.join("lib/a.c"), "int a;\n").unwrap();
        let project = Project {
            pristine,
            build: scratch.path().join("build"),
        };
        project.renew().unwrap();
        assert!(project.objects().is_err());
        fs::write(project.build.join("lib/a.o"), "1").unwrap();
        let first = project.objects().unwrap();
        fs::write(project.build.join("lib/a.o"), "2").unwrap();
        assert_ne!(project.objects().unwrap(), first);
        project.renew().unwrap();
        assert!(project.build.join("lib/a.c").exists() && project.objects().is_err());
    }
}
