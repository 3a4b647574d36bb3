//! `wavelock report`, text in, text out: a sample report is printed and checked against profiles,
//! with the expected text in `reports/`.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test report` updates the expected texts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use wavelock_cli::report::{
    ChannelRow, ContextRow, CoroutineCounts, CoroutineId, CoroutineRow, CycleRow, ExecutedRow,
    FORMAT, FrameSample, FunctionRow, GroupRow, InversionRow, ModelRow, OperationRow, Others,
    Recorder, Report, SessionCosts, SessionSummary, Stops, Summary, VERSION, WavesRow,
};

const PROFILES: &str = "\
[profile.desktop]
cycles = 1_000_000
messages = 100

[profile.handheld]
cycles = 50_000
coroutine_cycles = 20_000
host_calls = 1_000
coroutines = 2
";

fn sample_waves() -> WavesRow {
    WavesRow {
        count: 40,
        widths: vec![10, 30],
        work: 4_100_000,
        critical: 2_600_000,
        groups: vec![
            GroupRow {
                lanes: vec![1],
                cycles: 2_550_000,
                heaviest: 38,
                ahead: 1_100_000,
                joined: 0,
                sessions: vec![("worker.1".to_owned(), 2_500_000)],
            },
            GroupRow {
                lanes: vec![0],
                cycles: 1_550_000,
                heaviest: 2,
                ahead: 1_000,
                joined: 0,
                sessions: vec![("worker.0".to_owned(), 1_500_000)],
            },
        ],
        channels: vec![ChannelRow {
            name: "channel `results`".to_owned(),
            crossed: 150,
            waited: 12,
        }],
    }
}

// Long: every kind of row that a run can produce, once.
fn sample() -> Report {
    let mut recorder = Recorder::new();
    for frame in 0..100_u64 {
        let cycles = 40_000 + (frame * 7_919) % 20_000;
        let coroutine =
            Some(CoroutineId { session: "worker.1".to_owned(), slot: 3, generation: 1 });
        recorder.frame(&FrameSample {
            frame,
            values: [cycles, cycles / 2, cycles / 3, 12, 3, frame % 5],
            coroutine,
        });
    }
    let (busy_frames, metrics) = recorder.finish();
    let session = |name: &str, cycles: u64| SessionSummary {
        name: name.to_owned(),
        outcome: "finished".to_owned(),
        exit: 0,
        cycles,
        digest: "ab".repeat(32),
        unread_input: None,
        output: None,
        log: None,
        faults: Vec::new(),
        kills: Vec::new(),
        missed_ports: Vec::new(),
        cap: Vec::new(),
    };
    let operation =
        |name: &str, count: u64, cycles: u64| OperationRow { name: name.to_owned(), count, cycles };
    Report {
        format: FORMAT.to_owned(),
        version: VERSION,
        summary: Summary {
            outcome: "finished".to_owned(),
            digest: "cd".repeat(32),
            frames: 100,
            steps: 1_234,
            cycles: CycleRow {
                charged: 4_000_000,
                overhead: 100_000,
                idle: 5_900_000,
                total: 10_000_000,
            },
            coroutines: CoroutineCounts {
                spawned: 10,
                finished: 10,
                faulted: 0,
                killed: 0,
                peak: 4,
            },
            sessions: vec![session("worker.0", 1_500_000), session("worker.1", 2_500_000)],
            lanes: Vec::new(),
            leases: Vec::new(),
            stuck_migrations: None,
            services: Vec::new(),
            trace_bytes: None,
            deadlock: None,
            telemetry: None,
        },
        model: ModelRow {
            lanes: 2,
            policy: "fair".to_owned(),
            frame_cycles: 50_000,
            seed: 42,
            cost_table: 2,
        },
        scheduler: vec![
            operation("pick", 1_234, 14_808),
            operation("switch", 900, 21_600),
            operation("steal", 0, 0),
        ],
        sessions: vec![
            SessionCosts {
                name: "worker.0".to_owned(),
                cycles: 1_500_000,
                slices: 600,
                spawned: 1,
                peak: 1,
                ..SessionCosts::default()
            },
            SessionCosts {
                name: "worker.1".to_owned(),
                cycles: 2_500_000,
                slices: 634,
                stops: Stops {
                    yielded: 100,
                    preempted: 433,
                    blocked: 90,
                    slept: 9,
                    cut: 1,
                    ended: 1,
                },
                spawned: 9,
                peak: 3,
                messages: 200,
                host: vec![operation("send", 200, 4_000), operation("yield", 100, 800)],
                coroutines: vec![
                    CoroutineRow {
                        slot: 3,
                        generation: 1,
                        cycles: 2_000_000,
                        slices: 400,
                        stops: Stops { yielded: 100, preempted: 299, ended: 1, ..Stops::default() },
                    },
                    CoroutineRow {
                        slot: 0,
                        generation: 0,
                        cycles: 400_000,
                        slices: 100,
                        stops: Stops { blocked: 90, slept: 9, cut: 1, ..Stops::default() },
                    },
                ],
                other_coroutines: Others { count: 7, cycles: 100_000 },
                functions: vec![FunctionRow {
                    index: 5,
                    name: "work".to_owned(),
                    cycles: 2_400_000,
                }],
                other_functions: Others { count: 1, cycles: 100_000 },
            },
        ],
        busy_frames,
        full_frames: Vec::new(),
        metrics,
        waves: sample_waves(),
        contexts: vec![sample_context()],
        inversions: vec![InversionRow {
            waiter: "worker.0/0.0".to_owned(),
            rank: "context steady, due at 90000 if it were released now".to_owned(),
            chain: vec!["worker.0/0.0".to_owned(), "worker.1/0.0".to_owned()],
            waves: 12,
            first_frame: 3,
            reason:
                "worker.1/0.0 is ready on lane 0 behind 2, 1 of which the waiter would go before"
                    .to_owned(),
            behind: vec!["worker.1/3.1".to_owned()],
            donation: "a call instead of a wait would lend context steady".to_owned(),
        }],
        islands: Vec::new(),
        contexts_not_kept: 0,
    }
}

