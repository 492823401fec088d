//! Every source, function, type and constant that the documents name is there, and numbers that
//! they quote are the constants': who follows a path by its files finds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/zfolio-runtime lies in the repository")
        .to_owned()
}

/// Files of `folder` and below it that end with `ext`, from the repository's root.
fn files(folder: &str, ext: &str) -> Vec<String> {
    let (root, mut left, mut found) = (repository(), vec![repository().join(folder)], Vec::new());
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                left.push(path);
            } else if path.extension().is_some_and(|found| found == ext) {
                let path = path.strip_prefix(&root).expect("below the root");
                found.push(path.to_str().expect("a name").to_owned());
            }
        }
    }
    found
}

/// The paths in `text` that end with `.rs`.
fn named(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            word.strip_suffix(".rs")
                .is_some_and(|name| !name.is_empty())
        })
        .collect()
}

/// Whether `path` is `name`, or ends with it where a part begins.
fn is_named(path: &str, name: &str) -> bool {
    let whole = path.strip_suffix(name);
    whole.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[test]
fn every_source_that_a_document_names_exists() {
    let sources: Vec<String> = ["crates", "python", "fuzz"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
        .collect();
    let mut documents = files("docs", "md");
    documents.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    assert!(sources.len() > 200 && documents.len() > 20);
    let (mut missing, mut count) = (Vec::new(), 0);
    for document in &documents {
        let text = fs::read_to_string(repository().join(document)).expect("a document");
        for name in named(&text) {
            count += 1;
            if !sources.iter().any(|path| is_named(path, name)) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(count > 100, "names are found: {count}");
    assert!(
        missing.is_empty(),
        "there is no such file:\n{}",
        missing.join("\n")
    );
}

/// Names in the documents that are the kernel's or another program's and stand in no source.
const FOREIGN: [&str; 6] = [
    "UFFD_FEATURE_SIGBUS",
    "proc_invalidate_siblings_dcache",
    "direct_io",
    "ConstrainRAMSpace",
    "RuntimeDefault",
    "OOMKilled",
];

/// The names of functions, types, constants and fields that `text` has in code.
fn code_names(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let lines = text.lines().filter(|line| !line.starts_with("    "));
    let codes = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    codes
        .map(|code| code.strip_suffix("()").unwrap_or(code))
        .filter(|code| code.chars().all(is_name))
        .filter(|code| {
            let is_type = code.starts_with(|c: char| c.is_ascii_uppercase()) && code.len() > 2;
            let is_field = code.contains('_') && !code.starts_with(['_', ':']);
            // (Metrics are put together: `views.md` has them.)
            (is_type || is_field || code.contains("::")) && !code.starts_with("zfolio_")
        })
        .flat_map(|code| code.split("::"))
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn every_name_of_code_that_a_document_has_stands_in_a_source() {
    let mut words = BTreeSet::new();
    let folders = ["crates", "python", "fuzz", "tests"];
    let mut sources = vec!["packaging/build".to_owned()];
    for ext in ["rs", "py", "c", "h", "toml", "json"] {
        sources.extend(folders.iter().flat_map(|folder| files(folder, ext)));
    }
    // (This one has the names that stand nowhere else.)
    sources.retain(|path| !path.ends_with("zfolio-runtime/tests/docs.rs"));
    for path in sources {
        let text = fs::read(repository().join(path)).expect("a source");
        let text = String::from_utf8_lossy(&text);
        let found = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.extend(found.map(str::to_owned));
    }
    let mut documents = files("docs", "md");
    documents.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    let (mut missing, mut count) = (Vec::new(), 0);
    for document in &documents {
        let text = fs::read_to_string(repository().join(document)).expect("a document");
        for name in code_names(&text) {
            count += 1;
            if !words.contains(name) && !FOREIGN.contains(&name) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(count > 300, "names are found: {count}");
    assert!(
        missing.is_empty(),
        "these stand in no source:\n{}",
        missing.join("\n")
    );
}

#[test]
fn names_of_code_are_read_as_they_are_written() {
    let text = "`Core::lock` and `most_runs`, `MOST`, `fork()`, `--high`, `high`, `a b_c`\n    `Code::x`\n`zfolio_high`";
    let found: Vec<_> = code_names(text).into_iter().collect();
    assert_eq!(found, ["Core", "MOST", "lock", "most_runs"]);
}

/// The types of which `text` names a member in code, as in `Type::member`.
fn types_with_members(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("    "));
    let codes = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    codes
        .filter_map(|code| code.split_once("::"))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        .collect()
}

#[test]
fn a_type_of_which_a_document_names_a_member_is_defined() {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut defined = BTreeSet::new();
    for path in files("crates", "rs") {
        let text = fs::read_to_string(repository().join(path)).expect("a source");
        for kind in ["struct ", "enum ", "trait ", "type ", "union "] {
            let found = text.split(kind).skip(1);
            defined.extend(
                found
                    .filter_map(|rest| rest.split(|c: char| !is_name(c)).next())
                    .map(str::to_owned),
            );
        }
    }
    let (mut missing, mut count) = (Vec::new(), 0);
    for document in files("docs", "md") {
        let text = fs::read_to_string(repository().join(&document)).expect("a document");
        for name in types_with_members(&text) {
            count += 1;
            if !defined.contains(name) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(count > 10, "types are found: {count}");
    assert!(missing.is_empty(), "no such type:\n{}", missing.join("\n"));
}

#[test]
fn types_with_members_are_read_as_they_are_written() {
    let text = "`Core::lock()`, `core::mem`, `Core`, Inbox::new\n    `Code::x`\n`Kind::Kept`";
    let found: Vec<_> = types_with_members(text).into_iter().collect();
    assert_eq!(found, ["Core", "Kind"]);
}

/// The sections of `docs/swap-paths.md` that follow a path, the crate it is in, and how many
/// steps it has at least.
const PATHS: [(&str, &str, usize); 3] = [
    ("\n## Out\n", "zfolio-runtime", 6),
    ("\n## In\n", "zfolio-runtime", 12),
    ("\n## In the thread that faults\n", "zfolio-inthread", 15),
];

#[test]
fn each_step_of_the_swap_paths_is_a_file_of_a_room() {
    let text = fs::read_to_string(repository().join("docs/swap-paths.md")).expect("a document");
    let said: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("    "))
        .collect();
    let said = said.join("\n");
    for (heading, name, least) in PATHS {
        let (_, section) = text.split_once(heading).expect("the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let steps = section
            .lines()
            .filter(|line| line.starts_with("    ") && line.contains("-> "));
        let src = repository().join("crates").join(name).join("src");
        let mut count = 0;
        for step in steps.flat_map(|line| named(line)) {
            let (room, _) = step.split_once('/').expect("a room and a file");
            assert!(src.join(step).is_file(), "{heading}: {step}");
            assert!(src.join(room).join("mod.rs").is_file(), "{step}: a room");
            // (What is done there is said below.)
            assert!(said.contains(step), "{heading}: {step} is in no step");
            count += 1;
        }
        assert!(count >= least, "{heading}: steps are found: {count}");
    }
}

#[test]
fn a_name_is_no_part_of_another() {
    assert!(is_named("crates/a/src/load.rs", "load.rs"));
    assert!(is_named("crates/a/src/load.rs", "src/load.rs"));
    assert!(!is_named("crates/a/src/reload.rs", "load.rs"));
    let found = named("in `load.rs`, src/move_in.rs. And `.rs` files");
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["load.rs", "src/move_in.rs"]
    );
}

/// A number that a document quotes, and the constant it is of.
struct Quoted {
    document: &'static str,
    /// The words of the document; `{}` is the number.
    words: &'static str,
    source: &'static str,
    constant: &'static str,
    /// What the constant is divided by to be the number.
    unit: u64,
}

const fn quoted(
    document: &'static str,
    words: &'static str,
    source: &'static str,
    constant: &'static str,
    unit: u64,
) -> Quoted {
    Quoted {
        document,
        words,
        source,
        constant,
        unit,
    }
}

const MS: u64 = 1_000_000;

/// Numbers in words ("a 64th", "ten") are here as far as they have digits.
const QUOTED: [Quoted; 20] = [
    quoted(
        "docs/run.md",
        "{}M at least",
        "crates/zfolio-host/src/size.rs",
        "MIN_HIGH",
        1 << 20,
    ),
    quoted(
        "docs/groups.md",
        "each process has the least, {} MiB",
        "crates/zfolio-host/src/size.rs",
        "MIN_HIGH",
        1 << 20,
    ),
    quoted(
        "docs/groups.md",
        "Beyond {} members",
        "crates/zfolio-runtime/src/segment/layout.rs",
        "MEMBERS",
        1,
    ),
    quoted(
        "docs/glossary.md",
        "`rw-p`, {} KiB or more",
        "crates/zfolio-runtime/src/address_space/mappings.rs",
        "SMALLEST",
        1 << 10,
    ),
    quoted(
        "docs/address-space.md",
        "a mapping of {} KiB or more",
        "crates/zfolio-runtime/src/address_space/mappings.rs",
        "SMALLEST",
        1 << 10,
    ),
    quoted(
        "docs/locks.md",
        "takes to move {} runs",
        "crates/zfolio-runtime/src/transfer/move_out.rs",
        "RUNS",
        1,
    ),
    quoted(
        "docs/swap-paths.md",
        "is gathered until it is {} runs",
        "crates/zfolio-runtime/src/swapout/candidates.rs",
        "RUNS",
        1,
    ),
    quoted(
        "docs/swap-paths.md",
        "{} runs that leave together",
        "crates/zfolio-runtime/src/transfer/move_out.rs",
        "RUNS",
        1,
    ),
    quoted(
        "docs/swap-paths.md",
        "(0.5 to {} ms)",
        "crates/zfolio-runtime/src/budget/pressure.rs",
        "LONGEST_NS",
        MS,
    ),
    quoted(
        "docs/swap-paths.md",
        "stays awake for {} ms",
        "crates/zfolio-runtime/src/faults/idle_control.rs",
        "AWAKE_NS",
        MS,
    ),
    quoted(
        "docs/peers.md",
        "awake for {} ms",
        "crates/zfolio-runtime/src/faults/idle_control.rs",
        "AWAKE_NS",
        MS,
    ),
    quoted(
        "CONTRIBUTING.md",
        "stands still for {} s",
        "crates/zfolio-runtime/src/control/watchdog.rs",
        "OVERDUE_TURNS",
        1,
    ),
    quoted(
        "docs/engines.md",
        "Batches of fewer than {} are done",
        "crates/zfolio-compress/src/engine/judge.rs",
        "LEAST",
        1,
    ),
    quoted(
        "docs/engines.md",
        "for batches from 16 and from {} on",
        "crates/zfolio-compress/src/engine/judge.rs",
        "MANY",
        1,
    ),
    quoted(
        "docs/engines.md",
        "where engines pay every {}th batch goes without them",
        "crates/zfolio-compress/src/engine/judge.rs",
        "AGAIN",
        1,
    ),
    quoted(
        "docs/engines.md",
        "up to one in {}, goes to them",
        "crates/zfolio-compress/src/engine/judge.rs",
        "SELDOM",
        1,
    ),
    quoted(
        "docs/engines.md",
        "is waited for {} us and then done again",
        "crates/zfolio-compress/src/engine/parallel.rs",
        "HURRY_NS",
        1_000,
    ),
    quoted(
        "docs/engines.md",
        "looks for more for {} us",
        "crates/zfolio-compress/src/engine/group.rs",
        "LINGER_NS",
        1_000,
    ),
    quoted(
        "docs/swap-paths.md",
        "at most {} pages of it are out",
        "crates/zfolio-runtime/src/swapin/plan.rs",
        "REST",
        1,
    ),
    quoted(
        "docs/swap-paths.md",
        "once in {} times the CPU time of the last turn",
        "crates/zfolio-runtime/src/upkeep/assembly.rs",
        "SHARE",
        1,
    ),
];

/// The value of `const NAME: ... = VALUE;` in `text`, where it is a number or `number << number`.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.contains(&format!("const {name}: ")))?;
    let (_, value) = line.trim_end_matches(';').split_once(" = ")?;
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    match value.split_once(" << ") {
        Some((number_, by)) => Some(number(number_)? << number(by)?),
        None => number(value),
    }
}

#[test]
fn numbers_that_documents_quote_are_the_constants() {
    for of in &QUOTED {
        let read = |path: &str| fs::read_to_string(repository().join(path)).expect("a file");
        let value = value(&read(of.source), of.constant);
        let value = value.unwrap_or_else(|| panic!("{}: {}", of.source, of.constant));
        assert_eq!(value % of.unit, 0, "{}", of.constant);
        let words = of.words.replace("{}", &(value / of.unit).to_string());
        let text = read(of.document)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            text.contains(&words),
            "{} does not say {words:?}",
            of.document
        );
    }
}

#[test]
fn constants_are_read_as_they_are_written() {
    let text = "pub(crate) const A: u64 = 8 << 20;\nconst B: usize = 1_024;\nconst C: usize = A;";
    assert_eq!(value(text, "A"), Some(8 << 20));
    assert_eq!(value(text, "B"), Some(1024));
    assert_eq!((value(text, "C"), value(text, "D")), (None, None));
}

/// Where the links of a Markdown text lead, without what follows `#`; those into the web left out.
fn links(text: &str) -> Vec<&str> {
    let ends = text.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split(')').next());
    let paths = targets.filter_map(|target| target.split('#').next());
    paths
        .filter(|path| !path.is_empty() && !path.contains("://"))
        .collect()
}

#[test]
fn every_link_of_a_document_leads_to_a_file() {
    let mut documents = files("docs", "md");
    let others = ["README.md", "CONTRIBUTING.md", "tests/matrix/README.md"];
    documents.extend(others.map(str::to_owned));
    let (mut broken, mut count) = (Vec::new(), 0);
    for document in &documents {
        let path = repository().join(document);
        let text = fs::read_to_string(&path).expect("a document");
        for link in links(&text) {
            count += 1;
            if !path.parent().expect("a folder").join(link).exists() {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(count > 100, "links are found: {count}");
    assert!(
        broken.is_empty(),
        "these lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn links_are_read_as_they_are_written() {
    let text = "[a](b.md#c), [d](#e) and [f](https://g.h/i), [j](../k.md)";
    assert_eq!(links(text), ["b.md", "../k.md"]);
}
