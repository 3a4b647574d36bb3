//! The generated tables of `docs/engine.md` are those of the code.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-module --test docs` updates them.

use std::fmt::Write as _;
use wavelock_module::{Form, Limits, Op, cost};

fn forms() -> String {
    let mut out = String::from("| form | words | fields |\n|---|---:|---|\n");
    for form in Form::ALL {
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            form.name(),
            form.words(),
            form.text().replace('|', "\\|")
        );
    }
    out
}

fn instructions() -> String {
    let mut out =
        String::from("| number | instruction | form | cost | may stop |\n|---:|---|---|---|---|\n");
    for op in Op::ALL {
        let (number, text, form, cost) =
            (*op as u16, op.text(), op.form().name(), op.cost().name());
        let _ = writeln!(
            out,
            "| {number} | `{text}` | {form} | {cost} | {} |",
            if op.may_stop() { "yes" } else { "" }
        );
    }
    out
}

fn costs() -> String {
    let mut out = String::from("| entry | cycles | of |\n|---|---:|---|\n");
    for (name, cycles, meaning) in cost::TABLE {
        let _ = writeln!(out, "| {name} | {cycles} | {meaning} |");
    }
    out
}

fn limits() -> String {
    let mut out = String::from("| limit | default | of |\n|---|---:|---|\n");
    for (name, allowed, meaning) in Limits::TABLE {
        let _ = writeln!(out, "| `{name}` | {allowed} | {meaning} |");
    }
    out
}

#[test]
fn generated_tables_are_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engine.md");
    let mut page = std::fs::read_to_string(path).unwrap();
    let before = page.clone();
    for (name, table) in [
        ("forms", forms()),
        ("instructions", instructions()),
        ("costs", costs()),
        ("limits", limits()),
    ] {
        let (begin, end) =
            (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->"));
        let start = page.find(&begin).unwrap_or_else(|| panic!("no {begin:?}")) + begin.len();
        let stop = page.find(&end).unwrap_or_else(|| panic!("no {end:?}"));
        page.replace_range(start..stop, &table);
    }
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        assert!(
            page == before,
            "docs/engine.md is not current: run with WAVELOCK_BLESS=1 to accept"
        );
    }
}
