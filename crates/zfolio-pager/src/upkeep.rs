//! What the pager does once in a while: looks whether members live, whether values are to be
//! renewed, and whether it is still needed.
//!
//! It ends when who started it has gone (its standard input ends) and no member is left; then,
//! and when a member ends, it deletes their values.

use crate::fail::Fail;
use crate::key::{Name, read};
use crate::links::Links;
use crate::serve::Pager;
use redis::Value;
use std::sync::atomic::{AtomicBool, Ordering, Ordering::Relaxed};
use std::time::{Duration, Instant};
use zfolio_sys::exchange::MEMBERS;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Values renewed or deleted together.
const TOGETHER: usize = 256;
/// Time for an answer to those.
const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long one piece of work goes on before the others have their turn.
const TURN: Duration = Duration::from_secs(1);

/// How far the keys of the run were read from the store.
#[derive(Default)]
struct Search {
    /// Nodes to be asked yet, the one at hand last; `None`: they are not known yet.
    nodes: Option<Vec<String>>,
    cursor: Vec<u8>,
}

impl Pager {
    /// Looks at everything once in a while, until it is not needed any more.
    pub(crate) fn look(&self, stop: &AtomicBool, is_first: bool) {
        let mut links = Links::new(&self.store);
        let every = self.store.spec.ttl / 3;
        let mut renewed = Instant::now();
        let mut search = (!is_first).then(Search::default);
        loop {
            if let Some(unfinished) = &mut search
                && self.search(&mut links, unfinished)
            {
                search = None;
                // (The one before may have renewed them last long ago.)
                self.renew(&mut links);
            }
            self.bury(&mut links);
            let owners = self.hall.head().owners.iter();
            let live = owners
                .filter(|owner| owner.load(Ordering::Acquire) != 0)
                .count();
            if stop.load(Relaxed) && live == 0 {
                return;
            }
            if renewed.elapsed() > every {
                renewed = Instant::now();
                self.renew(&mut links);
            }
            // (A run that ends is not kept waiting.)
            let nap = if stop.load(Relaxed) { LOOK / 10 } else { LOOK };
            std::thread::sleep(nap);
        }
    }

    /// Frees the rings of members that have ended, and deletes their values.
    fn bury(&self, links: &mut Links<'_>) {
        let head = self.hall.head();
        let begin = Instant::now();
        for member in 0..MEMBERS {
            let owner = head.owners[member].load(Ordering::Acquire);
            let ended = self.ended[member].load(Ordering::SeqCst);
            if owner == 0 || !ended && !self.hall.take_ring(member) {
                continue;
            }
            self.ended[member].store(true, Ordering::SeqCst);
            if self.under_way[member].load(Ordering::SeqCst) != 0 {
                continue; // the next time
            }
            let all = loop {
                let some = self.records.some(member, 0, TOGETHER);
                if some.is_empty() {
                    break true;
                }
                if begin.elapsed() > TURN {
                    break false; // there is other work
                }
                let copies = some.iter().flat_map(|(id, salts)| {
                    let name = Name { owner, id: *id };
                    salts.each().map(move |salt| (name, salt))
                });
                let copies: Vec<_> = copies.collect();
                self.on_each(links, &copies, |key| {
                    let mut command = redis::cmd("UNLINK");
                    command.arg(key);
                    command
                });
                for (id, _) in some {
                    self.records.forget(member, id);
                }
            };
            if !all {
                return;
            }
            // What is posted here is looked at again only when nothing of who has ended is: a
            // thread that takes a request counts it first, takes it if it is still posted, and
            // looks last whether the member has ended.
            let ring = self.hall.clear_ring(member);
            if self.under_way[member].load(Ordering::SeqCst) != 0 {
                continue; // the next time
            }
            self.ended[member].store(false, Ordering::SeqCst);
            self.hall.give_ring(ring);
        }
    }

    /// A command for each of these copies; the answers. (What fails expires, or is renewed
    /// the next time.)
    fn on_each(
        &self,
        links: &mut Links<'_>,
        copies: &[(Name, u8)],
        command: impl Fn(&str) -> redis::Cmd,
    ) -> Vec<Result<Value, Fail>> {
        let Ok(map) = links.map(false) else {
            return Vec::new();
        };
        let commands = copies.iter().filter_map(|(name, salt)| {
            let key = crate::key::key(&self.store.run, *name, *salt);
            let shard = map.shard(&key)?;
            Some((map.shards[shard].clone(), command(&key)))
        });
        let commands: Vec<_> = commands.collect();
        links.round(&commands, NODE_ANSWERS_WITHIN)
    }

    /// Keeps all values from expiring.
    fn renew(&self, links: &mut Links<'_>) {
        let ttl = self.store.spec.ttl.as_secs();
        let head = self.hall.head();
        let mut failed = false;
        for member in 0..MEMBERS {
            let owner = head.owners[member].load(Ordering::Acquire);
            let mut from = 0;
            loop {
                let some = self.records.some(member, from, TOGETHER);
                let Some((last, _)) = some.last() else { break };
                from = last + 1;
                let copies = some.iter().flat_map(|(id, salts)| {
                    let name = Name { owner, id: *id };
                    salts.each().map(move |salt| (name, salt))
                });
                let copies: Vec<_> = copies.collect();
                let answers = self.on_each(links, &copies, |key| {
                    let mut command = redis::cmd("EXPIRE");
                    command.arg(key).arg(ttl);
                    command
                });
                failed |= answers.len() < copies.len() || answers.iter().any(Result::is_err);
            }
        }
        if failed {
            // The next round may find the nodes where they are now.
            let _ = links.map(true);
        }
    }

    /// Reads on from the store which values of the run there are; whether that was all. (A
    /// node that never says it was all holds nothing else up.)
    fn search(&self, links: &mut Links<'_>, search: &mut Search) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < TURN {
            let Some(nodes) = &mut search.nodes else {
                let Ok(map) = links.map(true) else {
                    return false;
                };
                search.nodes = Some(map.shards.clone());
                search.cursor = b"0".to_vec();
                continue;
            };
            let Some(node) = nodes.last() else {
                return true;
            };
            match self.scan(links, node, &search.cursor) {
                Ok(Some(next)) if next != b"0" => search.cursor = next,
                Ok(_) => {
                    nodes.pop();
                    search.cursor = b"0".to_vec();
                }
                // From the beginning: it may be another's work by now.
                Err(_) => {
                    *search = Search::default();
                    return false;
                }
            }
        }
        false
    }

    /// Reads some keys of a node; where to go on.
    fn scan(
        &self,
        links: &mut Links<'_>,
        node: &str,
        cursor: &[u8],
    ) -> Result<Option<Vec<u8>>, Fail> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH");
        command.arg(format!("zf:{}:*", self.store.run));
        command.arg("COUNT").arg(1000);
        let answer = links.one(node, &command, NODE_ANSWERS_WITHIN)?;
        let Value::Array(parts) = answer else {
            return Ok(None);
        };
        let [Value::BulkString(next), Value::Array(keys)] = &parts[..] else {
            return Ok(None);
        };
        for found in keys {
            let Value::BulkString(bytes) = found else {
                continue;
            };
            let key = String::from_utf8_lossy(bytes);
            let Some((name, salt)) = read(&self.store.run, &key) else {
                continue;
            };
            let mut owners = self.hall.head().owners.iter();
            let member = owners.position(|owner| owner.load(Relaxed) == name.owner);
            if let Some(member) = member {
                self.records.found(member, name.id, salt);
            }
        }
        Ok(Some(next.clone()))
    }
}

#[cfg(test)]
mod model;
