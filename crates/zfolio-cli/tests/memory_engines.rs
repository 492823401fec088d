//! Engines and the codecs only they make affordable: every byte verified, forks
//! included.

mod memory;
mod support;

use memory::Case;
use std::time::Duration;

#[track_caller]
fn with(options: &[&str], program: &str, args: &[&str]) {
    let case = Case {
        options,
        limit: Duration::from_secs(240),
        ..Case::new(program, args)
    };
    if let Some(output) = case.run() {
        let engines = options.iter().position(|option| *option == "--engines");
        let engines = engines.map_or("0", |at| options[at + 1]);
        assert_eq!(output.stats["config"]["engines"].to_string(), engines);
        let count = |name: &str| output.counter(&format!("engine_{name}"));
        let (submitted, inline) = (count("submitted"), count("inline"));
        if engines == "0" {
            assert_eq!((submitted, inline), (0, 0));
            return;
        }
        // The codec sees all but pages of one word.
        assert!(submitted + inline > 1000, "{}", output.stats);
        let ended = count("completed") + count("taken_back") + count("timeouts");
        // Published between two instants of work that goes on: not all of one.
        assert!(ended <= submitted + 64, "{ended} of {submitted}");
        assert!(count("late") <= count("timeouts"));
        assert!(count("output_bytes") <= count("input_bytes"));
        assert!(count("input_bytes") <= 4096 * count("completed"));
    }
}

#[test]
fn children_of_forks_have_engines_of_their_own() {
    with(
        &["--compressor", "zstd", "--engines", "2"],
        "forks",
        &["libc"],
    );
    with(
        &["--compressor", "zstd", "--engines", "2"],
        "forks",
        &["threads"],
    );
    with(&["--engines", "1"], "forks", &["raw_threads"]);
}

#[test]
fn random_operations_with_engines() {
    let args = &["5", "1", "4"];
    with(&["--compressor", "lz4", "--engines", "3"], "stress", args);
}

#[test]
fn deflate_in_every_form() {
    for codec in ["deflate-iaa", "deflate-iaa:fixed"] {
        with(&["--compressor", codec], "forks", &["libc"]);
    }
    let canned = ["--compressor", "deflate-iaa:canned", "--engines", "2"];
    with(&canned, "forks", &["libc"]);
}
