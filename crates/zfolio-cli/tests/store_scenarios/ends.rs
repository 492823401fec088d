//! What ends a program: never with a wrong byte.

use super::place::Place;
use crate::servers::session::STEP;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// What is done to all values of a store, in its own language, and what the program is ended with.
pub(crate) type Altered = (&'static str, &'static str);

const ELSE: &str = "the backing gave something else";

/// A byte in every 64.
pub(crate) const CHANGED: Altered = (
    "for _,k in ipairs(redis.call('KEYS','zf:*')) do local l=redis.call('STRLEN',k) \
     for at=20,l-1,64 do redis.call('SETRANGE',k,at,'?') end end",
    ELSE,
);
/// One of them instead of each, as often as it takes to be as long: KEYS has no order, and
/// values have any length.
pub(crate) const ANOTHERS: Altered = (
    "local all=redis.call('KEYS','zf:*') local first=redis.call('GET',all[1]) \
     for _,k in ipairs(all) do local l=redis.call('STRLEN',k) \
     redis.call('SET',k,string.sub(string.rep(first,math.ceil(l/#first)),1,l)) end",
    ELSE,
);
pub(crate) const GONE: Altered = (
    "redis.call('FLUSHALL')",
    "the backing does not have it any more",
);

pub(crate) fn altered(of: &Place<'_>, (script, words): Altered) {
    let Some((servers, mut session)) = of.filled("") else {
        return;
    };
    session.step("check");
    let told = servers[0].cli(&["EVAL", script, "0"]);
    assert_eq!(told.trim(), "", "{}: the script is not run", of.way);
    session.ask("check");
    assert!(!session.done(STEP), "{}: wrong bytes were read", of.way);
    session.ends().was_ended(words);
}

/// A server that stands still for longer than is waited.
pub(crate) fn no_answer_in_time(of: &Place<'_>) {
    let Some((servers, mut session)) = of.filled(",deadline=2") else {
        return;
    };
    servers[0].signal(Signal::STOP);
    let begin = Instant::now();
    session.ask("check");
    assert!(!session.done(STEP), "{}: nothing was in the store", of.way);
    let ended = session.ends();
    ended.was_ended("the backing did not answer in time");
    assert!(begin.elapsed() < Duration::from_secs(20), "{}", of.way);
}
