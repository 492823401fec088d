//! What a run was asked for, as the processes in it read it.

use crate::options::backing_options::Checked;
use crate::options::engines::Engines;
use crate::options::fault_ways::Taken;
use crate::options::run_args::{Background, Faults, IoUring, Tier};
use crate::options::slowdown::Asked;
use zfolio_host::compressor::Compressor;
use zfolio_mm::Order;
use zfolio_runtime::options::codec_words;
use zfolio_runtime::segment::{Config, faults};
use zfolio_sys::limits::filters;

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// `high`, bytes.
    pub(crate) high: u64,
    /// The memory limit that `high` was chosen for, bytes; `None` where it was given, or
    /// there is none.
    pub(crate) limit: Option<u64>,
    /// What may be lost for less memory, if that was said.
    pub(crate) slowdown: Option<Asked>,
    /// Who is told of faults.
    pub(crate) faults: Taken,
    /// Codec and level.
    pub(crate) compressor: Compressor,
    /// In which pieces memory goes.
    pub(crate) folios: Folios,
    /// Threads that compress for reclaim.
    pub(crate) engines: Engines,
    /// Whether there is a second tier.
    pub(crate) tier: Tier,
    /// Where the thread that touches serves itself.
    pub(crate) in_thread: InThread,
    /// Nothing on the program's stderr.
    pub(crate) quiet: bool,
    /// `high` is shared by all processes.
    pub(crate) shared: bool,
    /// The backing and `max`.
    pub(crate) behind: Checked,
}

/// In which pieces memory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Folios {
    /// Moved out at once.
    pub(crate) size: Order,
    /// Huge pages are split into such.
    pub(crate) split_huge_pages: bool,
    /// Huge pages that came back in pieces are made one again.
    pub(crate) huge_page_assembly: bool,
    /// Read-ahead as by the kernel's `page-cluster`; `None`: judged.
    pub(crate) page_cluster: Option<u8>,
    /// Folio compaction runs.
    pub(crate) compaction: bool,
}

/// What holds where the thread that touches a page serves itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InThread {
    /// Whether a thread of ours reclaims beside it.
    pub(crate) background: Background,
    /// What becomes of a program that uses io_uring.
    pub(crate) io_uring: IoUring,
}

impl Settings {
    /// Takes over what was changed while the run lasted; `high`: what was asked for then.
    pub(crate) fn reread(&mut self, config: &Config, high: Option<u64>) {
        if let Some(high) = high {
            (self.high, self.limit) = (high, None);
        }
        self.engines = Engines::of(config);
        self.behind.reread(config);
    }

    /// Writes them where the preload library reads them; false if a path does
    /// not fit there.
    pub(crate) fn store(&self, config: &Config) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        config.limits.high.store(self.high, Relaxed);
        let slowdown = self.slowdown.map_or(0, |asked| asked.slowdown);
        config.limits.slowdown.store(slowdown, Relaxed);
        let (codec, level) = codec_words(self.compressor.0);
        config.compression.codec.store(codec, Relaxed);
        config
            .compression
            .level
            .store(level.cast_unsigned(), Relaxed);
        config
            .faults
            .store(self.faults.for_processes().number(), Relaxed);
        let found = self.faults.found().map_or(faults::AUTO, Faults::number);
        config.faults_found.store(found, Relaxed);
        config
            .folios
            .order
            .store(self.folios.size.get().into(), Relaxed);
        let split = self.folios.split_huge_pages;
        config.folios.split_huge_pages.store(split.into(), Relaxed);
        let assembly = self.folios.huge_page_assembly;
        config
            .folios
            .huge_page_assembly
            .store(assembly.into(), Relaxed);
        let cluster = self
            .folios
            .page_cluster
            .map_or(0, |order| u32::from(order) + 1);
        config.folios.page_cluster.store(cluster, Relaxed);
        self.engines.store(config);
        let off = !self.folios.compaction;
        config.folios.no_compaction.store(off.into(), Relaxed);
        config
            .compression
            .tier
            .store((self.tier == Tier::Auto).into(), Relaxed);
        config
            .background_reclaim
            .store(self.in_thread.background.choice().number(), Relaxed);
        config
            .io_uring
            .store(self.in_thread.io_uring.number(), Relaxed);
        config.runner.quiet.store(self.quiet.into(), Relaxed);
        config.runner.filters.store(filters(), Relaxed);
        if let Ok(stat) = rustix::fs::fstat(std::io::stderr()) {
            config.runner.standard_error[0].store(stat.st_dev, Relaxed);
            config.runner.standard_error[1].store(stat.st_ino, Relaxed);
        }
        config.limits.shared.store(self.shared.into(), Relaxed);
        self.behind.store(config)
    }
}
