#!/usr/bin/env python3
"""Measures the gain of each row of the peephole table, in instructions counted by valgrind.

usage: benches/superinstructions.py [ROW...]

Builds the benches `quick` (kernels) and `guests` (whole machines), runs each program at two sizes under callgrind with all rows of the
table and without one of them, and prints by how much the difference of the two sizes grows. Loading cancels out, and counts do not
depend on the load of the machine. A row stays in the table if it gains 3 % on a kernel or 5 % on a row of speed.py.
"""
import json, os, re, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Program: bench, the smaller and the larger size.
PROGRAMS = {
    "fib": ("quick", "fib 18", "fib 24"), "lcg": ("quick", "lcg 20000", "lcg 1000000"),
    "sieve": ("quick", "sieve 1000", "sieve 200000"), "sort": ("quick", "sort 500", "sort 20000"),
    "sha256": ("quick", "sha256 10", "sha256 500"), "matmul": ("quick", "matmul 8", "matmul 48"),
    "copy_loop": ("quick", "copy_loop 2", "copy_loop 50"), "indirect": ("quick", "indirect 1000", "indirect 200000"),
    "vm": ("quick", "vm 20", "vm 1500"), "yield": ("guests", "yield 1000 20", "yield 1000 100"),
    "pair": ("guests", "pingpong 1 1000", "pingpong 1 31000"), "stream": ("guests", "stream 2000 64", "stream 82000 64"),
    "spawn": ("guests", "spawn 5000", "spawn 25000"),
}
# Rows that are kept or dropped together: all are needed before the calls of a message.
TOGETHER = [("load from a constant address", "constant and copy", "two copies")]


def binary(package, bench):
    command = ["cargo", "bench", "--quiet", "-p", package, "--bench", bench, "--no-run", "--message-format=json"]
    for line in subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == bench:
            return message["executable"]
    sys.exit(f"no bench {bench}")


def count(binary, arguments, without):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, *arguments.split()]
    run = subprocess.run(command, env=dict(os.environ, WITHOUT=",".join(without)), capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    return int(found[1]) if run.returncode == 0 and found else sys.exit(f"{command}: {run.stderr}")


def main():
    table = (ROOT / "crates/module/src/peephole.rs").read_text()
    rows = re.findall(r'name: "([^"]+)"', table)
    chosen = [(row,) for row in rows] + TOGETHER
    if sys.argv[1:]:
        chosen = [tuple(sys.argv[1:])]
    binaries = {"quick": binary("wavelock-machine", "quick"), "guests": binary("wavelock-system", "guests")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            (without, program): [pool.submit(count, binaries[bench], size, without) for size in (small, large)]
            for without in [()] + chosen
            for program, (bench, small, large) in PROGRAMS.items()
        }
        taken = {key: large.result() - small.result() for key, (small, large) in jobs.items()}
    print("| without | gains, % of instructions (1 and more) |\n|---|---|")
    for without in chosen:
        gains = {program: taken[without, program] / taken[(), program] * 100 - 100 for program in PROGRAMS}
        text = ", ".join(f"{program} {gain:.1f}" for program, gain in gains.items() if gain >= 1)
        print(f"| {' and '.join(without)} | {text or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