fn sample_context() -> ContextRow {
    let executed =
        |coroutine: &str, cycles: u64| ExecutedRow { coroutine: coroutine.to_owned(), cycles };
    ContextRow {
        name: "steady".to_owned(),
        owner: "worker.0".to_owned(),
        lane: 0,
        budget_cycles: 20_000,
        period_cycles: 50_000,
        deadline_cycles: 40_000,
        overrun_policy: "throttle".to_owned(),
        revoked: true,
        charged_cycles: 1_600_000,
        refills: 80,
        throttled: 80,
        overruns: 79,
        longest_overrun_cycles: 312,
        missed: 1,
        lent: 12,
        executed_by: vec![executed("worker.0/0", 1_400_000), executed("worker.1/0", 200_000)],
        ..ContextRow::default()
    }
}

/// A temporary directory with the report and the profiles.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    std::fs::write(folder.join("run.json"), serde_json::to_vec(&sample()).expect("JSON"))
        .expect("the report");
    std::fs::write(folder.join("profiles.toml"), PROFILES).expect("the profiles");
    folder
}

fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("wavelock runs")
}

fn check(name: &str, output: &Output, exit: i32) {
    let text = format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports").join(name);
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, &text).expect("bless");
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        text,
        "{}: run with WAVELOCK_BLESS=1 to accept",
        path.display()
    );
    assert_eq!(output.status.code(), Some(exit));
}

#[test]
fn a_report_is_printed_as_tables() {
    let folder = folder("report-tables");
    check("tables.txt", &wavelock(&folder, &["report", "run.json"]), 0);
}

#[test]
fn profiles_fit_or_do_not_fit_with_the_worst_named() {
    let folder = folder("report-profiles");
    check(
        "profiles.txt",
        &wavelock(&folder, &["report", "run.json", "--top", "1", "--profile", "profiles.toml"]),
        4,
    );
    assert_eq!(
        wavelock(&folder, &["report", "run.json", "--profile", "profiles.toml#desktop"])
            .status
            .code(),
        Some(0)
    );
    check(
        "no-such-profile.txt",
        &wavelock(&folder, &["report", "run.json", "--profile", "profiles.toml#handhold"]),
        4,
    );
}

