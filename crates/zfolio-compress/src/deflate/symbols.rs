//! Lengths and distances as RFC 1951, section 3.2.5, codes them.

/// Symbols of the literal and length alphabet.
pub(super) const LITLENS: usize = 286;
/// Symbols of the distance alphabet.
pub(super) const DISTANCES: usize = 30;
/// The end of a block.
pub(super) const END: usize = 256;
/// Longest code, bits.
pub(super) const MAX_BITS: usize = 15;
/// Shortest and longest repeat that is looked for; deflate knows 3 as well.
pub(super) const MIN_MATCH: usize = 4;
pub(super) const MAX_MATCH: usize = 258;

/// A symbol with the bits that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Coded {
    pub(super) symbol: usize,
    pub(super) extra_bits: u32,
    pub(super) extra: u32,
}

/// A length of 3 to 258.
pub(super) fn length(length: u32) -> Coded {
    let n = length - 3;
    if length == 258 {
        return Coded {
            symbol: 285,
            extra_bits: 0,
            extra: 0,
        };
    }
    split(257, n, 2)
}

/// A distance of 1 to 32768.
pub(super) fn distance(distance: u32) -> Coded {
    split(0, distance - 1, 1)
}

/// Values below `2 << keep` have symbols of their own; above, each power of two is
/// cut into `1 << keep` symbols.
fn split(first: usize, n: u32, keep: u32) -> Coded {
    let own = 2 << keep;
    if n < own {
        return Coded {
            symbol: first + n as usize,
            extra_bits: 0,
            extra: 0,
        };
    }
    let bits = n.ilog2();
    let extra_bits = bits - keep;
    let top = n >> extra_bits;
    let symbol = (extra_bits << keep) + top;
    Coded {
        symbol: first + symbol as usize,
        extra_bits,
        extra: n & ((1 << extra_bits) - 1),
    }
}

/// Least value and extra bits of a length symbol (257 to 285).
pub(super) fn length_of(symbol: usize) -> Option<(u32, u32)> {
    match symbol {
        285 => Some((258, 0)),
        257..=284 => Some(join(symbol - 257, 2, 3)),
        _ => None,
    }
}

/// Least value and extra bits of a distance symbol (0 to 29).
pub(super) fn distance_of(symbol: usize) -> Option<(u32, u32)> {
    (symbol < DISTANCES).then(|| join(symbol, 1, 1))
}

#[allow(clippy::cast_possible_truncation, reason = "symbols are below 300")]
fn join(symbol: usize, keep: u32, least: u32) -> (u32, u32) {
    let symbol = symbol as u32;
    if symbol < 2 << keep {
        return (symbol + least, 0);
    }
    let extra_bits = (symbol >> keep) - 1;
    let top = (1 << keep) + (symbol & ((1 << keep) - 1));
    ((top << extra_bits) + least, extra_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_distance_comes_back() {
        for value in 3..=258 {
            let coded = length(value);
            let (base, bits) = length_of(coded.symbol).unwrap();
            assert_eq!((base + coded.extra, bits), (value, coded.extra_bits));
        }
        for value in 1..=32_768 {
            let coded = distance(value);
            let (base, bits) = distance_of(coded.symbol).unwrap();
            assert_eq!((base + coded.extra, bits), (value, coded.extra_bits));
        }
    }

    #[test]
    fn symbols_are_those_of_the_rfc() {
        let lengths = [
            (3, 257, 0),
            (10, 264, 0),
            (11, 265, 1),
            (130, 280, 4),
            (257, 284, 5),
            (258, 285, 0),
        ];
        for (value, symbol, bits) in lengths {
            let coded = length(value);
            assert_eq!((coded.symbol, coded.extra_bits), (symbol, bits), "{value}");
        }
        let distances = [
            (1, 0, 0),
            (4, 3, 0),
            (5, 4, 1),
            (193, 15, 6),
            (4096, 23, 10),
            (32_768, 29, 13),
        ];
        for (value, symbol, bits) in distances {
            let coded = distance(value);
            assert_eq!((coded.symbol, coded.extra_bits), (symbol, bits), "{value}");
        }
    }
}
