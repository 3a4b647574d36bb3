//! Plain tables: aligned columns under a bold header, without borders. The output stream strips the
//! styles if it is not a terminal.

use crate::manifest::grouped;
use anstyle::Style;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that is filled row by row and then rendered.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table, each line indented by two spaces and ended by a newline.
    pub(crate) fn render(&self) -> String {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| width(title)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(cell));
            }
        }
        let mut text = String::new();
        let header: Vec<&str> = self.columns.iter().map(|(title, _)| *title).collect();
        let bold = Style::new().bold();
        text.push_str(&format!("{bold}{}{bold:#}\n", self.line(&header, &widths)));
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            text.push_str(&self.line(&cells, &widths));
            text.push('\n');
        }
        text
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            line.push_str("  ");
            match align {
                Align::Left => line.push_str(&format!("{cell}{space}")),
                Align::Right => line.push_str(&format!("{space}{cell}")),
            }
        }
        line.trim_end().to_owned()
    }
}

/// `part` of `whole` in per cent with one digit, rounded down.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let mille = u128::from(part) * 1_000 / u128::from(whole);
    format!("{}.{}%", mille / 10, mille % 10)
}

/// "1 coroutine", "2 coroutines".
pub(crate) fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("cycles", Align::Right)]);
        table.row(vec!["a".to_owned(), "1_000_000".to_owned()]);
        table.row(vec!["größer".to_owned(), "2".to_owned()]);
        let text = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(text, "  name       cycles\n  a       1_000_000\n  größer          2\n");
    }

    #[test]
    fn shares_are_exact() {
        assert_eq!(share(1, 3), "33.3%");
        assert_eq!(share(u64::MAX, u64::MAX), "100.0%");
        assert_eq!(share(0, 0), "-");
    }
}
