//! The queue protocol under loom: every order of the steps of a submitter and
//! its engines, up to a bound on preemptions. A lost wake-up shows as a
//! deadlock, two holders of a descriptor as a cell that is taken, a stale
//! payload as a wrong sum.

use super::device::{Device, Waiter};
use super::primitive::{Bits, Cell, Primitives, Word};
use super::queue::{Delivery, Submitted, Work, WorkQueue};
use loom::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release,
};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::boxed::Box;
use std::vec;

/// Loom's primitives. A futex is a lock and a condition; timeouts never come,
/// so whoever needs one to go on hangs, and loom says so.
enum Loom {}

impl Primitives for Loom {
    type Word = LoomWord;
    type Bits = AtomicU64;
    type Cell<T: Send> = LoomCell<T>;
}

struct LoomWord {
    value: AtomicU32,
    sleep: Mutex<()>,
    woken: Condvar,
}

impl Word for LoomWord {
    fn new(value: u32) -> Self {
        Self {
            value: AtomicU32::new(value),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
    fn load(&self) -> u32 {
        self.value.load(Acquire)
    }
    fn store(&self, value: u32) {
        self.value.store(value, Release);
    }
    fn add(&self, amount: u32) -> u32 {
        self.value.fetch_add(amount, AcqRel)
    }
    fn sub(&self, amount: u32) -> u32 {
        self.value.fetch_sub(amount, AcqRel)
    }
    fn swap(&self, value: u32) -> u32 {
        self.value.swap(value, AcqRel)
    }
    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.value.compare_exchange(from, to, AcqRel, Acquire)
    }
    fn wait(&self, expected: u32, _timeout_ns: Option<u64>) {
        let guard = self.sleep.lock().unwrap();
        // The kernel compares with its own lock held, so that it sees what was
        // written before a wake-up that it has let pass.
        if self.value.fetch_add(0, AcqRel) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }
    fn wake(&self) {
        let _guard = self.sleep.lock().unwrap();
        self.woken.notify_all();
    }
}

impl Bits for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u64 {
        self.load(Acquire)
    }
    fn and(&self, mask: u64) -> u64 {
        self.fetch_and(mask, AcqRel)
    }
    fn or(&self, mask: u64) -> u64 {
        self.fetch_or(mask, AcqRel)
    }
    fn store(&self, value: u64) {
        self.store(value, Release);
    }
}

/// Fails the test when two are at it at once.
struct LoomCell<T>(Mutex<T>);

impl<T: Send> Cell<T> for LoomCell<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut value = self.0.try_lock().expect("one holder");
        Some(f(&mut value))
    }
    fn reset(&self) {}
}

/// A question and its answer: ten times as much.
type Job = (u32, u32);
type Shared = Arc<(Device<Loom, Job>, Waiter<Loom>)>;

fn device(queues: usize, descriptors: usize) -> Shared {
    let queues: Box<[_]> = (0..queues)
        .map(|_| WorkQueue::new(vec![(0, 0); descriptors]))
        .collect();
    Arc::new((Device::new(queues), Waiter::default()))
}

/// What `Group::serve` does.
fn serve(shared: &Shared) {
    let mut from = (0, 0);
    while let Some((queue, work)) = shared.0.next(&mut from) {
        finish(shared, queue, work);
    }
    shared.0.detach();
}

fn finish(shared: &Shared, queue: usize, work: Work) {
    let (device, waiter) = &**shared;
    let queue = device.queue(queue);
    queue.work_on(&work, |job| job.1 = job.0 * 10);
    if queue.complete(work) == Delivery::Delivered {
        waiter.end(true);
    }
}

/// What `ParallelContext::submit` does.
fn submit(shared: &Shared, queue: usize, question: u32) -> Option<Submitted> {
    let (device, waiter) = &**shared;
    let claim = device.queue(queue).allocate()?;
    device.queue(queue).with(&claim, |job| *job = (question, 0));
    waiter.begin();
    Some(device.submit(queue, claim))
}

fn wait(shared: &Shared) {
    while shared.1.under_way() > 0 {
        shared.1.sleep(None);
    }
}

/// Collects an answer that must be there.
fn answer(shared: &Shared, queue: usize, submitted: Submitted) -> u32 {
    let queue = shared.0.queue(queue);
    let claim = queue.collect(submitted).expect("delivered");
    let answer = queue.with(&claim, |job| job.1).unwrap();
    queue.release(claim);
    answer
}

fn explore(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

#[test]
fn a_batch_is_answered_and_everything_is_free_again() {
    explore(2, || {
        let shared = device(1, 2);
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let shared = shared.clone();
            move || serve(&shared)
        });
        let first = submit(&shared, 0, 1).unwrap();
        let second = submit(&shared, 0, 2).unwrap();
        wait(&shared);
        assert_eq!(answer(&shared, 0, first), 10);
        assert_eq!(answer(&shared, 0, second), 20);
        shared.0.ask_to_leave();
        engine.join().unwrap();
        assert!(shared.0.is_offline());
        assert_eq!(shared.0.queue(0).free(), 2);
    });
}

