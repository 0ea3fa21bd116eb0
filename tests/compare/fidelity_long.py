#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `kvtile fidelity` with 16-bit sinks and tails against what the Python tools simulate on the same model and ids.

    tests/compare/fidelity_long.py [--kvtile build/release/kvtile] [--shared ../shared] [--all] [plain] [biased]

Runs table E of shared/reference/golden.md (3 chunks of 2048 ids of shared/text/hound.ids, streamed) and prints both mean KLs of each
row: those with a sink and a tail of 128 rows, or --all. A row agrees where its mean KL is at most 10 % above the golden one, or above
it by no more than two standard errors of either; below it is better still. Then the ratios that kvtile sets itself as goals. Ends
with status 1 if one does not hold. Takes 8 minutes on one core, with --all 25. Needs the standard library only.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 0.10

# By sink/tail: what table E has and kvtile implements. Rows marked "single forward" are no way to use a cache. The golden
# turboquant leaves the norm too short and draws random signs, kvtile's turbo corrects the norm and draws none: its rows are shown
# and not held to anything.
ROWS = {
    "0/0": "affine2g64 affine3g64 affine4g64 affine8g64 affine2g32 affine4g32 turbo2 turbo3 turbo4",
    "128/0": "affine2g64 affine3g64 affine4g64 affine6g64 affine8g64 kvarn2 kvarn3 kvarn4 kvarn5 kvarn6 kvarn8",
    "0/32": "kivi2g32 kivi3g32 kivi4g32",
    "0/128": "kivi2g32 kivi3g32 kivi4g32 kivi8g32",
    "128/128": "affine2g64 affine3g64 affine4g64 affine4g32 kvarn2 kvarn3 kvarn4 kvarn6 kivi2g32 kivi3g32 kivi4g32 "
               "turbo2 turbo3 turbo4",
    "128/1024": "affine2g64 affine4g64 kvarn2 kvarn4 kivi2g32",
}

# At 128/128: the mean KL of a codec over that of affine4g32, at most.
GOALS = {
    "plain": {"kivi4g32": 2 / 5, "kvarn4": 3 / 5},
    "biased": {"kivi4g32": 1 / 80, "kvarn4": 1 / 70},
}


def golden_key(kv, regions):
    family = kv.rstrip("0123456789g")
    numbers = kv[len(family):].replace("g", ":")
    return f"{'tq' if family == 'turbo' else family}:{numbers}@{regions}"


def measure(args, model, regions):
    sink, tail = regions.split("/")
    command = [args.kvtile, "fidelity", str(ROOT / "models" / f"{model}.gguf"), "--ids",
               str(args.shared / "text" / "hound.ids"), "--chunk", "2048", "--chunks", "3", "--sink", sink, "--tail", tail,
               "--json", "--quiet"]
    for kv in ROWS[regions].split():
        command += ["--kv", kv]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return {scheme["kv"]: scheme["kl"] for scheme in json.loads(done.stdout)["schemes"]}


def standard_error(means):
    mean = sum(means) / len(means)
    return math.sqrt(sum((x - mean) ** 2 for x in means) / (len(means) - 1) / len(means))


def compare(model, regions, ours, golden):
    failures = 0
    for kv, kl in ours.items():
        theirs = golden[golden_key(kv, regions)]
        ratio = kl["mean"] / theirs["kl_mean"]
        noise = 2 * max(kl["stderr"], standard_error(theirs["kl_per_chunk"]))
        agrees = ratio <= 1 + TOLERANCE or kl["mean"] - theirs["kl_mean"] <= noise
        held = not kv.startswith("turbo")
        failures += held and not agrees
        print(f"{model:<8}{regions:>9}  {kv:<12}{kl['mean']:>11.4g}{theirs['kl_mean']:>11.4g}{ratio:>8.3f}"
              f"{'' if agrees else '  differs' if held else '  another norm'}")
    return failures


def check_goals(model, ours):
    failures = 0
    for kv, most in GOALS[model].items():
        ratio = ours[kv]["mean"] / ours["affine4g32"]["mean"]
        failures += ratio > most
        print(f"{model}: {kv} has {ratio:.4f} of affine4g32's mean KL (1/{1 / ratio:.1f}), goal {most:.4f}"
              f"{'' if ratio <= most else ': missed'}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["plain", "biased"])
    parser.add_argument("--kvtile", default=str(ROOT / "build" / "release" / "kvtile"))
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--all", action="store_true", help="every sink and tail of the table")
    args = parser.parse_args()
    golden = json.loads((args.shared / "reference" / "golden.json").read_text())["models"]
    failures = 0
    print(f"{'model':<8}{'sink/tail':>9}  {'cache':<12}{'KL mean':>11}{'golden':>11}{'ratio':>8}")
    for model in args.models:
        for regions in ROWS if args.all else ["128/128"]:
            ours = measure(args, model, regions)
            failures += compare(model, regions, ours, golden[model]["long"]["rows"])
            if regions == "128/128":
                failures += check_goals(model, ours)
    print(f"\n{failures} do not hold" if failures else "\nall hold")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
