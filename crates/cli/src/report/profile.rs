//! Cost profiles: named limits per frame, and whether a report fits them.
//!
//! A profile file is TOML with one table per profile: `[profile.handheld]`, then a limit per
//! metric. A metric without a key is not limited.

use super::model::{Metric, MetricRow, PROFILE_KEYS, Report, WorstFrame};
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::manifest::{Findings, View};
use crate::suggest::nearest;
use serde::Serialize;
use toml::de::DeValue;

/// Limits per frame, under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The limits it sets, in metric order.
    pub limits: Vec<(Metric, u64)>,
}

/// Reads the profiles of a file, in name order, or the one that `name` names.
pub fn read_profiles(source: Source, name: Option<&str>) -> Result<Vec<Profile>, Diagnostics> {
    let mut findings = Findings::new(&source);
    let profiles = findings.parse().map(|document| {
        let mut profiles = Vec::new();
        for (key, value) in document.get_ref().iter() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("profile", DeValue::Table(tables)) => {
                    for (name, value) in tables.iter() {
                        profiles.extend(read_profile(&mut findings, name.get_ref(), value));
                    }
                }
                _ => findings.list.push(form(key.span())),
            }
        }
        profiles
    });
    let mut list = findings.list;
    let mut profiles = profiles.unwrap_or_default();
    if list.is_empty() && profiles.is_empty() {
        list.push(
            Diagnostic::error("there is no profile in this file")
                .help("write `[profile.NAME]` and a limit, such as `cycles = 100_000`"),
        );
    }
    if let Some(name) = name
        && list.is_empty()
    {
        let known: Vec<String> = profiles.iter().map(|profile| profile.name.clone()).collect();
        profiles.retain(|profile| profile.name == name);
        if profiles.is_empty() {
            let finding =
                Diagnostic::error(format!("there is no profile `{}`", name.escape_debug()));
            let finding = finding.note(format!(
                "the file has {}",
                known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ));
            list.push(match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => finding.help(format!("did you mean `{near}`?")),
                None => finding,
            });
        }
    }
    if list.is_empty() { Ok(profiles) } else { Err(Diagnostics::new(source, list)) }
}

fn form(span: crate::diagnostic::Span) -> Diagnostic {
    Diagnostic::error("a profile file contains only tables named `[profile.NAME]`")
        .mark(span, "not a profile")
}

fn read_profile(
    findings: &mut Findings<'_>,
    name: &str,
    value: &toml::Spanned<DeValue<'_>>,
) -> Option<Profile> {
    let DeValue::Table(table) = value.get_ref() else {
        findings.list.push(form(value.span()));
        return None;
    };
    let view = View::new("[profile.NAME]", PROFILE_KEYS, value.span(), table);
    findings.refuse_unknown(&view, &[]);
    let limit = |findings: &mut Findings<'_>, (metric, key): (&Metric, &crate::manifest::Key)| {
        findings.number(&view, key).map(|number| (*metric, number.value))
    };
    let limits =
        Metric::ALL.iter().zip(PROFILE_KEYS).filter_map(|pair| limit(findings, pair)).collect();
    Some(Profile { name: name.to_owned(), limits })
}

/// One limit against what was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitVerdict {
    /// The metric.
    pub metric: &'static str,
    /// What the profile allows in a frame.
    pub limit: u64,
    /// The largest value of any frame.
    pub found: u64,
    /// Whether it fits.
    pub fits: bool,
    /// The worst frame, and the coroutine where the metric is about one.
    pub worst: Option<WorstFrame>,
    /// How many frames are over the limit; exact unless `at_least`.
    pub frames_over: u64,
    /// Whether there may be more such frames than the report lists.
    pub at_least: bool,
}

/// A profile against a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// The profile's name.
    pub profile: String,
    /// Whether every limit fits.
    pub fits: bool,
    /// Its limits.
    pub limits: Vec<LimitVerdict>,
}

impl Profile {
    /// Whether a report fits.
    #[must_use]
    pub fn judge(&self, report: &Report) -> Verdict {
        let absent = MetricRow::default();
        let judge = |(metric, limit): &(Metric, u64)| {
            let row =
                report.metrics.iter().find(|row| row.name == metric.name()).unwrap_or(&absent);
            let worst = row.worst.first().cloned();
            let found = worst.as_ref().map_or(0, |worst| worst.value);
            let frames_over = row.worst.iter().filter(|worst| worst.value > *limit).count() as u64;
            let at_least = frames_over == row.worst.len() as u64
                && row.worst.len() as u64 != report.busy_frames;
            LimitVerdict {
                metric: metric.name(),
                limit: *limit,
                found,
                fits: found <= *limit,
                worst,
                frames_over,
                at_least: at_least && frames_over > 0,
            }
        };
        let limits: Vec<LimitVerdict> = self.limits.iter().map(judge).collect();
        Verdict { profile: self.name.clone(), fits: limits.iter().all(|limit| limit.fits), limits }
    }
}
