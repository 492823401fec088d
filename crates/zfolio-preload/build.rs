//! How the library is linked.

fn main() {
    // The loader runs our constructor before those of all other libraries: one of them may start a thread, and
    // calls are seen in every thread only if there is one when that begins.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo::rerun-if-changed=build.rs");
}
