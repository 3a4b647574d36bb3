//! Prints a report as tables.

use super::model::{Metric, Report, SessionCosts};
use super::profile::Verdict;
use super::{contexts, inversions, islands, leases, waves};
use crate::manifest::grouped;
use crate::table::{Align, Table, plural, share};
use anstyle::{AnsiColor, Style};
use std::fmt::Write as _;

/// The report and the verdicts, `top` rows of each table (0: all).
#[must_use]
pub fn print_report(report: &Report, verdicts: &[Verdict], top: u64) -> String {
    let top = if top == 0 { usize::MAX } else { usize::try_from(top).unwrap_or(usize::MAX) };
    let mut text = head(report);
    section(&mut text, "Sessions", &sessions(report, top));
    text.push_str(&kills(report, top));
    text.push_str(&caps(report, top));
    let stuck = report.summary.stuck_migrations.iter();
    text.extend(stuck.map(|stuck| format!("stuck: {}\n", stuck.text())));
    text.insert_str(head(report).len(), &waves::head(report));
    section(&mut text, "Services", &services(report, top));
    section(
        &mut text,
        "Lanes",
        &crate::commands::lane_table(&report.summary.lanes, &report.full_frames),
    );
    section(&mut text, "Contexts", &contexts::contexts(report, top));
    section(&mut text, "Time of contexts", &contexts::executed(report, top));
    section(&mut text, "Islands", &islands::islands(report, top));
    text.push_str(&islands::degraded(report));
    section(&mut text, "Leases", &leases::leases(report, top));
    section(&mut text, "Priority inversions", &inversions::table(report, top));
    text.push_str(&inversions::donations(report, top));
    section(&mut text, "Groups that waves waited for", &waves::groups(report, top));
    section(&mut text, "Channels across lanes", &waves::channels(report, top));
    section(&mut text, "Scheduler operations", &scheduler(report));
    section(&mut text, "Host operations", &host(report, top));
    section(&mut text, "Coroutines", &coroutines(report, top));
    section(&mut text, "Functions", &functions(report, top));
    section(&mut text, "Worst frames", &metrics(report));
    for verdict in verdicts {
        print_verdict(&mut text, verdict);
    }
    text
}

fn section(text: &mut String, title: &str, table: &Table) {
    if !table.is_empty() {
        let bold = Style::new().bold().underline();
        let _ = write!(text, "\n{bold}{title}{bold:#}\n{}", table.render());
    }
}

fn head(report: &Report) -> String {
    let (summary, model) = (&report.summary, &report.model);
    let cycles = &summary.cycles;
    let part = |part: u64| format!("{} ({})", grouped(part), share(part, cycles.total));
    format!(
        "{}: {}, {}, {}, policy {}, seed {}\ncycles: {} charged, {} overhead, {} idle, {} total\ndigest: {}\n",
        summary.outcome,
        plural(summary.frames, "frame"),
        plural(summary.steps, "step"),
        plural(model.lanes, "lane"),
        model.policy,
        model.seed,
        part(cycles.charged),
        part(cycles.overhead),
        part(cycles.idle),
        grouped(cycles.total),
        summary.digest,
    )
}

/// The coroutines that a budget ended, a line each.
fn kills(report: &Report, top: usize) -> String {
    let sessions = report.summary.sessions.iter();
    let rows = sessions.flat_map(|session| session.kills.iter().map(move |kill| (session, kill)));
    rows.take(top)
        .map(|(session, kill)| format!("killed {}: {}\n", kill.subject(&session.name), kill.reason))
        .collect()
}

/// The sessions that used up their cap, a line each.
fn caps(report: &Report, top: usize) -> String {
    let sessions = report.summary.sessions.iter();
    let rows = sessions.flat_map(|session| session.cap.iter().map(move |cap| (session, cap)));
    let noted = rows.filter(|(_, cap)| cap.is_noted());
    noted
        .take(top)
        .map(|(session, cap)| format!("{}: {} {}\n", cap.word(), session.name, cap.text()))
        .collect()
}

fn sessions(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("session", Align::Left),
        ("outcome", Align::Left),
        ("cycles", Align::Right),
        ("share", Align::Right),
        ("slices", Align::Right),
        ("spawned", Align::Right),
        ("peak", Align::Right),
        ("messages", Align::Right),
    ]);
    let charged = report.summary.cycles.charged;
    let mut rows: Vec<(&SessionCosts, &str)> = report
        .sessions
        .iter()
        .zip(&report.summary.sessions)
        .map(|(costs, session)| (costs, session.outcome.as_str()))
        .collect();
    rows.sort_by_key(|(costs, _)| std::cmp::Reverse(costs.cycles));
    for (costs, outcome) in rows.iter().take(top) {
        table.row(vec![
            costs.name.clone(),
            (*outcome).to_owned(),
            grouped(costs.cycles),
            share(costs.cycles, charged),
            grouped(costs.slices),
            grouped(costs.spawned),
            grouped(costs.peak),
            grouped(costs.messages),
        ]);
    }
    if rows.len() > top {
        let rest: u64 = rows[top..].iter().map(|(costs, _)| costs.cycles).sum();
        let mut row = vec![
            plural((rows.len() - top) as u64, "other"),
            String::new(),
            grouped(rest),
            share(rest, charged),
        ];
        row.resize(8, String::new());
        table.row(row);
    }
    table
}

/// Counted sessions together.
fn services(report: &Report, top: usize) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("service", Align::Left),
        ("sessions", right),
        ("cycles", right),
        ("share", right),
        ("spawned", right),
        ("messages", right),
    ]);
    for row in report.summary.services.iter().take(top) {
        table.row(vec![
            row.name.clone(),
            grouped(row.sessions),
            grouped(row.cycles),
            share(row.cycles, report.summary.cycles.charged),
            grouped(row.spawned),
            grouped(row.messages),
        ]);
    }
    table
}

