//! Names the shared library: programs linked with it ask for this name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libzfolio.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
