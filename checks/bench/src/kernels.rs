//! The compute kernels of `benches/kernels`: their modules, sizes and expected results.
//!
//! Elsewhere: running them (`engines`).

use std::fs;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// One kernel: exports `run(n: i32) -> i32` and imports nothing.
pub struct Kernel {
    /// The file's name without its extension.
    pub name: String,
    /// The module.
    pub bytes: Vec<u8>,
    /// A small size and its result.
    pub check: (i32, i32),
    /// A size to measure and its result.
    pub bench: (i32, i32),
}

/// The directory of the kernels.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/kernels")
}

/// Every kernel, in the index's order.
pub fn all() -> Result<Vec<Kernel>, String> {
    let path = folder().join("index.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document = DeTable::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(DeValue::Array(entries)) =
        document.get_ref().get("kernel").map(|value| value.get_ref())
    else {
        return Err(format!("{}: no [[kernel]]", path.display()));
    };
    entries.iter().map(|entry| kernel(entry.get_ref())).collect()
}

fn kernel(entry: &DeValue<'_>) -> Result<Kernel, String> {
    let DeValue::Table(entry) = entry else {
        return Err("index.toml: a [[kernel]] is a table".into());
    };
    let number = |key: &str| match entry.get(key).map(|value| value.get_ref()) {
        Some(DeValue::Integer(value)) => {
            value.as_str().parse::<i32>().map_err(|error| format!("index.toml: {key}: {error}"))
        }
        _ => Err(format!("index.toml: {key} must be a number")),
    };
    let Some(DeValue::String(file)) = entry.get("file").map(|value| value.get_ref()) else {
        return Err("index.toml: file must be a name".into());
    };
    let bytes = wat::parse_file(folder().join(file.as_ref())).map_err(|error| error.to_string())?;
    Ok(Kernel {
        name: file.trim_end_matches(".wat").to_string(),
        bytes,
        check: (number("check_n")?, number("check")?),
        bench: (number("bench_n")?, number("bench")?),
    })
}
