//! What a store is like: before a run uses it, and for `zfolio doctor --backing`.

use crate::fail::Fail;
use crate::keeper::random_name;
use crate::key::{Name, key};
use crate::links::{Links, Map, Store};
use crate::spec::Spec;
use redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zfolio_sys::exchange::VALUE;

/// Time for an answer.
const NODE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Reads timed, and values moved at once to see how fast that goes.
const READS: usize = 200;
const MOVED: usize = 32;
/// Bytes of a value that is timed: a page compressed to a half, as a fault reads.
const SMALL: usize = 2048;

/// A primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Host and port.
    pub address: String,
    /// As it calls itself.
    pub version: String,
    /// What it does when it is full.
    pub policy: String,
    /// Most memory, bytes; 0: whatever the machine has.
    pub max_memory: u64,
    /// Of it in use.
    pub used: u64,
    /// Replicas that are connected.
    pub replicas: u64,
    /// It writes a log of what it is told.
    pub keeps_log: bool,
}

impl Node {
    /// Whether it throws values away when it is full.
    #[must_use]
    pub fn evicts(&self) -> bool {
        self.max_memory > 0 && self.policy != "noeviction"
    }
}

/// What a store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// A cluster; else servers that know nothing of each other.
    pub is_cluster: bool,
    /// Its primaries.
    pub nodes: Vec<Node>,
}

impl Facts {
    /// Bytes of values that fit yet, `copies` of each; `None`: no node has a limit.
    #[must_use]
    pub fn headroom(&self, copies: usize) -> Option<u64> {
        let limited = self.nodes.iter().filter(|node| node.max_memory > 0);
        let left: Vec<u64> = limited
            .map(|node| node.max_memory.saturating_sub(node.used))
            .collect();
        let all = left.iter().sum::<u64>() / copies.max(1) as u64;
        (left.len() == self.nodes.len()).then_some(all)
    }

    /// What it cannot be used for, and what would mend that.
    #[must_use]
    pub fn unfit(&self, spec: &Spec) -> Option<(String, String)> {
        if let Some(node) = self.nodes.iter().find(|node| node.evicts()) {
            return Some((
                format!(
                    "{} throws values away when it is full (maxmemory-policy {})",
                    node.address, node.policy
                ),
                "set maxmemory-policy noeviction there".into(),
            ));
        }
        if spec.copies > self.nodes.len() {
            let (copies, shards) = (spec.copies, self.nodes.len());
            return Some((
                format!("{copies} copies want {copies} shards, and there are {shards}"),
                "name more servers, or fewer copies".into(),
            ));
        }
        let least = self.nodes.iter().map(|node| node.replicas).min();
        if u64::from(spec.wait) > least.unwrap_or(0) {
            return Some((
                format!("a primary has fewer than {} replicas", spec.wait),
                "add replicas, or lower wait=".into(),
            ));
        }
        None
    }
}

/// How fast it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Half of the reads of 2 KiB took less, and 99 of a hundred.
    pub read_us: (u64, u64),
    /// Bytes a second, 64 KiB at a time.
    pub write: u64,
    /// The same, read.
    pub read: u64,
}

fn open(spec: &Spec) -> Result<Store, String> {
    crate::wire::use_tls(spec);
    let run = random_name().map_err(|error| error.to_string())?;
    Ok(Store::new(spec.clone(), run, |_| {}))
}

