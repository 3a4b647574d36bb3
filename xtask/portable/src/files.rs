//! The embedded guests of this repository, and a minimal view of their TOML files.
//!
//! A missing or malformed file is a bug of the repository, so it panics with the file's name.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// Every embedded file: its path from the root of the repository, and its bytes.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.in"));

/// The paths with this prefix and suffix, in order.
pub(crate) fn paths(begin: &str, end: &str) -> impl Iterator<Item = &'static str> {
    FILES
        .iter()
        .map(|(path, _)| *path)
        .filter(move |path| path.starts_with(begin) && path.ends_with(end))
}

/// The bytes of a file.
pub(crate) fn bytes(path: &str) -> &'static [u8] {
    let found = FILES.iter().find(|(name, _)| *name == path);
    found.unwrap_or_else(|| panic!("{path} is not in the repository")).1
}

/// A value of a TOML file, of the kinds used here.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    List(Vec<Value>),
    Table(Table),
}

/// A table of a TOML file.
pub(crate) type Table = BTreeMap<String, Value>;

impl Value {
    pub(crate) fn text(&self) -> &str {
        let Self::Text(text) = self else { panic!("{self:?} is not a text") };
        text
    }

    pub(crate) fn number(&self) -> i64 {
        let Self::Number(number) = self else { panic!("{self:?} is not a number") };
        *number
    }

    pub(crate) fn flag(&self) -> bool {
        let Self::Flag(flag) = self else { panic!("{self:?} is not true or false") };
        *flag
    }

    pub(crate) fn list(&self) -> &[Self] {
        let Self::List(list) = self else { panic!("{self:?} is not a list") };
        list
    }

    pub(crate) fn table(&self) -> &Table {
        let Self::Table(table) = self else { panic!("{self:?} is not a table") };
        table
    }
}

/// A TOML file.
pub(crate) fn toml(path: &str) -> Table {
    let text = std::str::from_utf8(bytes(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let table = DeTable::parse(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    plain_table(table.get_ref())
}

/// The tables of a `[[name]]` list; none if the file has no such list.
pub(crate) fn tables<'a>(file: &'a Table, name: &str) -> impl Iterator<Item = &'a Table> {
    file.get(name).map_or(&[][..], Value::list).iter().map(Value::table)
}

fn plain_table(table: &DeTable<'_>) -> Table {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value.get_ref()))).collect()
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Number(
            number.as_str().parse().unwrap_or_else(|error| panic!("{}: {error}", number.as_str())),
        ),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|value| plain(value.get_ref())).collect())
        }
        DeValue::Table(table) => Value::Table(plain_table(table)),
        other => panic!("{other:?} has no place in a guest's files"),
    }
}
