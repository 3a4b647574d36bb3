#!/usr/bin/env python3
"""Measures `wavelock run` end to end: whole process, one lane, one worker, digest and ledger on, minus an empty run.

usage: benches/speed.py [--binary FILE] [--before FILE] [--repeat N] [--quick] [--peers] [--markdown FILE] [NAME...]

Reads benches/guests/index.toml. Each guest runs N times (default 5), interleaved, each in its own process. The figure is the minimum CPU time
(user + system) minus the minimum of the empty run, divided by the guest's operations, and the maximum resident set. CPU time is used because
machines are shared; still, run it on an idle one. `reach` is the project's goal; figures above it are marked.

With `--before` an older `wavelock` runs the same guests in the same rounds; the table then has its figures and their ratio to the new ones.

With `--peers` a second table compares the same workloads with other schedulers, in the same rounds. The programs in benches/peers are built
first, below the target directory. A peer measures its own CPU time on one thread, without process startup; a peer whose tools are not in
PATH is listed as missing. A cell is nanoseconds per operation and, in parentheses, the ratio to ours: above 1 we are faster.
`--quick` runs one round with smaller peers and without the guests of a million coroutines: a check that everything runs, not a measurement.
"""
import argparse, os, shutil, subprocess, sys, tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The goals, in nanoseconds per operation (MiB for `idle`).
REACH = {
    "yield-1.toml": 25, "yield-1000.toml": 25, "yield-10000.toml": 25, "yield-1000000.toml": 50,
    "pingpong-1.toml": 60, "pingpong-1000.toml": 60, "stream.toml": 30, "spawn.toml": 200, "sleepers.toml": 200, "idle.toml": 320,
}

# The rows of the peer table: name, our guest, the peers' workload, its numbers, and those of a quick run.
WORKLOADS = [
    ("yield, 1 coroutine", "yield-1.toml", "yield", (1, 5_000_000), (1, 500_000)),
    ("yield, 1,000 coroutines", "yield-1000.toml", "yield", (1_000, 5_000), (1_000, 500)),
    ("yield, 10,000 coroutines", "yield-10000.toml", "yield", (10_000, 500), (10_000, 50)),
    ("yield, 1,000,000 coroutines", "yield-1000000.toml", "yield", (1_000_000, 10), None),
    ("message, 1 pair", "pingpong-1.toml", "pairs", (1, 1_000_000), (1, 100_000)),
    ("message, 1,000 pairs", "pingpong-1000.toml", "pairs", (1_000, 1_000), (1_000, 100)),
    ("message, stream 64 deep", "stream.toml", "stream", (4_000_000, 64), (400_000, 64)),
    ("spawn and end, of 1,000,000", "spawn.toml", "spawn", (1_000_000,), (100_000,)),
    ("wake of a sleeper, of 1,000,000", "sleepers.toml", "sleepers", (1_000_000, 4), None),
]
# Our guests that a quick run leaves out: each takes seconds and hundreds of MiB.
LARGE = {"yield-1000000.toml", "yield-1000000-shuffled.toml", "sleepers.toml", "idle.toml"}


def peers(target):
    """Builds the peers below `target`. Returns them as {name: (command, workloads)}, and the missing ones as {name: reason}."""
    source, built = HERE / "peers", Path(target) / "peers"
    built.mkdir(parents=True, exist_ok=True)
    every = {"yield", "pairs", "stream", "spawn", "sleepers"}
    found, missing = {}, {}

    def offer(name, tools, command, workloads=every, build=None, environment=None, folder="."):
        absent = [tool for tool in tools if shutil.which(tool) is None]
        if absent:
            missing[name] = f"no {' or '.join(absent)} in PATH"
            return
        if build is not None:
            done = subprocess.run(build, cwd=source / folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True)
            if done.returncode != 0:
                missing[name] = "build failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
                return
        found[name] = (command, workloads)

    rust = {"CARGO_TARGET_DIR": str(built)}
    cargo = ["cargo", "build", "--release", "--manifest-path", "rust/Cargo.toml", "--bin"]
    lua = ["cc", "-O2", "-I/usr/include/lua5.4", "-o", str(built / "lua_host"), "lua_host.c", "-llua5.4"]
    offer("Lua 5.4, C host", ["cc", "lua5.4"], [built / "lua_host"], {"yield"}, lua)
    offer("Lua 5.4", ["lua5.4"], ["lua5.4", source / "bench.lua"])
    offer("LuaJIT", ["luajit"], ["luajit", source / "bench.lua"])
    offer("Node generators", ["node"], ["node", source / "bench.mjs"])
    offer("Go", ["go"], ["env", "GOMAXPROCS=1", built / "go"], every, ["go", "build", "-o", built / "go", "main.go"], {"CGO_ENABLED": "0"}, "go")
    offer("Tokio", ["cargo"], [built / "release" / "tokio"], every, [*cargo, "tokio"], rust)
    beam = ["erl", "+S", "1:1", "+P", "4000000", "-noshell", "-pa", built, "-run", "peers", "main"]
    offer("Erlang", ["erl", "erlc"], beam, every, ["erlc", "-o", built, "peers.erl"])
    offer("wasmi resumable calls", ["cargo"], [built / "release" / "wasmi"], {"yield"}, [*cargo, "wasmi"], rust)
    return found, missing


