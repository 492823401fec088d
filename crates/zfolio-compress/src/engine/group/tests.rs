//! Which engine and queue a unit goes to.

use super::*;
use crate::Codec;
use crate::engine::Engines;
use crate::engine::attributes::Distribute;
use alloc::sync::Arc;

fn kinds(queues: usize, compress: usize) -> Vec<QueueKind> {
    (0..queues).map(|i| kind_of(i, queues, compress)).collect()
}

#[test]
fn the_last_queues_compress_and_too_few_do_both() {
    use QueueKind::{Compress as C, Decompress as D, Generic as G};
    assert_eq!(kinds(4, 1), [D, D, D, C]);
    assert_eq!(kinds(4, 3), [D, C, C, C]);
    assert_eq!(kinds(4, 0), [G; 4]);
    assert_eq!(kinds(4, 4), [G; 4]);
    assert_eq!(kinds(1, 1), [G]);
}

fn group(attributes: Attributes, engines: usize, cores: usize) -> Arc<Group> {
    let setup = Engines::default();
    setup.replace(attributes).unwrap();
    let codec = Codec::Noop.compressor();
    setup.enable(engines, cores, &*codec).unwrap()
}

#[test]
fn cores_are_mapped_evenly_and_anew_when_engines_come_and_go() {
    let mapped = Attributes {
        distribute: Distribute {
            compress: false,
            decompress: false,
        },
        ..Attributes::default()
    };
    let group = group(mapped, 4, 8);
    let map = || -> Vec<Option<usize>> {
        let choose = |core| group.choose(Opcode::Compress, core, 0, &group.attributes());
        (0..8)
            .map(|core| choose(core).map(|(engine, _)| engine))
            .collect()
    };
    assert_eq!(map(), [None; 8]);
    for index in 0..4 {
        group.rebalance(index, true);
    }
    assert_eq!(map(), [0, 0, 1, 1, 2, 2, 3, 3].map(Some));
    group.rebalance(1, false);
    group.rebalance(1, false);
    assert_eq!(map(), [0, 0, 0, 2, 2, 2, 3, 3].map(Some));
    assert_eq!(group.totals().1.rebalanced.load(Relaxed), 5);
}

#[test]
fn rounds_reach_every_engine_and_queues_keep_to_their_kind() {
    let attributes = Attributes {
        queues_per_engine: 3,
        compress_queues: 1,
        ..Attributes::default()
    };
    let group = group(attributes, 2, 2);
    group.rebalance(0, true);
    group.rebalance(1, true);
    let chosen: Vec<_> = (0..4)
        .filter_map(|turn| group.choose(Opcode::Compress, 0, turn, &group.attributes()))
        .collect();
    assert_eq!(chosen, [(0, 2), (1, 2), (0, 2), (1, 2)]);
    let chosen: Vec<_> = (0..4)
        .filter_map(|turn| group.choose(Opcode::Decompress, 1, turn, &group.attributes()))
        .collect();
    assert_eq!(chosen, [(1, 0), (1, 1), (1, 0), (1, 1)]);
    // As many queues as engines: each gets its part.
    let attributes = Attributes {
        queues_per_engine: 2,
        ..Attributes::default()
    };
    let group = self::group(attributes, 2, 2);
    group.rebalance(0, true);
    group.rebalance(1, true);
    let chosen: Vec<_> = (0..4)
        .filter_map(|turn| group.choose(Opcode::Compress, 0, turn, &group.attributes()))
        .collect();
    assert_eq!(chosen, [(0, 0), (1, 0), (0, 1), (1, 1)]);
}
