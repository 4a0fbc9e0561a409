#!/usr/bin/env python3
"""`lucid show` against an independent reading of the same files.

usage: show_test.py LUCID_BINARY SHARED_DIR

Every checkpoint of SHARED_DIR/fixtures is shown as JSON and compared with the safetensors headers,
read here with the standard library, or with what must hold for any GGUF file; the text output is
checked to name every tensor.
Exit code 77 (skip, for CTest) where SHARED_DIR is absent.
"""
import glob
import json
import os
import struct
import subprocess
import sys

SKIP = 77
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL", what)


def show(binary, path, *flags):
    done = subprocess.run([binary, "show", path, *flags], capture_output=True, check=False,
                          timeout=60)
    if done.returncode != 0:
        check(False, f"show {path}: {done.stderr.decode(errors='replace')}")
        return None
    return done.stdout.decode()


def safetensors_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    rows = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        rows[name] = (item["dtype"], item["shape"], end - begin, 8 + length + begin)
    return rows


def compare_totals(shown, path):
    params = 0
    for tensor in shown["tensors"]:
        count = 1
        for dim in tensor["shape"]:
            count *= dim
        params += count
    total = sum(tensor["bytes"] for tensor in shown["tensors"])
    check(shown["n_params"] == params, f"{path}: n_params")
    check(shown["total_bytes"] == total, f"{path}: total_bytes")
    check(abs(shown["bits_per_weight"] - 8 * total / params) < 1e-9, f"{path}: bits_per_weight")
    types = shown["types"].values()
    check(sum(item["bytes"] for item in types) == total, f"{path}: bytes by type")
    check(sum(item["tensors"] for item in types) == len(shown["tensors"]), f"{path}: tensors by type")
    sizes = [os.path.getsize(file) for file in shown["files"]]
    check(shown["file_bytes"] == sum(sizes), f"{path}: file_bytes")


def compare_safetensors(binary, folder):
    text = show(binary, folder, "--json")
    if text is None:
        return
    shown = json.loads(text)
    expected = {}
    for shard in glob.glob(os.path.join(folder, "model*.safetensors")):
        expected.update(safetensors_header(shard))
    tensors = {t["name"]: (t["type"], t["shape"], t["bytes"], t["offset"])
               for t in shown["tensors"]}
    check(tensors == expected, f"{folder}: tensor table")
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    for key, value in config.items():
        check(shown["metadata"].get(key) == value, f"{folder}: metadata {key}")
    architecture = shown["hyperparameters"]["architecture"]
    check(architecture == config["architectures"][0], f"{folder}: architecture")
    check("cannot_be_run" not in shown, f"{folder}: is a model that runs")
    # What earlier versions stored beside weights, or stands there twice.
    masks = {name for name in tensors if name.endswith((".attn.bias", ".attn.masked_bias"))}
    passed_over = {name for names in shown["passed_over"].values() for name in names}
    check(masks <= passed_over <= masks | {"lm_head.weight"}, f"{folder}: passed over {passed_over}")
    compare_totals(shown, folder)


def compare_gguf(binary, path):
    text = show(binary, path, "--json")
    if text is None:
        return
    shown = json.loads(text)
    check(shown["format"] == "GGUF v3", f"{path}: format")
    arch = shown["metadata"]["general.architecture"]
    hyper = shown["hyperparameters"]
    check(hyper["architecture"] == arch, f"{path}: architecture")
    check(hyper["n_layers"] == shown["metadata"][f"{arch}.block_count"], f"{path}: n_layers")
    check(hyper["dim"] == shown["metadata"][f"{arch}.embedding_length"], f"{path}: dim")
    check(len(shown["positions"]) >= 1, f"{path}: how positions are known")
    check("cannot_be_run" not in shown, f"{path}: is a model that runs")
    end = max(tensor["offset"] + tensor["bytes"] for tensor in shown["tensors"])
    check(0 <= os.path.getsize(path) - end < 32, f"{path}: the last tensor ends where the file does")
    compare_totals(shown, path)
    table = show(binary, path) or ""
    named = {line.split()[0] for line in table.splitlines() if line.startswith("  ")}
    for tensor in shown["tensors"]:
        check(tensor["name"] in named, f"{path}: no line for {tensor['name']}")


def main():
    binary, shared = sys.argv[1], sys.argv[2]
    folders = sorted(glob.glob(os.path.join(shared, "fixtures", "models", "*", "")))
    files = sorted(glob.glob(os.path.join(shared, "fixtures", "gguf", "models", "*.gguf")))
    if not folders or not files:
        print(f"skipped: no fixtures in {shared}")
        return SKIP
    for folder in folders:
        compare_safetensors(binary, folder.rstrip("/"))
    for path in files:
        compare_gguf(binary, path)
    print(f"{len(folders) + len(files)} checkpoints compared, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
