//! What is done by one descriptor: its buffers filled, its work run, its record read.

use super::descriptor::{
    CompletionRecord, Descriptor, ERROR_CORRUPT, ERROR_LENGTH, ERROR_MISMATCH, ERROR_WORKSPACE,
    FLAG_RECORD_REQUEST, FLAG_RECORD_VALID, Opcode, Status,
};
use super::device::QueueKind;
use crate::checksum::crc32;
use crate::{CodecError, CompressUnit, Context, DecompressUnit};
use alloc::boxed::Box;

/// What a descriptor carries: its two records and its buffers.
pub(super) struct Job {
    pub(super) descriptor: Descriptor,
    pub(super) record: CompletionRecord,
    pub(super) source: Box<[u8]>,
    pub(super) destination: Box<[u8]>,
}

/// Writes a unit into a descriptor; false if it does not go in.
pub(super) fn fill(
    job: &mut Job,
    source: &[u8],
    capacity: usize,
    handle: u16,
    interrupt: u32,
    opcode: Opcode,
) -> bool {
    let lens = (u32::try_from(source.len()), u32::try_from(capacity));
    let (Ok(source_len), Ok(max_destination_len)) = lens else {
        return false;
    };
    let Some(buffer) = job.source.get_mut(..source.len()) else {
        return false;
    };
    if capacity > job.destination.len() {
        return false;
    }
    buffer.copy_from_slice(source);
    job.record = CompletionRecord::default();
    job.descriptor = Descriptor {
        record_address: (&raw const job.record).addr() as u64,
        source_address: job.source.as_ptr().addr() as u64,
        source_len,
        destination_address: job.destination.as_ptr().addr() as u64,
        max_destination_len,
        interrupt_handle: handle,
        ..Descriptor::new(opcode, FLAG_RECORD_VALID | FLAG_RECORD_REQUEST | interrupt)
    };
    true
}

/// Does what a descriptor asks for.
pub(super) fn run(job: &mut Job, kind: QueueKind, verify: bool, codec: &mut dyn Context) {
    job.record = CompletionRecord::default();
    let source = job.source.get(..job.descriptor.source_len as usize);
    let capacity = job.descriptor.max_destination_len as usize;
    let destination = job.destination.get_mut(..capacity);
    let (Some(source), Some(destination)) = (source, destination) else {
        (job.record.status, job.record.error_code) = (Status::AnalyticsError, ERROR_LENGTH);
        return;
    };
    let result = match (job.descriptor.opcode(), kind) {
        (Some(Opcode::Compress), QueueKind::Compress | QueueKind::Generic) => {
            let mut unit = [CompressUnit::new(source, destination)];
            let _ = codec.compress_batch(&mut unit);
            unit[0].result
        }
        (Some(Opcode::Decompress), QueueKind::Decompress | QueueKind::Generic) => {
            let mut unit = [DecompressUnit::new(source, destination)];
            let _ = codec.decompress_batch(&mut unit);
            unit[0].result
        }
        _ => {
            job.record.status = Status::UnsupportedOpcode;
            return;
        }
    };
    job.record.bytes_completed = job.descriptor.source_len;
    if let (true, Ok(len)) = (verify, result) {
        let plain = match job.descriptor.opcode() {
            Some(Opcode::Decompress) => destination.get(..len),
            _ => Some(source),
        };
        job.record.crc = plain.map_or(0, crc32);
    }
    (job.record.status, job.record.error_code) = match result {
        Ok(len) => {
            job.record.output_len = u32::try_from(len).unwrap_or(u32::MAX);
            (Status::Success, 0)
        }
        Err(CodecError::DoesNotFit) => (Status::OutputOverflow, 0),
        Err(CodecError::Corrupt) => (Status::AnalyticsError, ERROR_CORRUPT),
        Err(CodecError::Workspace | CodecError::NotRun) => {
            (Status::AnalyticsError, ERROR_WORKSPACE)
        }
        Err(CodecError::Length) => (Status::AnalyticsError, ERROR_LENGTH),
        Err(CodecError::Mismatch) => (Status::AnalyticsError, ERROR_MISMATCH),
    };
}

/// What a record says; `None` when it says nothing that is to be believed.
pub(super) fn result_of(record: &CompletionRecord) -> Option<Result<usize, CodecError>> {
    match (record.status, record.error_code) {
        (Status::Success, _) => Some(Ok(record.output_len as usize)),
        (Status::OutputOverflow, _) => Some(Err(CodecError::DoesNotFit)),
        (Status::AnalyticsError, ERROR_CORRUPT) => Some(Err(CodecError::Corrupt)),
        (Status::AnalyticsError, ERROR_MISMATCH) => Some(Err(CodecError::Mismatch)),
        (Status::AnalyticsError, ERROR_LENGTH) => Some(Err(CodecError::Length)),
        (Status::None | Status::UnsupportedOpcode | Status::AnalyticsError, _) => None,
    }
}
