//! Named groups of a run: `zfolio run --group NAME`.
//!
//! Within a run it makes, or finds, the group in that run's control segment, sets
//! the limits that are given, and becomes the program: nothing of it stays. Where
//! there is no run around, it is a run of its own whose program is in that group.

use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::segment_file::WritableSegment;
use zfolio_host::size::Size;
use zfolio_runtime::segment::run_group::{RUN, named};
use zfolio_runtime::segment::{ENV_CONTROL, ENV_GROUP, Segment};

/// Options of `zfolio run`.
#[derive(Args, Debug, Default)]
pub(crate) struct Group {
    /// Start the program in group NAME (a path: a/b is within a); within another
    /// run, of that run: --high is then the group's
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Most that may be out, uncompressed size, of the group or the run
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, conflicts_with = "per_process")]
    pub(crate) swap_max: Option<Size>,
    /// Where faults begin to wait, up to 10 ms each: so much out, uncompressed size, of the
    /// group or the run
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, conflicts_with = "per_process")]
    pub(crate) swap_high: Option<Size>,
    /// Most compressed bytes in the pool, of the group or the run
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, conflicts_with = "per_process")]
    pub(crate) zswap_max: Option<Size>,
    /// Nothing of the group or the run is written to the backing
    #[arg(long, conflicts_with = "per_process")]
    pub(crate) no_writeback: bool,
}

impl Group {
    /// The segment of the run around, if a group of it is asked for.
    pub(crate) fn run_around(&self) -> Option<WritableSegment> {
        self.group.as_ref()?;
        let path = PathBuf::from(std::env::var_os(ENV_CONTROL)?);
        WritableSegment::open(&path).ok()
    }

    /// Makes the group, if one is named, and sets the limits that were given.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn define(
        &self,
        segment: &Segment,
        high: Option<Size>,
        max: Option<Size>,
    ) -> Result<(), Failure> {
        let index = match &self.group {
            None => RUN,
            Some(name) => named(segment, name).ok_or_else(|| {
                let why = "no name for a group, or there are too many";
                let mend = "56 bytes at most, with / between its parts";
                Failure::new(Status::Usage, format!("--group {name}"), why, mend)
            })?,
        };
        let group = &segment.groups[index as usize];
        let bytes = |size: Size| size.bytes(machine::mem_total());
        if let Some(high) = high {
            group.high.store(bytes(high), Relaxed);
        }
        if let Some(max) = max {
            group.max.store(bytes(max), Relaxed);
        }
        if let Some(high) = self.swap_high {
            group.swap_high.store(bytes(high) + 1, Relaxed);
        }
        if let Some(max) = self.swap_max {
            group.swap_max.store(bytes(max) + 1, Relaxed);
        }
        if let Some(max) = self.zswap_max {
            group.zswap_max.store(bytes(max) + 1, Relaxed);
        }
        if self.no_writeback {
            group.no_writeback.store(1, Relaxed);
        }
        Ok(())
    }

    /// The variable that says which group a program is in.
    pub(crate) fn env(&self) -> Option<(&'static str, &str)> {
        self.group.as_deref().map(|name| (ENV_GROUP, name))
    }

    /// Becomes the program, in the group.
    pub(crate) fn become_program(&self, path: &Path, words: &[OsString]) -> Failure {
        let mut command = Command::new(path);
        if let [name, args @ ..] = words {
            command.arg0(name).args(args);
        }
        command.envs(self.env());
        let error = command.exec();
        let mend = "check the program and its arguments";
        Failure::new(Status::NotExecutable, path.display(), error, mend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::group_state::GroupState;
    use zfolio_host::segment_file::OwnSegment;

    #[test]
    fn groups_are_paths_and_have_limits() {
        let segment = OwnSegment::create(|_| {}).unwrap();
        let of = |name: &str| Group {
            group: Some(name.into()),
            swap_max: Some(Size::Bytes(1 << 30)),
            swap_high: Some(Size::Bytes(1 << 29)),
            no_writeback: true,
            ..Group::default()
        };
        of("build/cc")
            .define(
                &segment,
                Some(Size::Bytes(64 << 20)),
                Some(Size::Bytes(96 << 20)),
            )
            .unwrap();
        of("build").define(&segment, None, None).unwrap();
        let names: Vec<_> = GroupState::all(&segment)
            .into_iter()
            .map(|of| (of.name, of.high))
            .collect();
        assert_eq!(names, [("build".into(), 0), ("build/cc".into(), 64 << 20)]);
        assert_eq!(named(&segment, "build/cc"), Some(2));
        let cc = &segment.groups[2];
        assert_eq!(
            (cc.parent.load(Relaxed), cc.swap_max.load(Relaxed)),
            (1, (1 << 30) + 1)
        );
        assert_eq!(
            (cc.zswap_max.load(Relaxed), cc.no_writeback.load(Relaxed)),
            (0, 1)
        );
        assert_eq!(
            (cc.max.load(Relaxed), cc.swap_high.load(Relaxed)),
            (96 << 20, (1 << 29) + 1)
        );
        assert_eq!(segment.groups[1].max.load(Relaxed), 0);
        for name in ["", "a//b", "/", &"x".repeat(57)] {
            assert!(of(name).define(&segment, None, None).is_err(), "{name}");
        }
        let many = (0..100)
            .map_while(|n| named(&segment, &n.to_string()))
            .count();
        assert_eq!(many, 61);
        Group::default().define(&segment, None, None).unwrap();
    }

    #[test]
    fn names_are_given_out_once() {
        let segment = OwnSegment::create(|_| {}).unwrap();
        let segment: &Segment = &segment;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || ["a", "b/c", "b/d"].map(|name| named(segment, name))))
                .collect();
            let seen: Vec<_> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect();
            assert!(seen.iter().all(|of| *of == seen[0]), "{seen:?}");
        });
        assert_eq!(GroupState::all(segment).len(), 4);
    }
}
