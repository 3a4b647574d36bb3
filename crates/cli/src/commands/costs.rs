//! Collects the data of a cost report: coroutines and slices from the events, everything else from
//! the counters that a profiled `World` keeps.
//!
//! Memory is bounded by the number of live coroutines: the row of an ended coroutine is kept only
//! while it is among the most expensive.

use super::sources::Sources;
use super::summary::{self, Unfinished};
use crate::manifest::grouped;
use crate::report::{
    ChannelRow, ContextRow, CoroutineId, CoroutineRow, ExecutedRow, FORMAT, FrameSample,
    FunctionRow, GroupRow, Inversions, IslandRow, LISTED, MemberRow, Metric, ModelRow,
    OperationRow, Others, Recorder, Report, SessionCosts, Stops, VERSION, WavesRow, most_costly,
};
use wavelock_abi::{COST_TABLE_VERSION, SCHEDULER_COSTS_V1, SchedulerOperation, SessionId};
use wavelock_debug::function_name;
use wavelock_system::{FrameCosts, Island, RunSummary, World};
use wavelock_trace::{Event, EventReader};

/// Cycles used in one coroutine slot of a session.
#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    cycles: u64,
    stops: Stops,
    /// Cycles in frame `frame`.
    frame_cycles: u64,
    frame: u64,
}

/// Cycles used by one session.
#[derive(Clone, Default)]
struct SessionUse {
    slots: Vec<Slot>,
    /// The most expensive coroutines whose slot was reused.
    ended: Vec<CoroutineRow>,
    /// The sum of the others.
    others: Others,
    stops: Stops,
}

impl SessionUse {
    fn slot(&mut self, slot: u64) -> Option<&mut Slot> {
        let index = usize::try_from(slot).ok()?;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::default());
        }
        self.slots.get_mut(index)
    }

    /// A coroutine was spawned into a slot: moves the totals of its predecessor to `ended`.
    fn spawned(&mut self, slot: u64, generation: u64) {
        let Some(entry) = self.slot(slot) else { return };
        let before =
            core::mem::replace(entry, Slot { generation: generation as u32, ..Slot::default() });
        if before.stops.total() > 0 {
            self.ended.push(row(slot as u32, &before));
            if self.ended.len() >= 4 * LISTED {
                let (kept, others) =
                    most_costly(core::mem::take(&mut self.ended), |row| row.cycles);
                self.ended = kept;
                self.others = sum(self.others, others);
            }
        }
    }
}

fn row(slot: u32, used: &Slot) -> CoroutineRow {
    CoroutineRow {
        slot,
        generation: used.generation,
        cycles: used.cycles,
        slices: used.stops.total(),
        stops: used.stops,
    }
}

fn sum(one: Others, other: Others) -> Others {
    Others { count: one.count + other.count, cycles: one.cycles + other.cycles }
}

/// Accumulates a report during a run.
pub(super) struct Collector {
    sessions: Vec<SessionUse>,
    recorder: Recorder,
    /// The coroutine that used the most cycles in the frame that is ending.
    worst: Option<(u64, CoroutineId)>,
    host_calls: u64,
    messages: u64,
    /// By lane: frames without idle time.
    full_frames: Vec<u64>,
    names: Vec<String>,
    inversions: Inversions,
    damage: Option<String>,
}

impl Collector {
    /// Starts collecting at the current state of `world`.
    pub(super) fn new(world: &World) -> Self {
        let mut sessions = vec![SessionUse::default(); world.spec().sessions.len()];
        for (session, used) in (0..).map(SessionId).zip(&mut sessions) {
            for coroutine in world.coroutines(session) {
                if let Some(slot) = used.slot(u64::from(coroutine.slot)) {
                    slot.generation = coroutine.generation;
                }
            }
        }
        let before = world.frame_costs(Vec::new());
        Self {
            sessions,
            recorder: Recorder::new(),
            worst: None,
            host_calls: before.host_calls,
            messages: before.messages,
            full_frames: vec![0; usize::from(world.spec().lanes)],
            names: world.spec().sessions.iter().map(|session| session.name.clone()).collect(),
            inversions: Inversions::default(),
            damage: None,
        }
    }

    /// A session starts.
    pub(super) fn add(&mut self, name: &str) {
        self.sessions.push(SessionUse::default());
        self.names.push(name.to_owned());
    }