#[test]
fn a_bounded_queue_says_so_at_once_and_goes_round() {
    explore(2, || {
        let shared = device(1, 1);
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let shared = shared.clone();
            move || serve(&shared)
        });
        for question in [3, 4] {
            let submitted = submit(&shared, 0, question).unwrap();
            assert!(submit(&shared, 0, 9).is_none());
            wait(&shared);
            assert_eq!(answer(&shared, 0, submitted), question * 10);
        }
        shared.0.ask_to_leave();
        engine.join().unwrap();
    });
}

#[test]
fn what_is_taken_back_is_not_worked_on_and_the_rest_is_answered() {
    explore(2, || {
        let shared = device(1, 2);
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let shared = shared.clone();
            move || serve(&shared)
        });
        let first = submit(&shared, 0, 1).unwrap();
        let second = submit(&shared, 0, 2).unwrap();
        let queue = shared.0.queue(0);
        let second = match queue.take_back(second) {
            Ok(claim) => {
                // Nobody worked on it, and nobody will.
                assert_eq!(queue.with(&claim, |job| *job), Some((2, 0)));
                queue.release(claim);
                shared.1.end(false);
                None
            }
            Err(submitted) => Some(submitted),
        };
        wait(&shared);
        assert_eq!(answer(&shared, 0, first), 10);
        if let Some(second) = second {
            assert_eq!(answer(&shared, 0, second), 20);
        }
        shared.0.ask_to_leave();
        engine.join().unwrap();
        assert_eq!(queue.free(), 2);
    });
}

#[test]
fn what_is_abandoned_is_freed_by_the_engine_or_was_done() {
    explore(2, || {
        let shared = device(1, 1);
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let shared = shared.clone();
            move || serve(&shared)
        });
        let submitted = submit(&shared, 0, 5).unwrap();
        let queue = shared.0.queue(0);
        if let Some(claim) = queue.abandon(submitted) {
            assert_eq!(queue.with(&claim, |job| job.1), Some(50));
            queue.release(claim);
        } else {
            shared.1.end(false);
        }
        wait(&shared);
        shared.0.ask_to_leave();
        engine.join().unwrap();
        assert_eq!(queue.free(), 1);
        assert!(!queue.has_ready());
    });
}

#[test]
fn an_engine_without_work_takes_another_one_s() {
    explore(1, || {
        let shared = device(1, 2);
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let shared = shared.clone();
            move || serve(&shared)
        });
        let other = thread::spawn({
            let shared = shared.clone();
            move || {
                if let Some((queue, work)) = shared.0.poll(&mut (0, 0)) {
                    finish(&shared, queue, work);
                }
            }
        });
        let first = submit(&shared, 0, 1).unwrap();
        let second = submit(&shared, 0, 2).unwrap();
        wait(&shared);
        assert_eq!(answer(&shared, 0, first), 10);
        assert_eq!(answer(&shared, 0, second), 20);
        other.join().unwrap();
        shared.0.ask_to_leave();
        engine.join().unwrap();
        assert_eq!(shared.0.queue(0).free(), 2);
    });
}

#[test]
fn two_submitters_share_a_queue() {
    explore(1, || {
        let shared = device(1, 2);
        let other = Arc::new(Waiter::<Loom>::default());
        assert!(shared.0.attach());
        let engine = thread::spawn({
            let (shared, other) = (shared.clone(), other.clone());
            move || {
                let mut from = (0, 0);
                for _ in 0..2 {
                    let (_, work) = shared.0.next(&mut from).unwrap();
                    let queue = shared.0.queue(0);
                    let asked = queue.work_on(&work, |job| {
                        job.1 = job.0 * 10;
                        job.0
                    });
                    assert_eq!(queue.complete(work), Delivery::Delivered);
                    let waiter = if asked == Some(7) { &*other } else { &shared.1 };
                    waiter.end(true);
                }
            }
        });
        let second = thread::spawn({
            let (shared, other) = (shared.clone(), other.clone());
            move || {
                let queue = shared.0.queue(0);
                let claim = queue.allocate().unwrap();
                queue.with(&claim, |job| *job = (7, 0));
                other.begin();
                let submitted = shared.0.submit(0, claim);
                while other.under_way() > 0 {
                    other.sleep(None);
                }
                assert_eq!(answer(&shared, 0, submitted), 70);
            }
        });
        let submitted = submit(&shared, 0, 1).unwrap();
        wait(&shared);
        assert_eq!(answer(&shared, 0, submitted), 10);
        second.join().unwrap();
        engine.join().unwrap();
        assert_eq!(shared.0.queue(0).free(), 2);
    });
}
