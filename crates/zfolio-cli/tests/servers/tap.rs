//! A proxy before a server: keeps what goes over the wire, and changes it when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One on a port of its own. Its threads end with their connections, or with the process.
#[derive(Debug)]
pub(crate) struct Tap {
    /// On 127.0.0.1.
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    changes: Arc<AtomicBool>,
    late_us: Arc<AtomicU64>,
}

impl Tap {
    /// Before the server on port `to`.
    pub(crate) fn before(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let tap = Self {
            port,
            seen: Arc::default(),
            changes: Arc::default(),
            late_us: Arc::default(),
        };
        let (seen, changes) = (tap.seen.clone(), tap.changes.clone());
        let late = tap.late_us.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let both = |of: &TcpStream| {
                    let _ = of.set_nodelay(true);
                    of.try_clone().expect("a descriptor")
                };
                let (up, down) = (both(&client), both(&server));
                let kept = (seen.clone(), Arc::default(), late.clone());
                std::thread::spawn(move || pass(&client, &server, &kept));
                let kept = (seen.clone(), changes.clone(), late.clone());
                std::thread::spawn(move || pass(&down, &up, &kept));
            }
        });
        tap
    }

    /// What went over it, both ways.
    pub(crate) fn seen(&self) -> Vec<u8> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// From now on each piece, both ways, comes so much later.
    pub(crate) fn delay(&self, by: Duration) {
        let us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.late_us.store(us, Relaxed);
    }

    /// From now on a byte of each piece of an answer is another, or none is any more.
    pub(crate) fn change(&self, on: bool) {
        self.changes.store(on, Relaxed);
    }
}

type Kept = (Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>, Arc<AtomicU64>);

fn pass(mut from: &TcpStream, mut to: &TcpStream, (seen, changes, late): &Kept) {
    let mut bytes = vec![0; 64 << 10];
    let mut turn = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let piece = &mut bytes[..count];
        match late.load(Relaxed) {
            0 => {}
            us => std::thread::sleep(Duration::from_micros(us)),
        }
        if changes.load(Relaxed) {
            turn += 1;
            piece[(turn * 7919) % count] ^= 0x5a;
        }
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(piece);
        if to.write_all(piece).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
