#!/usr/bin/env python3
"""Instructions per operation of `wavelock run`, counted by callgrind: the noise-free counterpart of benches/speed.py.

usage: benches/instructions.py [--binary FILE] [--before FILE] [--cap] [NAME...]

Each row runs one guest of benches/guests at two sizes on one lane and one worker; the difference of
the instruction counts divided by the difference of the operations is the figure, so start-up cancels
out. With `--before` an older `wavelock` runs the same guests and the last column is the ratio of the two.
With `--cap` the session has a cap that it never uses up.
Counts ignore caches: for workloads with random memory access use speed.py.
Needs `valgrind`.
"""
import argparse, os, re, subprocess, sys, tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONG = "quantum_cycles = 1000000000"
# Name, module, machine keys, arguments and operations of the small and of the large run, policy.
ROWS = [
    ("yield, 1 coroutine", "yield", "", ((1, 1_000), 1_000), ((1, 21_000), 21_000), None),
    ("yield, 100 coroutines", "yield", LONG, ((100, 10), 1_000), ((100, 210), 21_000), None),
    ("yield, 100 coroutines, fair", "yield", "", ((100, 10), 1_000), ((100, 210), 21_000), "fair"),
    ("message, 1 pair", "pingpong", "", ((1, 500), 1_000), ((1, 10_500), 21_000), None),
    ("message, 100 pairs", "pingpong", "", ((100, 10), 2_000), ((100, 110), 22_000), None),
    ("message, stream 64 deep", "stream", "", ((1_000, 64), 1_000), ((41_000, 64), 41_000), None),
    ("message, ring of 100", "ring", "", ((100, 1_000), 1_000), ((100, 21_000), 21_000), None),
    ("spawn and end", "spawn", LONG, ((100,), 100), ((10_100,), 10_100), None),
    ("sleep and wake, of 20,000", "sleepers", "frame_cycles = 100000000", ((20_000, 1), 20_000), ((20_000, 5), 100_000), None),
]


def count(binary, folder, module, machine, arguments, policy, session):
    """Instructions of one run."""
    manifest = Path(folder) / "guest.toml"
    words = ", ".join(f'"{word}"' for word in (module, *arguments))
    manifest.write_text(
        f'[machine]\nlanes = 1\n{machine}\n[limits]\ncoroutines = 1000001\n'
        f'[[session]]\nname = "guest"\nmodule = "{HERE / "guests" / module}.wat"\nargs = [{words}]\n{session}\n'
    )
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, "run", manifest, "--workers", "1"]
    done = subprocess.run([*map(str, command), *(["--policy", policy] if policy else [])], capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{module} {arguments}: exit {done.returncode}\n{done.stderr}")
    return int(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    parser.add_argument("--binary", default=str(target / "release" / "wavelock"))
    parser.add_argument("--before", help="an older `wavelock` to compare with")
    parser.add_argument("--cap", action="store_true", help="give the session a cap that it never uses up")
    parser.add_argument("names", nargs="*", help="rows whose name contains one of these (default: all)")
    options = parser.parse_args()
    binaries = [options.binary] + ([options.before] if options.before else [])
    print("| instructions per operation |" + (" before |" if options.before else "") + " now |" + (" now / before |" if options.before else ""))
    print("|---|" + "---:|" * (3 if options.before else 1))
    session = "budget_cycles = 1000000000000" if options.cap else ""
    with tempfile.TemporaryDirectory() as folder:
        for name, module, machine, (small, few), (large, many), policy in ROWS:
            if options.names and not any(part in name for part in options.names):
                continue
            now, *before = [
                (count(binary, folder, module, machine, large, policy, session) - count(binary, folder, module, machine, small, policy, session))
                / (many - few)
                for binary in binaries
            ]
            cells = [*(f"{figure:.0f}" for figure in before), f"{now:.0f}", *(f"{now / figure:.2f}" for figure in before)]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
