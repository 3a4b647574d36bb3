//! `examples/index.toml`, the commands of `corpus/index.toml` and `benches/guests/index.toml`:
//! every run they list prints the expected output and exits with the expected code.
//!
//! Runs marked `small = false` need much memory and are left to `benches`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml::{Table, Value};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn entries(index: &Path, kind: &str) -> Vec<Table> {
    let text = std::fs::read_to_string(index).expect("the index is readable");
    let mut table: Table = text.parse().expect("the index is TOML");
    let Some(Value::Array(entries)) = table.remove(kind) else {
        panic!("{} has no [[{kind}]]", index.display())
    };
    entries.into_iter().map(|entry| entry.try_into().expect("an entry is a table")).collect()
}

fn text<'a>(entry: &'a Table, key: &str) -> Option<&'a str> {
    entry
        .get(key)
        .map(|value| value.as_str().unwrap_or_else(|| panic!("`{key}` is a text: {entry:?}")))
}

fn exit(entry: &Table) -> i64 {
    entry["exit"].as_integer().unwrap_or_else(|| panic!("`exit` is a number: {entry:?}"))
}

/// What `wavelock run FILE` prints and its exit code.
fn run(file: &Path, stdin: Option<&Path>) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
    command.arg("run").arg(file).stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(path) = stdin {
        command.arg("--stdin").arg(path);
    }
    let output = command.output().expect("wavelock runs");
    (
        String::from_utf8(output.stdout).expect("the output is text"),
        output.status.code().expect("wavelock ends by itself"),
    )
}

#[test]
fn every_example_prints_what_its_index_says() {
    let folder = repository().join("examples");
    let runs = entries(&folder.join("index.toml"), "run");
    let mut checked = 0;
    for entry in runs.iter().filter(|entry| entry.get("small") != Some(&Value::Boolean(false))) {
        let file = text(entry, "file").expect("an example names its file");
        let stdin = text(entry, "stdin").map(|name| folder.join(name));
        let (printed, code) = run(&folder.join(file), stdin.as_deref());
        assert_eq!(i64::from(code), exit(entry), "{file}: exit code; it printed:\n{printed}");
        let whole = text(entry, "stdout").map(|name| {
            std::fs::read_to_string(folder.join(name)).expect("the expected text is readable")
        });
        match (whole, text(entry, "ends"), text(entry, "contains")) {
            (Some(whole), None, None) => assert_eq!(printed, whole, "{file}"),
            (None, Some(end), None) => {
                assert!(printed.ends_with(end), "{file} does not end with {end:?}:\n{printed}")
            }
            (None, None, Some(part)) => {
                assert!(printed.contains(part), "{file} does not print {part:?}:\n{printed}")
            }
            _ => panic!("{file}: exactly one of `stdout`, `ends`, `contains`"),
        }
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} examples were small enough");
}

/// Every example replays to the live run, from each recording level and on any number of workers.
#[test]
fn every_example_is_replayed_from_its_trace() {
    let folder = repository().join("examples");
    let trace = std::env::temp_dir().join(format!("wavelock-examples-{}", std::process::id()));
    let levels = ["inputs", "schedule", "full"];
    let runs = entries(&folder.join("index.toml"), "run");
    for (number, entry) in
        runs.iter().filter(|entry| entry.get("small") != Some(&Value::Boolean(false))).enumerate()
    {
        let file = text(entry, "file").expect("an example names its file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
        command.arg("run").arg(folder.join(file)).arg("--record").arg(&trace).args([
            "--level",
            levels[number % 3],
            "--states-every",
            "2",
        ]);
        if number % 2 == 0 {
            command.args(["--snapshot-every", "3"]);
        }
        if let Some(path) = text(entry, "stdin") {
            command.arg("--stdin").arg(folder.join(path));
        }
        let live = command.stdin(Stdio::null()).output().expect("wavelock runs");
        assert_eq!(
            live.status.code().map(i64::from),
            Some(exit(entry)),
            "{file}: {}",
            String::from_utf8_lossy(&live.stderr)
        );
        let workers = (1 + number % 2).to_string();
        let replay = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .arg("replay")
            .arg(&trace)
            .args(["--workers", &workers])
            .output();
        let said = replay.expect("wavelock replays");
        assert!(
            said.stdout.starts_with(b"equal: "),
            "{file}: {}",
            String::from_utf8_lossy(&said.stdout)
        );
    }
    let _ = std::fs::remove_file(&trace);
}

#[test]
fn compiled_commands_print_and_exit_as_their_index_says() {
    let folder = repository().join("corpus");
    for entry in entries(&folder.join("index.toml"), "command") {
        let module = folder.join(text(&entry, "file").expect("a command names its file"));
        let manifest =
            std::env::temp_dir().join(format!("wavelock-command-{}.toml", std::process::id()));
        // For the plain names used here, `{:?}` prints a TOML basic string.
        let args: Vec<_> = entry["args"]
            .as_array()
            .expect("args is a list")
            .iter()
            .map(|arg| arg.as_str().expect("a text"))
            .collect();
        let session =
            format!("[[session]]\nname = \"command\"\nmodule = {module:?}\nargs = {args:?}\n");
        std::fs::write(&manifest, session).expect("the manifest is writable");
        let stdin = text(&entry, "stdin").map(|name| folder.join(name));
        let (printed, code) = run(&manifest, stdin.as_deref());
        let json = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args(["run", "--json", "--stdin"])
            .arg(stdin.expect("a command has an input"))
            .arg(&manifest)
            .stderr(Stdio::null())
            .output()
            .expect("wavelock runs");
        std::fs::remove_file(&manifest).expect("the manifest can be removed");
        assert_eq!(code, 0, "a command that exits by itself is a good run, whatever it says");
        let expected =
            std::fs::read_to_string(folder.join(text(&entry, "stdout").expect("a command prints")))
                .expect("readable");
        assert_eq!(printed, expected, "{}", module.display());
        let summary: serde_json::Value =
            serde_json::from_slice(&json.stdout).expect("one JSON object");
        assert_eq!(summary["sessions"][0]["exit"], exit(&entry), "{}", module.display());
    }
}

#[test]
fn small_benchmark_guests_print_what_their_index_says() {
    let folder = repository().join("benches/guests");
    let runs = entries(&folder.join("index.toml"), "run");
    let mut listed: Vec<&str> = runs.iter().filter_map(|entry| text(entry, "file")).collect();
    for entry in &runs {
        let file = text(entry, "file").expect("a guest names its file");
        if entry["operations"].as_integer().is_some_and(|operations| operations <= 10_000) {
            assert_eq!(
                run(&folder.join(file), None),
                (text(entry, "output").expect("a guest prints").to_owned(), 0),
                "{file}"
            );
        }
    }
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .expect("the folder is readable")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".toml") && name != "index.toml")
        .collect();
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(listed, found, "the index lists every manifest of the folder");
}
