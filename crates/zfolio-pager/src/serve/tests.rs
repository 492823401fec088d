//! What the pager answers to requests that no member makes.

use super::*;
use crate::keeper::Exchange;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use zfolio_sys::exchange::Exchange as Member;

/// What no member asks is refused, whatever stands in the cell, and the pager serves on.
#[test]
fn requests_that_are_none_are_refused() {
    let exchange = Exchange::create().unwrap();
    let told = format!(
        "{}\nrun\nredis://127.0.0.1:1\nquiet\n",
        exchange.path().display()
    );
    let (input, more) = std::io::pipe().unwrap();
    (&more).write_all(told.as_bytes()).unwrap();
    std::thread::spawn(move || serve(std::io::BufReader::new(input)));
    let path = CString::new(exchange.path().as_os_str().as_bytes()).unwrap();
    let member = Member::join(&path, 77).unwrap();
    let value = u32::try_from(VALUE).unwrap();
    let good = Salts::of(&[1]).0;
    for (what, from, len, salts) in [
        (op::PUT, 0, value + 1, 0),
        (op::PUT, 0, 0, 0),
        (op::GET, value, 1, good),
        (op::GET, u32::MAX, u32::MAX, good),
        (op::GET, 0, 64, 0),
        (op::DELETE, 0, u32::MAX, 0),
        (99, 0, 64, 0),
    ] {
        let cell = &member.ring().cells[2];
        cell.op.store(what, Relaxed);
        cell.from.store(from, Relaxed);
        cell.len.store(len, Relaxed);
        cell.salts.store(salts, Relaxed);
        cell.state.store(state::POSTED, Ordering::Release);
        // (A cell that there is not, too.)
        member.note_posted(31);
        member.note_posted(2);
        member.ring_the_bell();
        let begin = Instant::now();
        while cell.state.load(Ordering::Acquire) != state::DONE {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "op {what} is not answered"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let errno = i32::try_from(cell.errno.load(Relaxed)).unwrap();
        assert_eq!(
            Errno(errno),
            Errno::INVAL,
            "op {what}, {len} bytes from {from}"
        );
    }
    drop(more);
}
