//! Symbols to bits.

use super::canned;
use super::huffman::{self, Code, FIXED_DISTANCES, fixed_litlens};
use super::matches::{Finder, Token};
use super::symbols::{DISTANCES, END, LITLENS, MAX_BITS, MIN_MATCH, distance, length};
use super::tables::Tables;
use crate::CodecError;
use alloc::vec::Vec;

/// Tokens of a block: what frequencies are gathered over.
const BLOCK: usize = 16 << 10;
/// Order in which code lengths of the code lengths are written (RFC 1951,
/// section 3.2.7).
pub(super) const ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];
/// Longest stored block, bytes.
const STORED: usize = 65_535;

/// Codes of both alphabets.
#[derive(Debug)]
struct Codes {
    litlen: [Code; 288],
    distance: [Code; DISTANCES],
}

impl Codes {
    fn of(litlens: &[u8], distances: &[u8]) -> Self {
        let mut made = Self {
            litlen: [Code::default(); 288],
            distance: [Code::default(); DISTANCES],
        };
        huffman::codes(litlens, &mut made.litlen);
        huffman::codes(distances, &mut made.distance);
        made
    }
}

/// Compresses units one after the other.
#[derive(Debug)]
pub(super) struct Encoder {
    tables: Tables,
    finder: Finder,
    /// Length of the unit before.
    previous: usize,
    tokens: Vec<Token>,
    fixed: Codes,
    canned: Codes,
}

impl Encoder {
    pub(super) fn new(tables: Tables) -> Result<Self, CodecError> {
        let mut tokens = Vec::new();
        tokens
            .try_reserve_exact(BLOCK)
            .map_err(|_| CodecError::Workspace)?;
        Ok(Self {
            tables,
            finder: Finder::new()?,
            previous: 0,
            tokens,
            fixed: Codes::of(&fixed_litlens(), &FIXED_DISTANCES),
            canned: Codes::of(&canned::LITLENS, &canned::DISTANCES),
        })
    }

    /// Compresses a unit; returns the bytes of `dst` used.
    pub(super) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        self.finder.begin(self.previous, src.len());
        self.previous = src.len();
        let mut out = Writer::new(dst);
        let mut at = 0;
        while at < src.len() {
            let start = at;
            at = self.tokenize(src, at);
            let last = at == src.len();
            match self.tables {
                Tables::Canned => self.symbols(&self.canned, last, &mut out),
                Tables::Fixed => {
                    let costs = Frequencies::of(&self.tokens).cost(&self.fixed);
                    self.block(&src[start..at], None, costs, last, &mut out);
                }
                Tables::Dynamic => {
                    let frequencies = Frequencies::of(&self.tokens);
                    let dynamic = Dynamic::of(&frequencies);
                    let fixed = frequencies.cost(&self.fixed);
                    self.block(&src[start..at], Some(dynamic), fixed, last, &mut out);
                }
            }
            if out.full {
                return Err(CodecError::DoesNotFit);
            }
        }
        out.finish()
    }

    /// Fills `tokens` with what is at `at` and after; returns where it ends.
    fn tokenize(&mut self, src: &[u8], mut at: usize) -> usize {
        self.tokens.clear();
        // What was found for `at` already.
        let mut ahead = None;
        // A lazy step writes two tokens.
        while at < src.len() && self.tokens.len() + 2 <= BLOCK {
            let found = ahead.take().unwrap_or_else(|| self.finder.find(src, at, 0));
            let Some((length, distance)) = found else {
                self.tokens.push(Token::literal(src[at]));
                at += 1;
                continue;
            };
            let mut skip = at + 1;
            if length < 2 * MIN_MATCH && at + 1 < src.len() {
                let later = self.finder.find(src, at + 1, length);
                if later.is_some() {
                    self.tokens.push(Token::literal(src[at]));
                    at += 1;
                    ahead = Some(later);
                    continue;
                }
                skip = at + 2;
            }
            self.tokens.push(Token::repeat(length, distance));
            self.finder.skip(src, skip..at + length);
            at += length;
        }
        if let Some(Some((length, distance))) = ahead {
            // Noted already where it begins; there is room for it.
            self.tokens.push(Token::repeat(length, distance));
            self.finder.skip(src, at + 1..at + length);
            at += length;
        }
        at
    }

    /// Writes a block in the shortest of the forms allowed. `fixed`: what it
    /// costs with fixed tables.
    fn block(
        &self,
        plain: &[u8],
        dynamic: Option<Dynamic>,
        fixed: usize,
        last: bool,
        out: &mut Writer<'_>,
    ) {
        let dynamic_bits = dynamic.as_ref().map_or(usize::MAX, |dynamic| dynamic.bits);
        let stored = if plain.len() <= STORED {
            plain.len() * 8 + 32 + 7
        } else {
            usize::MAX
        };
        out.put(u64::from(last), 1);
        if stored < fixed.min(dynamic_bits) {
            out.stored(plain);
        } else if let Some(dynamic) = dynamic.filter(|dynamic| dynamic.bits < fixed) {
            out.put(2, 2);
            dynamic.write_header(out);
            self.symbols(&dynamic.codes, true, out);
        } else {
            out.put(1, 2);
            self.symbols(&self.fixed, true, out);
        }
    }

    fn symbols(&self, codes: &Codes, end: bool, out: &mut Writer<'_>) {
        for token in &self.tokens {
            match token.parts() {
                Ok(byte) => out.code(codes.litlen[usize::from(byte)]),
                Err((len, dist)) => {
                    let (len, dist) = (length(len), distance(dist));
                    let code = codes.litlen[len.symbol];
                    let bits = u64::from(code.bits) | u64::from(len.extra) << code.len;
                    out.put(bits, u32::from(code.len) + len.extra_bits);
                    let code = codes.distance[dist.symbol];
                    let bits = u64::from(code.bits) | u64::from(dist.extra) << code.len;
                    out.put(bits, u32::from(code.len) + dist.extra_bits);
                }
            }
            if out.full {
                return;
            }
        }
        if end {
            out.code(codes.litlen[END]);
        }
    }
}

