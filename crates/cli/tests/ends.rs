//! Random manifests with boundary values, unresolved names and any number of tables: `wavelock run`
//! either refuses one with an error, or runs and records it, and the recording replays; it never
//! panics.
//!
//! Keys and ranges come from the manifest's own tables. A failure prints its seed and the manifest.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use wavelock_cli::manifest::{Key, LIMITS, TABLES, Takes};

/// Number of manifests.
const MANIFESTS: u64 = 600;

/// Spawns on every lane it can, sends and receives, sleeps.
const GUEST: &str = r#"(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "spawn_on" (func $spawn_on (param i32 i64 i32) (result i64)))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "c0c1c2") (global (mut i32) (i32.const 65536)) (table 1 funcref) (elem (i32.const 0) $work)
  (func $work (param i64) (result i64) (local $i i32)
    (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 5000))))
    (drop (call $send (call $port (i32.const 0) (i32.const 2)) (local.get 0)))
    (drop (call $try_recv (call $port (i32.const 2) (i32.const 2)) (i32.const 64)))
    (call $sleep (i64.const 1)) (local.get 0))
  (func (export "_start") (local $i i32)
    (loop $l (drop (call $spawn_on (i32.const 0) (i64.const 7) (local.get $i)))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 6))))
    (drop (call $spawn (i32.const 0) (i64.const 1)))
    (drop (call $output (i32.const 0) (i32.const 6)))))"#;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A value for a key, usually a valid one.
fn value(key: &Key, random: &mut Random) -> String {
    let text = |text: String| format!("\"{text}\"");
    match key.takes {
        Takes::Number { least, most, default } => {
            let of_machine = LIMITS.iter().find(|of| of.name == key.name).map(|of| &of.takes);
            let default = match of_machine {
                Some(Takes::Number { default, .. }) => *default,
                _ => default,
            };
            let usual = default.unwrap_or(least.saturating_add(random.below(6)));
            // Large numbers of sessions are tested in `large.rs`.
            let most = if key.name == "count" { 3 } else { most };
            let number = match random.below(if of_machine.is_some() { 80 } else { 30 }) {
                0 => most,
                1 => least,
                2 if random.one_in(4) => least.wrapping_sub(1),
                3 if random.one_in(4) => most.wrapping_add(1),
                4 => least.saturating_add(1).min(most),
                5 => usual.saturating_mul(2).min(most),
                _ => usual,
            };
            match key.name {
                "most_gap_cycles" => (if random.one_in(8) { number } else { least }).to_string(),
                "budget_cycles" => (if random.one_in(8) { number } else { 9_000 }).to_string(),
                "period_cycles" => (if random.one_in(8) { number } else { 300_000 }).to_string(),
                "deadline_cycles" => (if random.one_in(8) { number } else { 200_000 }).to_string(),
                "lanes" => {
                    (if random.one_in(12) { number } else { 4 + random.below(3) }).to_string()
                }
                "lane" => random.below(4).to_string(),
                _ => number.to_string(),
            }
        }
        Takes::Switch => random.one_in(2).to_string(),
        Takes::Word { choices, .. } => {
            text(choices[random.below(choices.len() as u64) as usize].to_owned())
        }
        Takes::Other { .. } => match key.name {
            "module" => text("guest.wat".to_owned()),
            "owner" | "session" => {
                let most = if random.one_in(20) { 9 } else { 2 };
                text(format!("s{}", random.below(most)))
            }
            "lanes" => {
                let lanes = 1 + random.below(4);
                let list: Vec<String> = (0..lanes).rev().map(|lane| lane.to_string()).collect();
                format!("[{}]", list.join(", "))
            }
            "args" => r#"["a", "", "{index}"]"#.to_owned(),
            "env" => r#"{ A = "1", B = "" }"#.to_owned(),
            "ports" => format!("{{ c{} = \"c{}\" }}", random.below(3), random.below(3)),
            "coroutine_globals" => {
                ["[]", "[0]", "[7]", "[\"nowhere\"]"][random.below(4) as usize].to_owned()
            }
            "profile" => text("p0".to_owned()),
            "context" => text(format!("x{}", random.below(2))),
            "members" => format!("[\"s{}/x{}\"]", random.below(2), random.below(2)),
            "wakes" | "path" => format!("[\"c{}\"]", random.below(3)),
            "bounds" => "[]".to_owned(),
            "of" => {
                let most = if random.one_in(9) { 4 } else { 3 };
                text(
                    ["control", "policy", "isolation", "nothing"][random.below(most) as usize]
                        .to_owned(),
                )
            }
            _ => text(format!("n{}", random.below(4))),
        },
    }
}

