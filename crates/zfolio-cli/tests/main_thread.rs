//! The main thread ends and the process goes on.

mod memory;
mod support;

use memory::Case;

#[test]
fn high_is_kept_once_the_main_thread_has_ended() {
    for when in ["before", "after"] {
        let args = [when];
        let case = Case {
            high: "64M",
            ..Case::new("mainexit", &args)
        };
        let Some(output) = case.run() else { return };
        // Said by the program itself, of 160 MiB and more that it has.
        let most: u64 = output.stdout.trim().parse().expect("MiB");
        assert!(most < 80, "{when}: {most} MiB resident");
    }
}
