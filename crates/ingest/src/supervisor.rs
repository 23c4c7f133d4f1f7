//! Tasks that run as long as the process: a panic in one is logged, counted, and the task begins again.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use host::{Backoff, Clock};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Waits before a task begins again.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A task that ran this long without a panic begins again after the first wait.
const RECOVERED: Duration = Duration::from_secs(60);

/// Watches tasks. A clone shares them.
#[derive(Debug, Clone)]
pub struct Supervisor {
    clock: Arc<dyn Clock>,
    tasks: Arc<Mutex<Vec<Arc<Task>>>>,
}

#[derive(Debug)]
struct Task {
    name: &'static str,
    panics: AtomicU64,
    last: Mutex<String>,
    fault: Notify,
}

/// A task and its panics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHealth {
    /// What the task does.
    pub name: &'static str,
    /// Panics since the start.
    pub panics: u64,
    /// The message of the last one; empty without one.
    pub last_panic: String,
}

impl Supervisor {
    /// Watches nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Supervisor {
        Supervisor { clock, tasks: Arc::default() }
    }

    /// Runs what `make` makes until it ends. After a panic it is made again, with waits that grow while panics repeat.
    pub fn run<F, Made>(&self, name: &'static str, mut make: F) -> impl Future<Output = ()> + use<F, Made>
    where
        F: FnMut() -> Made,
        Made: Future<Output = ()>,
    {
        let (task, clock) = (self.task(name), self.clock.clone());
        async move {
            let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
            loop {
                let began = clock.instant();
                let Err(message) = task.once(&mut make).await else { return };
                if RECOVERED <= clock.instant().saturating_duration_since(began) {
                    backoff.reset();
                }
                let wait = backoff.next_wait();
                tracing::error!(task = name, panic = message, ?wait, "a background task panicked; starting it again");
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Every task that ever ran.
    pub fn health(&self) -> Vec<TaskHealth> {
        let health = |task: &Arc<Task>| TaskHealth {
            name: task.name,
            panics: task.panics.load(Relaxed),
            last_panic: task.last.lock().clone(),
        };
        self.tasks.lock().iter().map(health).collect()
    }

    /// Makes a task panic, for tests.
    pub fn inject_panic(&self, name: &str) {
        let tasks = self.tasks.lock();
        tasks.iter().find(|task| task.name == name).expect("a task of this name runs").fault.notify_one();
    }

    fn task(&self, name: &'static str) -> Arc<Task> {
        let mut tasks = self.tasks.lock();
        if let Some(task) = tasks.iter().find(|task| task.name == name) {
            return task.clone();
        }
        let task = Task { name, panics: AtomicU64::new(0), last: Mutex::default(), fault: Notify::new() };
        let task = Arc::new(task);
        tasks.push(task.clone());
        task
    }
}

impl Task {
    /// Makes and runs the task. The error is the message of a panic, which is counted.
    async fn once<Made: Future<Output = ()>>(&self, make: &mut impl FnMut() -> Made) -> Result<(), String> {
        let faulty = async {
            tokio::select! {
                biased;
                () = self.fault.notified() => panic!("a test asked for it"),
                () = make() => {}
            }
        };
        let ended = CatchPanic(pin!(faulty)).await;
        if let Err(message) = &ended {
            self.panics.fetch_add(1, Relaxed);
            self.last.lock().clone_from(message);
        }
        ended
    }
}

/// A future whose panic is its message.
struct CatchPanic<'a, F>(Pin<&'a mut F>);

impl<F: Future<Output = ()>> Future for CatchPanic<'_, F> {
    type Output = Result<(), String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic_message(&*panic))),
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use host::SystemClock;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_begins_again_and_is_counted() {
        let supervisor = Supervisor::new(Arc::new(SystemClock));
        let starts = AtomicU32::new(0);
        let run = supervisor.run("a task", || {
            let start = starts.fetch_add(1, Relaxed);
            async move { assert!(0 < start, "the first start fails") }
        });
        tokio::time::timeout(Duration::from_secs(10), run).await.expect("the second start ends");
        let health = &supervisor.health()[0];
        assert_eq!((health.name, health.panics, health.last_panic.as_str()), ("a task", 1, "the first start fails"));
    }
}