#[test]
fn json_has_the_report_and_the_verdicts() {
    let folder = folder("report-json");
    let output =
        wavelock(&folder, &["report", "run.json", "--json", "--profile", "profiles.toml#handheld"]);
    assert_eq!(output.status.code(), Some(4));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(value["report"]["summary"]["steps"], 1_234);
    assert_eq!(value["profiles"][0]["profile"], "handheld");
    assert_eq!(value["profiles"][0]["fits"], false);
    assert_eq!(value["profiles"][0]["limits"][0]["worst"]["frame"], 53);
    let back: Report = serde_json::from_value(value["report"].clone()).expect("the same schema");
    assert_eq!(back, sample());
}

#[test]
fn files_that_are_no_reports_are_refused() {
    let folder = folder("report-refused");
    std::fs::write(folder.join("other.json"), "{\"format\":\"other\"}").expect("a file");
    std::fs::write(folder.join("newer.json"), "{\"format\":\"wavelock-report\",\"version\":2}")
        .expect("a file");
    std::fs::write(folder.join("damaged.json"), "{\"format\":\"wavelock-report\",\"version\":1}")
        .expect("a file");
    std::fs::write(folder.join("bad.toml"), "[profile.a]\ncycle = 3\nmessages = -1\n[other]\n")
        .expect("a file");
    check("not-json.txt", &wavelock(&folder, &["report", "profiles.toml"]), 4);
    check("other.txt", &wavelock(&folder, &["report", "other.json"]), 4);
    check("newer.txt", &wavelock(&folder, &["report", "newer.json"]), 4);
    check("damaged.txt", &wavelock(&folder, &["report", "damaged.json"]), 4);
    check(
        "bad-profile.txt",
        &wavelock(&folder, &["report", "run.json", "--profile", "bad.toml"]),
        4,
    );
    check("missing.txt", &wavelock(&folder, &["report", "absent.json", "--json"]), 1);
}

/// The rows of a report, the summary and `why` are one ledger.
#[test]
fn the_rows_of_a_run_are_one_ledger() {
    let folder = folder("report-ledger");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let machine = examples.join("primes/primes.toml");
    let machine = machine.to_str().expect("a path of the test");
    let files = ["--report", "ledger.json", "--record", "ledger.trace"];
    let run =
        wavelock(&folder, &[&["run", machine, "--json", "--lanes", "2"], &files[..]].concat());
    let told: serde_json::Value = serde_json::from_slice(&run.stdout).expect("one JSON object");
    let trace = std::fs::metadata(folder.join("ledger.trace")).expect("a trace").len();
    assert_eq!(told["trace_bytes"].as_u64(), Some(trace));
    let bytes = std::fs::read(folder.join("ledger.json")).expect("a report");
    let report: Report = serde_json::from_slice(&bytes).expect("a report");

    let slices: u64 = report.sessions.iter().map(|session| session.slices).sum();
    assert_eq!(slices, report.summary.steps);
    for session in &report.sessions {
        assert_eq!(session.stops.total(), session.slices, "{}", session.name);
        assert_eq!(session.other_coroutines.count, 0, "{}: all are listed", session.name);
        let rows = || session.coroutines.iter();
        assert_eq!(rows().map(|row| row.cycles).sum::<u64>(), session.cycles);
        assert_eq!(rows().map(|row| row.stops.blocked).sum::<u64>(), session.stops.blocked);
        assert!(rows().all(|row| row.stops.total() == row.slices));
    }
    assert!(report.sessions.iter().any(|session| session.stops.blocked > 0), "messages wait");
    assert_eq!(report.full_frames.len(), report.summary.lanes.len());
    assert!(report.full_frames.iter().all(|full| *full <= report.busy_frames));

    let session = &report.sessions[0];
    let why = ["why", "ledger.trace", "--json", "--coroutine", &session.name, "--at", "100"];
    let why = wavelock(&folder, &why);
    let why: serde_json::Value = serde_json::from_slice(&why.stdout).expect("one JSON object");
    let ledger = &why["ledger"];
    let cycles = ledger["cycles"].as_u64().expect("its cycles");
    assert!(cycles > 0 && cycles <= session.cycles, "{ledger}");
    assert!(ledger["waits"].as_u64() <= Some(session.stops.blocked), "{ledger}");
    assert_eq!(ledger["moves"], 0);
}
