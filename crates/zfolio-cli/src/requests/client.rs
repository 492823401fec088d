//! Asking a run.

use crate::requests::message::{Answer, Refused, Request};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::segment_file::socket_beside;

/// How long an answer may take: a run looks some times a second.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Asks the run whose segment is at `control`.
///
/// # Errors
/// It cannot be asked, or refuses.
pub(crate) fn ask(control: &Path, request: &Request) -> Result<Answer, Failure> {
    asked(control, request).map(|(answer, _)| answer)
}

/// The same; the connection stays open as long as the stream is kept.
///
/// # Errors
/// As [`ask`].
pub(crate) fn asked(control: &Path, request: &Request) -> Result<(Answer, UnixStream), Failure> {
    let path = socket_beside(control);
    let failed = |error: &dyn std::fmt::Display| {
        let mend = "name a zfolio run that goes on, as the user who started it or root";
        Failure::new(Status::Internal, path.display(), error, mend)
    };
    let (answer, stream) = exchange(&path, request).map_err(|error| failed(&error))?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Refused(Refused { what, why, mend })) => {
            Err(Failure::new(Status::Usage, what, why, mend))
        }
        Ok(answer) => Ok((answer, stream)),
        Err(_) => Err(failed(&"no answer that could be read")),
    }
}

fn exchange(path: &Path, request: &Request) -> io::Result<(Vec<u8>, UnixStream)> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut answer = Vec::new();
    BufReader::new(stream.try_clone()?)
        .take(1 << 20)
        .read_until(b'\n', &mut answer)?;
    Ok((answer, stream))
}
