#!/usr/bin/env python3
"""Plants faults in copies of the sources and shows that the oracle sees each.

Usage: checks/oracle/plant.py [--kernel | --machines] [NAME...]; proof/oracle/build must have run. A
fault is an edit of the sources in a temporary folder; an edit that does not apply is an error, so
that these lists cannot go stale silently. The first list is that of the kernel's random tests
(tests/model/mod.rs), the second that of the kernel's own check (src/check.rs), where the damage is
done to a lane from inside at the beginning of a wave; both are looked for by sequences of kernel
operations. The third is of the system and is looked for by whole machines. Panics are ignored: only
the comparison counts.
"""
import os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LANE, TIME = "crates/kernel/src/lane.rs", "crates/kernel/src/time.rs"
CHECK = "crates/certify/src/check.rs"

RULES = [
    ("NewestFirst", "crates/kernel/src/ready.rs",
     "if is_heap { heap } else { head }",
     "if is_heap { heap } else if head == NIL { NIL } else { self.class(class).list.tail }"),
    ("AgesTooFast", "crates/kernel/src/policy.rs", "AGING_PICKS: u64 = 16", "AGING_PICKS: u64 = 15"),
    ("LongerStreak", "crates/kernel/src/policy.rs",
     "PROGRESS_STREAK: u32 = 8", "PROGRESS_STREAK: u32 = 9"),
    ("SwitchIsFree", LANE, "if switched {\n            self.book(SchedulerOperation::Switch);\n        }", ""),
    ("TokensAreKept", "crates/kernel/src/record.rs", "            self.tokens -= 1;", ""),
    ("HoldLosesThePlace", "crates/kernel/src/wake.rs",
     "let _ = self.enqueue(slot, Entrance::Return);", "let _ = self.arrive(slot, Entrance::Return);"),
    ("LimitsInOtherOrder", LANE,
     "if quantum < left || quantum == left && end_reason == BoundReason::WaveEnd {",
     "if quantum < left {"),
    ("SleepersWakeNewestFirst", TIME,
     "(count, next) = self.slab.follow(next, &mut slots);",
     "(count, next) = self.slab.follow(next, &mut slots); slots[..count].reverse();"),
    ("LettersInPostingOrder", "crates/kernel/src/exchange.rs",
     "fn sender(&self, position: u16) -> LaneId {\n        LaneId(position)",
     "fn sender(&self, position: u16) -> LaneId {\n        LaneId(self.lanes() - 1 - position)"),
    ("StealStartsElsewhere", "crates/kernel/src/migrate.rs",
     "(u64::from(thief.0) + round) %", "(u64::from(thief.0) + round + 1) %"),
    ("StealIsFree", "crates/kernel/src/migrate.rs",
     "            to.book(SchedulerOperation::Steal);\n", ""),
    ("LagIsForgotten", "crates/kernel/src/fair/competition.rs",
     "let lag = if placement == Placement::Initial || self.weight == 0 {",
     "let lag = if placement != Placement::Initial || self.weight == 0 {"),
    ("EverybodyIsEligible", "crates/kernel/src/fair/competition.rs",
     "let slot = self.ready.take_first(table, now).or_else(",
     "let slot = self.ready.take_first(table, now.plus(1 << 60)).or_else("),
    ("OverheadIsFree", "crates/kernel/src/fair/lane.rs",
     "cycles = Cycles(clock.saturating_sub(sessions.charged_until));\n            sessions.charged_until",
     "sessions.charged_until"),
    ("SessionsNapFreely", "crates/kernel/src/fair/lane.rs",
     "let leave = if leave == Leave::Exit { Leave::Sleep } else { leave };",
     "let leave = if leave == Leave::Exit || leave == Leave::Sleep { Leave::Move } else { leave };"),
    ("SessionsMoveWithoutLag", "crates/kernel/src/fair/lane.rs",
     "Some(sessions.queue.remove(position))",
     "Some(Carried { lag: 0, ..sessions.queue.remove(position) })"),
    ("SessionsKeepTheLane", "crates/kernel/src/fair/lane.rs",
     "if phase == Phase::Running && sessions.bound() == Cycles::ZERO {",
     "if phase == Phase::Absent && sessions.bound() == Cycles::ZERO {"),
    ("DueReleasesOnly", "crates/kernel/src/context/admission.rs",
     "                return sum + releases;", "                return sum;"),
    ("NoActivation", "crates/kernel/src/context/refill.rs", "self.entries[0].at = now;", ""),
    # The checker of certificates.
    ("AnyGroups", CHECK, "        self.check_groups(facts)?;\n", ""),
    ("AnySessions", CHECK, "                check_sessions(group, sets, facts)?;\n", ""),
    ("StaleSets", CHECK, "if claim.set_version != actual || accepted != Some(actual) {",
     "if claim.set_version != actual || accepted.is_none() {"),
    ("RefusedSetsStay", CHECK, "if result.is_err() {\n            changed", "if false {\n            changed"),
    ("OneDigest", CHECK, "claim.lanes.iter().fold(0u64", "claim.lanes.iter().take(1).fold(0u64"),
]

