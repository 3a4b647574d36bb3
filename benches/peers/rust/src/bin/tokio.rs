//! The speed table's workloads for Tokio on one thread (`current_thread`); its clock is paused for
//! the sleepers, so their ticks are virtual.
//!
//! usage: tokio WORKLOAD NUMBER...   prints nanoseconds of CPU time per operation

use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use wavelock_peers::{cpu, workload};

async fn yields(n: usize, m: usize) -> f64 {
    let gate = Arc::new(Semaphore::new(0));
    let start_one = |gate: Arc<Semaphore>| async move {
        gate.acquire().await.expect("open").forget();
        for _ in 0..m {
            tokio::task::yield_now().await;
        }
    };
    let all: Vec<_> = (0..n).map(|_| tokio::spawn(start_one(gate.clone()))).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = cpu();
    gate.add_permits(n);
    for one in all {
        one.await.expect("ends");
    }
    (cpu() - start) / (n * m) as f64
}

async fn pairs(count: usize, rounds: usize) -> f64 {
    let start = cpu();
    let mut all = Vec::new();
    for _ in 0..count {
        let (there, mut from_there) = mpsc::channel::<u64>(1);
        let (back, mut from_back) = mpsc::channel::<u64>(1);
        all.push(tokio::spawn(async move {
            for number in 0..rounds as u64 {
                there.send(number).await.expect("open");
                from_back.recv().await.expect("open");
            }
        }));
        all.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let number = from_there.recv().await.expect("open");
                back.send(number).await.expect("open");
            }
        }));
    }
    for one in all {
        one.await.expect("ends");
    }
    (cpu() - start) / (2 * count * rounds) as f64
}

async fn stream(messages: usize, capacity: usize) -> f64 {
    let start = cpu();
    let (wire, mut end) = mpsc::channel::<u64>(capacity);
    let producer = tokio::spawn(async move {
        for number in 1..=messages as u64 {
            wire.send(number).await.expect("open");
        }
    });
    let consumer = tokio::spawn(async move {
        let mut sum = 0;
        while let Some(number) = end.recv().await {
            sum += number;
        }
        sum
    });
    producer.await.expect("ends");
    let messages = messages as u64;
    assert_eq!(consumer.await.expect("ends"), messages * (messages + 1) / 2);
    (cpu() - start) / messages as f64
}

async fn spawn(n: usize) -> f64 {
    let start = cpu();
    let all: Vec<_> = (0..n).map(|number| tokio::spawn(async move { number })).collect();
    for (number, one) in all.into_iter().enumerate() {
        assert_eq!(one.await.expect("ends"), number);
    }
    (cpu() - start) / n as f64
}

async fn sleepers(n: usize, m: usize) -> f64 {
    let gate = Arc::new(Semaphore::new(0));
    let sleeper = |gate: Arc<Semaphore>, seed: u64| async move {
        gate.acquire().await.expect("open").forget();
        let mut state = seed;
        for _ in 0..m {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            tokio::time::sleep(Duration::from_millis((state >> 33) % 1_000 + 1)).await;
        }
    };
    let all: Vec<_> = (0..n as u64).map(|seed| tokio::spawn(sleeper(gate.clone(), seed))).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = cpu();
    gate.add_permits(n);
    for one in all {
        one.await.expect("ends");
    }
    (cpu() - start) / (n * m) as f64
}

fn main() {
    let (name, numbers) = workload();
    let number = move |at: usize| numbers.get(at).copied().unwrap_or(0);
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let figure = runtime.block_on(async move {
        // Inside a task, so that spawning takes the normal path.
        let root = tokio::spawn(async move {
            match name.as_str() {
                "yield" => yields(number(0), number(1)).await,
                "pairs" => pairs(number(0), number(1)).await,
                "stream" => stream(number(0), number(1)).await,
                "spawn" => spawn(number(0)).await,
                "sleepers" => sleepers(number(0), number(1)).await,
                _ => std::process::exit(2),
            }
        });
        root.await.expect("ends")
    });
    println!("{figure:.3}");
}
