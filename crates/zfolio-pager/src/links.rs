//! Connections to the store's nodes; which node has which slot; who answers and who does not.
//!
//! Every thread has its own connections; the map of slots and what is known of nodes are
//! shared. Commands for several nodes go out together, and their answers are told apart: what
//! one node does not answer says nothing of the others. (That is why the routing is here and
//! not the client's own: a pipeline of its cluster connection fails as one, and where a copy
//! lies cannot be chosen with it.)
//!
//! A node that did not answer is left alone for a while, longer each time; meanwhile whatever
//! is for it fails at once, with the reason.

use crate::allowance::Allowance;
use crate::fail::{Fail, fail_by};
use crate::key::{SLOTS, slot};
use crate::spec::{Spec, address};
use crate::wire::{ANSWER, Counted, Wire, pack};
use redis::{Cmd, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time to connect and to log in, and for a question about the cluster.
const CONNECT: Duration = Duration::from_millis(700);
/// Time to find a node that knows the cluster, whoever is asked.
const FIND: Duration = Duration::from_millis(2100);
/// How long a node is left alone at first, and at most.
const ALONE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Between two looks at the map of slots.
const MAP_AGE: Duration = Duration::from_millis(100);
/// Between two lines about the same node.
const SAID: Duration = Duration::from_secs(10);

/// Which node has which slot.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// A primary each.
    pub(crate) shards: Vec<String>,
    /// Its place in `shards`, by slot; `usize::MAX`: nobody's.
    owner: Vec<usize>,
    /// The store itself says so; else the nodes know nothing of each other.
    pub(crate) is_cluster: bool,
    /// Replicas of each shard.
    pub(crate) replicas: Vec<Vec<String>>,
}

impl Map {
    /// Servers by themselves: as many parts as there are.
    fn of_servers(shards: Vec<String>) -> Self {
        let owner = (0..SLOTS).map(|slot| slot * shards.len() / SLOTS);
        Self {
            owner: owner.collect(),
            replicas: vec![Vec::new(); shards.len()],
            shards,
            is_cluster: false,
        }
    }

    /// From the answer to CLUSTER SLOTS, asked of `host`.
    fn of_cluster(answer: &Value, host: &str) -> Option<Self> {
        let mut map = Self {
            shards: Vec::new(),
            owner: vec![usize::MAX; SLOTS],
            is_cluster: true,
            replicas: Vec::new(),
        };
        let Value::Array(ranges) = answer else {
            return None;
        };
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &parts[..] else {
                return None;
            };
            let primary = node_of(primary, host)?;
            let known = map.shards.iter().position(|shard| *shard == primary);
            let shard = known.unwrap_or_else(|| {
                map.shards.push(primary);
                let replicas = replicas.iter().filter_map(|of| node_of(of, host));
                map.replicas.push(replicas.collect());
                map.shards.len() - 1
            });
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            map.owner.get_mut(first..=last)?.fill(shard);
        }
        (!map.shards.is_empty()).then_some(map)
    }

    /// The shard that has a key.
    pub(crate) fn shard(&self, key: &str) -> Option<usize> {
        self.owner
            .get(slot(key))
            .copied()
            .filter(|of| *of < self.shards.len())
    }
}

/// A node of CLUSTER SLOTS; one without an address is the one that was asked.
fn node_of(value: &Value, asked: &str) -> Option<String> {
    let Value::Array(parts) = value else {
        return None;
    };
    let host = match parts.first()? {
        Value::BulkString(bytes) if !bytes.is_empty() => std::str::from_utf8(bytes).ok()?,
        Value::BulkString(_) | Value::Nil => asked,
        _ => return None,
    };
    let Value::Int(port) = parts.get(1)? else {
        return None;
    };
    Some(address(host, u16::try_from(*port).ok()?))
}

/// A node that did not answer.
#[derive(Clone, Debug)]
struct Down {
    until: Instant,
    next: Duration,
    why: String,
    said: Instant,
}

