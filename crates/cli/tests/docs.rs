//! The tables in `docs/manifest.md`, `docs/cli.md`, `docs/guest-interface.md` and
//! `docs/spec/trace-format.md` are generated from the code.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test docs` updates them.

use clap::CommandFactory;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use wavelock_abi::{
    Errno, FaultCode, HostOperation, HostValue, SCHEDULER_COSTS_V1, SchedulerOperation, WASI_MODULE,
};
use wavelock_cli::manifest::{Key, Policy, TABLES};
use wavelock_cli::report::{Metric, Stops};
use wavelock_cli::{Arguments, Exit};
use wavelock_kernel::{Counter, CounterClass};
use wavelock_trace::{Event, StopCode};

/// The text between `<!-- NAME -->` and `<!-- end of NAME -->`, as byte offsets.
fn section(text: &str, name: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = text.find(&start)? + start.len();
    Some(from..from + text[from..].find(&end)?)
}

/// The contents of a section as the pages have them.
fn block(expected: &str) -> String {
    format!("\n{}\n\n", expected.trim())
}

fn page(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(&path).expect("the page exists");
    (path, text)
}

/// Compares a section of a page with `expected`, or writes it when blessing.
fn check_section(name: &str, section_name: &str, expected: &str) {
    let (path, text) = page(name);
    let range = section(&text, section_name).expect("the page has the section");
    let expected = block(expected);
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        let text = format!("{}{expected}{}", &text[..range.start], &text[range.end..]);
        std::fs::write(&path, text).expect("the page can be written");
        return;
    }
    assert_eq!(&text[range], expected, "{name}: run with WAVELOCK_BLESS=1 to accept");
}

/// A table from a header and rows. A `|` in a cell would end it.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// A generated section: page, name, contents.
type Section = (&'static str, &'static str, String);

/// The generated sections of the manifest and command-line pages.
fn command_line_sections() -> Vec<Section> {
    let mut keys = String::new();
    for (header, table_keys, meaning) in TABLES {
        let _ = writeln!(keys, "### `{header}`\n\n{}.\n", capital(meaning));
        let _ = writeln!(keys, "{}", key_table(table_keys));
    }
    let named = |name: &str, meaning: &str| vec![format!("`{name}`"), meaning.to_owned()];
    let policies = Policy::ALL.iter().map(|policy| named(policy.name(), policy.meaning()));
    let metrics = Metric::ALL.iter().map(|metric| named(metric.name(), metric.meaning()));
    let counters = Counter::ALL.iter().map(|counter| {
        let kept = match counter.class() {
            CounterClass::Permanent => "always",
            CounterClass::Measured => "with `--measure`",
        };
        vec![format!("`{}`", counter.name()), kept.to_owned(), counter.meaning().to_owned()]
    });
    let stops = Stops::TABLE.iter().map(|(name, meaning, codes)| {
        let codes: Vec<String> = codes.iter().map(|code| format!("{code:?}")).collect();
        vec![format!("`{name}`"), (*meaning).to_owned(), codes.join(", ")]
    });
    let exits =
        Exit::ALL.iter().map(|exit| vec![exit.code().to_string(), exit.meaning().to_owned()]);
    vec![
        ("manifest.md", "keys", keys),
        ("manifest.md", "policies", table(&["policy", "meaning"], policies.collect())),
        ("cli.md", "commands", commands()),
        ("cli.md", "flags", flags()),
        ("cli.md", "exits", table(&["code", "meaning"], exits.collect())),
        ("cli.md", "metrics", table(&["metric", "meaning"], metrics.collect())),
        ("cli.md", "counters", table(&["counter", "kept", "meaning"], counters.collect())),
        ("cli.md", "stops", table(&["count", "slices that", "stop codes"], stops.collect())),
    ]
}

#[test]
fn the_pages_have_every_key_flag_code_and_metric() {
    for (page, name, expected) in command_line_sections() {
        check_section(page, name, &expected);
    }
}

/// The keys of one table of a manifest.
fn key_table(keys: &[Key]) -> String {
    let rows = keys.iter().map(|key| {
        vec![format!("`{}`", key.name), key.form(), key.default_text(), key.doc.to_owned()]
    });
    table(&["key", "takes", "default", "meaning"], rows.collect())
}

