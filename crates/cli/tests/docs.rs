//! The tables of `docs/manifest.md`, `docs/cli.md`, `docs/guest-interface.md` and
//! `docs/spec/trace-format.md` are those of the code.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test docs` writes them anew.

use clap::CommandFactory;
use std::fmt::Write as _;
use std::path::Path;
use wavelock_abi::{
    Errno, FaultCode, HostOperation, HostValue, SCHEDULER_COSTS_V1, SchedulerOperation, WASI_MODULE,
};
use wavelock_cli::manifest::{Key, Policy, TABLES};
use wavelock_cli::report::Metric;
use wavelock_cli::{Arguments, Exit};
use wavelock_trace::{Event, StopCode};

/// Compares the part of a page between `<!-- NAME -->` and `<!-- end of NAME -->` with `expected`,
/// or writes it when blessing.
fn check_section(page: &str, name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = text.find(&start).expect("the start mark") + start.len();
    let to = text.find(&end).expect("the end mark");
    let expected = format!("\n{}\n\n", expected.trim());
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, format!("{}{expected}{}", &text[..from], &text[to..]))
            .expect("bless");
        return;
    }
    assert_eq!(&text[from..to], expected, "{page}: run with WAVELOCK_BLESS=1 to accept");
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

#[test]
fn the_pages_have_every_key_flag_code_and_metric() {
    let mut keys = String::new();
    for (header, table_keys, meaning) in TABLES {
        let _ = writeln!(keys, "### `{header}`\n\n{}.\n", capital(meaning));
        let _ = writeln!(keys, "{}", key_table(table_keys));
    }
    check_section("manifest.md", "keys", &keys);

    let policies = Policy::ALL
        .iter()
        .map(|policy| vec![format!("`{}`", policy.name()), policy.meaning().to_owned()]);
    check_section("manifest.md", "policies", &table(&["policy", "meaning"], policies.collect()));

    check_section("cli.md", "flags", &flags());

    let exits =
        Exit::ALL.iter().map(|exit| vec![exit.code().to_string(), exit.meaning().to_owned()]);
    check_section("cli.md", "exits", &table(&["code", "meaning"], exits.collect()));

    let metrics = Metric::ALL
        .iter()
        .map(|metric| vec![format!("`{}`", metric.name()), metric.meaning().to_owned()]);
    check_section("cli.md", "metrics", &table(&["metric", "meaning"], metrics.collect()));
}

/// The keys of one table of a manifest.
fn key_table(keys: &[Key]) -> String {
    let rows = keys.iter().map(|key| {
        vec![format!("`{}`", key.name), key.form(), key.default_text(), key.doc.to_owned()]
    });
    table(&["key", "takes", "default", "meaning"], rows.collect())
}

#[test]
fn the_guest_interface_has_every_operation_code_and_limit() {
    const PAGE: &str = "guest-interface.md";
    let wasi = |operation: &HostOperation| operation.module() == WASI_MODULE;
    type Choice<'a> = &'a dyn Fn(&HostOperation) -> bool;
    let sections: [(&str, Choice<'_>); 4] = [
        ("wasi", &wasi),
        ("calls", &|operation| operation.is_about_calls()),
        ("time", &|operation| operation.is_about_time()),
        ("wavelock", &|operation| {
            !wasi(operation) && !operation.is_about_calls() && !operation.is_about_time()
        }),
    ];
    let mut listed = 0;
    for (name, belongs) in sections {
        let chosen: Vec<HostOperation> =
            HostOperation::ALL.iter().copied().filter(belongs).collect();
        listed += chosen.len();
        check_section(PAGE, name, &operations(&chosen));
    }
    assert_eq!(listed, HostOperation::ALL.len(), "every operation is in one table");

    let codes = Errno::ALL.iter().map(|errno| {
        vec![errno.code().to_string(), format!("`{}`", errno.name()), errno.meaning().to_owned()]
    });
    check_section(PAGE, "codes", &table(&["code", "name", "meaning"], codes.collect()));

    let faults = FaultCode::ALL
        .iter()
        .map(|&fault| vec![(fault as u8).to_string(), fault.text().to_owned()]);
    check_section(PAGE, "faults", &table(&["code", "fault"], faults.collect()));

    let costs = SchedulerOperation::ALL.iter().map(|&operation| {
        let cycles = SCHEDULER_COSTS_V1.of(operation).0.to_string();
        vec![operation.name().to_owned(), cycles, operation.meaning().to_owned()]
    });
    check_section(PAGE, "scheduler", &table(&["operation", "cycles", "of"], costs.collect()));

    let limits = TABLES.iter().find(|(header, ..)| *header == "[limits]").expect("the limits");
    check_section(PAGE, "limits", &key_table(limits.1));
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

/// The codes that the table of operations names exist: those of Wavelock, or those of WASI that
/// this build answers.
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

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Every argument of every command, from the declaration that parses them.
fn flags() -> String {
    let mut command = Arguments::command();
    command.build();
    let mut rows = Vec::new();
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help")
    {
        for argument in subcommand
            .get_arguments()
            .filter(|argument| !argument.is_global_set() && argument.get_id() != "help")
        {
            if argument.get_id() != "version" {
                rows.push(row(&format!("`{}`", subcommand.get_name()), argument));
            }
        }
    }
    rows.extend(
        command
            .get_arguments()
            .filter(|argument| argument.is_global_set())
            .map(|argument| row("every command", argument)),
    );
    table(&["command", "argument", "takes", "default", "meaning"], rows)
}

fn row(command: &str, argument: &clap::Arg) -> Vec<String> {
    let value = argument.get_value_names().map_or_else(String::new, |names| names.join(" "));
    let takes_value = argument.get_action().takes_values();
    let name = match argument.get_long() {
        Some(long) if takes_value => format!("`--{long} {value}`"),
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
    vec![command.to_owned(), name, choices.join(", "), default.join(", "), meaning]
}
