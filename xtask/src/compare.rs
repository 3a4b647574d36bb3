//! Compares two reports of the same corpus: a report has one line `name digest` per case, in order.
//!
//! A smaller corpus is a subset of the larger one: every case that the other target ran must be in
//! the native report with the same digest, and the number of cases must match the report's last
//! line.

use std::collections::BTreeMap;

/// Compares a target's report with the native one and returns the number of equal cases.
///
/// # Errors
/// The list of differences, or a report is incomplete.
pub(crate) fn compare(native: &str, other: &str) -> Result<usize, String> {
    let native = cases(native).map_err(|error| format!("native report: {error}"))?;
    let other = cases(other).map_err(|error| format!("report: {error}"))?;
    let mut differences = Vec::new();
    for (name, digest) in &other {
        match native.get(name) {
            Some(expected) if expected == digest => {}
            Some(expected) => differences.push(format!("{name}: native {expected}, here {digest}")),
            None => differences.push(format!("{name}: not in the native run")),
        }
    }
    if differences.is_empty() {
        Ok(other.len())
    } else {
        Err(format!(
            "{} of {} differ\n  {}",
            differences.len(),
            other.len(),
            differences.join("\n  ")
        ))
    }
}

/// The cases of a report, which ends with their number.
fn cases(report: &str) -> Result<BTreeMap<&str, &str>, String> {
    let mut lines: Vec<&str> = report.lines().collect();
    let count = lines
        .pop()
        .and_then(|line| line.strip_prefix("cases "))
        .and_then(|count| count.parse::<usize>().ok());
    let cases: BTreeMap<&str, &str> =
        lines.iter().filter_map(|line| line.split_once(' ')).collect();
    match count {
        Some(0) => Err("no case was run".to_owned()),
        Some(count) if count == cases.len() && lines.len() == count => Ok(cases),
        _ => Err(format!(
            "{} cases, but the count at the end is missing or different: the report is truncated, or a name occurs twice",
            cases.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::compare;

    const NATIVE: &str = "a 01\nb 02\nc 03\ncases 3\n";

    #[test]
    fn equal_reports_and_subsets_agree() {
        assert_eq!(compare(NATIVE, NATIVE), Ok(3));
        assert_eq!(compare(NATIVE, "a 01\nc 03\ncases 2\n"), Ok(2));
    }

    #[test]
    fn a_planted_difference_is_named() {
        let error = compare(NATIVE, "a 01\nb 99\ncases 2\n").unwrap_err();
        assert!(error.contains("b: native 02, here 99") && error.contains("1 of 2"), "{error}");
        assert!(
            compare(NATIVE, "a 01\nd 04\ncases 2\n")
                .unwrap_err()
                .contains("d: not in the native run")
        );
    }

    #[test]
    fn a_truncated_report_is_refused() {
        for cut in ["", "a 01\nb 02\n", "a 01\ncases 2\n", "cases 0\n", "a 01\na 01\ncases 2\n"] {
            assert!(compare(NATIVE, cut).is_err(), "{cut:?}");
        }
    }
}
