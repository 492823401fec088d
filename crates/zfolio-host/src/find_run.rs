//! The control segment of a run that is named by a process id or a path.

use crate::exit::{Failure, Status};
use crate::segment_file::{directories, list};
use std::path::{Path, PathBuf};
use zfolio_runtime::segment::ENV_CONTROL;

/// The path of the segment that is named, or of the newest.
///
/// # Errors
/// When there is none.
pub fn locate(which: Option<&Path>) -> Result<PathBuf, Failure> {
    let none = |what: String| {
        Failure::new(
            Status::NotFound,
            "looking at a run",
            what,
            "start one with zfolio run",
        )
    };
    let all = || directories().into_iter().flat_map(|dir| list(&dir));
    let Some(which) = which else {
        return all()
            .max()
            .map(|(_, path)| path)
            .ok_or_else(|| none("nothing is running".into()));
    };
    let Some(pid) = which.to_str().and_then(|text| text.parse::<u32>().ok()) else {
        return Ok(which.to_path_buf());
    };
    let by_environment =
        std::fs::read(format!("/proc/{pid}/environ"))
            .ok()
            .and_then(|environment| {
                let prefix = format!("{ENV_CONTROL}=");
                let value = environment
                    .split(|byte| *byte == 0)
                    .find_map(|var| var.strip_prefix(prefix.as_bytes()))?;
                Some(PathBuf::from(String::from_utf8_lossy(value).into_owned()))
            });
    let by_name = || {
        let marker = format!("-{pid}-");
        all()
            .map(|(_, path)| path)
            .find(|path| path.to_string_lossy().contains(&marker))
    };
    by_environment
        .or_else(by_name)
        .ok_or_else(|| none(format!("process {pid} is not under zfolio run")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_it_is() {
        let path = Path::new("/x/y.control");
        assert_eq!(locate(Some(path)), Ok(path.to_path_buf()));
        let nobody = locate(Some(Path::new("4294967295")));
        assert_eq!(
            nobody.map_err(|failure| failure.status),
            Err(Status::NotFound)
        );
    }
}