def peer(command, workload, numbers):
    """Nanoseconds per operation of one run of a peer; None if it fails."""
    done = subprocess.run([*map(str, command), workload, *map(str, numbers)], capture_output=True, text=True)
    try:
        return float(done.stdout)
    except ValueError:
        return None


def beside(found, missing, figures, ours):
    """The peer table, and the missing peers."""
    names = [name for name in found if any(name in row for row in figures.values())]
    lines = ["| ns per operation | Wavelock | " + " | ".join(names) + " |", "|---|---:|" + "---:|" * len(names)]
    for what, guest, *_ in WORKLOADS:
        mine, row = ours.get(guest), figures.get(what, {})
        if mine is None:
            continue
        cells = [f"{row[name]:.0f} ({row[name] / mine:.1f})" if name in row else "–" for name in names]
        lines.append(f"| {what} | {mine:.0f} | " + " | ".join(cells) + " |")
    lines += [""] + [f"Missing: {name} ({why})." for name, why in missing.items()]
    return "\n".join(lines).rstrip() + "\n"


def run(binary, manifest):
    """CPU seconds and resident MiB of one run, and the output of the guest."""
    reader, writer = os.pipe()
    child = subprocess.Popen([binary, "run", str(manifest), "--workers", "1"], stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    output = b""
    while piece := os.read(reader, 65536):
        output += piece
    os.close(reader)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{manifest.name}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")
    parser.add_argument("--binary", default=str(Path(target) / "release" / "wavelock"))
    parser.add_argument("--before", help="an older `wavelock` to compare with")
    parser.add_argument("--repeat", type=int, default=None, help="rounds (default 5, with --peers 2)")
    parser.add_argument("--quick", action="store_true", help="one small round, to check that everything runs")
    parser.add_argument("--peers", action="store_true", help="also run other schedulers on the same workloads")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("names", nargs="*", help="manifests to run (default: all in the index)")
    options = parser.parse_args()

    index = tomllib.loads((HERE / "guests" / "index.toml").read_text())["run"]
    rows = [row for row in index if not row["what"].startswith("the smallest of its kind")]
    if options.names:
        rows = [row for row in rows if row["file"] == "empty.toml" or row["file"] in options.names]
    if options.quick:
        rows = [row for row in rows if row["file"] not in LARGE]
    rounds = options.repeat or (1 if options.quick else 2 if options.peers else 5)
    found, missing = peers(target) if options.peers else ({}, {})
    figures = {}
    binaries = [options.binary] + ([options.before] if options.before else [])
    least = {binary: {row["file"]: (float("inf"), 0.0) for row in rows} for binary in binaries}
    for _ in range(rounds):
        for row in rows:
            for binary in binaries:
                seconds, mebibytes, output = run(binary, HERE / "guests" / row["file"])
                if row["output"] and output != row["output"]:
                    sys.exit(f"{row['file']}: printed {output!r}, expected {row['output']!r}")
                earlier = least[binary][row["file"]]
                least[binary][row["file"]] = (min(earlier[0], seconds), max(earlier[1], mebibytes))
            for what, guest, workload, numbers, few in WORKLOADS if row["file"] != "empty.toml" else ():
                numbers = few if options.quick else numbers
                for name, (command, has) in found.items() if guest == row["file"] else ():
                    # A resumable call of wasmi takes kilobytes, so a million of them are skipped.
                    if workload not in has or numbers is None or (name.startswith("wasmi") and numbers[0] > 10_000):
                        continue
                    figure = peer(command, workload, numbers)
                    if figure is None:
                        print(f"{name}: {workload} {numbers} failed", file=sys.stderr)
                        continue
                    line = figures.setdefault(what, {})
                    line[name] = min(figure, line.get(name, figure))

    def figure_of(binary, row):
        """Nanoseconds per operation of a guest, if the index gives its operations."""
        seconds = least[binary][row["file"]][0] - least[binary]["empty.toml"][0]
        return seconds * 1e9 / row["operations"] if row["operations"] else None

    ours = {}
    aside = (" before |", "---:|") if options.before else ("", "")
    lines = [f"| guest |{aside[0]} ns per operation | reach | peak RSS MiB |", f"|---|{aside[1]}---:|---:|---:|"]
    for row in rows:
        name = row["file"]
        mebibytes = least[options.binary][name][1]
        figure = ours[name] = figure_of(options.binary, row)
        reach = REACH.get(name)
        judged = mebibytes if name == "idle.toml" else figure
        verdict = "" if reach is None else f"{reach}" + (" MiB" if name == "idle.toml" else "") + ("" if judged <= reach else " (missed)")
        shown = "" if figure is None else f"{figure:.1f} / {row['operation']}"
        older = figure_of(options.before, row) if options.before else None
        before = "" if not options.before else " |" if older is None else f" {older:.1f} ({older / figure:.2f}) |"
        lines.append(f"| {row['what']} |{before} {shown} | {verdict} | {mebibytes:.0f} |")
    table = "\n".join(lines) + "\n"
    if options.peers:
        table += "\n" + beside(found, missing, figures, ours)
    print(table, end="")
    if options.markdown:
        options.markdown.write_text(table)


if __name__ == "__main__":
    main()
