//! CPU time, which depends less on other load than wall time; and a test of linearity by comparing
//! two sizes.
#![allow(dead_code, reason = "each test and benchmark uses its part")]

use std::time::Duration;

/// Four times the bytes may take this many times as long. Linear is 4, quadratic 16.
const MOST_TIMES: u32 = 9;

/// Times below this are not compared.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// What `work` took on this thread.
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let before = now();
    work();
    now().saturating_sub(before)
}

fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of the type that the call writes.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0, "this system has no clock for the time of a thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether `work` of a size four times as large takes at most nine times as long: the least of up
/// to five tries of each counts, for a machine that does other work beside.
pub(crate) fn is_linear(work: impl Fn(usize)) -> Result<(), [Duration; 2]> {
    let mut least = [Duration::MAX; 2];
    for _ in 0..5 {
        for (least, times) in least.iter_mut().zip([1, 4]) {
            *least = (*least).min(time(|| work(times)));
        }
        if least[1] <= least[0] * MOST_TIMES + SHORT {
            return Ok(());
        }
    }
    Err(least)
}
