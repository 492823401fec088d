//! Requests as they go: a round of commands for several of them, what is answered after it,
//! and what is tried once more.
//!
//! | request | is done when | tried again |
//! |---|---|---|
//! | put | as many copies as asked for are acknowledged, each by another shard | with another place, for two seconds; then it is given up and what there is of it deleted |
//! | get | a copy with as many bytes as asked for came | from the next copy, for as long as the member waits; a copy that is not there is not asked for again |
//! | delete | sent | three times; what is left expires |

use crate::fail::Fail;
use crate::key::{Name, Salts, key};
use crate::links::{Answer, Links, Map};
use redis::{Cmd, Value};
use std::time::{Duration, Instant};

/// How long a put is tried.
pub(crate) const PUT: Duration = Duration::from_secs(2);
/// Time for an answer: where there is another copy to ask for, and where there is not.
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_millis(1000);
/// Time for replicas to acknowledge, ms: less than for an answer.
const REPLICATED_MS: u64 = 500;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(20);
/// Tries of a deletion.
const DELETES: u32 = 3;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum What {
    Put {
        name: Name,
        data: Vec<u8>,
        /// Acknowledged: salt and shard.
        kept: Vec<(u8, String)>,
        /// What may be there as well, and is none of the copies.
        strays: Vec<u8>,
    },
    Get {
        name: Name,
        salts: Vec<u8>,
        from: usize,
        len: usize,
        /// Copies that are not there any more.
        missing: Vec<u8>,
    },
    Delete {
        owner: u64,
        values: Vec<(u64, Salts)>,
    },
}

/// A request.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) what: What,
    pub(crate) since: Instant,
    /// When it is tried next.
    pub(crate) due: Instant,
    pub(crate) tries: u32,
    /// Whose: member, and the cell that waits for the answer, if one does.
    pub(crate) from: (usize, Option<usize>),
    /// Of whom the ring was.
    pub(crate) owner: u64,
}

/// How a request ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Done {
    Kept(Salts),
    /// A read: its value was handed over.
    Told,
    /// No copy is there any more.
    Gone,
    /// A put was given up; what there is of it is to be deleted.
    Failed(Fail, Salts),
    Deleted,
}

/// A value that was read.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    /// Not from the copy that was asked for first.
    pub(crate) other: bool,
    /// Copies that were not there any more.
    pub(crate) missing: usize,
}

/// One of a job's commands.
struct Sent {
    job: usize,
    salt: u8,
    /// Not the copy that is asked for first.
    other: bool,
}

