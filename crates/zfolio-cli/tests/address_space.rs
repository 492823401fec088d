//! Changes of the address space that the kernel does not tell of.

mod memory;
mod support;

use memory::compiled;

#[test]
fn what_is_unmapped_without_an_event_is_noticed() {
    let (Some(z), Some(path)) = (support::real(), compiled("lost")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    let mut lost = 0;
    for state in ["present", "out"] {
        for after in ["fill", "leave"] {
            let options = ["--quiet", "--high", "32M"];
            let output = z.run_with(&options, &[path, state, after], "");
            output.succeeded();
            assert!(output.counter("pages_out") > 10_000);
            lost += output.counter("registrations_lost");
        }
    }
    assert!(lost > 0, "the kernel tells of it now?");
}
