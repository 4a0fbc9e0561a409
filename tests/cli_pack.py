#!/usr/bin/env python3
"""Packed weights that are kept for the next start: what is written, used, refused, and what a full disk or a read-only folder does."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import e2e
from e2e import Case

TWIN = e2e.SHARED / "fixtures" / "gguf" / "models" / "stories_llama.q4_0.gguf"
OTHER_TWIN = TWIN.with_name("stories_llama.q8_0.gguf")
HUGE_SETTING = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGES = HUGE_SETTING.exists() and "[never]" not in HUGE_SETTING.read_text()
IMAGE_OFFSET = 2 << 20  # exec/packed_file.h


class Pack(Case):
    """Each test has a copy of the model and a home of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lucid-pack-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "m.gguf"
        shutil.copyfile(TWIN, self.model)
        self.env = {"LUCID_HOME": str(self.folder / "home"), "LUCID_LOG": "info"}

    def packs(self):
        return sorted((self.folder / "home" / "packed").glob("*"))

    def generate(self, *flags, env=None):
        """The run of a greedy reply; its log is in err."""
        return self.ok("run", "-m", self.model, "--raw", "-p", "Once upon a time", "-n", 24, "--temp", 0, "--ignore-eos", "--json",
                       "--logprobs", 3, *flags, env={**self.env, **(env or {})})

    def figures(self, ran):
        return [(token["id"], token["logprob"], token["top_logprobs"]) for token in ran.json()["tokens"]]


