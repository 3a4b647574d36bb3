//! The committed counts and skips of the official suite, read from `suite-table.txt`.
//!
//! One line per script (`count FILE ASSERTIONS PASSED`) and one per skipped assertion (`skip
//! FILE:LINE REASON`).

/// The least that a script must give.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// `set/file.wast`.
    pub(crate) file: String,
    /// Assertions run.
    pub(crate) run: usize,
    /// Assertions passed.
    pub(crate) passed: usize,
}

/// An assertion that may fail, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    /// `set/file.wast`.
    pub(crate) file: String,
    /// Line of the directive, from 1.
    pub(crate) line: usize,
    /// Never empty in a table that passes.
    pub(crate) reason: String,
}

/// The whole table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// In file order.
    pub(crate) counts: Vec<Count>,
    /// In file order.
    pub(crate) skips: Vec<Skip>,
}

/// Reads a table; a line that is neither empty, a comment, a count nor a skip is an error that
/// quotes it.
pub(crate) fn parse(text: &str) -> Result<Table, String> {
    let mut table = Table::default();
    for line in
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let wrong = || format!("not a line of the suite table: {line:?}");
        let (kind, rest) = line.split_once(' ').ok_or_else(wrong)?;
        match kind {
            "count" => {
                let fields: Vec<&str> = rest.split_whitespace().collect();
                let [file, run, passed] = fields[..] else { return Err(wrong()) };
                let (Ok(run), Ok(passed)) = (run.parse(), passed.parse()) else {
                    return Err(wrong());
                };
                table.counts.push(Count { file: file.to_string(), run, passed });
            }
            "skip" => {
                let (place, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                let (file, line) = place.rsplit_once(':').ok_or_else(wrong)?;
                let line = line.parse().map_err(|_| wrong())?;
                table.skips.push(Skip {
                    file: file.to_string(),
                    line,
                    reason: reason.trim().to_string(),
                });
            }
            _ => return Err(wrong()),
        }
    }
    Ok(table)
}
