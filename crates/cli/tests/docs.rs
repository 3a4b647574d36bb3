//! The tables of `docs/manifest.md` and `docs/cli.md` are those of the code.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test docs` writes them anew.

use clap::CommandFactory;
use std::fmt::Write as _;
use std::path::Path;
use wavelock_cli::manifest::{Policy, TABLES};
use wavelock_cli::report::Metric;
use wavelock_cli::{Arguments, Exit};

/// Compares the part of a page between `<!-- NAME -->` and `<!-- end of NAME -->` with `expected`, or writes it when blessing.
fn check_section(page: &str, name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).expect("the page");
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = text.find(&start).expect("the start mark") + start.len();
    let to = text.find(&end).expect("the end mark");
    let expected = format!("\n{}\n\n", expected.trim());
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, format!("{}{expected}{}", &text[..from], &text[to..])).expect("bless");
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
        let rows = table_keys.iter().map(|key| vec![format!("`{}`", key.name), key.form(), key.default_text(), key.doc.to_owned()]);
        let _ = writeln!(keys, "### `{header}`\n\n{}.\n", capital(meaning));
        let _ = writeln!(keys, "{}", table(&["key", "takes", "default", "meaning"], rows.collect()));
    }
    check_section("manifest.md", "keys", &keys);

    let policies = Policy::ALL.iter().map(|policy| vec![format!("`{}`", policy.name()), policy.meaning().to_owned()]);
    check_section("manifest.md", "policies", &table(&["policy", "meaning"], policies.collect()));

    check_section("cli.md", "flags", &flags());

    let exits = Exit::ALL.iter().map(|exit| vec![exit.code().to_string(), exit.meaning().to_owned()]);
    check_section("cli.md", "exits", &table(&["code", "meaning"], exits.collect()));

    let metrics = Metric::ALL.iter().map(|metric| vec![format!("`{}`", metric.name()), metric.meaning().to_owned()]);
    check_section("cli.md", "metrics", &table(&["metric", "meaning"], metrics.collect()));
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
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        for argument in subcommand.get_arguments().filter(|argument| !argument.is_global_set() && argument.get_id() != "help") {
            if argument.get_id() != "version" {
                rows.push(row(&format!("`{}`", subcommand.get_name()), argument));
            }
        }
    }
    rows.extend(command.get_arguments().filter(|argument| argument.is_global_set()).map(|argument| row("every command", argument)));
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
        argument.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect()
    } else {
        Vec::new()
    };
    let default: Vec<String> = if takes_value {
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect()
    } else {
        Vec::new()
    };
    let meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    vec![command.to_owned(), name, choices.join(", "), default.join(", "), meaning]
}