class Starts(Pack):
    def test_the_first_start_keeps_and_the_next_maps_with_the_same_bits(self):
        without = self.generate("--no-pack-cache")
        self.assertEqual(self.packs(), [])
        first = self.generate()
        self.assertIn("packed weights are kept in", first.err)
        [pack] = self.packs()
        self.assertRegex(pack.name, r"\Am\.gguf-[0-9a-f]{16}\.pack\Z")
        written = pack.stat()
        os.utime(pack, ns=(0, 0))
        mapped = self.generate()
        self.assertNotIn("kept", mapped.err)
        self.assertNotIn("warning", mapped.err)
        self.assertEqual(pack.stat().st_ino, written.st_ino)
        self.assertGreater(pack.stat().st_mtime_ns, 0, "its last use was not noted")
        self.assertEqual(self.figures(first), self.figures(without))
        self.assertEqual(self.figures(mapped), self.figures(without))

    @unittest.skipUnless(HUGE_PAGES, "this system gives no huge pages")
    def test_weights_for_huge_pages_are_packed_at_each_load(self):
        kept = self.generate()
        [pack] = self.packs()
        os.utime(pack, ns=(0, 0))
        own = self.generate("--huge-pages", "on")
        self.assertEqual(pack.stat().st_mtime_ns, 0, "the file in small pages was used")
        self.assertEqual(self.figures(own), self.figures(kept))

    def test_numerics_without_packed_weights_keep_none(self):
        self.generate("--numerics", "float")
        self.assertEqual(self.packs(), [])

    def test_a_model_replaced_under_its_name_is_packed_anew(self):
        self.generate()
        [pack] = self.packs()
        shutil.copyfile(OTHER_TWIN, self.model)
        wanted = self.figures(self.generate("--no-pack-cache"))
        replaced = self.generate()
        self.assertIn("was made from another version of the model", replaced.err)
        self.assertEqual(self.figures(replaced), wanted)
        self.assertEqual(self.packs(), [pack])
        again = self.generate()
        self.assertEqual(self.figures(again), wanted)
        self.assertNotIn("another version", again.err)

    def test_other_weights_of_the_same_size_and_time_are_seen(self):
        self.generate()
        stat = self.model.stat()
        data = bytearray(self.model.read_bytes())
        for at in range(len(data) // 2, len(data)):
            data[at] ^= 1
        self.model.write_bytes(data)
        os.utime(self.model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        wanted = self.figures(self.generate("--no-pack-cache"))
        got = self.generate()
        self.assertIn("does not hold this model's weights", got.err)
        self.assertEqual(self.figures(got), wanted)

    def test_damaged_files_are_replaced(self):
        wanted = self.figures(self.generate())
        [pack] = self.packs()
        good = pack.read_bytes()
        for name, bad in {"empty": b"", "cut off": good[:-1], "only a header": good[:4096], "nonsense": b"x" * len(good),
                          "header damaged": good[:20] + b"\xff" + good[21:],
                          "image lost": good[:IMAGE_OFFSET] + bytes(len(good) - IMAGE_OFFSET)}.items():
            with self.subTest(name):
                pack.write_bytes(bad)
                got = self.generate()
                self.assertIn("the weights are packed anew", got.err)
                self.assertEqual(self.figures(got), wanted)
                self.assertEqual(pack.read_bytes(), good)

    def test_damaged_pages_are_found_at_the_next_start(self):
        """Whichever page of the file it is, and only what changed is read again."""
        wanted = self.figures(self.generate())
        [pack] = self.packs()
        self.assertNotIn("anew", self.generate().err)
        good = pack.read_bytes()
        for at in range(IMAGE_OFFSET + 100, len(good), 40_009):
            with self.subTest(at):
                with pack.open("r+b") as file:
                    file.seek(at)
                    file.write(bytes(b ^ 1 for b in good[at:at + 64]))
                got = self.generate()
                self.assertIn("so the weights are packed anew", got.err)
                self.assertEqual(self.figures(got), wanted)
                self.assertEqual(pack.read_bytes(), good)
        self.assertNotIn("anew", self.generate().err)

    def test_a_file_beside_the_model_is_used(self):
        beside = self.folder / "m.gguf.pack"
        self.ok("pack", self.model, "-o", beside, env=self.env)
        got = self.generate()
        self.assertEqual(self.packs(), [])
        self.assertNotIn("kept", got.err)
        self.assertEqual(self.figures(got), self.figures(self.generate("--no-pack-cache")))

    def test_processes_that_start_together_agree(self):
        command = [e2e.LUCID, "run", "-m", str(self.model), "--raw", "-p", "Once", "-n", "4", "--temp", "0"]
        env = {**os.environ, **self.env, "LUCID_LOG": "warn"}
        started = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
        ended = [(*process.communicate(timeout=e2e.TIMEOUT_S), process.returncode) for process in started]
        self.assertEqual({ran for ran in ended}, {(ended[0][0], b"", 0)})
        [pack] = self.packs()
        self.ok("pack", self.model, "--verify", env=self.env)


class Trouble(Pack):
    def test_a_folder_that_cannot_be_made_costs_one_warning(self):
        (self.folder / "home").write_text("a file is here", encoding="ascii")
        got = self.generate(env={"LUCID_LOG": "warn"})
        self.assertRegex(got.err, r"\Alucid warning: the packed weights are not kept for the next start: [^\n]+\n\Z")
        self.assertEqual(self.figures(got), self.figures(self.generate("--no-pack-cache")))

    def test_a_file_that_cannot_be_written_costs_one_warning_and_leaves_nothing(self):
        def no_large_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full disk's error, not the signal
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        command = [e2e.LUCID, "run", "-m", str(self.model), "--raw", "-p", "Once", "-n", "4", "--temp", "0"]
        done = subprocess.run(command, env={**os.environ, **self.env, "LUCID_LOG": "warn"}, capture_output=True, check=False,
                              preexec_fn=no_large_files, restore_signals=False, timeout=e2e.TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr.decode(), r"\Alucid warning: the packed weights are not kept for the next start: "
                                               r"cannot write [^\n]+\n\Z")
        self.assertEqual(self.packs(), [])

    def test_a_limit_of_nothing_keeps_nothing(self):
        got = self.generate(env={"LUCID_PACK_GB": "0", "LUCID_LOG": "warn"})
        self.assertEqual((got.err, self.packs()), ("", []))

    def test_the_least_recently_used_make_room(self):
        self.generate()
        [first] = self.packs()
        other = self.folder / "other.gguf"
        shutil.copyfile(TWIN, other)
        size = first.stat().st_size
        self.ok("pack", other, env={**self.env, "LUCID_PACK_GB": str(1.5 * size / 1e9)})
        [left] = self.packs()
        self.assertTrue(left.name.startswith("other.gguf-"), left)

    def test_a_killed_start_leaves_what_the_next_replaces(self):
        left = self.folder / "home" / "packed"
        self.generate()
        [pack] = self.packs()
        pack.rename(left / (pack.name + ".part"))
        self.generate()
        self.assertEqual(self.packs(), [pack])


class Command(Pack):
    def test_packs_verifies_lists_and_clears(self):
        out = self.ok("pack", self.model, env=self.env).out
        self.assertRegex(out, r"\Apacked \d+ matrices, [\d.]+ [KM]iB, in [\d.]+ s \([\d.]+ GB/s\)\nwrote \S+m\.gguf-\S+\.pack in ")
        [pack] = self.packs()
        self.assertIn(f"{pack} is right", self.ok("pack", "-m", self.model, "--verify", env=self.env).out)
        listed = self.ok("pack", "--list", env=self.env).out
        self.assertIn(str(pack), listed)
        self.assertIn(time.strftime("%Y-", time.gmtime()), listed)
        self.assertIn("deleted", self.ok("pack", "--clear", env=self.env).out)
        self.assertEqual(self.packs(), [])
        self.assertIn("there are no packed weights", self.fails(1, "pack", self.model, "--verify", env=self.env))

    def test_verify_finds_any_damage(self):
        self.ok("pack", self.model, env=self.env)
        [pack] = self.packs()
        good = bytearray(pack.read_bytes())
        complaints = []
        for at in range(IMAGE_OFFSET, len(good), 40_009):
            bad = bytearray(good)
            bad[at] ^= 1
            pack.write_bytes(bad)
            complaints.append(self.fails(1, "pack", self.model, "--verify", env=self.env))
        self.assertTrue(any("is not what packing the model gives" in each for each in complaints), complaints)

    def test_output_replaces_nothing_but_packed_weights(self):
        model, notes, folder = self.model.read_bytes(), self.folder / "notes.txt", self.folder / "folder"
        notes.write_text("mine", encoding="ascii")
        folder.mkdir()
        link, hard = self.folder / "link", self.folder / "hard"
        link.symlink_to(self.model)
        os.link(self.model, hard)
        for target, why in ((self.model, "the model itself"), (link, "the model itself"), (hard, "the model itself"),
                            (notes, "no packed weights"), (folder, "no regular file"), ("/dev/null", "no regular file")):
            with self.subTest(target):
                self.assertIn(why, self.fails(1, "pack", self.model, "-o", target, env=self.env))
        unfinished = self.folder / "m.part"
        self.model.rename(unfinished)
        self.assertIn("the model itself", self.fails(1, "pack", unfinished, "-o", self.folder / "m", env=self.env))
        self.assertEqual((unfinished.read_bytes(), notes.read_text(encoding="ascii"), pathlib.Path("/dev/null").is_char_device()),
                         (model, "mine", True))
        kept = self.folder / "kept.pack"
        for _ in range(2):  # the second replaces the first
            self.ok("pack", unfinished, "-o", kept, env=self.env)
        self.assertEqual(self.packs(), [])

    def test_wrong_uses_are_told(self):
        for whole in ("--list", "--clear"):
            for part in (["-o", "x"], ["--verify"], ["-t", 1], [self.model]):
                self.fails(2, "pack", whole, *part, env=self.env)
        self.assertIn("no model is named", self.fails(1, "pack", env=self.env))
        self.fails(2, "pack", "--list", "--clear", env=self.env)
        absent = self.folder / "absent.pack"
        self.assertIn(str(absent), self.fails(1, "pack", self.model, "--verify", "-o", absent, env=self.env))
        self.assertIn("LUCID_PACK_GB", self.fails(1, "pack", self.model, env={**self.env, "LUCID_PACK_GB": "lots"}))
        self.assertIn("LUCID_PACK_GB", self.fails(1, "pack", self.model, env={**self.env, "LUCID_PACK_GB": "0"}))


if not TWIN.exists():
    e2e.skip(f"the fixture {TWIN} is absent")
e2e.main()