/// The generated sections of the guest interface page.
fn guest_interface_sections() -> Vec<Section> {
    const PAGE: &str = "guest-interface.md";
    let wasi = |operation: &HostOperation| operation.module() == WASI_MODULE;
    type Choice<'a> = &'a dyn Fn(&HostOperation) -> bool;
    let groups: [(&'static str, Choice<'_>); 5] = [
        ("wasi", &wasi),
        ("calls", &|operation| operation.is_about_calls()),
        ("time", &|operation| operation.is_about_time()),
        ("leases", &|operation| operation.is_about_leases()),
        ("wavelock", &|operation| {
            !wasi(operation)
                && !operation.is_about_calls()
                && !operation.is_about_time()
                && !operation.is_about_leases()
        }),
    ];
    let mut listed = 0;
    let mut sections: Vec<Section> = Vec::new();
    for (name, belongs) in groups {
        let chosen: Vec<HostOperation> =
            HostOperation::ALL.iter().copied().filter(belongs).collect();
        listed += chosen.len();
        sections.push((PAGE, name, operations(&chosen)));
    }
    assert_eq!(listed, HostOperation::ALL.len(), "every operation is in one table");

    let codes = Errno::ALL.iter().map(|errno| {
        vec![errno.code().to_string(), format!("`{}`", errno.name()), errno.meaning().to_owned()]
    });
    let faults = FaultCode::ALL
        .iter()
        .map(|&fault| vec![(fault as u8).to_string(), fault.text().to_owned()]);
    let costs = SchedulerOperation::ALL.iter().map(|&operation| {
        let cycles = SCHEDULER_COSTS_V1.of(operation).0.to_string();
        vec![operation.name().to_owned(), cycles, operation.meaning().to_owned()]
    });
    let limits = TABLES.iter().find(|(header, ..)| *header == "[limits]").expect("the limits");
    sections.extend([
        (PAGE, "codes", table(&["code", "name", "meaning"], codes.collect())),
        (PAGE, "faults", table(&["code", "fault"], faults.collect())),
        (PAGE, "scheduler", table(&["operation", "cycles", "meaning"], costs.collect())),
        (PAGE, "limits", key_table(limits.1)),
    ]);
    sections
}

#[test]
fn the_guest_interface_has_every_operation_code_and_limit() {
    for (page, name, expected) in guest_interface_sections() {
        check_section(page, name, &expected);
    }
}

/// The checks above can fail: another cell, a missing row and a missing section are noticed.
#[test]
fn a_planted_difference_in_a_page_is_found() {
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        return; // The pages are being written.
    }
    for (name, section_name, expected) in
        command_line_sections().into_iter().chain(guest_interface_sections())
    {
        let (_, text) = page(name);
        let matches = |text: &str| {
            section(text, section_name).is_some_and(|range| text[range] == block(&expected))
        };
        assert!(matches(&text), "{name}: {section_name}");
        let rows = section(&text, section_name).expect("the page has the section");
        let last = rows.start + text[rows.clone()].trim_end().rfind('\n').expect("several rows");
        let changed = format!("{}X{}", &text[..last + 3], &text[last + 3..]);
        let missing = format!("{}\n\n{}", &text[..last], &text[rows.end..]);
        let unmarked = text.replace(&format!("<!-- end of {section_name} -->"), "");
        for planted in [changed, missing, unmarked] {
            assert!(!matches(&planted), "{name}: {section_name}");
        }
    }
}

/// One row per operation: everything a caller has to know.
fn operations(operations: &[HostOperation]) -> String {
    let rows = operations.iter().map(|operation| {
        let manual = operation.manual();
        let base = operation.cost().0;
        let cost = match operation.cost_per_8_bytes() {
            0 => base.to_string(),
            sized => format!("{base} + {sized} per 8 bytes"),
        };
        let meaning = capital(operation.meaning()) + ".";
        vec![
            format!("`{}`", operation.import()),
            format!("`{}`", signature(*operation)),
            [meaning.as_str(), manual.notes].join(" ").trim().to_owned(),
            cost,
            manual.errors.to_owned(),
            manual.blocks.to_owned(),
            manual.needs.to_owned(),
        ]
    });
    table(&["function", "type", "meaning", "cost", "errors", "blocks", "needs"], rows.collect())
}