BEGIN_WAVE = "pub fn begin_wave(&mut self, span: Span) {"
def damage(name, code):
    code = "let lane = &mut *self; if lane.steps > 5 { " + code + " }"
    return (name, TIME, BEGIN_WAVE, BEGIN_WAVE + " { " + code + " }")
def on_place(place, code):
    return ("let found = lane.slab.slots().find(|&slot| "
            "lane.slab.hot(slot).place == crate::record::Place::%s); "
            "if let Some(slot) = found { %s }" % (place, code))

DAMAGES = [
    damage("blocked count", "lane.counts.blocked += 1;"),
    damage("held count", "if lane.counts.held > 0 { lane.counts.held -= 1; }"),
    damage("ended count", "lane.counts.ended += 1;"),
    damage("digest", "lane.digest ^= 1;"),
    damage("clock", "lane.clock += 1;"),
    damage("charged", "lane.charged += 1;"),
    damage("an operation", "lane.operations[SchedulerOperation::Pick as usize] += 1;"),
    damage("a stale blocked place",
           on_place("ReadyList", "lane.slab.hot_mut(slot).place = crate::record::Place::Blocked;")),
    damage("a ready place without a queue entry",
           on_place("Blocked", "lane.slab.hot_mut(slot).place = crate::record::Place::ReadyList;")),
    damage("two current",
           on_place("Held", "lane.slab.hot_mut(slot).place = crate::record::Place::Running;")),
    damage("no current", "lane.current = NIL;"),
    damage("a class that is not the policy's",
           on_place("ReadyList", "lane.slab.hot_mut(slot).priority.0 ^= 9;")),
    damage("an arrival twice",
           on_place("ReadyList", "lane.slab.hot_mut(slot).arrival = lane.arrivals;")),
    damage("an arrival never given", "lane.arrivals = lane.arrivals.saturating_sub(3);"),
    damage("a list out of order",
           "let found = lane.slab.slots().filter(|&slot| "
           "lane.slab.hot(slot).place == crate::record::Place::ReadyList).last(); "
           "if let Some(slot) = found { lane.slab.hot_mut(slot).arrival = 0; }"),
    damage("a held record without reason",
           on_place("Held", "lane.slab.hot_mut(slot).held = crate::types::HoldReasons::NONE;")),
    damage("a sleeper of the past", "lane.frame = wavelock_abi::Frame(lane.frame.0 + 5);"),
    damage("a sleeper in another list",
           on_place("SleepNear", "lane.slab.hot_mut(slot).since += 1;")),
    damage("a session's member",
           on_place("Blocked", "let t = lane.slab.hot(slot).tag; lane.slab.hot_mut(slot).tag ="
                    " crate::types::Tag::new(t.session() + 1, t.slot());")),
]

