//! What the kernel puts on the stack for a handler, as far as it is looked at.

/// Words of a signal's frame, its `ucontext_t` first.
pub(crate) type Context = [u64; 64];
/// The saved mask in it.
pub(crate) const SAVED: usize = 37;
/// In the flags: the program has the processor refuse what is not aligned (AC).
pub(crate) const ALIGNMENT_CHECKED: u64 = 1 << 18;

/// Where it has what is used of it, in words: `uc_mcontext` begins at the fifth, and
/// holds r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
pub(crate) mod at {
    const REGISTERS: usize = 5;
    pub(crate) const R11: usize = REGISTERS + 3;
    pub(crate) const RAX: usize = REGISTERS + 13;
    pub(crate) const RCX: usize = REGISTERS + 14;
    pub(crate) const RSP: usize = REGISTERS + 15;
    pub(crate) const RIP: usize = REGISTERS + 16;
    pub(crate) const FLAGS: usize = REGISTERS + 17;
    /// What the processor said of a page fault.
    pub(crate) const ERROR: usize = REGISTERS + 19;
    /// Address of the state of vectors.
    pub(crate) const VECTORS: usize = REGISTERS + 23;
    /// After rip: flags, segments, error, trap, old mask, cr2, the vector state's address
    /// and eight words that nobody uses; then the mask. The first of the eight is the mask
    /// that the program's handler is entered with.
    pub(crate) const ENTERED: usize = REGISTERS + 24;
    const _: () = assert!(REGISTERS + 32 == super::SAVED);
}