/// The type of an operation with the names of its parameters.
fn signature(operation: HostOperation) -> String {
    let name = |value: &HostValue| match value {
        HostValue::I32 => "i32",
        HostValue::I64 => "i64",
    };
    let parameters: Vec<String> = operation
        .manual()
        .parameters
        .iter()
        .zip(operation.params())
        .map(|(parameter, value)| format!("{parameter} {}", name(value)))
        .collect();
    let results: Vec<&str> = operation.results().iter().map(name).collect();
    match results.as_slice() {
        [] => format!("({})", parameters.join(", ")),
        _ => format!("({}) -> {}", parameters.join(", "), results.join(", ")),
    }
}

/// The error codes in the table of operations exist: those of Wavelock, or those of WASI that this
/// build returns.
#[test]
fn the_errors_of_operations_are_codes() {
    const WASI: [&str; 9] = [
        "EBADF", "EINVAL", "ENOSPC", "ENOSYS", "ENOTDIR", "ENOTSOCK", "ENOTSUP", "ESPIPE", "ENOENT",
    ];
    for operation in HostOperation::ALL {
        let manual = operation.manual();
        for text in [operation.meaning(), manual.notes, manual.errors] {
            let words = text.split(|letter: char| !letter.is_ascii_uppercase());
            for word in words.filter(|word| word.len() > 3 && word.starts_with('E')) {
                let known = match operation.module() == WASI_MODULE {
                    true => WASI.contains(&word),
                    false => Errno::ALL.iter().any(|errno| errno.name() == word),
                };
                assert!(known, "{}: no code `{word}`", operation.import());
            }
        }
    }
}

#[test]
fn the_trace_format_has_every_event_and_stop_code() {
    const PAGE: &str = "spec/trace-format.md";
    let events = Event::TABLE.iter().zip(Event::FIELDS).map(|((name, tag, meaning), fields)| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(field, kind)| match *kind {
                "number" => (*field).to_owned(),
                kind => format!("{field} ({kind})"),
            })
            .collect();
        let tag = if *name == "Step" { format!("{tag} + stop code") } else { tag.to_string() };
        vec![tag, (*name).to_owned(), fields.join(", "), (*meaning).to_owned()]
    });
    check_section(PAGE, "events", &table(&["tag", "event", "fields", "meaning"], events.collect()));

    let stops = StopCode::ALL
        .iter()
        .map(|&stop| vec![(stop as u8).to_string(), format!("{stop:?}"), stop.text().to_owned()]);
    check_section(PAGE, "stops", &table(&["stop code", "name", "meaning"], stops.collect()));
}

/// What `wavelock lab --share SESSION` prints for the machines of a folder: by policy, the share of
/// the session in each machine, in millionths.
fn measured_shares(folder: &str, session: &str) -> (Vec<PathBuf>, Vec<(String, Vec<u64>)>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = std::fs::read_dir(folder).expect("the folder is readable");
    let files = files.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let output = Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(["lab", "--json", "--share", session])
        .args(&files)
        .output()
        .expect("wavelock runs");
    let object: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let machines = object["machines"].as_array().expect("a row per file");
    let of = |machine: &Value, policy: usize| {
        machine["policies"][policy]["share_per_million"].as_u64().expect("a share")
    };
    let policies = machines[0]["policies"].as_array().expect("a share per policy");
    let rows = policies.iter().enumerate().map(|(number, policy)| {
        let shares = machines.iter().map(|machine| of(machine, number)).collect();
        (policy["policy"].as_str().expect("a name").to_owned(), shares)
    });
    let rows = rows.collect();
    (files, rows)
}

