//! Metrics in the text format of Prometheus, with names as OpenTelemetry has them (dots become
//! underscores, units and `_total` are suffixes).

use crate::actor::Hosted;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper ends of the histogram's buckets, in milliseconds.
const BUCKETS: [u64; 9] = [1, 2, 5, 10, 25, 50, 100, 500, 2_500];

#[derive(Default, Clone)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

/// Counters of the server itself.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By route and status.
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), Histogram>>,
    pub(crate) connections: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
    pub(crate) dropped_frames: AtomicU64,
}

impl Metrics {
    pub(crate) fn request(
        &self,
        method: &'static str,
        route: &'static str,
        status: u16,
        took: Duration,
    ) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = requests.entry((method, route, status)).or_default();
        for (count, most) in histogram.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(took <= Duration::from_millis(most));
        }
        histogram.count += 1;
        histogram.sum += took;
    }

    /// The page, with the machines that may be seen.
    // Long: one entry for each metric, in the order of the page.
    pub(crate) fn page(&self, machines: &[Arc<Hosted>]) -> String {
        let mut page = Page::default();
        page.family("http_server_request_duration_seconds", "histogram", "Time of requests.");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((method, route, status), histogram) in &requests {
            let labels = format!(
                "http_request_method=\"{method}\",http_route=\"{route}\",\
                 http_response_status_code=\"{status}\""
            );
            for (count, most) in histogram.buckets.iter().zip(BUCKETS) {
                let le = most as f64 / 1e3;
                page.value("_bucket", &format!("{labels},le=\"{le}\""), *count as f64);
            }
            page.value("_bucket", &format!("{labels},le=\"+Inf\""), histogram.count as f64);
            page.value("_sum", &labels, histogram.sum.as_secs_f64());
            page.value("_count", &labels, histogram.count as f64);
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        page.one(
            "http_server_active_connections",
            "gauge",
            "Open connections.",
            read(&self.connections),
        );
        page.one(
            "http_server_refused_connections_total",
            "counter",
            "Connections beyond the limit.",
            read(&self.refused_connections),
        );
        page.one(
            "wavelock_watch_dropped_frames_total",
            "counter",
            "Frames that watching clients were too slow for.",
            read(&self.dropped_frames),
        );
        page.one(
            "process_memory_usage_bytes",
            "gauge",
            "Resident memory of the process.",
            resident_bytes().unwrap_or(0) as f64,
        );
        let states: Vec<_> = machines.iter().map(|machine| (machine, machine.status())).collect();
        let mut each = |name, kind, help, value: &dyn Fn(&Hosted) -> f64| {
            page.family(name, kind, help);
            for (machine, _) in &states {
                // A name has no character that a label would escape.
                page.value("", &format!("machine=\"{}\"", machine.name), value(machine));
            }
        };
        each("wavelock_machine_frames_total", "counter", "Frames that were run.", &|machine| {
            read(&machine.counters.frames)
        });
        each(
            "wavelock_machine_late_frames_total",
            "counter",
            "Frames that were due and not run.",
            &|machine| read(&machine.counters.late),
        );
        each(
            "wavelock_machine_frame_time_seconds_total",
            "counter",
            "Time that frames took.",
            &|machine| read(&machine.counters.frame_nanoseconds) / 1e9,
        );
        each("wavelock_machine_inputs_total", "counter", "Changes that were taken.", &|machine| {
            read(&machine.counters.changes)
        });
        each(
            "wavelock_machine_refused_inputs_total",
            "counter",
            "Changes that were refused.",
            &|machine| read(&machine.counters.refused),
        );
        each(
            "wavelock_machine_journal_syncs_total",
            "counter",
            "Times the journal was made durable.",
            &|machine| read(&machine.counters.syncs),
        );
        each("wavelock_machine_watchers", "gauge", "Clients that watch the machine.", &|machine| {
            read(&machine.counters.watchers)
        });
        each(
            "wavelock_machine_cycles_total",
            "counter",
            "Cycles that its sessions used.",
            &|machine| read(&machine.counters.cycles),
        );
        each(
            "wavelock_machine_memory_bytes",
            "gauge",
            "Guest memory of its sessions.",
            &|machine| read(&machine.counters.memory_bytes),
        );
        page.family("wavelock_machine_state", "gauge", "1 for the state that the machine is in.");
        for (machine, state) in &states {
            let state = format!("{:?}", state.state).to_lowercase();
            let labels = format!("machine=\"{}\",state=\"{state}\"", machine.name);
            page.value("", &labels, 1.0);
        }
        page.text
    }
}

#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, suffix: &str, labels: &str, value: f64) {
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.text, "{name}{suffix} {value}"),
            labels => writeln!(self.text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }

    fn one(&mut self, name: &'static str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.value("", "", value);
    }
}

/// Resident memory of this process, where the system tells it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // The size of pages of every system that has this file and is common.
    Some(pages * 4_096)
}