    /// Adds the events of a frame, lane by lane.
    pub(super) fn frame(&mut self, frame: u64, lanes: &mut dyn Iterator<Item = &[u8]>) {
        let mut worst: Option<(u64, usize, u32, u32)> = None;
        for bytes in lanes {
            for event in EventReader::new(bytes) {
                match event {
                    Ok(Event::Step { session, slot, used, stop, .. }) => {
                        let Some(entry) = self.sessions.get_mut(session as usize) else { continue };
                        entry.stops.count(stop);
                        let Some(coroutine) = entry.slot(slot) else { continue };
                        coroutine.stops.count(stop);
                        coroutine.cycles += used;
                        if coroutine.frame != frame || coroutine.stops.total() == 1 {
                            coroutine.frame = frame;
                            coroutine.frame_cycles = 0;
                        }
                        coroutine.frame_cycles += used;
                        if worst.is_none_or(|(most, ..)| coroutine.frame_cycles > most) {
                            worst = Some((
                                coroutine.frame_cycles,
                                session as usize,
                                slot as u32,
                                coroutine.generation,
                            ));
                        }
                    }
                    Ok(Event::Spawn { session, slot, generation, .. }) => {
                        if let Some(entry) = self.sessions.get_mut(session as usize) {
                            entry.spawned(slot, generation);
                        }
                    }
                    Ok(_) => {}
                    Err(error) => self.damage = Some(format!("frame {}: {error}", grouped(frame))),
                }
            }
        }
        self.worst = worst.map(|(cycles, session, slot, generation)| {
            let session = self.names.get(session).cloned().unwrap_or_default();
            (cycles, CoroutineId { session, slot, generation })
        });
    }

    /// Samples the machine after a round.
    pub(super) fn look(&mut self, world: &World) {
        self.inversions.look(world);
    }

    /// Adds the costs of the same frame.
    pub(super) fn costs(&mut self, costs: &FrameCosts) {
        let used = |row: &wavelock_kernel::FrameRow| row.charged.0 + row.overhead.0;
        let worst = self.worst.take();
        let value = |metric: &Metric| match metric {
            Metric::Cycles => costs.rows.iter().map(used).sum(),
            Metric::LaneCycles => costs.rows.iter().map(used).max().unwrap_or(0),
            Metric::CoroutineCycles => worst.as_ref().map_or(0, |(cycles, _)| *cycles),
            Metric::HostCalls => costs.host_calls - self.host_calls,
            Metric::Coroutines => costs.peak,
            Metric::Messages => costs.messages - self.messages,
        };
        let mut sample = FrameSample { frame: costs.frame.0, ..FrameSample::default() };
        for (slot, metric) in sample.values.iter_mut().zip(Metric::ALL) {
            *slot = value(metric);
        }
        sample.coroutine = worst.map(|(_, coroutine)| coroutine);
        self.host_calls = costs.host_calls;
        self.messages = costs.messages;
        for (full, row) in self.full_frames.iter_mut().zip(&costs.rows) {
            *full += u64::from(row.idle.0 == 0);
        }
        self.recorder.frame(&sample);
    }

    /// The report, or why the events could not be decoded (our bug, never a guest's).
    pub(super) fn finish(
        self,
        world: &World,
        run: &RunSummary,
        unfinished: Unfinished,
    ) -> Result<Report, String> {
        if let Some(damage) = self.damage {
            return Err(damage);
        }
        let (busy_frames, metrics) = self.recorder.finish();
        let scheduler = SchedulerOperation::ALL.iter().map(|&operation| {
            let cycles = run.cycles.overhead[operation as usize];
            let count = cycles.checked_div(SCHEDULER_COSTS_V1.of(operation).0).unwrap_or(0);
            OperationRow { name: operation.name().to_owned(), count, cycles }
        });
        let scheduler = scheduler.collect();
        let (contexts, contexts_not_kept) = context_rows(world);
        let summary = summary::object(world, run, &Sources::default(), unfinished, None);
        let sessions = self
            .sessions
            .into_iter()
            .enumerate()
            .map(|(index, used)| session_costs(index, used, world, run))
            .collect();
        Ok(Report {
            format: FORMAT.to_owned(),
            version: VERSION,
            summary,
            model: ModelRow {
                lanes: u64::from(world.spec().lanes),
                policy: world.spec().policy.kind().name().to_owned(),
                frame_cycles: world.spec().frame_cycles.0,
                seed: world.spec().seed,
                cost_table: COST_TABLE_VERSION,
            },
            scheduler,
            sessions,
            busy_frames,
            full_frames: self.full_frames,
            metrics,
            waves: waves_row(world, run),
            contexts,
            islands: island_rows(world),
            inversions: self.inversions.finish(),
            contexts_not_kept,
        })
    }
}

/// Sessions named per group.
const NAMED: usize = 3;

fn waves_row(world: &World, run: &RunSummary) -> WavesRow {
    let Some(profile) = world.wave_profile() else { return WavesRow::default() };
    let group = |(load, group): (&wavelock_system::GroupLoad, &wavelock_system::Group)| {
        let sessions = group.sessions().map(|session| &run.sessions[session.0 as usize]);
        let mut sessions: Vec<(String, u64)> =
            sessions.map(|session| (session.name.clone(), session.cycles.0)).collect();
        sessions
            .sort_by(|(one, most), (other, cycles)| cycles.cmp(most).then_with(|| one.cmp(other)));
        sessions.truncate(NAMED);
        GroupRow {
            lanes: load.lanes.iter().map(|lane| lane.0).collect(),
            cycles: load.work.0,
            heaviest: load.heaviest,
            ahead: load.ahead.0,
            joined: load.joined.0,
            sessions,
        }
    };
    let mut groups: Vec<GroupRow> =
        profile.groups.iter().zip(world.groups().iter().map(Box::as_ref)).map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.heaviest, group.cycles)));
    let channel =
        |(channel, traffic): (&wavelock_abi::ChannelId, &wavelock_system::ChannelTraffic)| {
            ChannelRow {
                name: summary::channel_name(world, channel),
                crossed: traffic.crossed,
                waited: traffic.waited,
            }
        };
    let mut channels: Vec<ChannelRow> = profile.channels.iter().map(channel).collect();
    channels.sort_by_key(|channel| std::cmp::Reverse(channel.crossed + channel.waited));
    channels.truncate(LISTED);
    WavesRow {
        count: profile.waves,
        widths: profile.widths.into(),
        work: profile.work.0,
        critical: profile.critical.0,
        groups,
        channels,
    }
}