/// What all threads know of the store.
pub(crate) struct Store {
    pub(crate) spec: Spec,
    /// Random, of the run.
    pub(crate) run: String,
    map: Mutex<(Option<Arc<Map>>, Instant)>,
    down: Mutex<HashMap<String, Down>>,
    /// Says a line to people.
    pub(crate) say: fn(&str),
    pub(crate) counted: Arc<Counted>,
    pub(crate) allowance: Option<Allowance>,
    /// Who is asked first where nodes are: another each time.
    turn: AtomicUsize,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

impl Store {
    pub(crate) fn new(spec: Spec, run: String, say: fn(&str)) -> Self {
        let long_ago = Instant::now().checked_sub(MAP_AGE);
        Self {
            allowance: spec.bandwidth.map(Allowance::new),
            spec,
            run,
            map: Mutex::new((None, long_ago.unwrap_or_else(Instant::now))),
            down: Mutex::default(),
            say,
            counted: Arc::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Why a node is left alone now, if it is.
    pub(crate) fn is_down(&self, node: &str) -> Option<String> {
        let down = held(&self.down);
        let of = down.get(node)?;
        (Instant::now() < of.until).then(|| of.why.clone())
    }

    fn went_down(&self, node: &str, why: &str) {
        let now = Instant::now();
        let mut down = held(&self.down);
        let known = down.get(node).cloned();
        let next = known
            .as_ref()
            .map_or(ALONE[0], |of| (of.next * 2).min(ALONE[1]));
        let silent = known.as_ref().is_some_and(|of| now < of.said + SAID);
        if !silent {
            (self.say)(&format!(
                "the store at {node}: {why}; pages stay in memory, and what is there is waited for"
            ));
        }
        let of = Down {
            until: now + next,
            next,
            why: why.to_owned(),
            said: known.filter(|_| silent).map_or(now, |of| of.said),
        };
        down.insert(node.to_owned(), of);
    }

    fn is_up(&self, node: &str) {
        if held(&self.down).remove(node).is_some() {
            (self.say)(&format!("the store at {node} answers again"));
        }
    }
}

/// What a node has answered to a command.
pub(crate) type Answer = Result<Value, Fail>;

/// A thread's connections.
pub(crate) struct Links<'a> {
    pub(crate) store: &'a Store,
    open: HashMap<String, Wire>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self {
            store,
            open: HashMap::new(),
        }
    }

    /// As [`Self::round_with`]; the answers in the order of the commands.
    pub(crate) fn round(&mut self, commands: &[(String, Cmd)], patience: Duration) -> Vec<Answer> {
        let mut answers = vec![Err(Fail::Later(String::new())); commands.len()];
        self.round_with(commands, patience, &mut |index, answer| {
            answers[index] = answer;
        });
        answers
    }

    /// Sends each command to its node, all of them before any answer is waited for, and
    /// hands over each answer as it comes, once, with the number of its command. Whatever nodes
    /// do it takes `patience` and the time to connect, once.
    pub(crate) fn round_with(
        &mut self,
        commands: &[(String, Cmd)],
        patience: Duration,
        came: &mut dyn FnMut(usize, Answer),
    ) {
        let mut nodes: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, (node, _)) in commands.iter().enumerate() {
            match nodes.iter_mut().find(|(known, _)| known == node) {
                Some((_, list)) => list.push(index),
                None => nodes.push((node, vec![index])),
            }
        }
        let mut lists = Vec::new();
        let begin = Instant::now();
        for (node, list) in nodes {
            match self.send(node, &list, commands, begin, patience) {
                Ok(()) => lists.push((node, list)),
                Err(fail) => {
                    for index in list {
                        came(index, Err(fail.clone()));
                    }
                }
            }
        }
        // (Connecting took its own time.)
        let until = Instant::now().min(begin + CONNECT) + patience;
        for (node, list) in lists {
            self.receive(node, &list, came, until);
        }
    }

    fn send(
        &mut self,
        node: &str,
        list: &[usize],
        commands: &[(String, Cmd)],
        begin: Instant,
        patience: Duration,
    ) -> Result<(), Fail> {
        if let Some(why) = self.store.is_down(node) {
            self.open.remove(node);
            return Err(Fail::Later(why));
        }
        let mut packed = Vec::new();
        for index in list {
            pack(&commands[*index].1, &mut packed);
        }
        let store = self.store;
        let failed = |fail: &Fail| store.went_down(node, &fail.to_string());
        let mut wire = match self.open.remove(node) {
            Some(wire) => wire,
            None if begin.elapsed() >= CONNECT => {
                // Others have taken the time there is: that says nothing of this node.
                return Err(Fail::Later("no time was left to connect".into()));
            }
            None => Wire::open(node, &store.spec, &store.counted, begin + CONNECT)
                .inspect_err(failed)?,
        };
        wire.send(&packed, begin + CONNECT + patience)
            .inspect_err(failed)?;
        self.open.insert(node.to_owned(), wire);
        Ok(())
    }

    fn receive(
        &mut self,
        node: &str,
        list: &[usize],
        came: &mut dyn FnMut(usize, Answer),
        until: Instant,
    ) {
        let Some(mut wire) = self.open.remove(node) else {
            for index in list {
                came(*index, Err(Fail::Later("the connection has gone".into())));
            }
            return;
        };
        for (place, index) in list.iter().enumerate() {
            let broken = match wire.receive(until, ANSWER) {
                Ok(Value::ServerError(error)) => {
                    let text = error.to_string();
                    came(*index, Err(fail_by(error.code(), &text)));
                    continue;
                }
                Ok(value) => {
                    came(*index, Ok(value));
                    continue;
                }
                Err(fail) => fail,
            };
            // What comes later on this connection belongs to nobody: it is closed.
            for index in &list[place..] {
                came(*index, Err(broken.clone()));
            }
            self.store.went_down(node, &broken.to_string());
            return;
        }
        self.store.is_up(node);
        self.open.insert(node.to_owned(), wire);
    }

