//! Descriptor and completion record, 64 bytes each, laid out as the public
//! specification of Intel's In-Memory Analytics Accelerator has them
//! ("Intel In-Memory Analytics Accelerator Architecture Specification",
//! 721858), so that a hardware queue can stand where an engine does.
//!
//! A software engine reads the same fields. Addresses are of the descriptor's
//! own buffers: pages are copied in and results out, so that a submitter may
//! give up on an engine at any moment without memory being written behind its
//! back. Nobody here has run the hardware.

/// What a descriptor asks for; the specification's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// Nothing; a descriptor that was never filled.
    Noop = 0x00,
    /// Decompress source 1 into the destination.
    Decompress = 0x42,
    /// Compress source 1 into the destination.
    Compress = 0x43,
}

impl Opcode {
    /// The opcode of a number.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0x00 => Some(Self::Noop),
            0x42 => Some(Self::Decompress),
            0x43 => Some(Self::Compress),
            _ => None,
        }
    }
}

/// Flag: the completion record's address is valid.
pub const FLAG_RECORD_VALID: u32 = 1 << 2;
/// Flag: a completion record is wanted whatever happens.
pub const FLAG_RECORD_REQUEST: u32 = 1 << 3;
/// Flag: the submitter sleeps and wants an interrupt (here: a wake-up).
pub const FLAG_INTERRUPT: u32 = 1 << 4;
/// Flag: source 2 holds the tables and state (canned mode).
pub const FLAG_READ_SOURCE_2: u32 = 1 << 16;

/// A descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct Descriptor {
    /// Process address space id (20 bits) and privilege (bit 31): the driver's.
    pub(super) pasid_and_privilege: u32,
    /// Flags in bits 0 to 23, opcode in bits 24 to 31.
    pub(super) flags_and_opcode: u32,
    /// Address of the completion record.
    pub(super) record_address: u64,
    /// Address of source 1.
    pub(super) source_address: u64,
    /// Address of the destination.
    pub(super) destination_address: u64,
    /// Bytes of source 1.
    pub(super) source_len: u32,
    /// Interrupt handle; here the number of the submitter that is woken.
    pub(super) interrupt_handle: u16,
    /// Flags of the operation (Huffman mode, end of block, flush).
    pub(super) operation_flags: u16,
    /// Address of source 2: tables and state.
    pub(super) source2_address: u64,
    /// Bytes of the destination that may be used.
    pub(super) max_destination_len: u32,
    /// Bytes of source 2.
    pub(super) source2_len: u32,
    /// Filter flags and elements: not used by these operations.
    pub(super) unused: [u32; 2],
}

const _: () = assert!(size_of::<Descriptor>() == 64);

impl Descriptor {
    /// Asks for `opcode` with `flags`.
    #[must_use]
    pub const fn new(opcode: Opcode, flags: u32) -> Self {
        Self {
            pasid_and_privilege: 0,
            flags_and_opcode: (opcode as u32) << 24 | flags,
            record_address: 0,
            source_address: 0,
            destination_address: 0,
            source_len: 0,
            interrupt_handle: 0,
            operation_flags: 0,
            source2_address: 0,
            max_destination_len: 0,
            source2_len: 0,
            unused: [0; 2],
        }
    }

    /// What it asks for; `None` for a number that means nothing.
    #[must_use]
    pub const fn opcode(&self) -> Option<Opcode> {
        Opcode::from_u8(self.flags_and_opcode.to_be_bytes()[0])
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags_and_opcode & flag != 0
    }
}

/// How an operation ended; numbers of the specification where it has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Not written yet.
    None = 0x00,
    /// Success.
    Success = 0x01,
    /// The operation failed; the error code says why.
    AnalyticsError = 0x0a,
    /// The output does not fit the destination.
    OutputOverflow = 0x0b,
    /// The opcode is not one of this queue's.
    UnsupportedOpcode = 0x10,
}

/// Error code: the input is not what the decoder expects.
pub const ERROR_CORRUPT: u8 = 1;
/// Error code: no memory for the engine's workspace.
pub const ERROR_WORKSPACE: u8 = 2;
/// Error code: empty or too large.
pub const ERROR_LENGTH: u8 = 3;
/// Error code: verification found other bytes.
pub const ERROR_MISMATCH: u8 = 4;

/// A completion record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct CompletionRecord {
    /// How it ended.
    pub(super) status: Status,
    /// Why it failed.
    pub(super) error_code: u8,
    /// Page-fault information, which is the hardware's, and a byte of reserve.
    fault_info: [u8; 2],
    /// Bytes of the source that were read.
    pub(super) bytes_completed: u32,
    /// Address of a page fault: the hardware's.
    fault_address: u64,
    /// Flags that were not understood, and a reserve.
    invalid_flags: [u32; 2],
    /// Bytes of the destination that were written.
    pub(super) output_len: u32,
    /// Bits used of the last byte (0 for all), and a byte of reserve.
    output_bits: [u8; 2],
    /// Exclusive or of the plain bytes' 16-bit words.
    xor_checksum: u16,
    /// CRC-32 of the plain bytes, where the engine computes it (`verify`).
    pub(super) crc: u32,
    /// Aggregates, which these operations do not use, and a reserve.
    unused: [u32; 7],
}

const _: () = assert!(size_of::<CompletionRecord>() == 64);

impl Default for CompletionRecord {
    fn default() -> Self {
        Self {
            status: Status::None,
            error_code: 0,
            fault_info: [0; 2],
            bytes_completed: 0,
            fault_address: 0,
            invalid_flags: [0; 2],
            output_len: 0,
            output_bits: [0; 2],
            xor_checksum: 0,
            crc: 0,
            unused: [0; 7],
        }
    }
}