/// Every context that exists or existed, and how many were left out.
/// The islands of the machine as they are now.
fn island_rows(world: &World) -> Vec<IslandRow> {
    let session = |session: SessionId| world.spec().sessions[session.0 as usize].name.clone();
    let row = |island: Island| match island.state {
        Err(lost) => IslandRow {
            name: island.name,
            degraded: Some(lost.to_string()),
            ..IslandRow::default()
        },
        Ok(summary) => IslandRow {
            period_cycles: summary.period.0,
            deadline_cycles: summary.deadline.0,
            path_cycles: summary.longest().0,
            memory_pages: summary.pages,
            members: summary
                .members
                .iter()
                .map(|member| MemberRow {
                    session: session(member.session),
                    context: member.context.clone(),
                    lane: member.lane.0,
                    step_cycles: member.need.step.0,
                    steps: member.need.steps,
                    need_cycles: member.need.total().0,
                    budget_cycles: member.budget.0,
                })
                .collect(),
            name: island.name,
            degraded: None,
        },
    };
    world.islands().into_iter().map(row).collect()
}

fn context_rows(world: &World) -> (Vec<ContextRow>, u64) {
    let (accounts, dropped) = world.context_accounts();
    let session = |id: SessionId| {
        world
            .spec()
            .sessions
            .get(id.0 as usize)
            .map_or_else(|| "?".to_owned(), |session| session.name.clone())
    };
    let row = |account: wavelock_system::ContextAccount| {
        let (parameters, counts, context) =
            (account.view.parameters, account.view.counts, account.view.context);
        let executed =
            |(by, cycles): &(Option<(SessionId, u32)>, wavelock_abi::Cycles)| ExecutedRow {
                coroutine: by.map_or_else(
                    || "others".to_owned(),
                    |(id, slot)| format!("{}/{slot}", session(id)),
                ),
                cycles: cycles.0,
            };
        let mut executed_by: Vec<ExecutedRow> = account.executed_by.iter().map(executed).collect();
        executed_by.sort_by_key(|row| std::cmp::Reverse(row.cycles));
        ContextRow {
            name: account
                .name
                .unwrap_or_else(|| format!("context {}.{}", context.slot, context.generation)),
            owner: session(account.owner),
            lane: account.lane.0,
            budget_cycles: parameters.budget.0,
            period_cycles: parameters.period.0,
            deadline_cycles: parameters.deadline.0,
            overrun_policy: parameters.overrun.name().to_owned(),
            revoked: account.is_revoked,
            charged_cycles: counts.consumed.0,
            refills: counts.replenishments,
            throttled: counts.throttles,
            demoted: counts.demotions,
            overruns: account.overruns,
            longest_overrun_cycles: counts.longest_overrun.0,
            missed: counts.misses,
            lent: counts.donations,
            executed_by,
        }
    };
    (accounts.into_iter().map(row).collect(), dropped)
}

fn session_costs(index: usize, used: SessionUse, world: &World, run: &RunSummary) -> SessionCosts {
    let summary = &run.sessions[index];
    let mut rows = used.ended;
    rows.extend(
        used.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.stops.total() > 0)
            .map(|(slot, used)| row(slot as u32, used)),
    );
    let (coroutines, others) = most_costly(rows, |row| row.cycles);
    let module = &world.spec().modules[world.spec().sessions[index].module];
    let profile = world.session_profile(SessionId(index as u32));
    let function = |(index, cycles): (u32, wavelock_abi::Cycles)| FunctionRow {
        index,
        name: function_name(module, index),
        cycles: cycles.0,
    };
    let (functions, other_functions) = most_costly(
        profile.map(|profile| profile.functions().map(function).collect()).unwrap_or_default(),
        |row: &FunctionRow| row.cycles,
    );
    let operation =
        |(operation, cost): (wavelock_abi::HostOperation, wavelock_system::HostCost)| {
            OperationRow {
                name: operation.import().to_owned(),
                count: cost.calls,
                cycles: cost.cycles,
            }
        };
    let (host, _) = most_costly(
        profile.map(|profile| profile.host().map(operation).collect()).unwrap_or_default(),
        |row: &OperationRow| row.cycles,
    );
    SessionCosts {
        name: summary.name.clone(),
        cycles: summary.cycles.0,
        slices: used.stops.total(),
        stops: used.stops,
        spawned: summary.spawned,
        peak: u64::from(summary.peak),
        messages: summary.messages,
        host,
        coroutines,
        other_coroutines: sum(used.others, others),
        functions,
        other_functions,
    }
}