/// How often each symbol occurs in a block.
struct Frequencies {
    litlen: [u32; LITLENS],
    distance: [u32; DISTANCES],
    /// Bits that follow symbols.
    extra: usize,
}

impl Frequencies {
    fn of(tokens: &[Token]) -> Self {
        let mut counted = Self {
            litlen: [0; LITLENS],
            distance: [0; DISTANCES],
            extra: 0,
        };
        for token in tokens {
            match token.parts() {
                Ok(byte) => counted.litlen[usize::from(byte)] += 1,
                Err((len, dist)) => {
                    let (len, dist) = (length(len), distance(dist));
                    counted.litlen[len.symbol] += 1;
                    counted.distance[dist.symbol] += 1;
                    counted.extra += (len.extra_bits + dist.extra_bits) as usize;
                }
            }
        }
        counted.litlen[END] = 1;
        counted
    }

    /// Bits of the block's symbols with `codes`.
    fn cost(&self, codes: &Codes) -> usize {
        let bits = |frequencies: &[u32], codes: &[Code]| -> usize {
            let each = frequencies.iter().zip(codes);
            each.map(|(frequency, code)| *frequency as usize * usize::from(code.len))
                .sum()
        };
        bits(&self.litlen, &codes.litlen) + bits(&self.distance, &codes.distance) + self.extra
    }
}

/// Tables made for a block.
struct Dynamic {
    codes: Codes,
    /// Header and symbols.
    bits: usize,
    litlens: usize,
    distances: usize,
    /// Code lengths of the code lengths.
    order_lens: [u8; 19],
    order_used: usize,
    /// Code lengths of both alphabets, run by run: symbol, extra bits' value.
    runs: [(u8, u8); LITLENS + DISTANCES],
    run_count: usize,
}

impl Dynamic {
    #[allow(clippy::cast_possible_truncation, reason = "runs end at 138")]
    fn of(frequencies: &Frequencies) -> Self {
        let mut lens = [0; LITLENS + DISTANCES];
        let (litlen, distance) = lens.split_at_mut(LITLENS);
        huffman::lengths(&frequencies.litlen, MAX_BITS, litlen);
        huffman::lengths(&frequencies.distance, MAX_BITS, distance);
        if distance.iter().all(|len| *len == 0) {
            // One code of a bit that never occurs: what every inflater takes.
            distance[0] = 1;
        }
        let codes = Codes::of(litlen, distance);
        let used = |lens: &[u8], least: usize| {
            let last = lens.iter().rposition(|len| *len > 0);
            last.map_or(least, |last| (last + 1).max(least))
        };
        let (litlens, distances) = (used(litlen, 257), used(distance, 1));
        // The two alphabets are written as one sequence.
        lens.copy_within(LITLENS..LITLENS + distances, litlens);
        let lens = &lens[..litlens + distances];
        let mut made = Self {
            codes,
            bits: 0,
            litlens,
            distances,
            order_lens: [0; 19],
            order_used: 4,
            runs: [(0, 0); LITLENS + DISTANCES],
            run_count: 0,
        };
        let mut at = 0;
        while at < lens.len() {
            let len = lens[at];
            let run = lens[at..].iter().take_while(|other| **other == len).count();
            let (run, symbol, extra) = match (len, run) {
                (0, 11..) => (run.min(138), 18, run.min(138) - 11),
                (0, 3..) => (run, 17, run - 3),
                // The length itself goes first, then repeats of it.
                (1.., 4..) => {
                    made.push_run(len, 0);
                    let repeats = (run - 1).min(6);
                    (repeats + 1, 16, repeats - 3)
                }
                _ => (1, len, 0),
            };
            made.push_run(symbol, extra as u8);
            at += run;
        }
        let mut counts = [0; 19];
        for (symbol, _) in &made.runs[..made.run_count] {
            counts[usize::from(*symbol)] += 1;
        }
        huffman::lengths(&counts, 7, &mut made.order_lens);
        let used = ORDER
            .iter()
            .rposition(|symbol| made.order_lens[*symbol] > 0);
        made.order_used = used.map_or(4, |last| (last + 1).max(4));
        let runs = made.runs[..made.run_count].iter().map(|(symbol, _)| {
            usize::from(made.order_lens[usize::from(*symbol)]) + run_bits(*symbol) as usize
        });
        made.bits = 14 + made.order_used * 3 + runs.sum::<usize>() + frequencies.cost(&made.codes);
        made
    }

