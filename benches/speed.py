#!/usr/bin/env python3
"""The speed table of `wavelock run`, end to end: whole process, one lane, one worker, digest and ledger on, less an empty run.

usage: benches/speed.py [--binary FILE] [--repeat N] [--markdown FILE] [NAME...]

Reads benches/guests/index.toml. Each guest runs N times (default 5), interleaved, as a process of its own; the figure is the least CPU time
(user + system) less the least of the empty run, divided by the guest's operations, and the largest resident set. CPU time is used because
machines are shared; run it on a quiet one all the same. `reach` is the goal the project set itself; a figure above it says so.
"""
import argparse, os, subprocess, sys, tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The goals, in nanoseconds per operation (MiB for `idle`): what the table is judged by, not what was measured.
REACH = {
    "yield-1.toml": 25, "yield-1000.toml": 25, "yield-10000.toml": 25, "yield-1000000.toml": 50,
    "pingpong-1.toml": 60, "pingpong-1000.toml": 60, "stream.toml": 30, "spawn.toml": 200, "sleepers.toml": 200, "idle.toml": 320,
}


def run(binary, manifest):
    """CPU seconds and resident MiB of one run, and what the guest printed."""
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
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    parser.add_argument("names", nargs="*", help="manifests to run (default: all of the table)")
    options = parser.parse_args()

    index = tomllib.loads((HERE / "guests" / "index.toml").read_text())["run"]
    rows = [row for row in index if row["file"] == "empty.toml" or row["operations"] > 0 or row["file"] == "idle.toml"]
    if options.names:
        rows = [row for row in rows if row["file"] == "empty.toml" or row["file"] in options.names]
    least = {row["file"]: (float("inf"), 0.0) for row in rows}
    for _ in range(options.repeat):
        for row in rows:
            seconds, mebibytes, output = run(options.binary, HERE / "guests" / row["file"])
            if row["output"] and output != row["output"]:
                sys.exit(f"{row['file']}: printed {output!r}, expected {row['output']!r}")
            before = least[row["file"]]
            least[row["file"]] = (min(before[0], seconds), max(before[1], mebibytes))

    empty = least["empty.toml"][0]
    lines = ["| guest | ns per operation | reach | peak RSS MiB |", "|---|---:|---:|---:|"]
    for row in rows:
        name = row["file"]
        seconds, mebibytes = least[name]
        figure = (seconds - empty) * 1e9 / row["operations"] if row["operations"] else None
        reach = REACH.get(name)
        judged = mebibytes if name == "idle.toml" else figure
        verdict = "" if reach is None else f"{reach}" + (" MiB" if name == "idle.toml" else "") + ("" if judged <= reach else " (missed)")
        shown = "" if figure is None else f"{figure:.1f} / {row['operation']}"
        lines.append(f"| {row['what']} | {shown} | {verdict} | {mebibytes:.0f} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if options.markdown:
        options.markdown.write_text(table)


if __name__ == "__main__":
    main()
