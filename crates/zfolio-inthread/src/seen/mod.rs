//! How the program's system calls come to us before they run.
//!
//! The kernel's Syscall User Dispatch stops every call that is not made from our own text:
//! that costs a signal. So the site of a call is rewritten where that is safe: five bytes of it
//! become a jump to a stub, which does what they did, and jumps to our entry (`answer::entry`).
//!
//! | file | concept |
//! |---|---|
//! | [`frame`] | the registers of a call |
//! | [`arm`] | dispatch by the kernel, for this thread |
//! | [`rewrite`] | sites that become jumps: which, and when |
//! | [`forms`] | what the bytes around a site say |
//! | [`stubs`] | the code that sites jump to |
//! | [`table`] | what each call does with its arguments |
//! | [`plain_stack`] | stacks known not to be managed |
//! | [`stack`] | the stack that a call is answered on |
//! | [`pinning`] | keeping what a call will touch |
//! | [`vectors`], [`nested`], [`bpf`] | what arguments point to says what else is pointed to |

pub(crate) mod arm;
mod bpf;
pub(crate) mod forms;
pub(crate) mod frame;
pub(crate) mod nested;
pub(crate) mod own_stack;
pub(crate) mod pinning;
mod plain_stack;
pub(crate) mod rewrite;
pub(crate) mod stack;
pub(crate) mod stubs;
pub(crate) mod table;
pub(crate) mod vectors;
