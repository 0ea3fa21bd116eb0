#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `kvtile fidelity` against what the Python tools measured on the same model and ids.

    tests/compare/fidelity.py [--kvtile build/release/kvtile] [--shared ../shared] [--json-dir DIR] [plain] [biased]

Runs table A of shared/reference/golden.md (10 chunks of 512 ids of shared/text/hound.ids) and prints both numbers of each
row. A row agrees where its mean KL is within 5 % and its flips are within 0.5 points. Ends with status 1 if one does not.
Needs the standard library only; without shared or kvtile it is skipped.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Whether a position flips is nearly a toss where two tokens are alike, and another rounding of activations tosses again: flips may be off by some
# standard errors of their number, or by half a point.
KL_TOLERANCE, FLIP_TOLERANCE, FLIP_ERRORS = 0.05, 0.005, 2.5

# kvtile's name of each row of table A. Where the attention path of the tools makes a difference kvtile is the "dequantize"
# one; K-only and V-only rows were measured with that path alone.
ROWS = {
    "affine8g64": "stock:8:64",
    "affine8g32": "stock:8:32",
    "affine6g64": "stock:6:64",
    "affine5g64": "stock:5:64",
    "affine4g64": "stock:4:64",
    "affine4g32": "stock:4:32",
    "affine3g64": "stock:3:64",
    "affine2g64": "stock:2:64",
    "affine2g32": "stock:2:32",
    "affine4g64,f16": "deq:4:fp:64",
    "f16,affine4g64": "deq:fp:4:64",
}


def measure(args, model):
    command = [args.kvtile, "fidelity", str(ROOT / "models" / f"{model}.gguf"), "--ids",
               str(args.shared / "text" / "hound.ids"), "--chunk", "512", "--chunks", "10", "--json", "--kv", "f16"]
    for kv in ROWS:
        command += ["--kv", kv]
    command += args.extra
    start = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout), time.monotonic() - start


def compare(model, report, golden):
    schemes = {scheme["kv"]: scheme for scheme in report["schemes"]}
    print(f"\n{model}: {report['positions']} positions, reference perplexity "
          f"{report['schemes'][0]['ppl_ref']:.4f} (golden {golden['stock:4:64']['ppl_ref']:.4f})")
    print(f"{'cache':<16}{'bits':>7}{'KL mean':>12}{'golden':>12}{'off':>8}{'flips %':>10}{'golden':>8}{'off':>7}"
          f"{'p99':>10}{'golden':>10}{'ppl':>10}{'golden':>10}")
    failures = 0
    for kv, key in ROWS.items():
        ours, theirs = schemes[kv], golden[key]
        kl_off = ours["kl"]["mean"] / theirs["kl_mean"] - 1
        flips_off = ours["flips"] - theirs["flip_rate"]
        flip_error = (theirs["flip_rate"] * (1 - theirs["flip_rate"]) / report["positions"]) ** 0.5
        agrees = abs(kl_off) <= KL_TOLERANCE and abs(flips_off) <= max(FLIP_TOLERANCE, FLIP_ERRORS * flip_error)
        failures += not agrees
        print(f"{kv:<16}{ours['bits_per_element']:>7.3f}{ours['kl']['mean']:>12.4g}{theirs['kl_mean']:>12.4g}"
              f"{100 * kl_off:>+7.1f}%{100 * ours['flips']:>10.2f}{100 * theirs['flip_rate']:>8.2f}"
              f"{100 * flips_off:>+7.2f}{ours['kl']['p99']:>10.4g}{theirs['kl_p99']:>10.4g}{ours['ppl']:>10.4f}"
              f"{theirs['ppl_test']:>10.4f}{'' if agrees else '  differs'}")
    same = schemes["f16"]
    if same["kl"]["max"] != 0 or same["flips"] != 0:
        print(f"f16 against f16 should be exactly 0 and is {same['kl']['max']:g}")
        failures += 1
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["plain", "biased"])
    parser.add_argument("--kvtile", default=str(ROOT / "build" / "release" / "kvtile"))
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--json-dir", type=pathlib.Path, help="keep each report here")
    args, args.extra = parser.parse_known_args()
    for needed in (args.shared / "reference" / "golden.json", pathlib.Path(args.kvtile)):
        if not needed.exists():
            print(f"fidelity.py: skipped: there is no {needed}")
            return 0
    golden = json.loads((args.shared / "reference" / "golden.json").read_text())["models"]
    failures = 0
    for model in args.models:
        report, seconds = measure(args, model)
        if args.json_dir:
            (args.json_dir / f"fidelity-{model}.json").write_text(json.dumps(report, indent=2) + "\n")
        failures += compare(model, report, golden[model]["stock"]["rows"])
        print(f"{seconds:.1f} s")
    print(f"\n{failures} rows differ" if failures else "\nall rows agree")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
