//! Contexts as a user sees them: the report, `why`, `debug` and the export of a machine whose
//! coroutines are throttled, demoted, late and refused; and the errors for a manifest that reserves
//! too much. Expected texts are in `contexts/`; `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test
//! contexts` updates them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// About 360,000 cycles.
const WORK: &str = r#"(module (func (export "_start") (local $i i32)
  (local.set $i (i32.const 60000))
  (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))))"#;

/// Blocks three thousand coroutines on one channel and closes it: waking them takes longer than a
/// short deadline.
const CROWD: &str = r#"(module
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "yield" (func $yield))
  (memory 1) (table funcref (elem $wait)) (global $ch (mut i32) (i32.const 0))
  (func $wait (param i64) (drop (call $recv (global.get $ch) (i32.const 0))))
  (func (export "_start") (local $i i32)
    (global.set $ch (call $channel (i32.const 1)))
    (loop $more
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $more (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3000))))
    (local.set $i (i32.const 8000))
    (loop $l (call $yield) (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (drop (call $close (global.get $ch)))))"#;

/// Requests more budget than its lane has.
const ASKS: &str = r#"(module
  (import "wavelock" "capability" (func $capability (param i32 i32) (result i32)))
  (import "wavelock" "context_create" (func $create (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "control")
  (func (export "_start")
    (i64.store (i32.const 64) (i64.const 90000)) (i64.store (i32.const 72) (i64.const 100000))
    (i64.store (i32.const 80) (i64.const 100000)) (i64.store (i32.const 88) (i64.const 4))
    (drop (call $create (call $capability (i32.const 0) (i32.const 7)) (i32.const 64)))))"#;

const MACHINE: &str = "\
[machine]
policy = \"round-robin\"
quantum_cycles = 5_000
frame_cycles = 1_000_000
wave_cycles = 50_000
";

const SESSIONS: &str = r#"
[[session]]
name = "greedy"
module = "work.wat"
[[session]]
name = "soft"
module = "work.wat"
[[session]]
name = "loud"
module = "work.wat"
[[session]]
name = "short"
module = "work.wat"
[[session]]
name = "asks"
module = "asks.wat"
[[session]]
name = "crowd"
module = "crowd.wat"
coroutine_globals = []
[[context]]
name = "greedy"
session = "greedy"
budget_cycles = 10_000
period_cycles = 100_000
[[context]]
name = "soft"
session = "soft"
budget_cycles = 10_000
period_cycles = 100_000
overrun = "demote"
[[context]]
name = "loud"
session = "loud"
budget_cycles = 10_000
period_cycles = 100_000
overrun = "notify-only"
[[context]]
name = "short"
session = "short"
budget_cycles = 9_000
period_cycles = 60_000
deadline_cycles = 20_000
[[grant]]
session = "asks"
of = "control"
"#;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contexts").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    let machine = format!("{MACHINE}{SESSIONS}");
    for (file, text) in
        [("work.wat", WORK), ("crowd.wat", CROWD), ("asks.wat", ASKS), ("time.toml", &machine)]
    {
        std::fs::write(path.join(file), text).expect("written");
    }
    path
}

fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A folder with the machine's trace in it.
fn recorded(name: &str) -> PathBuf {
    let folder = folder(name);
    let run =
        wavelock(&folder, &["run", "time.toml", "--record", "time.trace", "--level", "inputs"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    folder
}

fn why(folder: &Path, coroutine: &str, step: &str) -> Value {
    json(&wavelock(
        folder,
        &["why", "time.trace", "--coroutine", coroutine, "--at", step, "--json"],
    ))
}

#[test]
fn a_report_lists_every_context_with_its_charges() {
    let folder = folder("report");
    let plain = json(&wavelock(&folder, &["run", "time.toml", "--json"]));
    let watched =
        json(&wavelock(&folder, &["run", "time.toml", "--json", "--report", "report.json"]));
    assert_eq!(plain["digest"], watched["digest"], "recording changes nothing");
    let report = &json(&wavelock(&folder, &["report", "report.json", "--json"]))["report"];
    let row = |name: &str| {
        let rows = report["contexts"].as_array().expect("contexts");
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {report}"))
            .clone()
    };
    let number =
        |row: &Value, key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
    for name in ["greedy", "soft", "loud", "short"] {
        let row = row(name);
        let by: u64 = row["executed_by"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| number(row, "cycles"))
            .sum();
        assert_eq!(by, number(&row, "charged_cycles"), "{row}");
        assert_eq!(row["executed_by"][0]["coroutine"], format!("{name}/0"));
        assert!(
            row["revoked"] == true && number(&row, "overruns") > 0,
            "the session's end revokes it: {row}"
        );
    }
    let (greedy, soft, loud, short) = (row("greedy"), row("soft"), row("loud"), row("short"));
    assert!(number(&greedy, "throttled") > 30 && number(&greedy, "refills") > 30, "{greedy}");
    assert!(number(&greedy, "charged_cycles") > 360_000, "all it did, with its picks and switches");
    assert!(
        number(&soft, "demoted") > 5
            && number(&soft, "throttled") == 0
            && number(&soft, "charged_cycles") < 360_000,
        "{soft}"
    );
    assert!(
        number(&loud, "throttled") + number(&loud, "demoted") == 0
            && number(&loud, "overruns") > 20,
        "{loud}"
    );
    assert_eq!(number(&short, "missed"), 1, "{short}");
    let text = wavelock(&folder, &["report", "report.json"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("Contexts\n") && text.contains("charged to  executed by"), "{text}");
}

#[test]
fn the_voices_of_the_synth_are_charged_in_full_and_miss_nothing() {
    let folder = folder("synth");
    let synth = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/synth/synth.toml");
    let run = wavelock(
        &folder,
        &["run", synth.to_str().expect("a path"), "--report", "synth.json", "--json"],
    );
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let report = &json(&wavelock(&folder, &["report", "synth.json", "--json"]))["report"];
    let rows = report["contexts"].as_array().expect("contexts");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_eq!(
            (row["missed"].as_u64(), row["throttled"].as_u64(), row["refills"].as_u64()),
            (Some(0), Some(0), Some(12)),
            "{row}"
        );
    }
}

#[test]
fn why_explains_throttled_demoted_replenished_missed_and_denied() {
    let folder = recorded("why");
    let throttled = why(&folder, "greedy", "12");
    assert_eq!(
        (throttled["verdict"].as_str(), throttled["context"]["phase"].as_str()),
        (Some("throttled"), Some("throttled")),
        "{throttled}"
    );
    assert!(
        throttled["answer"].as_str().is_some_and(|text| text.contains("it is throttled")
            && text.contains("the next refill is 9996 cycles"))
    );
    assert_eq!(throttled["context"]["coming"][0]["at"], 100_004);
    assert!(
        throttled["next_wake"].as_str().is_some_and(|text| text.contains("lane clock 100004")),
        "{throttled}"
    );
    let demoted = why(&folder, "soft", "12");
    assert_eq!(
        (demoted["verdict"].as_str(), demoted["context"]["phase"].as_str()),
        (Some("not its turn"), Some("demoted"))
    );
    assert!(
        demoted["answer"].as_str().is_some_and(|text| text.contains("demoted to best effort")),
        "{demoted}"
    );
    // The lane's first candidates are holders, by deadline.
    assert_eq!(demoted["candidates"][0]["coroutine"], "loud/0.0");
    assert!(
        demoted["candidates"][0]["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("context deadline")),
        "{demoted}"
    );
    let lately = |coroutine: &str, step: &str, needle: &str| {
        let answer = why(&folder, coroutine, step);
        let told = answer["lately"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|line| line.as_str().is_some_and(|line| line.contains(needle)));
        assert!(told, "{coroutine} at {step}: {needle}: {answer}");
    };
    lately("short", "11400", "missed its deadline at cycle 2240002 on context short");
    lately("short", "11400", "context short got a refill of 8998 cycles for short/0");
    lately("loud", "12", "beyond the refill of context loud and continues");
    lately("asks", "400", "`context_create` of asks/0 was refused with ELIMIT");
    lately("asks", "400", "utilisation 125.09 %, cap 95.00 %");
    lately("asks", "400", "a budget of 56676 would fit");
}

#[test]
fn debug_shows_the_context_of_a_coroutine() {
    let folder = recorded("debug");
    std::fs::write(folder.join("script"), "step 12\ncontexts\ncoroutines\nevents\n")
        .expect("written");
    let said = json(&wavelock(&folder, &["debug", "time.trace", "--script", "script", "--json"]));
    let answer = |at: usize| {
        said["answers"][at]["answer"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert!(
        answer(1)
            .contains("context greedy throttled, 0 of 10000 usable until 100004; held by greedy/0"),
        "{said}"
    );
    assert!(answer(2).contains("context soft demoted"), "{said}");
    assert!(answer(3).contains("beyond the refill of context loud"), "{said}");
}

#[test]
fn an_export_shows_budgets_misses_and_overruns_on_tracks_of_their_own() {
    let folder = recorded("export");
    let export = |name: &str| {
        let done = wavelock(
            &folder,
            &["export", "time.trace", "--format", "perfetto", "-o", name, "--json"],
        );
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        std::fs::read(folder.join(name)).expect("written")
    };
    let bytes = export("one");
    assert_eq!(bytes, export("two"));
    for needle in [
        "budget of context short",
        "short/0 missed its deadline at cycle",
        "beyond the refill of context loud",
        "context greedy got a refill",
    ] {
        assert!(bytes.windows(needle.len()).any(|window| window == needle.as_bytes()), "{needle}");
    }
}

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contexts").join(name);
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, text).expect("bless");
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        text,
        "{}: run with WAVELOCK_BLESS=1 to accept",
        path.display()
    );
}

#[test]
fn contexts_beyond_a_lanes_capacity_are_refused_with_the_arithmetic() {
    let folder = folder("refused");
    let session = "[[session]]\nname = \"a\"\nmodule = \"work.wat\"\ncount = 2\n";
    let context = |name: &str, at: usize, rest: &str| {
        format!("[[context]]\nname = \"{name}\"\nsession = \"a.{at}\"\n{rest}")
    };
    let cases = [
        (
            "budget-too-small",
            MACHINE,
            context("a", 0, "budget_cycles = 40\nperiod_cycles = 100_000\n"),
        ),
        (
            "budget-above-deadline",
            MACHINE,
            context(
                "a",
                0,
                "budget_cycles = 20_000\nperiod_cycles = 100_000\ndeadline_cycles = 10_000\n",
            ),
        ),
        (
            "deadline-above-period",
            MACHINE,
            context(
                "a",
                0,
                "budget_cycles = 20_000\nperiod_cycles = 100_000\ndeadline_cycles = 200_000\n",
            ),
        ),
        (
            "two-for-one",
            MACHINE,
            context("a", 0, "budget_cycles = 9_000\nperiod_cycles = 90_000\n")
                + &context("b", 0, "budget_cycles = 9_000\nperiod_cycles = 90_000\n"),
        ),
        (
            "too-much",
            MACHINE,
            context("a", 0, "budget_cycles = 60_000\nperiod_cycles = 100_000\n")
                + &context("b", 1, "budget_cycles = 50_000\nperiod_cycles = 100_000\n"),
        ),
        (
            "picks",
            "[machine]\nwave_picks = 4\n",
            context("a", 0, "budget_cycles = 9_000\nperiod_cycles = 90_000\n"),
        ),
    ];
    for (name, machine, contexts) in cases {
        std::fs::write(folder.join("refused.toml"), format!("{machine}{session}{contexts}"))
            .expect("written");
        let refused = wavelock(&folder, &["run", "refused.toml"]);
        assert_eq!(refused.status.code(), Some(4), "{name}: {refused:?}");
        check(&format!("{name}.txt"), &String::from_utf8_lossy(&refused.stderr));
    }
}

/// Calls a server in a loop and waits for each reply.
const CLIENT: &str = r#"(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "askanswer")
  (func (export "_start") (local $i i32)
    (loop $again
      (drop (call $send (call $port (i32.const 0) (i32.const 3)) (i64.const 7)))
      (drop (call $recv (call $port (i32.const 3) (i32.const 6)) (i32.const 32)))
      (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20))))))"#;

