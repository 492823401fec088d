//! As much of an ELF file as decides whether a library can be preloaded into
//! it: class, machine, and the loader it asks for.
//!
//! Layout from the System V ABI (gABI, chapters 4 and 5): a 64-byte header,
//! then program headers of 56 bytes.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86_64: u16 = 62;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
/// Longest loader path looked at, bytes.
const LONGEST_PATH: u64 = 4096;

/// What an ELF file is to the preload library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Elf {
    /// 32-bit, another byte order, or another machine (its ELF number).
    Foreign(String),
    /// x86-64, loads nothing: static, or static-pie.
    Static,
    /// x86-64, started by this loader.
    Dynamic(PathBuf),
    /// x86-64 with a dynamic section and no loader: a shared object (or a
    /// static-pie program: the two look alike up to their dynamic entries).
    SharedObject,
}

impl Elf {
    /// Reads the headers; `None` when the file is not ELF.
    ///
    /// # Errors
    /// When the file cannot be read, or its headers point outside it.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        let got = read_up_to(file, &mut header)?;
        if got < 20 || !header.starts_with(b"\x7fELF") {
            return Ok(None);
        }
        let (class, order) = (header[4], header[5]);
        let machine = u16::from_le_bytes([header[18], header[19]]);
        if class != CLASS_64 || order != LITTLE_ENDIAN || machine != MACHINE_X86_64 {
            return Ok(Some(Self::Foreign(describe(class, order, &header))));
        }
        if got < HEADER {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let table = u64_at(&header, 32);
        let entry_size = u16::from_le_bytes([header[54], header[55]]);
        let entries = u16::from_le_bytes([header[56], header[57]]);
        let mut dynamic = false;
        for index in 0..u64::from(entries) {
            let at = index
                .checked_mul(u64::from(entry_size))
                .and_then(|offset| offset.checked_add(table))
                .ok_or(io::ErrorKind::InvalidData)?;
            let mut entry = [0; PROGRAM_HEADER];
            file.read_exact_at(&mut entry, at)?;
            match u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) {
                PT_INTERP => {
                    return read_path(file, u64_at(&entry, 8), u64_at(&entry, 32))
                        .map(|path| Some(Self::Dynamic(path)));
                }
                PT_DYNAMIC => dynamic = true,
                _ => {}
            }
        }
        Ok(Some(if dynamic {
            Self::SharedObject
        } else {
            Self::Static
        }))
    }
}

fn describe(class: u8, order: u8, header: &[u8; HEADER]) -> String {
    if class != CLASS_64 {
        return "32-bit".into();
    }
    if order != LITTLE_ENDIAN {
        return "big-endian".into();
    }
    match u16::from_le_bytes([header[18], header[19]]) {
        183 => "for aarch64".into(),
        243 => "for riscv64".into(),
        other => format!("for ELF machine {other}"),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn read_path(file: &File, at: u64, len: u64) -> io::Result<PathBuf> {
    let len = usize::try_from(len.min(LONGEST_PATH)).unwrap_or(0);
    let mut path = vec![0; len];
    file.read_exact_at(&mut path, at)?;
    path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(len));
    Ok(std::ffi::OsString::from_vec(path).into())
}

fn read_up_to(file: &File, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> io::Result<Option<Elf>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Elf::read(&file)
    }

    #[test]
    fn this_test_is_dynamic() {
        let own = File::open("/proc/self/exe").unwrap();
        let Some(Elf::Dynamic(loader)) = Elf::read(&own).unwrap() else {
            panic!("not dynamic");
        };
        assert!(loader.exists(), "{}", loader.display());
    }

    #[test]
    fn other_files_are_not_elf() {
        assert_eq!(read(b"").unwrap(), None);
        assert_eq!(read(b"#!/bin/sh\n").unwrap(), None);
        assert_eq!(read(b"\x7fELF").unwrap(), None);
    }

    #[test]
    fn machines_are_told_apart() {
        let mut own = std::fs::read("/proc/self/exe").unwrap();
        own[18] = 183;
        assert_eq!(
            read(&own).unwrap(),
            Some(Elf::Foreign("for aarch64".into()))
        );
        own[4] = 1;
        assert_eq!(read(&own).unwrap(), Some(Elf::Foreign("32-bit".into())));
    }

    #[test]
    fn broken_headers_are_errors() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(read(&own[..40]).is_err());
        let mut astray = own[..4096].to_vec();
        astray[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&astray).is_err());
    }
}
