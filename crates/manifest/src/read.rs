//! Parses a manifest's text to a [`Manifest`]: reads tables to drafts, resolves names between
//! drafts, expands counts.
//!
//! Contract: total. Any text yields either a manifest within every range of `keys` and with every
//! reference resolved, or all its problems. Command-line flags override values of `[machine]`
//! before anything is checked against them.

use crate::channels::{ChannelDraft, ChannelDrafts, CountedChannels};
use crate::diagnostic::{Diagnostic, Diagnostics, Source, Span};
use crate::keys::{
    self, CHANNEL, LIMITS, Limits, MACHINE, MOST_ENTRIES, MOST_MACHINE_ENTRIES, MOST_NAME_BYTES,
    SESSION, TABLES,
};
use crate::model::{
    Channel, ChannelIndex, GlobalName, Machine, Manifest, ModuleIndex, Policy, Session, Template,
    WaveSpan, find_class,
};
use crate::problem::{Named, Origin, Problem};
use crate::suggest::nearest;
use crate::view::{At, Findings, View};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use wavelock_abi::{Cycles, Frame, LaneId, LatencyClass, Priority, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings, Sharing};
use wavelock_system::OwnLimits;

/// Placeholder for the number of a counted session in its args, env and ports, and of a counted
/// channel.
pub(crate) const INDEX: &str = "{index}";

/// The names of a manifest's tables.
const TABLE_NAMES: [&str; 10] = [
    "machine", "limits", "session", "channel", "template", "context", "profile", "grant", "lease",
    "island",
];

/// Flags that override values of `[machine]`. The command line has checked their ranges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// `--policy`.
    pub policy: Option<Policy>,
    /// `--lanes`.
    pub lanes: Option<u16>,
    /// `--frames`.
    pub frames: Option<u64>,
    /// `--frame-cycles`.
    pub frame_cycles: Option<u64>,
    /// `--quantum`.
    pub quantum_cycles: Option<u64>,
    /// `--seed`.
    pub seed: Option<u64>,
}

