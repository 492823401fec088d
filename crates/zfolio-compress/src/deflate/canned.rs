//! The preset code lengths of the canned form.
//!
//! Huffman's for what the matcher makes of 32 MiB of pages from three live
//! processes (CPython with 60,000 dictionaries, node with 100,000 objects, an
//! sqlite table of 150,000 rows), each symbol counted once more than it occurred,
//! so that every one has a code. `encode::tests::canned_tables_of_a_file` makes
//! others. Whoever changes them changes what stored pages mean: they never leave
//! a process.

use super::symbols;

/// Of literals, the end mark and lengths.
pub(super) const LITLENS: [u8; symbols::LITLENS] = [
    4, 6, 7, 7, 8, 8, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 10, 9, 9, 9, 9, 9, 9, 8, 9, 9, 9, 9, 10,
    10, 8, 9, 9, 10, 9, 10, 10, 10, 9, 8, 9, 9, 9, 7, 8, 10, 6, 6, 7, 6, 7, 7, 7, 7, 7, 7, 10, 10,
    10, 10, 10, 10, 7, 8, 9, 9, 9, 9, 9, 10, 9, 8, 10, 10, 9, 10, 10, 9, 8, 9, 9, 10, 9, 9, 10, 9,
    9, 8, 10, 10, 10, 9, 10, 9, 8, 8, 9, 9, 9, 8, 9, 9, 8, 8, 10, 10, 9, 9, 9, 8, 8, 9, 8, 8, 8, 9,
    9, 9, 9, 8, 9, 10, 9, 9, 10, 9, 9, 8, 9, 9, 9, 9, 9, 9, 8, 8, 10, 10, 9, 10, 10, 10, 8, 9, 10,
    10, 10, 10, 10, 10, 9, 9, 10, 10, 10, 10, 10, 10, 8, 9, 10, 10, 9, 10, 10, 10, 9, 8, 10, 10,
    10, 10, 10, 10, 8, 9, 10, 10, 10, 10, 10, 10, 9, 8, 10, 10, 9, 10, 9, 10, 9, 9, 10, 10, 10, 10,
    10, 10, 9, 8, 10, 10, 10, 10, 10, 10, 8, 9, 10, 10, 9, 10, 10, 10, 9, 9, 10, 10, 10, 10, 10,
    10, 9, 9, 10, 10, 9, 9, 10, 10, 9, 8, 10, 10, 9, 10, 10, 10, 8, 9, 10, 10, 10, 10, 10, 10, 9,
    8, 10, 10, 10, 10, 10, 8, 10, 15, 5, 6, 5, 4, 4, 6, 7, 6, 7, 6, 6, 8, 6, 7, 9, 7, 11, 9, 10, 8,
    8, 15, 13, 13, 15, 13, 15, 10,
];

/// Of distances.
pub(super) const DISTANCES: [u8; symbols::DISTANCES] = [
    5, 11, 12, 10, 9, 3, 8, 5, 4, 5, 4, 4, 3, 4, 4, 4, 5, 4, 4, 6, 5, 5, 5, 7, 15, 15, 15, 15, 14,
    14,
];