fn scheduler(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("count", Align::Right),
        ("cycles", Align::Right),
        ("share", Align::Right),
    ]);
    for row in report.scheduler.iter().filter(|row| row.count > 0) {
        let share = share(row.cycles, report.summary.cycles.overhead);
        table.row(vec![row.name.clone(), grouped(row.count), grouped(row.cycles), share]);
    }
    table
}

fn host(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("session", Align::Left),
        ("operation", Align::Left),
        ("count", Align::Right),
        ("cycles", Align::Right),
        ("share", Align::Right),
    ]);
    let mut rows: Vec<_> = report
        .sessions
        .iter()
        .flat_map(|session| session.host.iter().map(move |row| (session, row)))
        .collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.cycles));
    for (session, row) in rows.iter().take(top) {
        let share = share(row.cycles, report.summary.cycles.charged);
        table.row(vec![
            session.name.clone(),
            row.name.clone(),
            grouped(row.count),
            grouped(row.cycles),
            share,
        ]);
    }
    table
}

fn coroutines(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("session", Align::Left),
        ("coroutine", Align::Left),
        ("cycles", Align::Right),
        ("share", Align::Right),
        ("slices", Align::Right),
        ("yielded", Align::Right),
        ("preempted", Align::Right),
        ("blocked", Align::Right),
        ("slept", Align::Right),
    ]);
    let charged = report.summary.cycles.charged;
    let mut rows: Vec<_> = report
        .sessions
        .iter()
        .flat_map(|session| session.coroutines.iter().map(move |row| (session, row)))
        .collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.cycles));
    for (session, row) in rows.iter().take(top) {
        let coroutine = format!("{}.{}", row.slot, row.generation);
        table.row(vec![
            session.name.clone(),
            coroutine,
            grouped(row.cycles),
            share(row.cycles, charged),
            grouped(row.slices),
            grouped(row.stops.yielded),
            grouped(row.stops.preempted),
            grouped(row.stops.blocked),
            grouped(row.stops.slept),
        ]);
    }
    let unlisted: u64 = report.sessions.iter().map(|session| session.other_coroutines.count).sum();
    let others = rows.len().saturating_sub(top) as u64 + unlisted;
    if others > 0 {
        let cycles: u64 = rows.iter().skip(top).map(|(_, row)| row.cycles).sum::<u64>()
            + report.sessions.iter().map(|session| session.other_coroutines.cycles).sum::<u64>();
        let mut row =
            vec![plural(others, "other"), String::new(), grouped(cycles), share(cycles, charged)];
        row.resize(9, String::new());
        table.row(row);
    }
    table
}

fn functions(report: &Report, top: usize) -> Table {
    let mut table = Table::new(&[
        ("session", Align::Left),
        ("function", Align::Left),
        ("cycles", Align::Right),
        ("share", Align::Right),
    ]);
    let charged = report.summary.cycles.charged;
    let mut rows: Vec<_> = report
        .sessions
        .iter()
        .flat_map(|session| session.functions.iter().map(move |row| (session, row)))
        .collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.cycles));
    for (session, row) in rows.iter().take(top) {
        table.row(vec![
            session.name.clone(),
            row.name.clone(),
            grouped(row.cycles),
            share(row.cycles, charged),
        ]);
    }
    table
}

fn metrics(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("metric", Align::Left),
        ("worst", Align::Right),
        ("frame", Align::Right),
        ("mean", Align::Right),
        ("coroutine", Align::Left),
    ]);
    for (row, metric) in report.metrics.iter().zip(Metric::ALL) {
        let Some(worst) = row.worst.first() else { continue };
        let mean = row.total / report.busy_frames.max(1);
        let coroutine = worst
            .coroutine
            .as_ref()
            .map_or_else(String::new, |id| format!("{}/{}.{}", id.session, id.slot, id.generation));
        table.row(vec![
            metric.name().to_owned(),
            grouped(worst.value),
            grouped(worst.frame),
            grouped(mean),
            coroutine,
        ]);
    }
    table
}

fn print_verdict(text: &mut String, verdict: &Verdict) {
    let good = AnsiColor::Green.on_default().bold();
    let bad = AnsiColor::Red.on_default().bold();
    let (style, words) = if verdict.fits { (good, "fits") } else { (bad, "does not fit") };
    let _ = writeln!(text, "\nProfile {}: {style}{words}{style:#}", verdict.profile);
    let mut table = Table::new(&[
        ("metric", Align::Left),
        ("", Align::Left),
        ("limit", Align::Right),
        ("found", Align::Right),
        ("worst frame", Align::Right),
        ("frames over", Align::Right),
        ("coroutine", Align::Left),
    ]);
    for limit in &verdict.limits {
        let worst = limit.worst.as_ref();
        let over = format!(
            "{}{}",
            if limit.at_least { "at least " } else { "" },
            grouped(limit.frames_over)
        );
        table.row(vec![
            limit.metric.to_owned(),
            if limit.fits { "fits" } else { "over" }.to_owned(),
            grouped(limit.limit),
            grouped(limit.found),
            worst.map_or_else(String::new, |worst| grouped(worst.frame)),
            over,
            worst.and_then(|worst| worst.coroutine.as_ref()).map_or_else(String::new, |id| {
                format!("{}/{}.{}", id.session, id.slot, id.generation)
            }),
        ]);
    }
    text.push_str(&table.render());
}
