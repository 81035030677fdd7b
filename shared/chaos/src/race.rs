//! N tasks through one barrier.

use cloud::as_actor;
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Runs `n` tasks that start together, each as an actor of its own (`racer-0`, `racer-1`, …), and
/// gives their results in the order of the tasks.
///
/// Which one wins is up to the machine, so this is for claims like "one of 32 wins". For
/// "whatever the order" use [`crate::Interleave`].
///
/// # Panics
/// With the panic of a task that panicked.
pub async fn race<T, F, Fut>(n: usize, task: F) -> Vec<T>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(n));
    let mut racers = JoinSet::new();
    for number in 0..n {
        let (barrier, work) = (Arc::clone(&barrier), task(number));
        racers.spawn(as_actor(format!("racer-{number}"), async move {
            barrier.wait().await;
            (number, work.await)
        }));
    }
    let mut results = Vec::with_capacity(n);
    while let Some(finished) = racers.join_next().await {
        match finished {
            Ok(result) => results.push(result),
            // Nobody aborts a racer, so the only way to end badly is a panic.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
