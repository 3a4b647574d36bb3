//! The worked example of the Rust kit: four coroutines draw the rows of the Mandelbrot set. They
//! take row numbers from one channel and send each finished row back as a byte message; the first
//! coroutine sends the row numbers, collects the rows in any order and prints the picture.
#![cfg_attr(target_arch = "wasm32", no_std)]

use core::sync::atomic::{AtomicI32, Ordering};
use wavelock_guest::{Channel, Code, Coroutine, Stack, output, println};

const WIDTH: usize = 72;
const HEIGHT: usize = 28;
const WORKERS: usize = 4;

static STACKS: [Stack<8192>; WORKERS] = [const { Stack::new() }; WORKERS];
static FOREMAN: Stack<4096> = Stack::new();
static JOBS: AtomicI32 = AtomicI32::new(0);
static ROWS: AtomicI32 = AtomicI32::new(0);

fn shade(x: f64, y: f64) -> u8 {
    let (mut a, mut b, mut steps) = (0.0, 0.0, 0);
    while a * a + b * b < 4.0 && steps < 100 {
        (a, b) = (a * a - b * b + x, 2.0 * a * b + y);
        steps += 1;
    }
    if steps == 100 { b'#' } else { b" .,:;-=+*%"[(steps / 2).min(9)] }
}

fn draw(me: i64) -> Result<i64, Code> {
    let (jobs, rows) = (Channel::from_handle(JOBS.load(Ordering::Relaxed)), Channel::from_handle(ROWS.load(Ordering::Relaxed)));
    let mut done = 0;
    while let Ok(row) = jobs.recv() {
        let mut message = [0; WIDTH + 1];
        message[0] = row as u8;
        for (column, cell) in message[1..].iter_mut().enumerate() {
            *cell = shade(column as f64 * 3.2 / WIDTH as f64 - 2.3, row as f64 * 2.4 / (HEIGHT - 1) as f64 - 1.2);
        }
        rows.send_bytes(&message)?;
        done += 1;
    }
    wavelock_guest::log(if me == 0 { "the first worker has no more rows\n" } else { "a worker has no more rows\n" });
    Ok(done)
}

extern "C" fn worker(me: i64) -> i64 {
    draw(me).unwrap_or(-1)
}

extern "C" fn foreman(rows: i64) -> i64 {
    let jobs = Channel::from_handle(JOBS.load(Ordering::Relaxed));
    let sent = (0..rows).take_while(|row| jobs.send(*row).is_ok()).count();
    let _ = jobs.close();
    sent as i64
}

fn picture() -> Result<(), Code> {
    let (jobs, rows) = (Channel::new(4)?, Channel::new(4)?);
    JOBS.store(jobs.handle(), Ordering::Relaxed);
    ROWS.store(rows.handle(), Ordering::Relaxed);
    let mut crew = [Coroutine::own(); WORKERS];
    for (me, stack) in STACKS.iter().enumerate() {
        crew[me] = Coroutine::start(worker, me as i64, stack.take().ok_or(Code::Limit)?)?;
    }
    Coroutine::start(foreman, HEIGHT as i64, FOREMAN.take().ok_or(Code::Limit)?)?.detach()?;

    let mut canvas = [[b'\n'; WIDTH + 1]; HEIGHT];
    for _ in 0..HEIGHT {
        let mut message = [0; WIDTH + 1];
        let row = rows.recv_bytes(&mut message)?;
        canvas[row[0] as usize][..WIDTH].copy_from_slice(&row[1..]);
    }
    let mut drawn = 0;
    for member in crew {
        drawn += member.join()?;
    }
    output(canvas.as_flattened())?;
    println!("{drawn} rows by {WORKERS} coroutines")
}

/// The entry point of the session.
#[unsafe(no_mangle)]
pub extern "C" fn _start() {
    if let Err(code) = picture() {
        wavelock_guest::log(code.name());
        wavelock_guest::log("\n");
    }
}
