//! Collects the per-frame part of a report in bounded memory.

use super::model::{CoroutineId, LISTED, Metric, MetricRow, Others, WorstFrame};
use std::cmp::Reverse;

/// What one frame cost: a value per [`Metric`], in table order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FrameSample {
    /// The frame.
    pub frame: u64,
    /// The values.
    pub values: [u64; Metric::ALL.len()],
    /// The coroutine that `coroutine_cycles` was measured for.
    pub coroutine: Option<CoroutineId>,
}

/// Collects frames. Frames must come in ascending order.
#[derive(Clone, Debug)]
pub struct Recorder {
    frames: u64,
    metrics: Vec<MetricRow>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        let row = |metric: &Metric| MetricRow {
            name: metric.name().to_owned(),
            histogram: vec![0; 65],
            ..MetricRow::default()
        };
        Self { frames: 0, metrics: Metric::ALL.iter().map(row).collect() }
    }

    /// Adds a frame.
    pub fn frame(&mut self, sample: &FrameSample) {
        self.frames += 1;
        for ((row, metric), value) in self.metrics.iter_mut().zip(Metric::ALL).zip(sample.values) {
            row.total = row.total.saturating_add(value);
            row.histogram[(u64::BITS - value.leading_zeros()) as usize] += 1;
            let smallest = row.worst.last().map_or(0, |last| last.value);
            if row.worst.len() == LISTED && value <= smallest {
                continue;
            }
            // Insert after equal values, so that these stay in frame order.
            let place = row.worst.partition_point(|other| other.value >= value);
            let coroutine =
                if *metric == Metric::CoroutineCycles { sample.coroutine.clone() } else { None };
            row.worst.insert(place, WorstFrame { frame: sample.frame, value, coroutine });
            row.worst.truncate(LISTED);
        }
    }

    /// The number of frames, and the rows. Trailing zeros of histograms are left out.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<MetricRow>) {
        for row in &mut self.metrics {
            let used =
                row.histogram.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            row.histogram.truncate(used);
        }
        (self.frames, self.metrics)
    }
}

/// The [`LISTED`] most expensive rows, and the sum of the others. Equal costs keep their order.
#[must_use]
pub fn most_costly<R>(mut rows: Vec<R>, cycles: impl Fn(&R) -> u64) -> (Vec<R>, Others) {
    rows.sort_by_key(|row| Reverse(cycles(row)));
    let rest = rows.split_off(rows.len().min(LISTED));
    let others = Others { count: rest.len() as u64, cycles: rest.iter().map(cycles).sum() };
    (rows, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_frames_are_those_of_a_full_sort() {
        let mut recorder = Recorder::new();
        let mut all = Vec::new();
        let mut state = 7_u64;
        for frame in 0..2_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 33) % 500;
            recorder.frame(&FrameSample { frame, values: [value, 0, 0, 0, 0, 0], coroutine: None });
            all.push((Reverse(value), frame));
        }
        all.sort();
        let (frames, metrics) = recorder.finish();
        let worst: Vec<_> =
            metrics[0].worst.iter().map(|worst| (Reverse(worst.value), worst.frame)).collect();
        assert_eq!((frames, worst.len()), (2_000, LISTED));
        assert_eq!(worst, all[..LISTED]);
        assert_eq!(metrics[0].histogram.iter().sum::<u64>(), 2_000);
        assert_eq!(metrics[0].total, all.iter().map(|(value, _)| value.0).sum::<u64>());
    }

    #[test]
    fn rows_beyond_the_limit_are_summed() {
        let rows: Vec<u64> = (0..1_000).collect();
        let (listed, others) = most_costly(rows, |row| *row);
        assert_eq!((listed[0], listed.len(), others.count), (999, LISTED, 744));
        assert_eq!(listed.iter().sum::<u64>() + others.cycles, 499_500);
    }
}
