//! The same frees and mallocs as in `pool.rs`, from a general allocator
//! (mimalloc): what a pool's objects would cost without a pool.
//!
//! `cargo bench -p zfolio-zsmalloc --bench general`. A general allocator does not
//! move objects, so it neither compacts nor keeps handles: what it does less
//! must be held against what it saves.

mod sequence;

use divan::Bencher;
use divan::counter::ItemsCount;
use mimalloc::MiMalloc;
use sequence::Sequence;

#[global_allocator]
static GLOBAL: MiMalloc = MiMalloc;

/// Operations per sample.
const ROUNDS: usize = 10_000;

fn main() {
    divan::main();
}

/// One free of a random object and one malloc of a random size, at a steady
/// number of objects: the pair's time. One byte of each object is written, as
/// the pool writes a header.
#[divan::bench(args = [1_000, 30_000, 300_000])]
fn free_and_malloc(bencher: Bencher, objects: usize) {
    let mut sequence = Sequence(88_172);
    let mut malloc = move || {
        let mut object = Vec::<u8>::with_capacity(sequence.size());
        object.push(1);
        object
    };
    let mut live: Vec<Vec<u8>> = (0..objects).map(|_| malloc()).collect();
    let mut victims = Sequence(41);
    let mut replace = || {
        let victim = victims.below(live.len());
        drop(live.swap_remove(victim));
        live.push(malloc());
    };
    (0..objects).for_each(|_| replace());
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        (0..ROUNDS).for_each(|_| replace());
    });
}