    fn push_run(&mut self, symbol: u8, extra: u8) {
        self.runs[self.run_count] = (symbol, extra);
        self.run_count += 1;
    }

    fn write_header(&self, out: &mut Writer<'_>) {
        out.put((self.litlens - 257) as u64, 5);
        out.put((self.distances - 1) as u64, 5);
        out.put((self.order_used - 4) as u64, 4);
        for symbol in &ORDER[..self.order_used] {
            out.put(u64::from(self.order_lens[*symbol]), 3);
        }
        let mut codes = [Code::default(); 19];
        huffman::codes(&self.order_lens, &mut codes);
        for (symbol, extra) in &self.runs[..self.run_count] {
            out.code(codes[usize::from(*symbol)]);
            out.put(u64::from(*extra), run_bits(*symbol));
        }
    }
}

/// Bits that follow a symbol of the code lengths.
fn run_bits(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

/// Bits into bytes, lowest first.
struct Writer<'a> {
    dst: &'a mut [u8],
    at: usize,
    /// Bits not written yet, fewer than 32.
    bits: u64,
    count: u32,
    full: bool,
}

impl<'a> Writer<'a> {
    fn new(dst: &'a mut [u8]) -> Self {
        Self {
            dst,
            at: 0,
            bits: 0,
            count: 0,
            full: false,
        }
    }

    /// At most 32 bits.
    fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes(4);
        }
    }

    fn code(&mut self, code: Code) {
        self.put(u64::from(code.bits), u32::from(code.len));
    }

    #[allow(clippy::cast_possible_truncation, reason = "at most 4 bytes")]
    fn bytes(&mut self, count: usize) {
        match self.dst.get_mut(self.at..self.at + count) {
            Some(buffer) => {
                buffer.copy_from_slice(&self.bits.to_le_bytes()[..count]);
                self.at += count;
            }
            None => self.full = true,
        }
        let bits = (count * 8) as u32;
        self.bits >>= bits;
        self.count = self.count.saturating_sub(bits);
    }

    /// A stored block after its first bit.
    fn stored(&mut self, plain: &[u8]) {
        self.put(0, 2);
        while self.count > 0 {
            self.bytes(1);
        }
        let len = plain.len() as u64;
        self.put(len, 16);
        self.put(len ^ 0xffff, 16);
        match self.dst.get_mut(self.at..self.at + plain.len()) {
            Some(buffer) => {
                buffer.copy_from_slice(plain);
                self.at += plain.len();
            }
            None => self.full = true,
        }
    }

    fn finish(mut self) -> Result<usize, CodecError> {
        while self.count > 0 {
            self.bytes(1);
        }
        if self.full {
            Err(CodecError::DoesNotFit)
        } else {
            Ok(self.at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::println;

    /// How the canned tables were made, for whoever wants others:
    /// `PAGES=FILE cargo test --release -p zfolio-compress --lib canned -- --ignored --nocapture`
    #[test]
    #[ignore = "a tool: prints code lengths for the pages of the file that PAGES names"]
    fn canned_tables_of_a_file() {
        let file = std::env::var_os("PAGES").expect("PAGES names a file");
        let pages = std::fs::read(file).unwrap();
        let mut encoder = Encoder::new(Tables::Canned).unwrap();
        // What never occurred can be coded all the same.
        let (mut litlen, mut distance) = ([1; LITLENS], [1; DISTANCES]);
        for page in pages.chunks_exact(4096) {
            encoder.finder.begin(encoder.previous, page.len());
            encoder.previous = page.len();
            encoder.tokenize(page, 0);
            let counted = Frequencies::of(&encoder.tokens);
            let add = |sum: &mut [u32], counts: &[u32]| {
                for (sum, count) in sum.iter_mut().zip(counts) {
                    *sum += count;
                }
            };
            add(&mut litlen, &counted.litlen);
            add(&mut distance, &counted.distance);
        }
        let (mut litlens, mut distances) = ([0; LITLENS], [0; DISTANCES]);
        huffman::lengths(&litlen, MAX_BITS, &mut litlens);
        huffman::lengths(&distance, MAX_BITS, &mut distances);
        println!("LITLENS = {litlens:?};\nDISTANCES = {distances:?};");
    }

    #[test]
    fn every_symbol_has_a_canned_code_and_the_code_is_complete() {
        for lens in [&canned::LITLENS[..], &canned::DISTANCES] {
            assert!(lens.iter().all(|len| (1..=15).contains(len)));
            let kraft: u32 = lens.iter().map(|len| 1 << (15 - len)).sum();
            assert_eq!(kraft, 1 << 15);
        }
    }
}