/// Has one round for all jobs; values that were read are handed to `came` as they come. How each
/// ended, or `None`: it is to be tried again.
pub(crate) fn round(
    links: &mut Links<'_>,
    jobs: &mut [Job],
    came: &mut dyn FnMut(&Job, Got),
) -> Vec<Option<Done>> {
    if jobs.is_empty() {
        return Vec::new();
    }
    let anew = jobs.iter().any(|job| job.tries > 0);
    let held_back = hold_back(links, jobs);
    let map = match links.map(anew) {
        Ok(map) => map,
        Err(fail) => return jobs.iter_mut().map(|job| not_now(job, &fail)).collect(),
    };
    let mut commands: Vec<(String, Cmd)> = Vec::new();
    let mut sent = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        if held_back && job.is_put() {
            continue;
        }
        for (node, salt, command) in ask(links, &map, job) {
            let other = job.first().is_some_and(|first| first != salt);
            commands.push((node, command));
            sent.push(Sent {
                job: index,
                salt,
                other,
            });
        }
    }
    let puts = sent.len();
    let waits = waits(links, jobs, &sent, &mut commands);
    let short = map.shards.len() > 1 && jobs.iter().all(|job| job.has_another());
    let patience = if short { SHORT } else { LONG };
    let mut answers: Vec<Option<Answer>> = commands.iter().map(|_| None).collect();
    let mut done: Vec<Option<Done>> = jobs.iter().map(|_| None).collect();
    links.round_with(&commands, patience, &mut |index, answer| {
        let of = sent.get(index).map(|of| (of, &jobs[of.job]));
        let answer = match (of, answer) {
            (Some((of, job)), Ok(Value::BulkString(bytes))) if job.wants(&bytes) => {
                came(job, job.got(bytes, of.other));
                done[of.job] = Some(Done::Told);
                return;
            }
            (_, answer) => answer,
        };
        answers[index] = Some(answer);
    });
    let waited = answers.split_off(puts);
    let mut fails: Vec<Option<Fail>> = jobs.iter().map(|_| None).collect();
    for ((of, answer), (node, _)) in sent.iter().zip(answers).zip(&commands) {
        let Some(answer) = answer else { continue };
        let short_of = waits.iter().zip(&waited).find_map(|(waiting, answer)| {
            let enough = matches!(answer, Some(Ok(Value::Int(count))) if *count >= waiting.1);
            (waiting.0 == *node && !enough)
                .then(|| Fail::Later("too few replicas have acknowledged it".into()))
        });
        let job = &mut jobs[of.job];
        match (&mut job.what, answer) {
            (What::Put { kept, .. }, Ok(Value::Okay)) if short_of.is_none() => {
                kept.push((of.salt, node.clone()));
            }
            (What::Put { strays, .. }, Ok(_)) => {
                strays.push(of.salt);
                let wrong = || Fail::Later("an answer that is none".into());
                fails[of.job] = Some(short_of.unwrap_or_else(wrong));
            }
            (What::Put { strays, .. }, Err(fail @ Fail::Slow(_))) => {
                strays.push(of.salt);
                fails[of.job] = Some(fail);
            }
            (What::Get { missing, salts, .. }, Ok(_)) => {
                missing.push(of.salt);
                if missing.len() >= salts.len() {
                    done[of.job] = Some(Done::Gone);
                }
            }
            (What::Delete { .. }, Ok(_)) => {}
            (_, Err(fail)) => fails[of.job] = Some(fail),
        }
    }
    let copies = links.store.spec.copies;
    for (index, job) in jobs.iter_mut().enumerate() {
        if done[index].is_some() {
            continue;
        }
        let fail = fails[index].take();
        done[index] = match &mut job.what {
            What::Put { kept, .. } if kept.len() >= copies => Some(Done::Kept(salts_of(kept))),
            What::Delete { .. } if fail.is_none() => Some(Done::Deleted),
            What::Put { kept, .. } if held_back => {
                let why = || Fail::Later("bandwidth= is used up".into());
                (job.since.elapsed() > PUT).then(|| Done::Failed(why(), salts_of(kept)))
            }
            _ => not_now(
                job,
                &fail.unwrap_or(Fail::Later("no shard takes it now".into())),
            ),
        };
    }
    done
}

impl Job {
    /// The copy of a read that is asked for first: by the number, so that all nodes have work.
    fn first(&self) -> Option<u8> {
        match &self.what {
            What::Get { name, salts, .. } => Some(salts[turn(name.id, salts.len())]),
            _ => None,
        }
    }

    /// Whether it is a read.
    pub(crate) fn is_get(&self) -> bool {
        matches!(self.what, What::Get { .. })
    }

    /// Whether that is what it asks for, as far as its length says.
    fn wants(&self, bytes: &[u8]) -> bool {
        matches!(self.what, What::Get { len, .. } if len == bytes.len())
    }

    fn got(&self, bytes: Vec<u8>, other: bool) -> Got {
        let missing = match &self.what {
            What::Get { missing, .. } => missing.len(),
            _ => 0,
        };
        Got {
            bytes,
            other,
            missing,
        }
    }

    fn is_put(&self) -> bool {
        matches!(self.what, What::Put { .. })
    }

    /// Whether somebody else could be asked.
    fn has_another(&self) -> bool {
        match &self.what {
            What::Get { salts, missing, .. } => salts.len() > missing.len() + 1,
            _ => false,
        }
    }
}

/// Whether puts have to wait for bandwidth; until when is noted in them.
fn hold_back(links: &Links<'_>, jobs: &mut [Job]) -> bool {
    let (store, now) = (links.store, Instant::now());
    let puts = jobs.iter_mut().filter(|job| job.is_put());
    let Some(allowance) = &store.allowance else {
        return false;
    };
    let Some(wait) = allowance.wait(&store.counted, now) else {
        return false;
    };
    // (Not all at the same moment for longer than need be: others may have sent less.)
    puts.for_each(|job| job.due = now + wait.min(AGAIN * 5));
    true
}

pub(crate) fn salts_of(kept: &[(u8, String)]) -> Salts {
    let salts: Vec<u8> = kept.iter().map(|(salt, _)| *salt).collect();
    Salts::of(&salts)
}