SYSTEM = "crates/system/src/"
MACHINES = [
    # The rules that the tests of `system` break (tests/planted/rules.rs).
    ("UnsortedInbox", SYSTEM + "rules.rs",
     "_lanes: u16) -> LaneId {\n        LaneId(position)",
     "_lanes: u16) -> LaneId {\n        LaneId(_lanes - 1 - position)"),
    ("CreditKept", SYSTEM + "rules.rs",
     "_before: u32, now: u32) -> u32 {\n        now",
     "_before: u32, now: u32) -> u32 {\n        if _before > now { _before } else { now }"),
    ("OneOrder", SYSTEM + "rules.rs", "settles_alone(self) -> bool {\n        true",
     "settles_alone(self) -> bool {\n        false"),
    ("LostWake", SYSTEM + "rules.rs", "keeps_wakes(self) -> bool {\n        true",
     "keeps_wakes(self) -> bool {\n        false"),
    ("Cut", SYSTEM + "rules.rs", "-> Option<usize> {\n        None", "-> Option<usize> {\n        Some(2)"),
    # Channels.
    ("RemainderStays", SYSTEM + "channel.rs",
     "u64::from(other) < wave % u64::from(machine_lanes.max(1))", "u64::from(other) < 0 * wave"),
    ("CreditsDoNotLapse", SYSTEM + "group.rs", "            self.used = 0;\n", ""),
    ("SendersOvertake", SYSTEM + "host.rs",
     "channel.senders.is_empty() && channel.local_room", "channel.local_room"),
    ("PromisedRoomIsUsed", SYSTEM + "channel.rs",
     "self.room().saturating_sub(promised)", "self.room() + 0 * promised"),
    ("SelectTakesTheLast", SYSTEM + "host.rs",
     "channels.iter().position(|&at| state.channels", "channels.iter().rposition(|&at| state.channels"),
    ("ClosedReceiversWait", SYSTEM + "group.rs",
     "if self.sessions[at].queue.is_empty() {\n            while",
     "if self.sessions[at].queue.len() == u32::MAX {\n            while"),
    ("NoHandoff", SYSTEM + "group.rs", "if !self.shared.handoff || lane.id",
     "if self.shared.handoff || lane.id"),
    ("InboxIsFree", SYSTEM + "boundary.rs",
     "        self.lanes[lane].kernel.accept_effect();\n        match effect {", "        match effect {"),
    ("SendersStayWhenClosed", SYSTEM + "boundary.rs",
     "if !closed && channel.room() == 0 {", "if closed || channel.room() == 0 {"),
    # Coroutines and sessions.
    ("JoinersLastFirst", SYSTEM + "group.rs", "joiners.into_iter().rev()", "joiners.into_iter()"),
    ("SlotKeepsItsGeneration", SYSTEM + "task.rs", "        entry.generation += 1;\n", ""),
    ("DetachIsForgotten", SYSTEM + "task.rs", "        if entry.detached {", "        if false {"),
    ("CanceledIsFinished", SYSTEM + "session.rs",
     "wavelock_abi::Errno::Canceled.code()", "0"),
    ("AnyExitIsTheSession's", SYSTEM + "session.rs",
     "if !self.exiting && self.tasks.reference_at(slot) == CoroutineRef::new(0, 0) {",
     "if !self.exiting && slot != u32::MAX {"),
    ("LastEndIsMissed", SYSTEM + "task.rs", "if is_first || self.live == 1 ||", "if is_first ||"),
    # Time and moves.
    ("WaveEndIsQuantum", SYSTEM + "step.rs",
     "BoundReason::Quantum if used < running.bound() => BoundReason::WaveEnd,",
     "BoundReason::Quantum if used < running.bound() => BoundReason::Quantum,"),
    ("SizeIsFree", SYSTEM + "host.rs",
     "if cost == Cycles::ZERO && self.sessions[site.session].profile.is_none() {",
     "if self.sessions[site.session].profile.is_none() {"),
    ("PinnedSessionsMove", SYSTEM + "moves.rs", "spec.pinned.then_some(MoveBan::Pinned)", "None"),
    ("BalanceOvershoots", SYSTEM + "moves.rs", "count() as u32 >= ahead", "count() as u32 > ahead"),
    ("NoTurns", SYSTEM + "moves.rs", "if !has_moved && self.is_time_for_a_turn()",
     "if has_moved && self.is_time_for_a_turn()"),
    ("InputIsKept", SYSTEM + "input.rs", "        self.events.clear();\n        (self.held, self.read) = (0, 0);",
     "        self.read = 0;"),
]

# The first seed, where 0 is too far: wakes in a slice seldom bring a wave's end before the quantum's.
FIRST_SEED = {"WaveEndIsQuantum": "7900"}

