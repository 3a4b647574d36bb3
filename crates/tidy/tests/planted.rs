//! A planted violation of every rule, and a similar tree without a violation.
//!
//! Words that the rules would find in this file (paths, marks, addresses) are concatenated from
//! pieces.

use std::fs;

use wavelock_tidy::{Finding, RULES, Tree, check};

/// The violations of a rule in a planted tree.
fn found(rule: &str, tree: &Tree) -> Vec<Finding> {
    assert!(RULES.iter().any(|known| known.name == rule), "{rule} is not a rule");
    check(tree).into_iter().filter(|finding| finding.rule == rule).collect()
}

#[track_caller]
fn trips(rule: &str, tree: &Tree) {
    assert!(!found(rule, tree).is_empty(), "{rule} does not find a violation in {tree:?}");
}

#[track_caller]
fn passes(rule: &str, tree: &Tree) {
    assert_eq!(found(rule, tree), [], "{rule} reports a violation that does not exist");
}

/// One file of a crate.
fn file(path: &str, text: &str) -> Tree {
    Tree::of(&[(path, text)])
}

/// A workspace of these packages; a dependency is `name` or `dev name`, with `!` appended if it is
/// third-party.
fn packages(packages: &[(&str, &[&str])]) -> Tree {
    let dependency = |text: &&str| {
        let (kind, name) =
            text.strip_prefix("dev ").map_or(("null", *text), |name| ("\"dev\"", name));
        let (source, name) =
            name.strip_suffix('!').map_or(("null", name), |name| ("\"registry+x\"", name));
        format!(r#"{{"name":"{name}","kind":{kind},"source":{source}}}"#)
    };
    let package = |(name, dependencies): &(&str, &[&str])| {
        let dependencies: Vec<String> = dependencies.iter().map(dependency).collect();
        let folder = name.trim_start_matches("wavelock-");
        format!(
            r#"{{"name":"{name}","manifest_path":"x/crates/{folder}/Cargo.toml","dependencies":[{}]}}"#,
            dependencies.join(",")
        )
    };
    let listed: Vec<String> = packages.iter().map(package).collect();
    Tree::default()
        .with_metadata(&format!(r#"{{"packages":[{}]}}"#, listed.join(",")))
        .expect("the planted metadata is well formed")
}

/// Every rule has its pair of trees here; a new rule without one fails this test.
#[test]
fn every_rule_is_planted() {
    // Without white space: rustfmt may wrap a call.
    let this_file: String = include_str!("planted.rs").split_whitespace().collect();
    for rule in RULES {
        for verb in ["trips", "passes"] {
            let call = format!("{verb}(\"{}\"", rule.name);
            assert!(this_file.contains(&call), "no planted tree: {call}, ...)");
        }
    }
}

#[test]
fn layers_point_down() {
    let good: &[(&str, &[&str])] = &[
        ("wavelock-abi", &[]),
        ("wavelock-module", &["wavelock-abi", "wasmparser!"]),
        ("wavelock-machine", &["wavelock-module"]),
    ];
    passes("layer", &packages(good));
    trips("layer", &packages(&[("wavelock-abi", &["wavelock-kernel"]), ("wavelock-kernel", &[])]));
    // A crate of the same layer is not lower.
    trips("layer", &packages(&[("wavelock-module", &["wavelock-trace"]), ("wavelock-trace", &[])]));
    // Lower, but still not allowed: the machine must not use the kernel.
    trips(
        "layer",
        &packages(&[("wavelock-machine", &["wavelock-kernel"]), ("wavelock-kernel", &[])]),
    );
    trips("layer", &packages(&[("wavelock-view", &["wavelock-system"]), ("wavelock-system", &[])]));
    // An exception for the same layer has one direction.
    passes(
        "layer",
        &packages(&[("wavelock-replay", &["wavelock-waves"]), ("wavelock-waves", &[])]),
    );
    trips(
        "layer",
        &packages(&[("wavelock-waves", &["wavelock-replay"]), ("wavelock-replay", &[])]),
    );
    // Tests may use any crate.
    passes(
        "layer",
        &packages(&[("wavelock-abi", &["dev wavelock-kernel"]), ("wavelock-kernel", &[])]),
    );
    // A package without a layer, and one whose name is not that of its directory.
    trips("layer", &packages(&[("wavelock-misc", &[])]));
    trips("layer", &packages(&[("abi", &[])]));
    // Nothing uses a tool.
    trips("layer", &packages(&[("wavelock-cli", &["wavelock-tidy"]), ("wavelock-tidy", &[])]));
}

#[test]
fn the_core_has_no_third_party_dependencies() {
    trips("core-dependency", &packages(&[("wavelock-kernel", &["smallvec!"])]));
    passes(
        "core-dependency",
        &packages(&[
            ("wavelock-kernel", &["dev proptest!", "wavelock-abi"]),
            ("wavelock-module", &["wasmparser!"]),
        ]),
    );
}

#[test]
fn third_party_dependencies_have_reasons() {
    let root = |entry: &str| {
        file(
            "Cargo.toml",
            &format!("[workspace]\nmembers = []\n\n[workspace.dependencies]\n{entry}\n"),
        )
    };
    trips("reason", &root("blake3 = \"1\""));
    trips("reason", &root("# Digests, fast in bulk.\nblake3 = \"1\"\nlibm = \"0.2\""));
    trips("reason", &root("[workspace.dependencies.libm]\nversion = \"0.2\""));
    passes(
        "reason",
        &root(
            "# Digests, fast in bulk.\nblake3 = \"1\"\nlibm = \"0.2\" # the same rounding everywhere",
        ),
    );
    passes("reason", &root("wavelock-abi = { path = \"crates/abi\" }"));
    passes(
        "reason",
        &root("# The same rounding everywhere.\n[workspace.dependencies.libm]\nversion = \"0.2\""),
    );
    let member = |entry: &str| {
        file(
            "crates/kernel/Cargo.toml",
            &format!("[package]\nname = \"x\"\n[dev-dependencies]\n{entry}\n"),
        )
    };
    trips("reason", &member("proptest = \"1\" # a reason, but in the wrong manifest"));
    passes("reason", &member("proptest = { workspace = true }\nwavelock-abi.workspace = true"));
    // A version in the package table is not a dependency.
    passes(
        "reason",
        &file("crates/kernel/Cargo.toml", "[package]\nname = \"x\"\nversion = \"1\"\n"),
    );
}

#[test]
fn nothing_ambient_in_the_deterministic_crates() {
    for text in [
        "//! A file.\nuse std::collections::HashMap;",
        "//! A file.\nfn f() { let t = std::time::Instant::now(); }",
        "//! A file.\nfn f() { let v = env!(\"X\"); }",
        "//! A file.\nuse std::{thread, fmt};",
        "//! A file.\nuse rand::Rng;",
        "//! A file.\n#[cfg(not(test))]\nuse std::collections::HashSet;",
        "//! A file.\n#[cfg(test)]\nmod tests {}\nuse std::sync::Mutex;",
    ] {
        for folder in ["abi", "kernel", "certify", "module", "machine", "system"] {
            trips("ambient", &file(&format!("crates/{folder}/src/a.rs"), text));
        }
        passes("ambient", &file("crates/waves/src/a.rs", text));
        passes("ambient", &file("crates/kernel/tests/a.rs", text));
    }
    passes(
        "ambient",
        &file(
            "crates/kernel/src/a.rs",
            "//! No HashMap.\nfn f() { let s = \"std::thread\"; /* Instant */ }",
        ),
    );
    passes(
        "ambient",
        &file(
            "crates/kernel/src/a.rs",
            "//! A file.\n#[cfg(test)]\nmod tests { use std::collections::HashMap; }",
        ),
    );
    let declared = [
        ("crates/kernel/src/lib.rs", "//! A file.\n#[cfg(test)]\nmod model;"),
        ("crates/kernel/src/model.rs", "//! A file.\nuse std::env;"),
    ];
    passes("ambient", &Tree::of(&declared));
    let shipped = [
        ("crates/kernel/src/lib.rs", "//! A file.\nmod model;"),
        ("crates/kernel/src/model.rs", "//! A file.\nuse std::env;"),
    ];
    trips("ambient", &Tree::of(&shipped));
}

#[test]
fn no_floats_in_the_core() {
    for text in [
        "//! A file.\nfn f(x: f64) {}",
        "//! A file.\nconst X: u8 = 1.5 as u8;",
        "//! A file.\nfn f() { g(1e3) }",
    ] {
        trips("float", &file("crates/kernel/src/a.rs", text));
        passes("float", &file("crates/machine/src/a.rs", text));
        passes("float", &file("crates/kernel/benches/a.rs", text));
    }
    passes(
        "float",
        &file(
            "crates/kernel/src/a.rs",
            "//! f64.\nfn f(p: ((u8, u8), u8)) { let a = p.0.1; for i in 0..2 { let s = \"1.5\"; } }",
        ),
    );
}

#[test]
fn no_strings_in_the_core() {
    for text in [
        "//! A file.\nfn f() -> String {}",
        "//! A file.\nfn f() { format!(\"{}\", 1) }",
        "//! A file.\nfn f() { 1.to_string() }",
    ] {
        trips("string", &file("crates/abi/src/a.rs", text));
        passes("string", &file("crates/cli/src/a.rs", text));
    }
    passes(
        "string",
        &file(
            "crates/abi/src/a.rs",
            "//! A String.\nfn f() -> &'static str { \"String\" }\n#[test]\nfn g() { format!(\"x\"); }",
        ),
    );
}

#[test]
fn unsafe_code_is_in_named_files_only() {
    trips("unsafe", &file("crates/abi/src/lib.rs", "//! A crate.\n"));
    trips("unsafe", &file("crates/abi/src/lib.rs", "//! A crate.\n#![deny(unsafe_code)]"));
    trips("unsafe", &file("crates/abi/src/lib.rs", "//! #![forbid(unsafe_code)]\n"));
    trips("unsafe", &file("crates/cli/src/bin/x.rs", "//! A crate.\n"));
    trips("unsafe", &file("crates/cli/src/a.rs", "//! A file.\nunsafe impl G for A {}"));
    passes("unsafe", &file("crates/cli/src/allocator.rs", "//! A file.\nunsafe impl G for A {}"));
    trips("unsafe", &file("crates/system/src/a.rs", "//! A file.\nfn f() { unsafe { g() } }"));
    trips("unsafe", &file("crates/machine/src/a.rs", "//! A file.\nfn f() { unsafe { g() } }"));
    passes(
        "unsafe",
        &file("crates/abi/src/lib.rs", "//! A crate.\n#![no_std]\n#![forbid(unsafe_code)]\n"),
    );
    passes("unsafe", &file("crates/machine/src/lib.rs", "//! A crate.\n#![deny(unsafe_code)]\n"));
    passes(
        "unsafe",
        &file("crates/waves/src/handover.rs", "//! A file.\nunsafe impl Sync for A {}"),
    );
    trips("unsafe", &file("crates/waves/src/pool.rs", "//! A file.\nunsafe impl Sync for A {}"));
    passes("unsafe", &file("crates/machine/src/raw.rs", "//! A file.\nfn f() { unsafe { g() } }"));
    passes(
        "unsafe",
        &file("crates/kernel/tests/allocations.rs", "//! A file.\nunsafe impl G for A {}"),
    );
    passes(
        "unsafe",
        &file("crates/system/src/a.rs", "//! Nothing unsafe.\nfn f() { let s = \"unsafe\"; }"),
    );
}

#[test]
fn files_start_with_a_header() {
    for text in [
        "",
        "use a;",
        "// A plain comment.\n",
        "/// About something else.\nfn f() {}",
        "//!\n//!\nfn f() {}",
        "\n//! Late.\n",
    ] {
        trips("header", &file("examples/a.rs", text));
    }
    passes("header", &file("examples/a.rs", "//! An example of a header.\nfn f() {}"));
    passes("header", &file("examples/a.c", "int main;"));
}

#[test]
fn long_functions_give_a_reason() {
    let long = |above: &str, lines: usize| {
        let body = "    g();\n".repeat(lines - 2);
        file("crates/cli/src/a.rs", &format!("//! A file.\n{above}pub fn f() {{\n{body}}}\n"))
    };
    passes("long-function", &long("", 100));
    trips("long-function", &long("", 101));
    trips("long-function", &long("// A comment about something else.\n", 101));
    trips("long-function", &long("// Long: \n", 101));
    trips("long-function", &long("// Long: the reason of another function.\nfn g() {}\n\n", 101));
    passes("long-function", &long("// Long: one arm per instruction of the table.\n", 101));
    passes(
        "long-function",
        &long("// Long: one arm per instruction of the table.\n/// Runs.\n#[must_use]\n", 101),
    );
    // No reason is enough for a function of the engine that is over 300 lines.
    let engine = |path: &str, lines: usize| {
        let body = "    g();\n".repeat(lines - 2);
        file(
            path,
            &format!("//! A file.\n// Long: one arm per instruction.\nfn f() {{\n{body}}}\n"),
        )
    };
    for path in ["crates/machine/src/run.rs", "crates/module/src/lower/mod.rs"] {
        passes("long-function", &engine(path, 300));
        trips("long-function", &engine(path, 301));
    }
    passes("long-function", &engine("crates/cli/src/a.rs", 301));
    // Lines of comments in front do not make a short function long.
    passes(
        "long-function",
        &file(
            "crates/cli/src/a.rs",
            &format!("//! A file.\n{}fn f() {{\n}}\n", "/// Text.\n".repeat(120)),
        ),
    );
}

#[test]
fn no_test_is_ignored() {
    trips(
        "ignored-test",
        &file("crates/cli/tests/a.rs", "//! A file.\n#[test]\n#[ignore]\nfn f() {}"),
    );
    trips(
        "ignored-test",
        &file("crates/cli/tests/a.rs", "//! A file.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
    );
    trips(
        "ignored-test",
        &file(
            "crates/cli/tests/a.rs",
            "//! A file.\n#[cfg_attr(debug_assertions, ignore)]\nfn f() {}",
        ),
    );
    trips(
        "ignored-test",
        &file("crates/cli/src/a.rs", "//! A file.\n//!\n//! ```ignore\n//! f();\n//! ```\n"),
    );
    passes(
        "ignored-test",
        &file(
            "crates/cli/tests/a.rs",
            "//! A file.\n#[test]\n#[allow(clippy::ignore)]\nfn ignore() { let s = \"#[ignore]\"; }",
        ),
    );
    passes(
        "ignored-test",
        &file(
            "crates/cli/src/a.rs",
            "//! A file: ignore the rest.\n//!\n//! ```text\n//! f();\n//! ```\n",
        ),
    );
}

#[test]
fn no_unfinished_work() {
    let mark = ["TO", "DO"].concat();
    trips("unfinished", &file("crates/cli/src/a.rs", &format!("//! A file.\n// {mark}: more.\n")));
    trips(
        "unfinished",
        &file(
            "crates/cli/src/a.rs",
            &format!("//! A file.\n/* {}({mark}) */\n", ["FIX", "ME"].concat()),
        ),
    );
    trips("unfinished", &file("crates/cli/src/a.rs", "//! A file.\nfn f() { todo!() }"));
    trips(
        "unfinished",
        &file("crates/cli/tests/a.rs", "//! A file.\nfn f() { unimplemented! {} }"),
    );
    trips("unfinished", &file("guests/a.c", &format!("/* {} */", "X".repeat(3))));
    passes(
        "unfinished",
        &file(
            "crates/cli/src/a.rs",
            &format!("//! A file.\nfn todo() {{ let {mark}S = \"{mark}\"; }} // {mark}S"),
        ),
    );
}

#[test]
fn no_paths_of_one_machine() {
    for root in ["work", "tmp", "root", "home", "Users"] {
        trips("machine-path", &file("README.md", &format!("See /{root}/x.")));
        trips("machine-path", &file(".ci/run", &format!("export X=\"/{root}\"")));
        trips(
            "machine-path",
            &file("crates/cli/src/a.rs", &format!("//! A file.\nconst P: &str = \"/{root}/x\";")),
        );
        passes(
            "machine-path",
            &file(
                "README.md",
                &format!(
                    "See docs/{root}/x, ./{root}/x, ../{root}, example.org/{root} and /{root}er."
                ),
            ),
        );
    }
}

#[test]
fn no_private_registries() {
    let scheme = ["https:", "//"].concat();
    for address in ["10.1.2.3/simple", "proxy/npm", "user@example.org/x", "proxy:8080/x"] {
        trips("registry", &file(".npmrc", &format!("registry={scheme}{address}")));
    }
    trips(
        "registry",
        &file(
            "guests/package-lock.json",
            &format!("\"resolved\": \"{scheme}packages.example.org/x.tgz\""),
        ),
    );
    passes(
        "registry",
        &file(
            "guests/package-lock.json",
            &format!("\"resolved\": \"{scheme}registry.{npm}/x.tgz\"", npm = "npmjs.org"),
        ),
    );
    passes(
        "registry",
        &file(
            "Cargo.lock",
            &format!(
                "source = \"registry+{scheme}github.com/rust-lang/{index}\"",
                index = concat!("crates.io", "-index")
            ),
        ),
    );
    passes(
        "registry",
        &file(
            "README.md",
            &format!("{scheme}webassembly.org/specs, {scheme}localhost:8080, {scheme}127.0.0.1:80"),
        ),
    );
}

#[test]
fn links_resolve() {
    trips("link", &file("README.md", "See [the map](ARCHITECTURE.md)."));
    trips("link", &file("docs/README.md", "See [the map](../../ARCHITECTURE.md)."));
    let tree = [
        (
            "README.md",
            "[a](docs/README.md), [b](docs), [c](#here), [d](docs/README.md#x), `[e](none)`\n```\n[f](none)\n```\n",
        ),
        ("docs/README.md", "[up](../README.md) and [out](https://example.org)"),
    ];
    passes("link", &Tree::of(&tree));
}

#[test]
fn every_page_is_in_the_index() {
    let with =
        |index: &'static str| Tree::of(&[("docs/README.md", index), ("docs/trace.md", "# Traces")]);
    trips("docs-index", &with("# Documentation"));
    trips("docs-index", &with("See trace.md, `[trace](trace.md)`."));
    trips("docs-index", &Tree::of(&[("docs/performance/fair.md", "# Fair")]));
    passes("docs-index", &with("See [traces](trace.md)."));
    passes(
        "docs-index",
        &Tree::of(&[
            ("docs/performance.md", "[fair](performance/fair.md)"),
            ("docs/README.md", "[p](performance.md)"),
            ("docs/performance/fair.md", "# Fair"),
        ]),
    );
}

#[test]
fn citations_of_the_specification_resolve() {
    let page = "# Semantics\n\n1. One rule,\n   with 7. inside.\n2. Another.\n";
    let authority = "## 4. Phase D: fair\n\n### D.5 Rules\n- D-I1 Share.\n### 9.1 Ends\n";
    let with = |path: &str, text: &str| {
        let laws = "## Law 1: trace\n";
        Tree::of(&[
            ("docs/spec/semantics.md", page),
            ("docs/spec/cpu-authority.md", authority),
            ("docs/spec/laws.md", laws),
            (path, text),
        ])
    };
    for text in [
        "//! See semantics 3.",
        "//! Kept (semantics\n//! 7): a wrapped line.",
        "//! See semantics 1 to 3.",
        "//! See semantics 1, 2 and 4.",
        "//! A file.\n/// Law 2.\nfn f() {}",
        "//! See cpu-authority D.6.",
        "//! See cpu-authority phase E.",
        "//! See cpu-authority D-I2.",
        "//! See cpu-authority 9.2 here.",
        concat!("//! As ", "DESI", "GN says."),
        concat!("//! By ", "STY", "LE 31."),
    ] {
        trips("citation", &with("crates/cli/src/a.rs", text));
    }
    for (path, text) in [
        ("CAVEATS.md", "Limits (semantics 13)."),
        ("docs/waves.md", "See [the specification](spec/README.md): cpu-authority 9.9."),
        (".ci/run", "# By law 9."),
        ("guests/c/wavelock.h", "/* See semantics 3. */"),
        ("guests/wat/a.wat", ";; See semantics\n;; 3."),
    ] {
        trips("citation", &with(path, text));
    }
    // Expected outputs and programs of others are not ours to cite from.
    passes("citation", &with("crates/cli/tests/runs/a.txt", "semantics 13"));
    passes("citation", &with("corpus/a.c", "semantics 13"));
    // A page that does not exist has no labels.
    trips("citation", &file("crates/cli/src/a.rs", "//! See law 1."));
    for text in [
        "//! See semantics 1, and 2 to 2; law 1; laws 1, whatever they say of semantics.",
        "//! See cpu-authority D.5 and D-I1, section 4, phase D, or cpu-authority 9.1.",
        "//! Semantics.\n\n/// 99 of them.\nfn f() { let semantics = 99; }",
        "//! A law of 7 words, in the ProgressStyle of a Design.",
        "//! The problems of the semantics; 99 if there are none.",
    ] {
        passes("citation", &with("crates/cli/src/a.rs", text));
    }
}

#[test]
fn lines_end_at_a_hundred_columns() {
    let wide = |before: &str, after: &str| {
        let line = format!("{before}{}{after}", "x".repeat(101 - before.len() - after.len()));
        file("crates/cli/src/a.rs", &format!("//! A file.\n{line}\n"))
    };
    trips("columns", &wide("fn ", "() {}"));
    trips("columns", &wide("// ", ""));
    trips("columns", &wide("/// ```text ", ""));
    let beside = format!("//! A file.\nconst A: &str = \"short\"; fn {}() {{}}\n", "x".repeat(90));
    trips("columns", &file("crates/cli/src/a.rs", &beside));
    passes("columns", &wide("const A: &str = \"", "\";"));
    passes("columns", &wide("//! | a row | ", " |"));
    passes("columns", &file("a.rs", &format!("//! {}\n", "x".repeat(96))));
    // Rows of a table and what rustfmt leaves are laid out by hand; patterns are not rows.
    let row = format!("    Name, {};", "x".repeat(100));
    passes("columns", &file("guests/rust/src/a.rs", &format!("//! A file.\n{row}\n")));
    passes("columns", &file("a.rs", &format!("//! A file.\nrows! {{\n{row}\n}}\n")));
    let skipped = format!("//! A file.\n#[rustfmt::skip]\nconst A: &[u8] = &[\n{row}\n];\n");
    passes("columns", &file("a.rs", &skipped));
    trips("columns", &file("a.rs", &format!("{skipped}fn {}() {{}}\n", "x".repeat(100))));
    let pattern = format!("//! A file.\nmacro_rules! rows {{\n{row}\n}}\n");
    trips("columns", &file("a.rs", &pattern));
}

#[test]
fn a_lane_has_few_fields() {
    let lane = |name: &str, fields: usize| {
        let fields: String = (0..fields)
            .map(|at| format!("    /// It is: one.\n    f{at}: a::B<[u8; 2]>,\n"))
            .collect();
        format!("//! A file.\npub struct {name} {{\n{fields}}}\nfn f(a: u8, b: u8) {{}}\n")
    };
    let path = "crates/kernel/src/lane.rs";
    trips("lane-fields", &file(path, &lane("Lane", 100)));
    passes("lane-fields", &file(path, &lane("Lane", 20)));
    passes("lane-fields", &file(path, &lane("LaneState", 100)));
}

#[test]
fn named_tests_exist() {
    let with = |name: &str| {
        Tree::of(&[
            ("CAVEATS.md", &format!("Tested: `{name}`.")),
            ("a.rs", "//! A file of tests.\nfn it_does_what_it_says() {}"),
        ])
    };
    trips("named-test", &with("it_does_what_it_said"));
    passes("named-test", &with("it_does_what_it_says"));
    passes("named-test", &with("frame_cycles"));
    let proof = ("proof/Model.v", "Theorem it_does_what_it_proves : True.\n");
    let stated = |name: &'static str| Tree::of(&[("docs/proofs.md", name), proof]);
    passes("named-test", &stated("`it_does_what_it_proves`"));
    trips("named-test", &stated("`it_does_what_it_proved`"));
    let laws = ("docs/spec/laws.md", "| 1 | `it_does_what_it_said` |");
    trips("named-test", &Tree::of(&[laws, ("a.rs", "//! A file of tests.\nfn f() {}")]));
}

#[test]
fn the_code_map_lists_every_crate() {
    let crates = [("crates/abi/Cargo.toml", ""), ("crates/kernel/Cargo.toml", "")];
    let with = |map: &'static str| Tree::of(&[crates[0], crates[1], ("ARCHITECTURE.md", map)]);
    trips("code-map", &Tree::of(&crates));
    trips("code-map", &with("- `crates/abi`: words\n"));
    trips("code-map", &with("- `crates/kernel`: queues\n- `crates/abi`: words\n"));
    trips(
        "code-map",
        &with("- `crates/abi`: words\n- `crates/kernel`: queues\n- `crates/none`: gone\n"),
    );
    passes("code-map", &with("# Map\n\n- `crates/abi`: words\n- `crates/kernel`: queues\n"));
}

#[test]
fn the_walks_name_what_exists() {
    const CODE: &str = "//! A file.\nimpl Lane { fn switch() {} }\nfn exchange() {}\n";
    let page = |cell: &str| {
        let table = format!("| | function | does |\n|---|---|---|\n| 1 | {cell} | `x` |\n");
        let text = format!("## A yield, a message, a frame\n\n{table}\n## More\n");
        Tree::of(&[("ARCHITECTURE.md", &text), ("crates/kernel/src/switch.rs", CODE)])
    };
    for cell in [
        "`Lane::switch` (`kernel/switch.rs`)",
        "`kernel::Lane::switch`, `exchange` (`kernel/switch.rs`)",
        "`exchange`",
    ] {
        passes("walk", &page(cell));
    }
    for cell in [
        "`Lane::switched` (`kernel/switch.rs`)",
        "`Lane::switch` (`kernel/lane.rs`)",
        "`Lane::exchange` (`kernel/switch.rs`)",
        "`exchanged`, `exchange`",
        "`Batch::switch`",
    ] {
        trips("walk", &page(cell));
    }
    let rows = |count: usize| {
        let rows = "| 1 | `exchange` | `switch.rs` |\n".repeat(count).replace("switch", "k/s");
        let text = format!("## Fast paths\n\n| | where | tested by |\n|---|---|---|\n{rows}");
        Tree::of(&[
            ("ARCHITECTURE.md", &text),
            ("crates/kernel/src/switch.rs", CODE),
            ("crates/k/tests/s.rs", ""),
            ("crates/k/src/s.rs", ""),
        ])
    };
    passes("walk", &rows(12));
    trips("walk", &rows(13));
}

/// The walk itself, on files of a real folder: what is there is read, builds and dependencies are
/// not.
#[test]
fn a_planted_file_on_disk_is_found() {
    let root = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted-tree");
    let _ = fs::remove_dir_all(&root);
    for folder in ["crates/abi/src", "target/debug", "web/node_modules/x"] {
        fs::create_dir_all(root.join(folder)).expect("the folder can be made");
    }
    let manifest = "[package]\nname = \"wavelock-abi\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
    fs::write(
        root.join("Cargo.toml"),
        "[workspace]\nmembers = [\"crates/abi\"]\nresolver = \"3\"\n",
    )
    .expect("written");
    fs::write(root.join("crates/abi/Cargo.toml"), manifest.replace("\n[workspace]\n", ""))
        .expect("written");
    fs::write(root.join("crates/abi/src/lib.rs"), "use std::collections::HashMap;\n")
        .expect("written");
    for skipped in ["target/debug/a.rs", "web/node_modules/x/a.rs"] {
        fs::write(root.join(skipped), "use a;\n").expect("written");
    }
    fs::write(root.join("guest.wasm"), [0u8, 0x61, 0x73, 0x6d, 0xff]).expect("written");
    let tree = Tree::read(&root).expect("the planted tree can be read");
    let paths: Vec<&str> = tree
        .files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| *path != "Cargo.lock")
        .collect();
    assert_eq!(paths, ["Cargo.toml", "crates/abi/Cargo.toml", "crates/abi/src/lib.rs"]);
    assert_eq!(tree.packages.len(), 1);
    for rule in ["ambient", "header", "unsafe"] {
        trips(rule, &tree);
    }
}
