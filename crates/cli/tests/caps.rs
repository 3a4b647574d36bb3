//! Caps as a user sees them: the share of a capped hog, the summary, `--json`, `why`, `debug`,
//! `report`, a snapshot in the middle of a period, and refusals.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Twenty coroutines that never stop.
const HOG: &str = r#"(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (table funcref (elem $spin))
  (func $spin (param i64) (loop $l (br $l)))
  (func (export "_start") (local $n i32)
    (local.set $n (i32.const 19))
    (loop $more
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (loop $l (br $l))))"#;

/// One coroutine that never stops.
const ONE: &str = r#"(module (func (export "_start") (loop $l (br $l))))"#;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("caps").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder of this test");
    std::fs::write(folder.join("hog.wat"), HOG).expect("a module");
    std::fs::write(folder.join("one.wat"), ONE).expect("a module");
    folder
}

/// A hog with these keys beside a session of one coroutine.
fn machine(folder: &Path, keys: &str) {
    let text = format!(
        "[machine]\nmax_frames = 40\n\n[[session]]\nname = \"hog\"\nmodule = \"hog.wat\"\n{keys}\n\n\
         [[session]]\nname = \"one\"\nmodule = \"one.wat\"\n"
    );
    std::fs::write(folder.join("machine.toml"), text).expect("a manifest");
}

fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
    command.current_dir(folder).env("NO_COLOR", "1").args(arguments).output().expect("it runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = wavelock(folder, arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

#[test]
fn a_hog_of_twenty_coroutines_capped_to_five_percent_uses_five_percent() {
    let folder = folder("share");
    let shares = |keys: &str, policy: &str| {
        machine(&folder, keys);
        let run = json(&folder, &["run", "machine.toml", "--json", "--policy", policy]);
        let cycles = |at: usize| run["sessions"][at]["cycles"].as_u64().expect("cycles") as f64;
        (cycles(0) / 40e6, cycles(1) / 40e6, run)
    };
    for policy in ["round-robin", "fair", "progress-aware", "priority-aging", "priority-fixed"] {
        let (hog, one, _) = shares("", policy);
        // Sessions of equal weight share the lane under `fair`; otherwise coroutines take turns.
        let is_due = if policy == "fair" { hog > 0.49 && one > 0.49 } else { hog > 0.9 };
        assert!(is_due && hog + one <= 1.0, "{policy}, no cap: {hog} {one}");
        let (hog, one, run) = shares("budget_cycles = 50_000\npriority = 255", policy);
        assert!((0.0495..=0.05).contains(&hog) && one > 0.94, "{policy}, capped: {hog} {one}");
        let cap = &run["sessions"][0]["cap"][0];
        assert_eq!(cap["throttled"], 40, "{policy}: {cap}");
        let charged = cap["charged_cycles"].as_u64().expect("a number");
        assert!((1_990_000..2_000_100).contains(&charged), "{policy}: {cap}");
        assert_eq!(cap["throttled_until_frame"], 40, "{policy}: {cap}");
        assert_eq!(run["sessions"][0]["outcome"], "frames", "{policy}: throttled, not finished");
    }
}

#[test]
fn a_split_session_has_a_part_of_its_cap_on_each_lane() {
    let folder = folder("split");
    machine(&folder, "lanes = [1, 0]\nbudget_cycles = 50_001\nperiod_frames = 2");
    let run = json(&folder, &["run", "machine.toml", "--lanes", "2", "--json"]);
    let cap = run["sessions"][0]["cap"].as_array().expect("a row per lane").clone();
    let parts: Vec<_> = cap.iter().map(|row| (&row["lane"], &row["budget_cycles"])).collect();
    assert_eq!(parts, [(&1.into(), &25_001.into()), (&0.into(), &25_000.into())]);
    // All its coroutines are on its home lane, and cannot use the other's part.
    assert_eq!((&cap[0]["throttled"], &cap[1]["throttled"]), (&20.into(), &0.into()));
}

#[test]
fn the_summary_why_debug_and_report_show_a_throttled_session() {
    let folder = folder("shown");
    machine(&folder, "budget_cycles = 50_000\nperiod_frames = 4");
    let run = wavelock(&folder, &["run", "machine.toml", "--record", "t", "--report", "r"]);
    let line = "throttled: hog used up its cap 10 times on lane 0: 50_000 cycles per 4 frames";
    assert!(text(&run).contains(line), "{}", text(&run));
    assert!(text(&wavelock(&folder, &["report", "r"])).contains(line));
    let why = text(&wavelock(&folder, &["why", "t", "--coroutine", "hog/3", "--at", "60"]));
    let reason = "it is runnable, but its session used 5000";
    assert!(why.contains(reason), "{why}");
    assert!(why.contains("of the 50000 cycles of its cap on lane 0 (per 4 frames)"), "{why}");
    assert!(why.contains("at the start of frame 4"), "{why}");
    assert!(why.contains("hog used 5000"), "recent events: {why}");
    std::fs::write(folder.join("script"), "goto step 60\ncaps\n").expect("a script");
    let debug = text(&wavelock(&folder, &["debug", "t", "--script", "script"]));
    assert!(debug.contains("of 50000 cycles used on lane 0, refilled every 4 frames"), "{debug}");
    assert!(debug.contains("throttled until frame 4"), "{debug}");
    let replay = wavelock(&folder, &["replay", "t", "--workers", "2"]);
    assert!(text(&replay).starts_with("equal"), "{}", text(&replay));
}

#[test]
fn a_snapshot_in_the_middle_of_a_period_keeps_the_account() {
    let folder = folder("resumed");
    machine(&folder, "budget_cycles = 70_000\nperiod_frames = 7");
    let whole = json(&folder, &["run", "machine.toml", "--json"]);
    for frame in ["1", "3", "6", "7", "20"] {
        let taken =
            wavelock(&folder, &["snapshot", "machine.toml", "--at-frame", frame, "--output", "s"]);
        assert_eq!(taken.status.code(), Some(0), "{}", text(&taken));
        let resumed = json(&folder, &["resume", "s", "--json"]);
        for key in ["digest", "sessions", "cycles"] {
            assert_eq!(resumed[key], whole[key], "frame {frame}: {key}");
        }
    }
}

#[test]
fn caps_that_cannot_be_enforced_or_are_incomplete_are_refused() {
    let folder = folder("refused");
    let refused = |keys: &str| {
        machine(&folder, keys);
        let run = wavelock(&folder, &["run", "machine.toml"]);
        assert_eq!(run.status.code(), Some(4), "{keys}: {}", text(&run));
        text(&run)
    };
    let small = refused("budget_cycles = 40");
    assert!(small.contains("session `hog` has budget_cycles = 40 for 1 lane(s)"), "{small}");
    assert!(small.contains("2 * (G + switch)") && small.contains("machine.toml:7:"), "{small}");
    assert!(refused("overrun = \"throttle\"").contains("budget_cycles"));
    assert!(refused("period_frames = 2").contains("budget_cycles"));
    let word = refused("budget_cycles = 50_000\noverrun = \"stop\"");
    assert!(word.contains("allowed: `throttle`, `demote`, `end`"), "{word}");
}

#[test]
fn a_demoted_hog_gets_what_others_leave_and_no_more() {
    let folder = folder("demoted");
    let keys = "budget_cycles = 50_000\npriority = 255\noverrun = \"demote\"";
    for policy in ["round-robin", "fair", "progress-aware", "priority-fixed"] {
        machine(&folder, keys);
        // Beside a hog it has its cap.
        let run = json(&folder, &["run", "machine.toml", "--json", "--policy", policy]);
        let share =
            |at: usize| run["sessions"][at]["cycles"].as_u64().expect("cycles") as f64 / 40e6;
        let (hog, one) = (share(0), share(1));
        assert!((0.049..=0.0502).contains(&hog) && one > 0.94, "{policy}: {hog} {one}");
        let cap = &run["sessions"][0]["cap"][0];
        assert_eq!((&cap["throttled"], &cap["demoted_until_frame"]), (&40.into(), &40.into()));
        assert_eq!(cap["throttled_until_frame"], Value::Null, "{policy}: {cap}");
        assert_eq!(cap["demoted_cycles"], Value::Null, "{policy}: {cap}");
        // Alone it has the lane.
        let text = std::fs::read_to_string(folder.join("machine.toml")).expect("a manifest");
        let alone = text.split("\n\n[[session]]\nname = \"one\"").next().expect("a part");
        std::fs::write(folder.join("alone.toml"), alone).expect("a manifest");
        let run = json(&folder, &["run", "alone.toml", "--json", "--policy", policy]);
        let cycles = run["sessions"][0]["cycles"].as_u64().expect("cycles") as f64;
        assert!(cycles > 0.99 * 40e6, "{policy}: {cycles}");
        let used = run["sessions"][0]["cap"][0]["demoted_cycles"].as_u64().expect("a number");
        assert!((37_900_000..=38_000_000).contains(&used), "{policy}: {used}");
    }
    machine(&folder, keys);
    let run = wavelock(&folder, &["run", "machine.toml", "--record", "t", "--report", "r"]);
    let line = "demoted: hog used up its cap 40 times on lane 0: 50_000 cycles per 1 frame";
    assert!(text(&run).contains(line), "{}", text(&run));
    assert!(text(&wavelock(&folder, &["report", "r"])).contains(line));
    let why = text(&wavelock(&folder, &["why", "t", "--coroutine", "hog/3", "--at", "40"]));
    assert!(why.contains("it runs when no other coroutine of the lane is ready"), "{why}");
    assert!(why.contains("demoted by its cap, arrival"), "{why}");
    assert!(why.contains("runs in the background until frame 1"), "{why}");
    std::fs::write(folder.join("script"), "goto step 40\ncaps\n").expect("a script");
    let debug = text(&wavelock(&folder, &["debug", "t", "--script", "script"]));
    assert!(debug.contains("0 used while demoted; demoted until frame 1"), "{debug}");
    let replay = wavelock(&folder, &["replay", "t", "--workers", "2"]);
    assert!(text(&replay).starts_with("equal"), "{}", text(&replay));
}

#[test]
fn a_session_that_its_cap_ends_is_killed_with_the_numbers() {
    let folder = folder("ended");
    for (lanes, keys) in [("1", ""), ("2", "lanes = [1, 0]\n")] {
        machine(&folder, &format!("{keys}budget_cycles = 100_000\noverrun = \"end\""));
        let arguments = ["run", "machine.toml", "--lanes", lanes, "--json", "--record", "t"];
        let output = wavelock(&folder, &arguments);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let session = &run["sessions"][0];
        assert_eq!((&run["outcome"], &session["outcome"]), (&"killed".into(), &"killed".into()));
        let kills = session["kills"].as_array().expect("kills");
        assert_eq!((kills.len(), &run["coroutines"]["killed"]), (1, &20.into()), "{session}");
        let kill = &kills[0];
        assert_eq!((&kill["rule"], &kill["frame"]), (&"cap".into(), &0.into()), "{kill}");
        let part = 100_000 / lanes.parse::<u64>().expect("a number");
        assert_eq!(kill["budget_cycles"], part, "{kill}");
        assert!(kill["overrun_cycles"].as_u64().is_some_and(|overrun| overrun < 100), "{kill}");
        let shown = text(&wavelock(&folder, &["run", "machine.toml", "--lanes", lanes]));
        let line = format!("killed hog: its cap allows {part} cycles and it used");
        assert!(shown.contains(&line) && shown.contains("killed: budget"), "{shown}");
        assert!(shown.contains("20 killed"), "{shown}");
        let why = text(&wavelock(&folder, &["why", "t", "--coroutine", "hog/3", "--at", "200"]));
        assert!(why.contains("its session was killed: its cap allows"), "{why}");
        let replay = wavelock(&folder, &["replay", "t", "--workers", "2"]);
        assert!(text(&replay).starts_with("equal"), "{}", text(&replay));
        let taken =
            ["snapshot", "machine.toml", "--lanes", lanes, "--at-frame", "3", "--output", "s"];
        assert_eq!(wavelock(&folder, &taken).status.code(), Some(0));
        let resumed = json(&folder, &["resume", "s", "--json"]);
        for key in ["digest", "sessions", "outcome"] {
            assert_eq!(resumed[key], run[key], "{key}");
        }
    }
}

/// Sessions that sleep, use up their caps in both ways, wait for messages, hold a context, and move
/// between two lanes.
const BUSY: &str = r#"
[machine]
lanes = 2
policy = "fair"
frame_cycles = 100_000
max_frames = 6
steal = true
balance = true

[[session]]
name = "nap"
module = "nap.wat"

[[session]]
name = "throttled"
module = "one.wat"
budget_cycles = 30_000

[[session]]
name = "demoted"
module = "one.wat"
budget_cycles = 20_000
overrun = "demote"

[[session]]
name = "voice"
module = "one.wat"
lane = 0

[[session]]
name = "free"
module = "one.wat"

[[context]]
name = "play"
session = "voice"
budget_cycles = 10_000
period_cycles = 50_000
"#;

/// `why` of the command line, `why` of the debugger and its lists agree on every coroutine at every
/// step, also where a wave or a frame has ended.
#[test]
fn why_and_debug_agree_at_every_step() {
    let folder = folder("agree");
    let nap = "(module (import \"wavelock\" \"sleep\" (func $sleep (param i64)))
      (func (export \"_start\") (loop $l (call $sleep (i64.const 1)) (br $l))))";
    for (name, text) in [("busy.toml", BUSY), ("nap.wat", nap)] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let run = json(&folder, &["run", "busy.toml", "--record", "t", "--json"]);
    let steps = run["steps"].as_u64().expect("a number");
    let names = ["nap/0.0", "throttled/0.0", "demoted/0.0", "voice/0.0", "free/0.0"];
    let mut script = String::new();
    for step in 0..steps {
        script += &format!("goto step {step}\ncoroutines\nwhere\n");
        names.iter().for_each(|name| script += &format!("why {name}\n"));
        script += "where\ncoroutines\n";
    }
    // Boundaries, where a move to a step does not lead.
    script += "goto frame 3\nwhere\nwhy nap\ncoroutines\nwhere\n";
    std::fs::write(folder.join("script"), script).expect("a script");
    let told = json(&folder, &["debug", "t", "--script", "script", "--json"]);
    let answers: Vec<&str> = told["answers"]
        .as_array()
        .expect("answers")
        .iter()
        .map(|row| row["answer"].as_str().expect("an answer"))
        .collect();
    let (mut throttled, mut asleep) = (0, 0);
    for (step, here) in answers.chunks(5 + names.len()).take(steps as usize).enumerate() {
        assert_eq!((here[1], here[2]), (here[4 + names.len()], here[3 + names.len()]), "{step}");
        for (at, name) in names.iter().enumerate() {
            let row = here[1].lines().find(|row| row.starts_with(name)).expect("a row");
            let why = here[3 + at];
            let state = why.lines().find_map(|line| line.strip_prefix("  state      "));
            let state = state.unwrap_or_else(|| panic!("step {step}: {why}"));
            assert!(row.contains(&format!("  {state}")), "step {step}: {row}\n{why}");
            throttled += u64::from(state.starts_with("throttled"));
            asleep += u64::from(state.starts_with("sleeping"));
            if step % 17 == 0 {
                let asked = wavelock(
                    &folder,
                    &["why", "t", "--coroutine", name, "--at", &step.to_string()],
                );
                assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), why.trim());
            }
        }
    }
    assert!(throttled > 20 && asleep > 20, "{throttled} {asleep}");
    let [.., before, why, list, after] = answers[..] else { panic!("the last answers") };
    assert_eq!(before, after, "asking moves nowhere");
    assert!(before.starts_with("frame 3,") && why.contains("at frame 3,"), "{before} {why}");
    assert!(list.contains("nap/0.0"), "{list}");
}