/// Answers twenty requests, with some work before each reply.
const SERVER: &str = r#"(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "askanswer")
  (func (export "_start") (local $i i32) (local $w i32)
    (loop $again
      (drop (call $recv (call $port (i32.const 0) (i32.const 3)) (i32.const 32)))
      (local.set $w (i32.const 2000))
      (loop $l (br_if $l (local.tee $w (i32.sub (local.get $w) (i32.const 1)))))
      (drop (call $send (call $port (i32.const 3) (i32.const 6)) (i64.const 8)))
      (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20))))))"#;

/// A client of high rank, a server of low rank, and a session of medium rank that runs between
/// them.
fn inverted(name: &str, machine: &str, sessions: [&str; 3], rest: &str) -> PathBuf {
    let folder = folder(name);
    let [client, server, between] = sessions;
    let text = format!(
        "[machine]\n{machine}frame_cycles = 200_000\nwave_cycles = 10_000\n\
         [[session]]\nname = \"client\"\nmodule = \"client.wat\"\n{client}ports = {{ ask = \"ask\", answer = \"answer\" }}\n\
         [[session]]\nname = \"server\"\nmodule = \"server.wat\"\n{server}ports = {{ ask = \"ask\", answer = \"answer\" }}\n\
         [[session]]\nname = \"between\"\nmodule = \"work.wat\"\n{between}\
         [[channel]]\nname = \"ask\"\nowner = \"server\"\n[[channel]]\nname = \"answer\"\nowner = \"client\"\n{rest}"
    );
    for (file, text) in [("client.wat", CLIENT), ("server.wat", SERVER), ("time.toml", &text)] {
        std::fs::write(folder.join(file), text).expect("written");
    }
    let run = wavelock(
        &folder,
        &["run", "time.toml", "--record", "time.trace", "--report", "report.json"],
    );
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    folder
}

