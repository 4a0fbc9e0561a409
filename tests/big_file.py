#!/usr/bin/env python3
"""Peak memory of `lucid run` on a 4.7 GB model stays below the file's size plus 1 GiB, where weights are packed and where they are mapped.

The file has the exact shape and tensor types of Qwen2.5-7B Q4_K_M with random weights (bench/make_shape_model.py of the
shared folder writes it in half a minute). Needs 11 GB of disk, 8 GB of memory and the Python packages gguf and numpy.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import e2e

MAKER = e2e.SHARED / "bench" / "make_shape_model.py"
DISK_BYTES = 11 << 30
MEMORY_BYTES = 8 << 30
ALLOWANCE = 1 << 30


class BigFile(e2e.Case):
    def test_peak_memory(self):
        with tempfile.TemporaryDirectory(prefix="lucid-big-", dir=e2e.ROOT / "build") as folder:
            model = pathlib.Path(folder) / "qwen2.5-7b-shape-q4_k_m.gguf"
            made = subprocess.run([sys.executable, str(MAKER), "--shape", "qwen2.5-7b", "--out", str(model)],
                                  capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            size = model.stat().st_size
            self.assertGreater(size, 4_600_000_000)
            for start in ("packs", "maps what the first kept"):
                pid = os.posix_spawn(e2e.LUCID, [str(e2e.LUCID), "run", "-m", str(model), "--raw", "-p", "Hello, world", "-n", "2",
                                                 "--temp", "0", "--ignore-eos"], os.environ)
                _, status, usage = os.wait4(pid, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 0)
                peak = usage.ru_maxrss * 1024
                print(f"{start}: file {size} bytes, peak {peak} bytes, {peak - size} above")
                self.assertLess(peak, size + ALLOWANCE)


if not MAKER.exists():
    e2e.skip(f"{MAKER} is absent")
try:
    import gguf  # noqa: F401  (the maker needs both)
    import numpy  # noqa: F401
except ImportError as error:
    e2e.skip(f"{error}; ./test installs it into build/venv")
if shutil.disk_usage(e2e.ROOT / "build").free < DISK_BYTES:
    e2e.skip("less than 11 GiB of disk are free")
if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < MEMORY_BYTES:
    e2e.skip("the machine has less than 8 GiB of memory")
e2e.main()
