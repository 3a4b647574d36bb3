//! Embeds the guests of this repository, because WebAssembly has no file system: every manifest,
//! module and text file in the directories of guests becomes an entry of one table. The directories
//! are walked; nothing is listed by hand.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const FOLDERS: [&str; 5] = ["benches/guests", "benches/kernels", "corpus", "examples", "guests"];
const KINDS: [&str; 5] = ["toml", "wasm", "wat", "txt", "jsonl"];

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo gives the manifest's folder");
    let root =
        Path::new(&here).ancestors().nth(2).expect("the package lies two folders below the root");
    let mut table = String::from("&[\n");
    for folder in FOLDERS {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
        embed(root, folder, &mut table);
    }
    table.push(']');
    let output =
        Path::new(&env::var("OUT_DIR").expect("cargo gives an output folder")).join("files.in");
    fs::write(output, table).expect("the output folder can be written");
}

/// Adds the files of a directory and its subdirectories, in order of their names.
fn embed(root: &Path, folder: &str, table: &mut String) {
    let entries =
        fs::read_dir(root.join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    for name in names {
        let path = format!("{folder}/{name}");
        let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
        if root.join(&path).is_dir() {
            // `programs` has megabytes of real programs, which `cargo test` and `checks` run.
            if !matches!(name.as_str(), "target" | "node_modules" | "programs") {
                embed(root, &path, table);
            }
        } else if KINDS.contains(&kind) {
            writeln!(table, "({path:?}, include_bytes!({:?})),", root.join(&path))
                .expect("a string takes every line");
        }
    }
}
