#!/usr/bin/env python3
"""Plants faults in copies of the kernel and shows that the oracle sees each.

Usage: checks/oracle/plant.py [NAME...]; proof/oracle/build must have run. A fault is an edit of the
kernel's sources in a temporary folder; an edit that does not apply is an error, so that this list
cannot go stale silently. The first list is that of the kernel's random tests (tests/model/mod.rs),
the second that of the kernel's own check (src/check.rs), where the damage is done to a lane from
inside at the beginning of a wave. Panics of the kernel are ignored: only the comparison counts.
"""
import os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LANE, TIME = "crates/kernel/src/lane.rs", "crates/kernel/src/time.rs"

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
    ("LagIsForgotten", "crates/kernel/src/fair/queue.rs",
     "let lag = if placement == Placement::Initial || self.weight == 0 {",
     "let lag = if placement != Placement::Initial || self.weight == 0 {"),
    ("EverybodyIsEligible", "crates/kernel/src/fair/queue.rs",
     "let slot = self.ready.take_first(&mut self.arena, now).or_else(",
     "let slot = self.ready.take_first(&mut self.arena, now.plus(i64::MAX / 4)).or_else("),
    ("NoActivation", "crates/kernel/src/context/refill.rs", "self.entries[0].at = now;", ""),
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

UNSEEN = ["nothing"]

def main():
    wanted = sys.argv[1:]
    folder = tempfile.mkdtemp(prefix="planted-")
    for part in ("crates/abi", "crates/kernel", "checks/oracle"):
        shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part))
    manifest = open(os.path.join(ROOT, "Cargo.toml")).read()
    manifest = manifest.replace('"crates/*", "xtask", "xtask/portable"', '"crates/*", "checks/oracle"')
    manifest = manifest.replace('exclude = ["checks", ', 'exclude = [')
    open(os.path.join(folder, "Cargo.toml"), "w").write(manifest)
    oracle = os.path.join(ROOT, "proof/oracle/oracle")
    # Without overflow checks, as the product is built: damage must be seen, not trapped.
    environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(folder, "target"),
                       CARGO_PROFILE_RELEASE_OPT_LEVEL="1")
    unseen = []
    for name, file, old, new in [("nothing", LANE, "", "")] + RULES + DAMAGES:
        if wanted and name not in wanted:
            continue
        path = os.path.join(folder, file)
        source = open(path).read()
        if old not in source:
            sys.exit(f"{name}: this is not in {file} any more: {old}")
        open(path, "w").write(source.replace(old, new) if old else source)
        built = subprocess.run(["cargo", "build", "-q", "--release", "-p", "wavelock-check-oracle"],
                               cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        open(path, "w").write(source)
        if built.returncode != 0:
            sys.exit(f"{name} does not compile:\n{built.stderr}")
        run = subprocess.run([os.path.join(folder, "target/release/wavelock-check-oracle"),
                              "--sequences", "2000", "--panics", "ignore", "--oracle", oracle],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        seen = run.returncode == 1
        lines = [line for line in run.stdout.splitlines() if line[:4] in ("seed", "at  ", "kern", "orac")]
        print(f"{name}: {'seen' if seen else 'not seen'}; {lines[0].split(':')[0] if seen else run.stdout.strip()}")
        for line in lines[1:]:
            print("    " + line[:160])
        sys.stdout.flush()
        if seen == (name in UNSEEN):
            unseen.append(name)
    shutil.rmtree(folder)
    sys.exit(f"wrong: {', '.join(unseen)}" if unseen else 0)

main()
