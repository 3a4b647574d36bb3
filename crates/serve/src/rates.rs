//! Token buckets: how often somebody may ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The most keys that are remembered; beyond them the ones that have been quiet are forgotten, and
/// if none is, new ones share one bucket.
const MOST_KEYS: usize = 4_096;

struct Bucket {
    left: f64,
    at: Instant,
}

/// A bucket for each key.
pub(crate) struct Rates<K> {
    per_second: f64,
    buckets: Mutex<BTreeMap<Option<K>, Bucket>>,
}

impl<K: Ord + Clone> Rates<K> {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    /// Whether this one may ask now. A bucket holds two seconds.
    pub(crate) fn take(&self, key: K, now: Instant) -> bool {
        let (rate, most) = (self.per_second, 2.0 * self.per_second);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = Some(key);
        if buckets.len() >= MOST_KEYS && !buckets.contains_key(&key) {
            let is_busy = |bucket: &Bucket| now.duration_since(bucket.at).as_secs() < 2;
            buckets.retain(|_, bucket| is_busy(bucket));
            if buckets.len() >= MOST_KEYS {
                key = None;
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { left: most, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * rate).min(most);
        bucket.at = now;
        let may = bucket.left >= 1.0;
        if may {
            bucket.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_holds_two_seconds_and_fills_again() {
        let (rates, start) = (Rates::new(10), Instant::now());
        let taken = |at| (0..100).filter(|_| rates.take("a", at)).count();
        assert_eq!(taken(start), 20);
        assert_eq!(taken(start), 0);
        assert_eq!(taken(start + Duration::from_millis(500)), 5);
        assert_eq!(taken(start + Duration::from_secs(60)), 20);
        assert!(rates.take("b", start), "others have their own");
    }

    #[test]
    fn many_keys_share_a_bucket_in_the_end() {
        let (rates, start) = (Rates::new(1), Instant::now());
        let let_in = (0..MOST_KEYS * 2).filter(|key| rates.take(*key, start)).count();
        assert_eq!(let_in, MOST_KEYS + 2);
    }
}