#[test]
fn an_inversion_is_reported_with_its_chain_and_the_effect_of_donation() {
    // By priority: a wait donates nothing.
    let priorities = ["priority = 9\n", "priority = 1\n", "priority = 5\n"];
    let folder = inverted(
        "priority",
        "policy = \"priority-fixed\"\nquantum_cycles = 2_000\n",
        priorities,
        "",
    );
    let report = json(&wavelock(&folder, &["report", "report.json", "--json"]));
    let row = &report["report"]["inversions"][0];
    assert_eq!(row["chain"], serde_json::json!(["client/0.0", "server/0.0"]), "{report}");
    assert!(
        row["rank"] == "priority 9"
            && row["behind"][0] == "between/0.0"
            && row["waves"].as_u64() > Some(10),
        "{row}"
    );
    let text = wavelock(&folder, &["report", "report.json"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("Priority inversions") && text.contains("a wait donates nothing"),
        "{text}"
    );
    let answer = why(&folder, "client", "4");
    assert_eq!(answer["inversion"]["chain"], row["chain"], "{answer}");
    assert_eq!(answer["inversion"]["ahead"][0]["coroutine"], "between/0.0", "{answer}");
    // On two lanes the report is the same on any number of workers.
    let two = "lanes = 2\npolicy = \"priority-fixed\"\nquantum_cycles = 2_000\n";
    let folder = inverted(
        "two-lanes",
        two,
        ["priority = 9\n", "priority = 1\nlane = 1\n", "priority = 5\nlane = 1\n"],
        "",
    );
    let reports: Vec<Vec<u8>> = ["1", "2"]
        .iter()
        .map(|workers| {
            let run = wavelock(
                &folder,
                &["run", "time.toml", "--workers", workers, "--report", "report.json"],
            );
            assert_eq!(run.status.code(), Some(0), "{run:?}");
            std::fs::read(folder.join("report.json")).expect("written")
        })
        .collect();
    assert!(
        reports[0] == reports[1] && String::from_utf8_lossy(&reports[0]).contains("\"inversions\"")
    );
    // By context: a call would lend it.
    let context = "[[context]]\nname = \"prompt\"\nsession = \"client\"\nbudget_cycles = 5_000\nperiod_cycles = 50_000\n";
    let folder = inverted(
        "context",
        "policy = \"round-robin\"\nquantum_cycles = 2_000\n",
        ["", "", ""],
        context,
    );
    let report = json(&wavelock(&folder, &["report", "report.json", "--json"]));
    let row = &report["report"]["inversions"][0];
    assert!(
        row["waiter"] == "client/0.0"
            && row["rank"].as_str().is_some_and(|rank| rank.starts_with("context prompt")),
        "{report}"
    );
    assert!(
        row["donation"]
            .as_str()
            .is_some_and(|text| text.contains("would lend context prompt")
                && text.contains("with 0 before it")),
        "{row}"
    );
}

#[test]
fn a_wait_in_rank_order_is_no_inversion() {
    // The server runs first anyway: the client waits, and no coroutine is in between.
    let priorities = ["priority = 5\n", "priority = 9\n", "priority = 1\n"];
    let folder = inverted(
        "in-order",
        "policy = \"priority-fixed\"\nquantum_cycles = 2_000\n",
        priorities,
        "",
    );
    let report = json(&wavelock(&folder, &["report", "report.json", "--json"]));
    assert!(report["report"].get("inversions").is_none(), "{report}");
    // FIFO: there are no ranks.
    let folder =
        inverted("no-rank", "policy = \"round-robin\"\nquantum_cycles = 2_000\n", ["", "", ""], "");
    let report = json(&wavelock(&folder, &["report", "report.json", "--json"]));
    assert!(report["report"].get("inversions").is_none(), "{report}");
}

#[test]
fn lent_time_is_charged_to_the_lender_and_executed_by_the_server() {
    let folder = folder("factor");
    let factor = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/factor/factor.toml");
    let run = wavelock(
        &folder,
        &["run", factor.to_str().expect("a path"), "--report", "factor.json", "--json"],
    );
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let report = &json(&wavelock(&folder, &["report", "factor.json", "--json"]))["report"];
    for row in report["contexts"].as_array().expect("contexts") {
        assert_eq!(row["executed_by"][0]["coroutine"], "factor/0", "{row}");
        assert!(
            row["lent"].as_u64() > Some(0)
                && row["executed_by"].as_array().map(Vec::len) == Some(2),
            "{row}"
        );
    }
    // The server is throttled on the context of one client while another waits; that other one is
    // served on its own context.
    let inversions = report["inversions"].as_array().expect("inversions");
    assert!(inversions.iter().all(|row| row["waiter"] == "generous/0.0"), "{inversions:?}");
    assert!(
        inversions[0]["donation"]
            .as_str()
            .is_some_and(|text| text.contains("already runs on context modest")),
        "{inversions:?}"
    );
}