/// A value of the manifest that an error of a later check can point at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ManifestValue {
    /// A key of `[machine]`.
    Machine(&'static str),
    /// A key of a session.
    Session(SessionId, &'static str),
    /// A key of a channel.
    Channel(u32, &'static str),
    /// A key of a context.
    Context(u32, &'static str),
    /// A key of an island.
    Island(u32, &'static str),
    /// A lease.
    Lease(u32),
}

/// A manifest with what later checks need for their messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The manifest.
    pub manifest: Manifest,
    /// Its text; empty for a module run without a manifest.
    pub source: Source,
    /// Warnings; no errors.
    pub warnings: Vec<Diagnostic>,
    spans: BTreeMap<ManifestValue, Span>,
    overrides: Overrides,
}

impl Read {
    /// Where a value came from.
    #[must_use]
    pub fn origin(&self, value: ManifestValue) -> Origin {
        origin(&self.overrides, &self.spans, value)
    }

    /// An error about a value: at its line, or naming the flag it came from or that it is a
    /// default.
    #[must_use]
    pub fn refusal(
        &self,
        value: ManifestValue,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        let finding = Diagnostic::error(title);
        match (self.origin(value), self.spans.get(&value)) {
            (Origin::Written, Some(span)) => finding.mark(span.clone(), label),
            (origin, _) => {
                finding.note(format!("{} (the value is from {})", label.into(), origin.words()))
            }
        }
    }

    /// Bundles findings with the source, for printing.
    #[must_use]
    pub fn diagnostics(&self, list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics::new(self.source.clone(), list)
    }
}

fn origin(
    overrides: &Overrides,
    spans: &BTreeMap<ManifestValue, Span>,
    value: ManifestValue,
) -> Origin {
    let flag = match value {
        ManifestValue::Machine("policy") => overrides.policy.map(|_| "--policy"),
        ManifestValue::Machine("lanes") => overrides.lanes.map(|_| "--lanes"),
        ManifestValue::Machine("max_frames") => overrides.frames.map(|_| "--frames"),
        ManifestValue::Machine("frame_cycles") => overrides.frame_cycles.map(|_| "--frame-cycles"),
        ManifestValue::Machine("quantum_cycles") => overrides.quantum_cycles.map(|_| "--quantum"),
        ManifestValue::Machine("seed") => overrides.seed.map(|_| "--seed"),
        _ => None,
    };
    match flag {
        Some(flag) => Origin::Flag(flag),
        None if spans.contains_key(&value) => Origin::Written,
        None => Origin::Default,
    }
}

/// Reads a manifest. Module paths are taken relative to `directory`.
pub fn read(source: Source, directory: &Path, overrides: &Overrides) -> Result<Read, Diagnostics> {
    let mut reader = Reader { findings: Findings::new(&source), spans: BTreeMap::new(), overrides };
    let manifest = reader.document(directory);
    let Reader { findings, spans, .. } = reader;
    let failed = findings.failed();
    let list = findings.list;
    match manifest {
        Some(manifest) if !failed => {
            Ok(Read { manifest, source, warnings: list, spans, overrides: overrides.clone() })
        }
        _ => Err(Diagnostics::new(source, list)),
    }
}

/// The manifest of a module without one: a single session with defaults, named after the file.
#[must_use]
pub fn of_module(path: &Path, overrides: &Overrides) -> Read {
    let source = Source::new(path.display().to_string(), "");
    let mut reader = Reader { findings: Findings::new(&source), spans: BTreeMap::new(), overrides };
    let machine = reader.machine(&View::absent("[machine]", MACHINE));
    let spans = reader.spans;
    let name = name_of_file(path);
    let session = Session {
        args: vec![name.clone()],
        name,
        module: ModuleIndex(0),
        lanes: vec![LaneId(0)],
        pinned: false,
        priority: Priority::default(),
        weight: Weight::NEUTRAL,
        class: LatencyClass::Normal,
        env: Vec::new(),
        ports: Vec::new(),
        coroutine_globals: None,
        cap: None,
        limits: OwnLimits::default(),
    };
    let manifest = Manifest {
        machine,
        limits: Limits::default(),
        modules: vec![path.to_owned()],
        sessions: vec![session],
        channels: Vec::new(),
        template: Template::default(),
        contexts: Vec::new(),
        grants: Vec::new(),
        islands: Vec::new(),
        leases: Vec::new(),
    };
    Read { manifest, source, warnings: Vec::new(), spans, overrides: overrides.clone() }
}

/// A session name from a file name: its stem, with invalid characters replaced by `_`.
fn name_of_file(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String = stem
        .chars()
        .map(|letter| if is_name_letter(letter) { letter } else { '_' })
        .take(MOST_NAME_BYTES)
        .collect();
    if name.is_empty() { "main".to_owned() } else { name }
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// Why a string cannot be a name.
#[must_use]
pub fn name_refusal(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("a name must not be empty".to_owned());
    }
    if text.len() > MOST_NAME_BYTES {
        return Some(format!("a name has at most {MOST_NAME_BYTES} bytes, found {}", text.len()));
    }
    let stranger = text.chars().find(|letter| !is_name_letter(*letter))?;
    Some(format!("allowed: letters, digits, `_`, `-`, `.`; found `{}`", stranger.escape_debug()))
}

/// Channels by their names, with their positions.
type ChannelNames<'a> = BTreeMap<&'a str, (ChannelIndex, Span)>;

/// A session as written, before counts are expanded and names resolved.
pub(crate) struct SessionDraft {
    name: At<String>,
    module: At<PathBuf>,
    count: Option<At<u64>>,
    pub(crate) lanes: Option<At<Vec<LaneId>>>,
    pub(crate) priority: Priority,
    pub(crate) weight: Weight,
    pub(crate) class: LatencyClass,
    pub(crate) args: Option<Vec<String>>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) ports: Vec<(String, At<String>)>,
    pub(crate) coroutine_globals: Option<At<Vec<GlobalName>>>,
    pub(crate) cap: Option<At<CapSettings>>,
    pub(crate) limits: OwnLimits,
}

impl SessionDraft {
    /// The number of entries of each of its sessions: lanes, arguments, variables, ports, globals.
    fn entries(&self, counted: &CountedChannels) -> u64 {
        let to_all = self.ports.iter().filter(|(port, _)| port.contains(INDEX));
        let ports_to_all: usize =
            to_all.filter_map(|(_, channel)| counted.get(&channel.value)).map(|of| of.len()).sum();
        let lanes = self.lanes.as_ref().map_or(0, |lanes| lanes.value.len());
        let globals = self.coroutine_globals.as_ref().map_or(0, |globals| globals.value.len());
        (lanes
            + globals
            + self.args.as_ref().map_or(0, Vec::len)
            + self.env.len()
            + self.ports.len()
            + ports_to_all) as u64
    }
}

pub(crate) struct Reader<'s, 'o> {
    pub(crate) findings: Findings<'s>,
    pub(crate) spans: BTreeMap<ManifestValue, Span>,
    overrides: &'o Overrides,
}

impl<'s> Reader<'s, '_> {
    pub(crate) fn add(&mut self, span: Span, problem: &Problem) {
        self.findings.add(span, problem);
    }

    /// Whether the last problem is at this position: another of the same counted channel.
    fn is_reported(&self, span: &Span) -> bool {
        let last = self.findings.list.last().and_then(|last| last.place.as_ref());
        last.is_some_and(|place| place.span == *span)
    }

    fn document(&mut self, directory: &Path) -> Option<Manifest> {
        let document = self.findings.parse()?;
        let table = document.get_ref();
        self.refuse_unknown_tables(table);
        let machine = self.single(table, "machine", "[machine]", MACHINE);
        let machine = self.machine(&machine);
        let limits = self.single(table, "limits", "[limits]", LIMITS);
        let limits = self.limits(&limits);
        let mut session_views = self.array(table, "session", "[[session]]", SESSION);
        let mut template = self.single(table, "template", "[template]", keys::TEMPLATE);
        let takes = |view: &View<'_, '_>| view.value(&keys::SESSION_PROFILE).is_some();
        if session_views.iter().any(takes) || takes(&template) {
            let known = self.findings.list.len();
            let views = self.array(table, "profile", "[[profile]]", keys::PROFILES);
            // What is wrong with profiles is reported where `time` reads them.
            self.findings.list.truncate(known);
            let named = views.into_iter().filter_map(|view| {
                let name = view.value(&keys::PROFILE_NAME)?.get_ref().as_str()?.to_owned();
                Some((name, view))
            });
            let profiles: BTreeMap<String, View<'_, '_>> = named.collect();
            let takers = session_views.iter_mut().chain([&mut template]);
            takers.for_each(|view| self.apply_profile(view, &profiles));
        }
        let channel_views = self.array(table, "channel", "[[channel]]", CHANNEL);
        let sessions: Vec<SessionDraft> = session_views
            .iter()
            .filter_map(|view| self.session(view, &machine, directory))
            .collect();
        let channels: Vec<ChannelDraft> =
            channel_views.iter().filter_map(|view| self.channel(view, &limits)).collect();
        if session_views.is_empty() && !table.iter().any(|(name, _)| name.get_ref() == "session") {
            self.add(0..0, &Problem::NoSession);
            if let Some(finding) = self.findings.list.last_mut() {
                finding.place = None;
            }
        }
        // Stop here: every reference to a session or channel that failed to parse would be reported
        // too.
        if sessions.len() < session_views.len() || channels.len() < channel_views.len() {
            return None;
        }
        let template = self.settings(&template, &machine);
        let mut manifest = self.resolve(machine, limits, (sessions, template), channels);
        self.time(table, &mut manifest);
        self.islands(table, &mut manifest);
        Some(manifest)
    }

    fn refuse_unknown_tables(&mut self, table: &DeTable<'_>) {
        for (name, _) in table.iter() {
            let text = name.get_ref().as_ref();
            if TABLE_NAMES.contains(&text) {
                continue;
            }
            let elsewhere = TABLES
                .iter()
                .find(|(_, keys, _)| keys.iter().any(|key| key.name == text))
                .map(|(header, _, _)| *header);
            let word = if elsewhere.is_some() { None } else { nearest(text, TABLE_NAMES) };
            let table = TABLES
                .iter()
                .map(|(header, _, _)| *header)
                .find(|header| Some(header.trim_matches(['[', ']'])) == word);
            self.add(
                name.span(),
                &Problem::UnknownTable {
                    name: text.escape_debug().to_string(),
                    nearest: table,
                    elsewhere,
                },
            );
        }
    }

    /// A table that occurs once, such as `[machine]`.
    fn single<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        name: &str,
        header: &'static str,
        keys: &'static [keys::Key],
    ) -> View<'a, 'i> {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else {
            return View::absent(header, keys);
        };
        match value.get_ref() {
            DeValue::Table(entries) => {
                let view = View::new(header, keys, value.span(), entries);
                self.findings.refuse_unknown(&view, TABLES);
                view
            }
            _ => {
                self.add(key.span(), &Problem::WrongBrackets { wanted: header });
                View::absent(header, keys)
            }
        }
    }

    /// A table that may occur several times, such as `[[session]]`.
    pub(crate) fn array<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        name: &str,
        header: &'static str,
        keys: &'static [keys::Key],
    ) -> Vec<View<'a, 'i>> {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else {
            return Vec::new();
        };
        let mut views = Vec::new();
        if let DeValue::Array(elements) = value.get_ref() {
            for element in elements.iter() {
                if let DeValue::Table(entries) = element.get_ref() {
                    let view = View::new(header, keys, element.span(), entries);
                    self.findings.refuse_unknown(&view, TABLES);
                    views.push(view);
                } else {
                    self.add(element.span(), &Problem::WrongBrackets { wanted: header });
                }
            }
        } else {
            self.add(key.span(), &Problem::WrongBrackets { wanted: header });
        }
        views
    }

    /// A number of `[machine]`: from the flag, else from the manifest, else the default.
    fn machine_number(
        &mut self,
        view: &View<'_, '_>,
        key: &keys::Key,
        flag: Option<u64>,
    ) -> Option<u64> {
        let written = self.findings.number(view, key);
        if let Some(written) = &written {
            self.spans.insert(ManifestValue::Machine(key.name), written.span.clone());
        }
        let keys::Takes::Number { default, .. } = key.takes else { return None };
        flag.or(written.map(|written| written.value)).or(default)
    }

    fn machine(&mut self, view: &View<'_, '_>) -> Machine {
        let overrides = self.overrides;
        let number = |reader: &mut Self, key: &keys::Key, flag: Option<u64>| {
            reader.machine_number(view, key, flag).unwrap_or_default()
        };
        let lanes = number(self, &keys::LANES, overrides.lanes.map(u64::from)) as u16;
        let quantum_cycles = Cycles(number(self, &keys::QUANTUM_CYCLES, overrides.quantum_cycles));
        let frame_cycles = Cycles(number(self, &keys::FRAME_CYCLES, overrides.frame_cycles));
        let wave_cycles = Cycles(number(self, &keys::WAVE_CYCLES, None));
        let seed = number(self, &keys::SEED, overrides.seed);
        let wave_picks = self.machine_number(view, &keys::WAVE_PICKS, None);
        if let (Some(cycles), Some(picks)) =
            (view.key_span(&keys::WAVE_CYCLES), view.key_span(&keys::WAVE_PICKS))
        {
            let (first, second, first_span, span) = if cycles.start < picks.start {
                ("wave_cycles", "wave_picks", cycles, picks)
            } else {
                ("wave_picks", "wave_cycles", picks, cycles)
            };
            self.add(span, &Problem::Both { first, second, first_span });
        }
        let wave =
            wave_picks.map_or(WaveSpan::Cycles(wave_cycles), |picks| WaveSpan::Picks(picks as u32));
        let max_frames = self.machine_number(view, &keys::MAX_FRAMES, overrides.frames).map(Frame);
        let policy = self.findings.word(view, &keys::POLICY);
        if let Some(policy) = &policy {
            self.spans.insert(ManifestValue::Machine(keys::POLICY.name), policy.span.clone());
        }
        let policy = overrides
            .policy
            .or(policy.and_then(|word| Policy::find(word.value)))
            .unwrap_or_default();
        let share = self.findings.word(view, &keys::SHARE).map(|word| word.value);
        let share = Sharing::ALL.iter().find(|sharing| Some(sharing.name()) == share);
        let share = share.copied().unwrap_or(Sharing::Session);
        let handoff = self.findings.switch(view, &keys::HANDOFF);
        let steal = self.findings.switch(view, &keys::STEAL);
        let balance = self.findings.switch(view, &keys::BALANCE);
        let live = self.findings.switch(view, &keys::LIVE);
        let most_gap = self.machine_number(view, &keys::MOST_GAP, None).map(Cycles);
        Machine {
            lanes,
            policy,
            share,
            quantum_cycles,
            frame_cycles,
            wave,
            seed,
            max_frames,
            handoff,
            steal,
            balance,
            live,
            most_gap,
        }
    }

    fn limits(&mut self, view: &View<'_, '_>) -> Limits {
        let mut limits = Limits::default();
        for (key, field) in limits.fields() {
            if let Some(number) = self.findings.number(view, key) {
                *field = number.value;
            }
        }
        limits
    }

    /// A valid name.
    pub(crate) fn name(
        &mut self,
        view: &View<'_, '_>,
        key: &'static keys::Key,
        named: Named,
    ) -> Option<At<String>> {
        let name = self.findings.required_text(view, key)?;
        if let Some(reason) = name_refusal(&name.value) {
            let found =
                view.value(key).map(|value| self.findings.describe(value)).unwrap_or_default();
            self.add(name.span, &Problem::BadName { named, found, reason });
            return None;
        }
        Some(name)
    }

    fn session(
        &mut self,
        view: &View<'_, '_>,
        machine: &Machine,
        directory: &Path,
    ) -> Option<SessionDraft> {
        let name = self.name(view, &keys::NAME, Named::Session);
        let module = self.findings.required_text(view, &keys::MODULE);
        if let Some(module) = module.as_ref().filter(|module| module.value.is_empty()) {
            self.add(module.span.clone(), &Problem::Empty { what: "`module`" });
        }
        let count = self.findings.number(view, &keys::COUNT);
        let settings = self.settings(view, machine);
        let module = module?.map(|path| directory.join(path));
        Some(SessionDraft { name: name?, module, count, ..settings })
    }

    /// A session without its name, module and count.
    fn settings(&mut self, view: &View<'_, '_>, machine: &Machine) -> SessionDraft {
        let lanes = self.session_lanes(view, machine);
        let priority = self
            .findings
            .number(view, &keys::PRIORITY)
            .map_or_else(Priority::default, |number| Priority(number.value as u8));
        let weight = self
            .findings
            .number(view, &keys::WEIGHT)
            .and_then(|number| Weight::new(number.value as u16))
            .unwrap_or_default();
        let class = self
            .findings
            .word(view, &keys::CLASS)
            .and_then(|word| find_class(word.value))
            .unwrap_or_default();
        let args = self.args(view);
        let env = self.env(view);
        let ports = self.ports(view);
        let coroutine_globals = self.coroutine_globals(view);
        let cap = self.cap(view);
        let limits = self.own_limits(view);
        SessionDraft {
            name: At { value: String::new(), span: 0..0 },
            module: At { value: PathBuf::new(), span: 0..0 },
            count: None,
            lanes,
            priority,
            weight,
            class,
            args,
            env,
            ports,
            coroutine_globals,
            cap,
            limits,
        }
    }

    /// The limits that a session has for itself.
    fn own_limits(&mut self, view: &View<'_, '_>) -> OwnLimits {
        let mut number = |key| self.findings.number(view, key).map(|number| number.value);
        let narrow = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        OwnLimits {
            coroutines: narrow(number(&keys::OWN_COROUTINES)),
            stack_bytes: narrow(number(&keys::OWN_STACK)),
            session_stack_bytes: number(&keys::OWN_STACKS),
            memory_pages: narrow(number(&keys::OWN_MEMORY)),
            channels: narrow(number(&keys::OWN_CHANNELS)),
            output_bytes: narrow(number(&keys::OWN_OUTPUT)),
        }
    }

    /// Fills in what a session leaves out and its profile has.
    fn apply_profile<'i>(
        &mut self,
        view: &mut View<'_, 'i>,
        profiles: &BTreeMap<String, View<'_, 'i>>,
    ) {
        let Some(wanted) = self.findings.text(view, &keys::SESSION_PROFILE) else { return };
        let Some(profile) = profiles.get(&wanted.value) else {
            let near = self.findings.nearest(&wanted.value, profiles.keys().map(String::as_str));
            let problem = Problem::Unknown {
                named: Named::Profile,
                name: wanted.value.clone(),
                nearest: near.map(str::to_owned),
                counted: None,
            };
            return self.add(wanted.span, &problem);
        };
        for key in keys::OF_PROFILES.iter().filter(|key| profile.value(key).is_some()) {
            let written = profile.table.iter().find(|(name, _)| name.get_ref() == key.name);
            if let Some((name, value)) = written.filter(|_| view.value(key).is_none()) {
                view.table.to_mut().insert(name.clone(), value.clone());
            }
        }
    }

    /// The cap of a session. Without a budget it has none, and needs no other key of it.
    fn cap(&mut self, view: &View<'_, '_>) -> Option<At<CapSettings>> {
        let budget = self.findings.number(view, &keys::CAP_CYCLES);
        let period = self.findings.number(view, &keys::CAP_PERIOD);
        let overrun = self.findings.word(view, &keys::CAP_OVERRUN);
        let Some(budget) = budget else {
            let others = [&keys::CAP_PERIOD, &keys::CAP_OVERRUN];
            let stray = others.into_iter().find_map(|key| view.key_span(key));
            if let Some(span) = stray.filter(|_| view.value(&keys::CAP_CYCLES).is_none()) {
                let table = "[[session]] with a cap";
                self.add(span, &Problem::Missing { table, key: &keys::CAP_CYCLES });
            }
            return None;
        };
        let word = overrun.map_or("", |word| word.value);
        let overrun = CapOverrun::ALL.iter().copied().find(|overrun| overrun.name() == word);
        let (period_frames, overrun) =
            (period.map_or(1, |number| number.value), overrun.unwrap_or(CapOverrun::Throttle));
        Some(budget.map(|cycles| CapSettings { budget: Cycles(cycles), period_frames, overrun }))
    }

    /// `lane` or `lanes` of a session, checked against the machine's.
    fn session_lanes(&mut self, view: &View<'_, '_>, machine: &Machine) -> Option<At<Vec<LaneId>>> {
        if let (Some(lane), Some(lanes)) =
            (view.key_span(&keys::LANE), view.key_span(&keys::SESSION_LANES))
        {
            let (first, second, first_span, span) = if lane.start < lanes.start {
                ("lane", "lanes", lane, lanes)
            } else {
                ("lanes", "lane", lanes, lane)
            };
            self.add(span, &Problem::Both { first, second, first_span });
            return None;
        }
        if let Some(value) = view.value(&keys::LANE) {
            let (most, rule) = self.lane_rule(machine);
            let lane =
                self.findings.number_value("`lane`".to_owned(), value, 0, most, Some(rule))?;
            return Some(lane.map(|lane| vec![LaneId(lane as u16)]));
        }
        self.lane_list(view, &keys::SESSION_LANES, machine)
    }

    /// The largest lane, and why.
    fn lane_rule(&self, machine: &Machine) -> (u64, String) {
        let origin = origin(self.overrides, &self.spans, ManifestValue::Machine("lanes"));
        let rule = format!(
            "the machine has {} lane{} (from {})",
            machine.lanes,
            if machine.lanes == 1 { "" } else { "s" },
            origin.words()
        );
        (u64::from(machine.lanes.max(1)) - 1, rule)
    }

    /// A list of lanes of the machine, each once.
    pub(crate) fn lane_list(
        &mut self,
        view: &View<'_, '_>,
        key: &keys::Key,
        machine: &Machine,
    ) -> Option<At<Vec<LaneId>>> {
        let (most, rule) = self.lane_rule(machine);
        let list = self.findings.list(view, key)?;
        if list.value.is_empty() {
            self.add(list.span, &Problem::Empty { what: "`lanes`" });
            return None;
        }
        let mut lanes = Vec::new();
        for element in list.value {
            let Some(lane) = self.findings.number_value(
                "a lane".to_owned(),
                element,
                0,
                most,
                Some(rule.clone()),
            ) else {
                continue;
            };
            if lanes.contains(&LaneId(lane.value as u16)) {
                self.add(lane.span, &Problem::LaneTwice { lane: lane.value });
            } else {
                lanes.push(LaneId(lane.value as u16));
            }
        }
        (!lanes.is_empty()).then_some(At { value: lanes, span: list.span })
    }

    fn too_many(&mut self, key: &keys::Key, span: Span, found: usize) {
        if found > MOST_ENTRIES {
            let rule = format!("a session has at most {MOST_ENTRIES} entries in `{}`", key.name);
            self.add(
                span,
                &Problem::TooMany {
                    what: format!("`{}`", key.name),
                    found: found as u64,
                    most: MOST_ENTRIES as u64,
                    rule,
                },
            );
        }
    }

    fn args(&mut self, view: &View<'_, '_>) -> Option<Vec<String>> {
        let list = self.findings.list(view, &keys::ARGS)?;
        self.too_many(&keys::ARGS, list.span, list.value.len());
        Some(
            list.value
                .iter()
                .filter_map(|value| self.findings.text_value("an argument".to_owned(), value))
                .map(|text| text.value)
                .collect(),
        )
    }

    fn env(&mut self, view: &View<'_, '_>) -> Vec<(String, String)> {
        let Some(table) = self.findings.table(view, &keys::ENV) else { return Vec::new() };
        self.too_many(&keys::ENV, table.span, table.value.len());
        let mut variables = Vec::new();
        for (name, value) in table.value.iter() {
            let text = name.get_ref().as_ref();
            if text.is_empty() || text.contains(['=', '\0']) {
                let found = format!("\"{}\"", text.escape_debug());
                let reason = "allowed: at least one letter, no `=`, no NUL".to_owned();
                self.add(name.span(), &Problem::BadName { named: Named::Variable, found, reason });
                continue;
            }
            if let Some(value) =
                self.findings.text_value(format!("`{}`", text.escape_debug()), value)
            {
                variables.push((text.to_owned(), value.value));
            }
        }
        variables
    }

    fn ports(&mut self, view: &View<'_, '_>) -> Vec<(String, At<String>)> {
        let Some(table) = self.findings.table(view, &keys::PORTS) else { return Vec::new() };
        self.too_many(&keys::PORTS, table.span, table.value.len());
        let mut ports = Vec::new();
        for (name, value) in table.value.iter() {
            let text = name.get_ref().as_ref();
            // `{index}` is a number of at most five digits; one digit stands for it here.
            if let Some(reason) = name_refusal(&text.replace(INDEX, "0")) {
                let found = format!("\"{}\"", text.escape_debug());
                self.add(name.span(), &Problem::BadName { named: Named::Port, found, reason });
                continue;
            }
            if let Some(channel) = self.findings.text_value(format!("port `{text}`"), value) {
                ports.push((text.to_owned(), channel));
            }
        }
        ports
    }

    fn coroutine_globals(&mut self, view: &View<'_, '_>) -> Option<At<Vec<GlobalName>>> {
        let list = self.findings.list(view, &keys::COROUTINE_GLOBALS)?;
        self.too_many(&keys::COROUTINE_GLOBALS, list.span.clone(), list.value.len());
        let mut globals = Vec::new();
        for value in list.value {
            let what = "a coroutine global".to_owned();
            if let DeValue::Integer(_) = value.get_ref() {
                let index = self.findings.number_value(what, value, 0, u64::from(u32::MAX), None);
                globals.extend(index.map(|index| GlobalName::Index(index.value as u32)));
            } else if let DeValue::String(_) = value.get_ref() {
                globals.extend(
                    self.findings.text_value(what, value).map(|name| GlobalName::Name(name.value)),
                );
            } else {
                let found = self.findings.describe(value);
                self.add(
                    value.span(),
                    &Problem::WrongKind { what, wanted: "a name in quotes or an index", found },
                );
            }
        }
        Some(At { value: globals, span: list.span })
    }

    fn channel(&mut self, view: &View<'_, '_>, limits: &Limits) -> Option<ChannelDraft> {
        let count = self.findings.number(view, &keys::CHANNEL_COUNT);
        let name = self.channel_name(view, count.as_ref());
        let owner = self.findings.required_text(view, &keys::OWNER);
        let rule = format!(
            "`channel_capacity` of `[limits]` is {}",
            keys::grouped(limits.channel_capacity)
        );
        let keys::Takes::Number { default, .. } = keys::CAPACITY.takes else { return None };
        let default = default.unwrap_or_default().min(limits.channel_capacity);
        let capacity = match view.value(&keys::CAPACITY) {
            Some(value) => self.findings.number_value(
                "`capacity`".to_owned(),
                value,
                1,
                limits.channel_capacity,
                Some(rule),
            ),
            None => Some(At { value: default, span: 0..0 }),
        };
        Some(ChannelDraft {
            name: name?,
            owner: owner?,
            count,
            capacity: capacity.map_or(1, |capacity| capacity.value),
        })
    }

    /// Expands counts and resolves names. Problems found here are reported once per line, not once
    /// per counted session.
    fn resolve(
        &mut self,
        machine: Machine,
        limits: Limits,
        (drafts, template): (Vec<SessionDraft>, SessionDraft),
        channel_drafts: Vec<ChannelDraft>,
    ) -> Manifest {
        let ChannelDrafts { list: channel_drafts, counted } = self.expand_channels(channel_drafts);
        let mut modules: Vec<PathBuf> = Vec::new();
        let mut module_paths: BTreeMap<&Path, usize> = BTreeMap::new();
        let mut channel_names: ChannelNames<'_> = BTreeMap::new();
        for (index, draft) in channel_drafts.iter().enumerate() {
            if let Some((_, first)) = channel_names.get(draft.name.value.as_str()) {
                if self.is_reported(&draft.name.span) {
                    continue;
                }
                let problem = Problem::Duplicate {
                    named: Named::Channel,
                    name: draft.name.value.clone(),
                    first: first.clone(),
                };
                self.add(draft.name.span.clone(), &problem);
            } else {
                channel_names.insert(
                    &draft.name.value,
                    (ChannelIndex(index as u32), draft.name.span.clone()),
                );
            }
        }
        let mut sessions: Vec<Session> = Vec::new();
        let mut session_names: BTreeMap<String, (SessionId, Span)> = BTreeMap::new();
        let (mut over_limit, mut entries) = (false, 0);
        for draft in &drafts {
            let count = draft.count.as_ref().map_or(1, |count| count.value);
            if sessions.len() as u64 + count > limits.sessions {
                if !over_limit {
                    let span = draft
                        .count
                        .as_ref()
                        .map_or_else(|| draft.name.span.clone(), |count| count.span.clone());
                    let rule =
                        format!("`sessions` of `[limits]` is {}", keys::grouped(limits.sessions));
                    let found = sessions.len() as u64 + count;
                    self.add(
                        span,
                        &Problem::TooMany {
                            what: "sessions up to here".to_owned(),
                            found,
                            most: limits.sessions,
                            rule,
                        },
                    );
                }
                over_limit = true;
                continue;
            }
            entries += count * draft.entries(&counted);
            if entries > MOST_MACHINE_ENTRIES {
                self.too_many_entries(draft, entries);
                break;
            }
            let module = *module_paths.entry(draft.module.value.as_path()).or_insert_with(|| {
                modules.push(draft.module.value.clone());
                modules.len() - 1
            });
            self.expand(
                draft,
                ModuleIndex(module as u32),
                &machine,
                (&channel_names, &counted),
                &mut sessions,
                &mut session_names,
            );
        }
        let channels = if over_limit {
            Vec::new()
        } else {
            self.own(&drafts, &channel_drafts, &session_names)
        };
        let template = self.template(template, channel_names.keys().copied());
        if channels.len() == channel_drafts.len() {
            self.wire_owners(&channels, &mut sessions);
            self.warn_of_silence(&channels, &channel_drafts, &sessions, &template);
        }
        Manifest {
            machine,
            limits,
            modules,
            sessions,
            channels,
            template,
            contexts: Vec::new(),
            grants: Vec::new(),
            islands: Vec::new(),
            leases: Vec::new(),
        }
    }

    /// Each counted session has its own copy of the entries, so a short manifest could request any
    /// amount of memory.
    fn too_many_entries(&mut self, draft: &SessionDraft, found: u64) {
        let span = draft
            .count
            .as_ref()
            .map_or_else(|| draft.name.span.clone(), |count| count.span.clone());
        let most = MOST_MACHINE_ENTRIES;
        let rule = format!(
            "all sessions together have at most {} entries in lists and tables",
            keys::grouped(most)
        );
        self.add(
            span,
            &Problem::TooMany { what: "entries up to here".to_owned(), found, most, rule },
        );
    }

    /// Keeps the positions of a session's values, for refusals at load.
    fn locate(&mut self, id: SessionId, draft: &SessionDraft) {
        let globals = draft.coroutine_globals.as_ref().map(|globals| &globals.span);
        let spans = [
            (&keys::MODULE, Some(&draft.module.span)),
            (&keys::NAME, Some(&draft.name.span)),
            (&keys::COROUTINE_GLOBALS, globals),
            (&keys::CAP_CYCLES, draft.cap.as_ref().map(|cap| &cap.span)),
        ];
        for (key, span) in spans {
            if let Some(span) = span {
                self.spans.insert(ManifestValue::Session(id, key.name), span.clone());
            }
        }
    }

    /// Appends the sessions of one draft.
    // Long: one pass over the sessions of a count; its parts share every local.
    fn expand(
        &mut self,
        draft: &SessionDraft,
        module: ModuleIndex,
        machine: &Machine,
        (channel_names, counted): (&ChannelNames<'_>, &CountedChannels),
        sessions: &mut Vec<Session>,
        session_names: &mut BTreeMap<String, (SessionId, Span)>,
    ) {
        let indices = draft.count.as_ref().map_or(0..1, |count| 0..count.value);
        let problems_before = self.findings.list.len();
        for index in indices {
            let id = SessionId(sessions.len() as u32);
            let fill = |text: &String| {
                if draft.count.is_some() {
                    text.replace(INDEX, &index.to_string())
                } else {
                    text.clone()
                }
            };
            let name = if draft.count.is_some() {
                format!("{}.{index}", draft.name.value)
            } else {
                draft.name.value.clone()
            };
            let reported = self.findings.list.len() > problems_before;
            if let Some((_, first)) = session_names.get(&name)
                && !reported
            {
                let problem = Problem::Duplicate {
                    named: Named::Session,
                    name: name.clone(),
                    first: first.clone(),
                };
                self.add(draft.name.span.clone(), &problem);
            }
            let mut ports = Vec::new();
            for (port, channel) in &draft.ports {
                if port.contains(INDEX) {
                    if !reported {
                        ports.extend(self.ports_to_all(port, channel, counted));
                    }
                    continue;
                }
                let wanted = fill(&channel.value);
                match channel_names.get(wanted.as_str()) {
                    Some((channel, _)) => ports.push((port.clone(), *channel)),
                    None if reported => {}
                    None if draft.count.is_none() && wanted.contains(INDEX) => {
                        self.add(
                            channel.span.clone(),
                            &Problem::IndexWithoutCount {
                                what: format!("port `{port}`"),
                                table: "session",
                            },
                        );
                    }
                    None => {
                        let near = self
                            .findings
                            .nearest(&wanted, channel_names.keys().copied())
                            .map(str::to_owned);
                        let problem = Problem::Unknown {
                            named: Named::Channel,
                            name: wanted,
                            nearest: near,
                            counted: None,
                        };
                        self.add(channel.span.clone(), &problem);
                    }
                }
            }
            if draft.ports.iter().any(|(port, _)| port.contains(INDEX)) && !reported {
                self.refuse_port_twice(&ports, &draft.name.span);
            }
            let lanes = draft.lanes.as_ref().map_or_else(
                || vec![LaneId((id.0 % u32::from(machine.lanes.max(1))) as u16)],
                |lanes| lanes.value.clone(),
            );
            self.locate(id, draft);
            session_names.insert(name.clone(), (id, draft.name.span.clone()));
            sessions.push(Session {
                args: draft
                    .args
                    .as_ref()
                    .map_or_else(|| vec![name.clone()], |args| args.iter().map(fill).collect()),
                env: draft.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
                name,
                module,
                lanes,
                pinned: draft.lanes.is_some(),
                priority: draft.priority,
                weight: draft.weight,
                class: draft.class,
                ports,
                coroutine_globals: draft
                    .coroutine_globals
                    .as_ref()
                    .map(|globals| globals.value.clone()),
                cap: draft.cap.as_ref().map(|cap| cap.value),
                limits: draft.limits,
            });
        }
    }

    /// Finds each channel's owner.
    fn own(
        &mut self,
        drafts: &[SessionDraft],
        channel_drafts: &[ChannelDraft],
        session_names: &BTreeMap<String, (SessionId, Span)>,
    ) -> Vec<Channel> {
        let mut channels = Vec::new();
        let counts: BTreeMap<&str, Option<u64>> = drafts
            .iter()
            .rev()
            .map(|session| {
                (session.name.value.as_str(), session.count.as_ref().map(|count| count.value))
            })
            .collect();
        for (index, draft) in channel_drafts.iter().enumerate() {
            let Some((owner, _)) = session_names.get(&draft.owner.value) else {
                if self.is_reported(&draft.owner.span) {
                    continue;
                }
                if draft.owner.value.contains(INDEX) {
                    let (what, table) = ("`owner`".to_owned(), "channel");
                    self.add(draft.owner.span.clone(), &Problem::IndexWithoutCount { what, table });
                    continue;
                }
                let counted = counts.get(draft.owner.value.as_str()).copied().flatten();
                let counted = counted.map(|count| count as u32);
                let known = || session_names.keys().map(String::as_str);
                let near = if counted.is_some() {
                    None
                } else {
                    self.findings.nearest(&draft.owner.value, known())
                };
                let problem = Problem::Unknown {
                    named: Named::Session,
                    name: draft.owner.value.clone(),
                    nearest: near.map(str::to_owned),
                    counted,
                };
                self.add(draft.owner.span.clone(), &problem);
                continue;
            };
            self.spans.insert(
                ManifestValue::Channel(index as u32, keys::CHANNEL_NAME.name),
                draft.name.span.clone(),
            );
            channels.push(Channel {
                name: draft.name.value.clone(),
                owner: *owner,
                capacity: draft.capacity as u32,
            });
        }
        channels
    }

    /// Gives each owner a port named after its channel, unless it named one itself.
    fn wire_owners(&mut self, channels: &[Channel], sessions: &mut [Session]) {
        // Names of channels are distinct, so only a port that the owner declared itself can
        // conflict.
        let written: Vec<usize> = sessions.iter().map(|session| session.ports.len()).collect();
        let known: BTreeSet<(usize, ChannelIndex)> = sessions
            .iter()
            .enumerate()
            .flat_map(|(id, session)| session.ports.iter().map(move |(_, channel)| (id, *channel)))
            .collect();
        for session in sessions.iter_mut() {
            session.ports.sort();
        }
        for (index, channel) in channels.iter().enumerate() {
            let (index, owner) = (ChannelIndex(index as u32), channel.owner.0 as usize);
            let ports = &mut sessions[owner].ports;
            let is_named = |ports: &[(String, ChannelIndex)]| {
                ports.binary_search_by(|(name, _)| name.as_str().cmp(&channel.name)).is_ok()
            };
            if !known.contains(&(owner, index)) && !is_named(&ports[..written[owner]]) {
                ports.push((channel.name.clone(), index));
            }
        }
        for session in sessions {
            session.ports.sort();
        }
    }

    fn warn_of_silence(
        &mut self,
        channels: &[Channel],
        drafts: &[ChannelDraft],
        sessions: &[Session],
        template: &Template,
    ) {
        let mut has_sender = vec![false; channels.len()];
        for (id, session) in sessions.iter().enumerate() {
            for (_, channel) in &session.ports {
                let index = channel.0 as usize;
                has_sender[index] |= channels[index].owner != SessionId(id as u32);
            }
        }
        for ((channel, draft), has_sender) in channels.iter().zip(drafts).zip(has_sender) {
            let has_sender = has_sender || template.ports.iter().any(|(_, to)| *to == channel.name);
            if !has_sender && !self.is_reported(&draft.name.span) {
                let owner = sessions[channel.owner.0 as usize].name.clone();
                self.add(
                    draft.name.span.clone(),
                    &Problem::NoSender { name: channel.name.clone(), owner },
                );
            }
        }
    }
}