    /// One command.
    pub(crate) fn one(
        &mut self,
        node: &str,
        command: &Cmd,
        patience: Duration,
    ) -> Result<Value, Fail> {
        let commands = [(node.to_owned(), command.clone())];
        let mut answers = self.round(&commands, patience);
        answers.pop().unwrap_or(Err(Fail::Full))
    }

    /// The map of slots; the one there is, unless `anew`.
    pub(crate) fn map(&mut self, anew: bool) -> Result<Arc<Map>, Fail> {
        let known = {
            let mut map = held(&self.store.map);
            let due = map.0.is_none() || anew && map.0.as_ref().is_some_and(|of| of.is_cluster);
            match &map.0 {
                Some(known) if !due || map.1.elapsed() < MAP_AGE => return Ok(known.clone()),
                known => {
                    let known = known.clone();
                    map.1 = Instant::now();
                    known
                }
            }
        };
        let given = self.store.spec.nodes.iter();
        let mut nodes: Vec<String> = known.iter().flat_map(|map| map.shards.clone()).collect();
        nodes.extend(known.iter().flat_map(|map| map.replicas.concat()));
        nodes.extend(given.clone().map(|(host, port)| address(host, *port)));
        let mut why = Fail::Later("no node".into());
        let turn = self.store.turn.fetch_add(1, Relaxed) % nodes.len().max(1);
        nodes.rotate_left(turn);
        let begin = Instant::now();
        for node in nodes {
            if begin.elapsed() > FIND {
                break;
            }
            match self.one(&node, redis::cmd("CLUSTER").arg("SLOTS"), CONNECT) {
                Ok(answer) => {
                    let host = node.rsplit_once(':').map_or("", |(host, _)| host);
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    if let Some(map) = Map::of_cluster(&answer, host) {
                        let map = Arc::new(map);
                        held(&self.store.map).0 = Some(map.clone());
                        return Ok(map);
                    }
                    why = Fail::Later("no node has a slot yet".into());
                }
                Err(Fail::Refused(text)) if text.contains("cluster support disabled") => {
                    let all = given.map(|(host, port)| address(host, *port)).collect();
                    let map = Arc::new(Map::of_servers(all));
                    held(&self.store.map).0 = Some(map.clone());
                    return Ok(map);
                }
                Err(fail) => why = fail,
            }
        }
        known.ok_or(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_map_of_a_cluster_is_read() {
        let node = |host: &str, port| Value::Array(vec![bulk(host), Value::Int(port), bulk("id")]);
        let range = |first, last, nodes: &[Value]| {
            let ends = [Value::Int(first), Value::Int(last)];
            Value::Array(ends.into_iter().chain(nodes.iter().cloned()).collect())
        };
        let answer = Value::Array(vec![
            range(0, 9999, &[node("", 7000), node("b", 7001)]),
            range(10000, 16383, &[node("::1", 7002)]),
        ]);
        let map = Map::of_cluster(&answer, "here").unwrap();
        assert_eq!(map.shards, ["here:7000", "[::1]:7002"]);
        assert_eq!(map.replicas[0], ["b:7001"]);
        assert_eq!((map.owner[9999], map.owner[10000]), (0, 1));
        let wrong = Value::Array(vec![range(0, 99999, &[node("a", 1)])]);
        assert!(Map::of_cluster(&wrong, "here").is_none());
        assert!(Map::of_cluster(&Value::Nil, "here").is_none());
    }

    #[test]
    fn servers_by_themselves_share_the_slots() {
        let map = Map::of_servers(vec!["a".into(), "b".into(), "c".into()]);
        for shard in 0..3 {
            let slots = map.owner.iter().filter(|of| **of == shard).count();
            assert!((5461..=5462).contains(&slots));
        }
    }

    #[test]
    fn a_node_that_does_not_answer_is_left_alone_for_a_while() {
        let spec = Spec::parse("redis://127.0.0.1:1").unwrap();
        let store = Store::new(spec, "r".into(), |_| {});
        let mut links = Links::new(&store);
        let fail = links.one("127.0.0.1:1", &redis::cmd("PING"), CONNECT);
        assert!(matches!(fail, Err(Fail::Later(_))), "{fail:?}");
        assert!(store.is_down("127.0.0.1:1").is_some());
        assert!(links.map(false).is_err());
    }
}