/// Asks the store what it is.
///
/// # Errors
/// Why it cannot be asked.
pub fn facts(spec: &Spec) -> Result<Facts, String> {
    let store = open(spec)?;
    let mut links = Links::new(&store);
    let map = links.map(false).map_err(|fail| fail.to_string())?;
    let mut nodes = Vec::new();
    for address in &map.shards {
        let mut info = |part: &str| {
            let mut command = redis::cmd("INFO");
            command.arg(part);
            let answer = links.one(address, &command, NODE_ANSWERS_WITHIN);
            match answer {
                Ok(Value::BulkString(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
                Ok(_) => Err(format!("{address}: an answer to INFO that is none")),
                Err(fail) => Err(format!("{address}: {fail}")),
            }
        };
        let (server, memory) = (info("server")?, info("memory")?);
        let (replication, persistence) = (info("replication")?, info("persistence")?);
        let number = |text: &str, name: &str| field(text, name).parse().unwrap_or(0);
        let version = match field(&server, "valkey_version") {
            "" => format!("redis {}", field(&server, "redis_version")),
            version => format!("valkey {version}"),
        };
        nodes.push(Node {
            address: address.clone(),
            version,
            policy: field(&memory, "maxmemory_policy").to_owned(),
            max_memory: number(&memory, "maxmemory"),
            used: number(&memory, "used_memory"),
            replicas: number(&replication, "connected_slaves"),
            keeps_log: field(&persistence, "aof_enabled") == "1",
        });
    }
    Ok(Facts {
        is_cluster: map.is_cluster,
        nodes,
    })
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default()
}

/// Writes and reads some values, and deletes them: how fast that goes.
///
/// # Errors
/// What failed.
pub fn speed(spec: &Spec) -> Result<Speed, String> {
    let store = open(spec)?;
    let mut links = Links::new(&store);
    let map = links.map(false).map_err(|fail| fail.to_string())?;
    let result = measure(&mut links, &map);
    let keys = (0..MOVED as u64).map(|id| place(&store, &map, id));
    let commands: Vec<_> = keys
        .flatten()
        .map(|(node, key)| (node, one("UNLINK", &key)))
        .collect();
    links.round(&commands, NODE_ANSWERS_WITHIN);
    result.map_err(|fail| fail.to_string())
}

/// Reads values of `bytes` from the store, one after the other: how long each took, ns,
/// shortest first.
///
/// # Errors
/// What failed.
pub fn reads(spec: &Spec, bytes: usize, count: usize) -> Result<Vec<u64>, String> {
    let store = open(spec)?;
    let mut links = Links::new(&store);
    let map = links.map(false).map_err(|fail| fail.to_string())?;
    let keys: Vec<_> = (0..MOVED as u64)
        .filter_map(|id| place(&store, &map, id))
        .collect();
    let each = |command: &dyn Fn(&str) -> redis::Cmd| {
        let of = keys.iter().map(|(node, key)| (node.clone(), command(key)));
        of.collect::<Vec<_>>()
    };
    let value = vec![7_u8; bytes.min(VALUE)];
    let sets = each(&|key| {
        let mut command = one("SET", key);
        command.arg(&value[..]).arg("EX").arg(60);
        command
    });
    let gets = each(&|key| one("GET", key));
    let mut took = Vec::new();
    let mut result = links
        .round(&sets, NODE_ANSWERS_WITHIN)
        .into_iter()
        .find_map(Result::err);
    for (node, command) in gets.iter().cycle().take(count) {
        let since = Instant::now();
        if let Err(fail) = links.one(node, command, NODE_ANSWERS_WITHIN) {
            result.get_or_insert(fail);
            break;
        }
        took.push(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    links.round(&each(&|key| one("UNLINK", key)), NODE_ANSWERS_WITHIN);
    took.sort_unstable();
    result.map_or(Ok(took), |fail| Err(fail.to_string()))
}

fn one(name: &str, key: &str) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

fn place(store: &Store, map: &Map, id: u64) -> Option<(String, String)> {
    let key = key(&store.run, Name { owner: 0, id }, 0);
    Some((map.shards[map.shard(&key)?].clone(), key))
}

fn measure(links: &mut Links<'_>, map: &Arc<Map>) -> Result<Speed, Fail> {
    let keys: Vec<_> = (0..MOVED as u64)
        .filter_map(|id| place(links.store, map, id))
        .collect();
    let value: Vec<u8> = (0..VALUE)
        .map(|at| u8::try_from(at * 7919 % 251).unwrap_or(0))
        .collect();
    let set = |bytes: &[u8], key: &str| {
        let mut command = one("SET", key);
        command.arg(bytes).arg("EX").arg(60);
        command
    };
    let all = |of: Vec<Result<Value, Fail>>| of.into_iter().collect::<Result<Vec<_>, _>>();
    let rate = |since: Instant| {
        let us = since.elapsed().as_micros().max(1);
        let rate = (keys.len() * VALUE) as u128 * 1_000_000 / us;
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let sets: Vec<_> = keys
        .iter()
        .map(|(node, key)| (node.clone(), set(&value, key)))
        .collect();
    all(links.round(&sets[..1], NODE_ANSWERS_WITHIN))?;
    let since = Instant::now();
    all(links.round(&sets, NODE_ANSWERS_WITHIN))?;
    let write = rate(since);
    let gets: Vec<_> = keys
        .iter()
        .map(|(node, key)| (node.clone(), one("GET", key)))
        .collect();
    let since = Instant::now();
    all(links.round(&gets, NODE_ANSWERS_WITHIN))?;
    let read = rate(since);
    let small: Vec<_> = keys
        .iter()
        .map(|(node, key)| (node.clone(), set(&value[..SMALL], key)))
        .collect();
    all(links.round(&small, NODE_ANSWERS_WITHIN))?;
    let mut took = Vec::new();
    for turn in 0..READS {
        let (node, command) = &gets[turn % gets.len()];
        let since = Instant::now();
        links.one(node, command, NODE_ANSWERS_WITHIN)?;
        took.push(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    took.sort_unstable();
    Ok(Speed {
        read_us: (took[READS / 2], took[READS * 99 / 100]),
        write,
        read,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(policy: &str, max: u64, nodes: usize) -> Facts {
        let node = Node {
            address: "h:1".into(),
            policy: policy.into(),
            max_memory: max,
            used: 10,
            ..Node::default()
        };
        Facts {
            is_cluster: false,
            nodes: vec![node; nodes],
        }
    }

    #[test]
    fn what_would_lose_pages_is_refused() {
        let spec = |text: &str| Spec::parse(&format!("redis://h{text}")).unwrap();
        assert!(facts("allkeys-lru", 100, 1).unfit(&spec("")).is_some());
        assert!(facts("allkeys-lru", 0, 1).unfit(&spec("")).is_none());
        assert!(facts("noeviction", 100, 1).unfit(&spec("")).is_none());
        assert!(
            facts("noeviction", 100, 1)
                .unfit(&spec(",copies=2"))
                .is_some()
        );
        assert!(
            facts("noeviction", 100, 2)
                .unfit(&spec(",copies=2"))
                .is_none()
        );
        assert!(
            facts("noeviction", 100, 2)
                .unfit(&spec(",wait=1"))
                .is_some()
        );
        assert_eq!(facts("noeviction", 100, 2).headroom(2), Some(90));
        assert_eq!(facts("noeviction", 0, 2).headroom(2), None);
        assert_eq!(field("a:1\r\nab:2\r\n", "ab"), "2");
    }
}