/// The manifest of a seed, from the tables of keys.
fn manifest(seed: u64) -> String {
    let random = &mut Random(seed);
    let mut text = String::new();
    for (header, keys, _) in TABLES {
        let (letter, count) = match *header {
            "[machine]" | "[limits]" => {
                ('m', random.below(2).max(u64::from(*header == "[machine]")))
            }
            "[[session]]" => ('s', 2 + random.below(3)),
            "[[channel]]" => ('c', 3 - u64::from(random.one_in(10))),
            "[[context]]" => ('x', if random.one_in(2) { random.below(3) } else { 0 }),
            "[[profile]]" => ('p', random.below(2)),
            // Most values of their keys are refused, and then nothing runs.
            "[[lease]]" | "[[island]]" | "[template]" => ('l', u64::from(random.one_in(8))),
            _ => ('g', random.below(2)),
        };
        for number in 0..count {
            let _ = writeln!(text, "{header}");
            let either = random.below(2);
            for key in keys.iter() {
                let required = matches!(key.takes, Takes::Other { default: "", .. })
                    || key.name.ends_with("_cycles")
                    || key.name == "lanes";
                // Of two exclusive keys, use one.
                let excluded = match key.name {
                    "wave_picks" | "lane" => either == 0,
                    "wave_cycles" => either == 1,
                    "lanes" => *header == "[[session]]" && either == 1,
                    "coroutine_globals" | "count" => !random.one_in(12),
                    "profile" => !random.one_in(20),
                    _ => false,
                };
                if excluded && !random.one_in(40) || !required && random.one_in(2) {
                    continue;
                }
                let value = if key.name == "name" {
                    format!("\"{letter}{number}\"")
                } else {
                    value(key, random)
                };
                let _ = writeln!(text, "{} = {value}", key.name);
            }
        }
    }
    text
}

fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
    let output = command.current_dir(folder).args(arguments).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("wavelock does not start: {error}"))
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ends");
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    std::fs::write(folder.join("guest.wat"), GUEST).expect("the guest is written");
    folder
}

#[test]
fn manifests_at_the_ends_of_their_ranges_are_refused_or_run() {
    let folder = folder();
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..MANIFESTS {
        let text = manifest(seed);
        std::fs::write(folder.join("machine.toml"), &text).expect("the manifest is written");
        let run = wavelock(
            &folder,
            &["run", "machine.toml", "--frames", "4", "--record", "machine.trace"],
        );
        let words = String::from_utf8_lossy(&run.stderr);
        // 0 to 7 are the documented exit codes; a panic exits with 101, a signal with none.
        let code = run.status.code().filter(|code| (0..=7).contains(code));
        assert!(code.is_some(), "seed {seed}: {}\n{words}\n{text}", run.status);
        if words.contains("error") && !folder.join("machine.trace").exists() {
            refused += 1;
            continue;
        }
        ran += 1;
        let again = wavelock(&folder, &["replay", "machine.trace"]);
        let words = String::from_utf8_lossy(&again.stderr);
        assert_eq!(
            again.status.code(),
            Some(0),
            "seed {seed}: the recording differs\n{words}\n{text}"
        );
        std::fs::remove_file(folder.join("machine.trace")).expect("it was just written");
    }
    println!("{refused} refused, {ran} ran");
    assert!(refused > 50 && ran > 40, "{refused} refused, {ran} ran");
}