/// Which of `count` things it is the turn of.
fn turn(number: u64, count: usize) -> usize {
    usize::try_from(number % count.max(1) as u64).unwrap_or(0)
}

/// What is left to ask for, now: node, salt and command of each.
fn ask(links: &Links<'_>, map: &Map, job: &Job) -> Vec<(String, u8, Cmd)> {
    let store = links.store;
    let node_of = |key: &str| map.shard(key).map(|shard| map.shards[shard].clone());
    match &job.what {
        What::Put {
            name, data, kept, ..
        } => {
            let mut used: Vec<String> = kept.iter().map(|(_, node)| node.clone()).collect();
            let mut list = Vec::new();
            // (Another place each time.)
            for step in 0..=u8::MAX {
                let salt = step.wrapping_add(u8::try_from(job.tries % 251).unwrap_or(0));
                if used.len() >= store.spec.copies {
                    break;
                }
                let key = key(&store.run, *name, salt);
                let Some(node) = node_of(&key) else { continue };
                if used.contains(&node) || store.is_down(&node).is_some() {
                    continue;
                }
                let mut command = redis::cmd("SET");
                command.arg(&key).arg(&data[..]).arg("EX");
                command.arg(store.spec.ttl.as_secs());
                list.push((node.clone(), salt, command));
                used.push(node);
            }
            list
        }
        What::Get {
            name,
            salts,
            from,
            len,
            missing,
        } => {
            // The next copy each time.
            let mut turned = salts.clone();
            turned.rotate_left(turn(name.id, salts.len()));
            turned.retain(|salt| !missing.contains(salt));
            let again = turn(u64::from(job.tries), turned.len());
            turned.rotate_left(again);
            let asked = turned.into_iter();
            let mut asked = asked.filter_map(|salt| {
                let key = key(&store.run, *name, salt);
                Some((node_of(&key)?, salt, key))
            });
            let first = asked.clone().next();
            let up = asked.find(|(node, ..)| store.is_down(node).is_none());
            let of = up.or(first).map(|(node, salt, key)| {
                let mut command = redis::cmd("GETRANGE");
                command.arg(&key).arg(*from).arg(from + len - 1);
                (node, salt, command)
            });
            of.into_iter().collect()
        }
        What::Delete { owner, values } => {
            let copies = values.iter().flat_map(|(id, salts)| {
                let name = Name {
                    owner: *owner,
                    id: *id,
                };
                salts.each().map(move |salt| (name, salt))
            });
            let commands = copies.filter_map(|(name, salt)| {
                let key = key(&store.run, name, salt);
                let mut command = redis::cmd("UNLINK");
                command.arg(&key);
                Some((node_of(&key)?, salt, command))
            });
            commands.collect()
        }
    }
}

/// Where replicas are to have what was put, asks each node for that once, behind all of it:
/// the nodes, and how many replicas.
fn waits(
    links: &Links<'_>,
    jobs: &[Job],
    sent: &[Sent],
    commands: &mut Vec<(String, Cmd)>,
) -> Vec<(String, i64)> {
    let replicas = links.store.spec.wait;
    let mut nodes: Vec<(String, i64)> = Vec::new();
    if replicas == 0 {
        return nodes;
    }
    for (of, (node, _)) in sent.iter().zip(&*commands) {
        let is_put = matches!(jobs[of.job].what, What::Put { .. });
        if is_put && !nodes.iter().any(|(known, _)| known == node) {
            nodes.push((node.clone(), i64::from(replicas)));
        }
    }
    for (node, _) in &nodes {
        let mut command = redis::cmd("WAIT");
        command.arg(replicas).arg(REPLICATED_MS);
        commands.push((node.clone(), command));
    }
    nodes
}

/// A job whose round came to nothing.
fn not_now(job: &mut Job, fail: &Fail) -> Option<Done> {
    job.tries += 1;
    job.due = Instant::now() + AGAIN * job.tries.min(10);
    match &job.what {
        What::Put { kept, .. } => {
            let hopeless = matches!(fail, Fail::Full | Fail::Refused(_));
            (hopeless || job.since.elapsed() > PUT)
                .then(|| Done::Failed(fail.clone(), salts_of(kept)))
        }
        What::Get { .. } => None,
        What::Delete { .. } => (job.tries >= DELETES).then_some(Done::Deleted),
    }
}
