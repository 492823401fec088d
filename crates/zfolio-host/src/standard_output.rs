//! What a command prints.

use crate::exit::{Failure, Status};
use std::io::{self, Write};

/// Prints all of `text` on standard output, and says whether somebody reads still: that nobody does
/// (`zfolio stat | head -1`) is no failure.
///
/// # Errors
/// [`Status::CannotCreate`] when it cannot be written for another reason.
pub fn print(text: &str) -> Result<bool, Failure> {
    written(&mut io::stdout().lock(), text)
}

fn written(to: &mut impl Write, text: &str) -> Result<bool, Failure> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let mend = "send it where there is room";
            Err(Failure::new(
                Status::CannotCreate,
                "standard output",
                error,
                mend,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::pipe;

    #[test]
    fn nobody_reading_is_no_failure_and_no_room_is_one() {
        let (reader, mut to) = pipe().expect("a pipe");
        assert_eq!(written(&mut to, "text"), Ok(true));
        drop(reader);
        assert_eq!(written(&mut to, "text"), Ok(false));
        let mut full = OpenOptions::new();
        let mut full = full.write(true).open("/dev/full").expect("opened");
        let failure = written(&mut full, "text").expect_err("no room");
        assert_eq!(failure.status, Status::CannotCreate);
        assert!(failure.to_string().starts_with("zfolio: standard output: "));
    }
}