# Seconds after which a run counts as one that does not end.
LONGEST = 1_800

# Equal by definition (OneOrder, Cut); of operations that the guests do not have (LostWake); of
# sessions of equal weight, which no machine has (NoTurns).
UNSEEN = ["nothing", "OneOrder", "Cut", "LostWake", "NoTurns"]

def planted(folder, wanted, faults, program, arguments):
    """The faults of a list whose result is not the expected one."""
    # Without overflow checks, as the product is built: damage must be seen, not trapped.
    environment = dict(os.environ)
    environment.setdefault("CARGO_TARGET_DIR", os.path.join(folder, "target"))
    environment.setdefault("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
    environment.setdefault("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false")
    # Many builds of one crate: what makes each of them short.
    environment.setdefault("CARGO_PROFILE_RELEASE_DEBUG", "0")
    environment.setdefault("CARGO_PROFILE_RELEASE_LTO", "off")
    environment.setdefault("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
    environment.setdefault("CARGO_INCREMENTAL", "1")
    oracle = os.path.join(ROOT, "proof/oracle/oracle")
    wrong = []
    for name, file, old, new in [("nothing", LANE, "", "")] + faults:
        if wanted and name not in wanted:
            continue
        path = os.path.join(folder, file)
        source = open(path).read()
        if old not in source:
            sys.exit(f"{name}: this is not in {file} any more: {old}")
        open(path, "w").write(source.replace(old, new) if old else source)
        built = subprocess.run(["cargo", "build", "-q", "--release", "-p", "wavelock-check-oracle",
                                "--bin", program],
                               cwd=os.path.join(folder, "checks"), env=environment,
                               stderr=subprocess.PIPE, text=True)
        open(path, "w").write(source)
        if built.returncode != 0:
            sys.exit(f"{name} does not compile:\n{built.stderr}")
        binary = os.path.join(environment["CARGO_TARGET_DIR"], "release", program)
        command = [binary, *arguments, "--seed", FIRST_SEED.get(name, "0"), "--panics", "ignore",
                   "--oracle", oracle]
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 timeout=LONGEST)
        except subprocess.TimeoutExpired:
            print(f"{name}: seen; it does not end within {LONGEST} s")
            continue
        seen = run.returncode == 1
        lines = [line for line in run.stdout.splitlines()
                 if line[:4] in ("seed", "at  ", "kern", "code", "orac", "no m")]
        first = (lines or [""])[0].split(":")[0] if seen else run.stdout.split("\n")[0]
        print(f"{name}: {'seen' if seen else 'not seen'}; {first}")
        for line in lines[1:]:
            print("    " + line[:160])
        sys.stdout.flush()
        if seen == (name in UNSEEN):
            wrong.append(name)
    return wrong

def main():
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    folder = tempfile.mkdtemp(prefix="planted-")
    ignored = shutil.ignore_patterns("target")
    for part in ("crates", "checks/oracle"):
        shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part), ignore=ignored)
    for file in ("Cargo.toml", "checks/Cargo.toml", "checks/Cargo.lock"):
        text = open(os.path.join(ROOT, file)).read()
        text = re.sub(r"(?m)^members = .*", 'members = ["oracle"]' if "checks" in file
                      else 'members = ["crates/*"]', text)
        open(os.path.join(folder, file), "w").write(text)
    wrong = []
    if "--machines" not in sys.argv:
        # Without the crates that only whole machines need, which each fault would build again.
        package = os.path.join(folder, "checks/oracle/Cargo.toml")
        text = open(package).read()
        kept = re.sub(r'(?m)^\[\[bin\]\]\nname = "machines"\n.*\n|'
                      r'^wavelock-(generate|module|system|trace|waves) = .*\n', "", text)
        open(package, "w").write(kept)
        wrong += planted(folder, wanted, RULES + DAMAGES, "wavelock-check-oracle",
                         ["--sequences", "2000"])
        open(package, "w").write(text)
    if "--kernel" not in sys.argv:
        wrong += planted(folder, wanted, MACHINES, "machines", ["--machines", "2000"])
    shutil.rmtree(folder)
    sys.exit(f"wrong: {', '.join(wrong)}" if wrong else 0)

main()