fn stem(file: &Path) -> String {
    file.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// Millionths as a percentage with one decimal.
fn percent(share: u64) -> String {
    let tenths = (share + 500) / 1_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The table of what a hostile session can do, and the one claim that is made about it.
#[test]
fn only_fair_among_sessions_protects_from_every_hostile_session() {
    let (files, rows) = measured_shares("benches/hostile", "honest");
    let machines: Vec<String> = files.iter().map(|file| stem(file)).collect();
    assert_eq!((machines.len(), rows.len()), (8, 8), "machines of benches/hostile and policies");
    let protects = |(_, shares): &&(String, Vec<u64>)| {
        shares.iter().all(|share| (480_000..=520_000).contains(share))
    };
    let protecting: Vec<&str> =
        rows.iter().filter(protects).map(|(policy, _)| policy.as_str()).collect();
    assert_eq!(protecting, ["fair by session"]);

    let named: Vec<String> = machines.iter().map(|name| format!("`{name}`")).collect();
    let mut header = vec!["policy"];
    header.extend(named.iter().map(String::as_str));
    let cells = |(policy, shares): (String, Vec<u64>)| {
        let name = match policy.strip_prefix("fair by ") {
            Some(share) => format!("`fair`, `share = \"{share}\"`"),
            None => format!("`{policy}`"),
        };
        std::iter::once(name).chain(shares.into_iter().map(percent)).collect()
    };
    let rows = rows.into_iter().map(cells).collect();
    check_section("scheduler.md", "hostile", &table(&header, rows));
}

/// The shares of sessions under `fair`. The name of a machine in `benches/shares` begins with the
/// percentage that is due to the tenant, and its first line says what it shares the lane with.
#[test]
fn sessions_get_the_share_that_is_due_to_them() {
    let (files, rows) = measured_shares("benches/shares", "tenant");
    assert_eq!(files.len(), 5, "machines of benches/shares");
    let of = |policy: &str| {
        let row = rows.iter().find(|(name, _)| name == policy);
        row.unwrap_or_else(|| panic!("{policy} is measured")).1.clone()
    };
    let columns = [of("round-robin"), of("fair by coroutine"), of("fair by session")];
    let rows = files.iter().enumerate().map(|(at, file)| {
        let text = std::fs::read_to_string(file).expect("a manifest");
        let beside = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let name = stem(file);
        let due: u64 = name.split('-').next().and_then(|due| due.parse().ok()).expect("a number");
        let found = columns[2][at];
        let most = due * 10_000;
        // The tenant pays for its own picks and switches, which are not counted here.
        assert!((most * 97 / 100..=most + 2_000).contains(&found), "{name}: {found}");
        let shares = columns.iter().map(|column| percent(column[at]));
        let head = [format!("`{name}`"), beside.expect("a comment").to_owned(), due.to_string()];
        head.into_iter().chain(shares).collect()
    });
    let header = [
        "machine",
        "beside",
        "due",
        "`round-robin`",
        "`fair`, `share = \"coroutine\"`",
        "`fair`, `share = \"session\"`",
    ];
    check_section("fair.md", "shares", &table(&header, rows.collect()));
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Every command with its usage, from the declaration that parses them.
fn commands() -> String {
    let mut command = Arguments::command();
    command.build();
    let rows = command.get_subcommands_mut().filter(|command| command.get_name() != "help").map(
        |command| {
            let usage = command.render_usage().to_string();
            let usage = usage.trim_start_matches("Usage: ").trim().to_owned();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            vec![format!("`{usage}`"), about]
        },
    );
    table(&["command", "meaning"], rows.collect())
}

/// Every argument, from the same declaration. Commands that share an argument share its row.
fn flags() -> String {
    let mut command = Arguments::command();
    command.build();
    let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help")
    {
        let own = subcommand.get_arguments().filter(|argument| {
            let id = argument.get_id();
            !argument.is_global_set() && id != "help" && id != "version"
        });
        for argument in own {
            let cells = row(argument);
            let name = format!("`{}`", subcommand.get_name());
            match rows.iter_mut().find(|(_, other)| *other == cells) {
                Some((commands, _)) => commands.push(name),
                None => rows.push((vec![name], cells)),
            }
        }
    }
    let global = command.get_arguments().filter(|argument| argument.is_global_set());
    rows.extend(global.map(|argument| (vec!["every command".to_owned()], row(argument))));
    let rows = rows
        .into_iter()
        .map(|(commands, cells)| [vec![commands.join(", ")], cells].concat())
        .collect();
    table(&["command", "argument", "takes", "default", "meaning"], rows)
}

fn row(argument: &clap::Arg) -> Vec<String> {
    let value = argument.get_value_names().map_or_else(String::new, |names| names.join(" "));
    let takes_value = argument.get_action().takes_values();
    let name = match argument.get_long() {
        Some(long) if takes_value => match argument.get_short() {
            Some(short) => format!("`-{short}`, `--{long} {value}`"),
            None => format!("`--{long} {value}`"),
        },
        Some(long) => format!("`--{long}`"),
        None => format!("`{value}`"),
    };
    let choices: Vec<String> = if takes_value {
        argument
            .get_possible_values()
            .iter()
            .map(|choice| format!("`{}`", choice.get_name()))
            .collect()
    } else {
        Vec::new()
    };
    let default: Vec<String> = if takes_value {
        argument
            .get_default_values()
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect()
    } else {
        Vec::new()
    };
    let meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    vec![name, choices.join(", "), default.join(", "), meaning]
}
