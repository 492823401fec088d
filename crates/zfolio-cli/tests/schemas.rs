//! `zfolio schema`: what is written is as the schemas say, every key of it, and what is not is not.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::{Live, zfolio};
use serde_json::{Value, json};
use std::fs;

const NAMES: [&str; 6] = ["stats", "stat", "record", "sample", "bench", "doctor"];

fn schema(name: &str) -> Value {
    let output = zfolio(&["schema", name]);
    serde_json::from_str(&output.succeeded().stdout).expect("JSON")
}

/// The same where no key may be that it does not name. (The one that is published lets them be:
/// what reads files of today is not to refuse those of tomorrow.)
fn strict(mut schema: Value) -> Value {
    fn close(value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(close),
            Value::Object(map) => {
                map.values_mut().for_each(close);
                if map.get("properties").is_some_and(Value::is_object) {
                    map.entry("additionalProperties").or_insert(false.into());
                }
            }
            _ => {}
        }
    }
    close(&mut schema);
    schema
}

/// What is wrong with a document.
fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).expect("a schema");
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[track_caller]
fn fits(name: &str, document: &Value) {
    let found = faults(&strict(schema(name)), document);
    assert!(found.is_empty(), "{name}: {found:#?}");
}

#[test]
fn each_is_a_schema_and_refuses_what_is_something_else() {
    for name in NAMES {
        let schema = schema(name);
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        let draft = "https://json-schema.org/draft/2020-12/schema";
        assert_eq!(schema["$schema"], draft);
        assert!(!faults(&schema, &json!({})).is_empty(), "{name}");
        assert!(!faults(&schema, &json!([1])).is_empty(), "{name}");
    }
    let unknown = zfolio(&["schema", "stata"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", unknown.stderr);
}

#[test]
fn a_run_writes_what_its_schemas_say() {
    let dir = support::tempdir();
    let record = dir.path().join("record");
    let record = record.to_str().expect("text");
    let backing = format!("file:{}", dir.path().display());
    let options = [
        "--record",
        record,
        "--backing",
        &backing,
        "--max",
        "1G",
        "--group",
        "one",
    ];
    let Some(mut live) = Live::start(&options) else {
        return;
    };
    live.reads();
    let now = zfolio(&["stat", "--json", &live.pid()]);
    let now: Value = serde_json::from_str(&now.succeeded().stdout).expect("JSON");
    fits("stat", &now);
    let end = live.end();
    fits("stats", &end);
    let text = fs::read_to_string(record).expect("a record");
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    fits("record", &lines.next().expect("a header"));
    for sample in lines {
        fits("sample", &sample);
    }
    // That the test sees: a key too many or too few, a number that is text, deep inside.
    let strict = strict(schema("stats"));
    assert!(end["total"]["counters"]["pages_out"].is_u64() && end["config"]["backing"].is_object());
    for path in [
        "/total/counters",
        "/config",
        "/processes/0/mm_stat",
        "/usage",
    ] {
        let mut more = end.clone();
        more.pointer_mut(path).expect(path)["some_key"] = 1.into();
        assert!(!faults(&strict, &more).is_empty(), "{path}");
        let mut less = end.clone();
        let object = less.pointer_mut(path).and_then(Value::as_object_mut);
        let object = object.expect(path);
        let key = object.keys().next().expect("a key").clone();
        object.remove(&key);
        assert!(!faults(&strict, &less).is_empty(), "{path} without {key}");
    }
    let mut text = end;
    text["total"]["counters"]["pages_out"] = "many".into();
    assert_eq!(faults(&strict, &text).len(), 1);
}

#[test]
fn the_doctor_writes_what_its_schema_says() {
    let read = |words: &[&str]| -> Value {
        let output = zfolio(&[&["doctor", "--json"], words].concat());
        // (78: programs cannot be managed here.)
        assert!(
            matches!(output.status.code(), Some(0 | 78)),
            "{}",
            output.stderr
        );
        serde_json::from_str(&output.stdout).expect("JSON")
    };
    let alone = read(&[]);
    fits("doctor", &alone);
    // (Nobody answers there, which is a check more.)
    let store = read(&["--backing", "redis://127.0.0.1:1"]);
    fits("doctor", &store);
    let count = |of: &Value| of["checks"].as_array().expect("checks").len();
    assert!(count(&store) > count(&alone), "{store}");
    assert_eq!(store["usable"], false);
    // That the test sees: another level, a check without what was found, a key too many.
    let strict = strict(schema("doctor"));
    let mut other = alone.clone();
    other["checks"][0]["level"] = "fine".into();
    assert!(!faults(&strict, &other).is_empty());
    let mut less = alone.clone();
    let check = less["checks"][0].as_object_mut().expect("a check");
    check.remove("found");
    assert!(!faults(&strict, &less).is_empty());
    let mut more = alone;
    more["regions"]["some_key"] = 1.into();
    assert!(!faults(&strict, &more).is_empty());
}

#[test]
fn options_that_change_the_shape_are_in_it() {
    let Some(z) = support::real() else { return };
    for options in [
        &["--engines", "2"][..],
        &["--slowdown", "5%"],
        &["--per-process", "--tier", "auto"],
    ] {
        let mut command = z.command(["run", "--quiet", "--stats", "/dev/stdout", "--high", "64M"]);
        command.args(options).args(["--", "true"]);
        let output = support::finish(&mut command, "");
        if output.status.code() == Some(71) {
            support::skip(&format!("{options:?}: {}", output.stderr));
            continue;
        }
        fits(
            "stats",
            &serde_json::from_str(&output.succeeded().stdout).expect("JSON"),
        );
    }
}

#[test]
fn an_experiment_writes_what_its_schema_says() {
    let dir = support::tempdir();
    let path = dir.path().join("out.json");
    let file = path.to_str().expect("text");
    for words in [
        &["bench", "zsmalloc", "--runs", "2"][..],
        &["bench", "compaction", "--runs", "1"],
    ] {
        let output = zfolio(&[words, &["--json", file]].concat());
        output.succeeded();
        let text = fs::read_to_string(&path).expect("figures");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let found = faults(&schema("bench"), &json);
        assert!(found.is_empty(), "{words:?}: {found:?}");
        assert_eq!(json["experiment"], words[1]);
        assert_eq!(json["zfolio"]["version"], env!("CARGO_PKG_VERSION"));
        // What it measured is there as well.
        assert!(json.as_object().is_some_and(|all| all.len() > 10), "{json}");
    }
}
