#!/usr/bin/env python3
"""lucid pull and lucid models against a small HTTP server on 127.0.0.1: resume, checksums, a hub's API.

Usage: store_pull_test.py [LUCID]   (default: $LUCID_BIN or build/release/lucid). Standard library only.
"""
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LUCID = os.environ.get("LUCID_BIN", str(ROOT / "build" / "release" / "lucid"))

MODEL = b"GGUF" + bytes(i * 7 % 251 for i in range(3_000_000))
OTHER = b"GGUF" + bytes(i * 11 % 241 for i in range(3_000_000))
SHA256 = hashlib.sha256(MODEL).hexdigest()


class Server:
    """Serves `files` (path -> bytes) with Range, ETag and faults that a test can switch on."""

    def __init__(self):
        self.files = {}
        self.listings = {}        # repo -> list of siblings
        self.redirects = {}       # path -> (url, extra headers)
        self.cut_after = []       # send only so many bytes of the next answers, then hang up
        self.fail_first = 0       # this many 503 answers first
        self.ignore_range = False
        self.send_etag = True
        self.delay_s = 0.0
        self.requests = []        # (path, headers)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def plain(self, handler, status, body=b"", headers=()):
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
        path = handler.path
        if not path.startswith("/api/"):
            path = path.split("?")[0]
        self.requests.append((path, dict(handler.headers)))
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.fail_first:
            self.fail_first -= 1
            return self.plain(handler, 503)
        if path in self.redirects:
            url, extra = self.redirects[path]
            return self.plain(handler, 302, headers=[("Location", url), *extra])
        if path.startswith("/api/models/"):
            repo = path[len("/api/models/"):].split("?")[0]
            if repo not in self.listings:
                return self.plain(handler, 404)
            return self.plain(handler, 200, json.dumps({"siblings": self.listings[repo]}).encode())
        if path not in self.files:
            return self.plain(handler, 404)
        body = self.files[path]
        etag = '"%s"' % hashlib.sha256(body).hexdigest()[:16]
        start = self.range_start(handler, etag)
        headers = [("ETag", etag)] if self.send_etag else []
        if start >= len(body) > 0:
            return self.plain(handler, 416, headers=[("Content-Range", f"bytes */{len(body)}")])
        if start:
            headers.append(("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}"))
        handler.send_response(206 if start else 200)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        part = body[start:]
        if self.cut_after:
            part = part[:self.cut_after.pop(0)]
            handler.close_connection = True
        try:
            handler.wfile.write(part)
        except ConnectionError:
            pass

    def range_start(self, handler, etag):
        wanted = handler.headers.get("Range")
        if not wanted or self.ignore_range:
            return 0
        condition = handler.headers.get("If-Range")
        if condition and condition != etag:
            return 0
        return int(wanted.removeprefix("bytes=").split("-")[0])


class PullTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        folder = tempfile.TemporaryDirectory(prefix="lucid-pull-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("LUCID_", "HF_")) and not k.lower().endswith("_proxy")}
        self.env.update(LUCID_HOME=str(self.home), LUCID_HF_ENDPOINT=self.server.url)
        self.server.files["/m.gguf"] = MODEL

    def start(self, *args):
        return subprocess.Popen([LUCID, *args], env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def lucid(self, *args, code=0):
        process = self.start(*args)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, f"{args}: {out}{err}")
        if code == 1:
            self.assertEqual(len(err.strip().splitlines()[-1:]), 1)
            self.assertTrue(err.strip().splitlines()[-1].startswith("lucid: "), err)
        return out, err

    def stored(self):
        return {m["name"]: m for m in json.loads(self.lucid("models", "--json")[0])}

    def files_left(self):
        """Everything in the store but locks and the index."""
        return sorted(str(p.relative_to(self.home / "models")) for p in (self.home / "models").rglob("*")
                      if p.is_file() and p.suffix != ".lock" and p.name != "index.json")

    # ---- URLs

    def test_url_is_stored_listed_and_removed(self):
        out, _ = self.lucid("pull", self.server.url + "/m.gguf")
        self.assertIn(SHA256, out)
        model = self.stored()["m"]
        self.assertEqual(pathlib.Path(model["path"]).read_bytes(), MODEL)
        self.assertEqual((model["sha256"], model["bytes"]), (SHA256, len(MODEL)))
        self.assertIn("m.gguf", self.lucid("models")[0])
        self.assertIn("was there already", self.lucid("pull", self.server.url + "/m.gguf")[0])
        self.assertEqual(len(self.server.requests), 1)
        self.lucid("models", "rm", "m")
        self.assertEqual(self.stored(), {})
        self.assertEqual(self.files_left(), [])
        self.lucid("models", "rm", "m", code=1)

    def test_name_flag_and_name_clash(self):
        self.lucid("pull", self.server.url + "/m.gguf?download=true", "--name", "mine")
        self.assertIn("mine", self.stored())
        self.server.files["/b.gguf"] = OTHER
        _, err = self.lucid("pull", self.server.url + "/b.gguf", "--name", "mine", code=1)
        self.assertIn("taken", err)

    def test_not_found_leaves_nothing(self):
        _, err = self.lucid("pull", self.server.url + "/absent.gguf", code=1)
        self.assertIn("404", err)
        self.assertEqual(self.stored(), {})
        self.assertEqual(self.files_left(), [])

    def test_nobody_listens(self):
        _, err = self.lucid("pull", "http://127.0.0.1:1/m.gguf", code=1)
        self.assertIn("cannot download http://127.0.0.1:1/m.gguf", err)

    def test_checksum(self):
        self.lucid("pull", self.server.url + "/m.gguf", "--sha256", SHA256.upper())
        self.lucid("models", "rm", "m")
        _, err = self.lucid("pull", self.server.url + "/m.gguf", "--sha256", "0" * 64, code=1)
        self.assertIn(SHA256, err)
        self.assertEqual(self.stored(), {})
        self.assertEqual(self.files_left(), [])

    def test_a_web_page_is_no_model(self):
        self.server.files["/page.gguf"] = b"<html>sign in</html>"
        _, err = self.lucid("pull", self.server.url + "/page.gguf", code=1)
        self.assertIn("not a GGUF file", err)
        self.assertEqual(self.files_left(), [])

    # ---- interruptions

    def ranges(self):
        return [h.get("Range") for _, h in self.server.requests]

    def test_dropped_connections_are_resumed(self):
        self.server.cut_after = [1_000_000, 500_000]
        self.lucid("pull", self.server.url + "/m.gguf", "--sha256", SHA256)
        self.assertEqual(self.ranges(), [None, "bytes=1000000-", "bytes=1500000-"])

    def killed_pull(self):
        """A pull that was killed with a part of the file on the disk."""
        self.server.cut_after = [1_000_000]
        self.server.fail_first = 0
        process = self.start("pull", self.server.url + "/m.gguf")
        part = self.home / "models" / "m" / "m.gguf.part"
        end = time.time() + 30
        while time.time() < end and not (part.exists() and part.stat().st_size == 1_000_000):
            time.sleep(0.005)
        process.kill()
        process.communicate()
        self.assertEqual(part.stat().st_size, 1_000_000)
        self.assertEqual(self.stored(), {})
        self.server.requests.clear()
        self.server.cut_after = []

    def test_a_killed_pull_goes_on(self):
        self.killed_pull()
        self.lucid("pull", self.server.url + "/m.gguf", "--sha256", SHA256)
        self.assertEqual(self.ranges(), ["bytes=1000000-"])
        self.assertEqual(self.files_left(), ["m/m.gguf"])

    def test_a_changed_file_is_fetched_anew(self):
        self.killed_pull()
        self.server.files["/m.gguf"] = OTHER
        self.lucid("pull", self.server.url + "/m.gguf")
        self.assertEqual(pathlib.Path(self.stored()["m"]["path"]).read_bytes(), OTHER)

    def test_a_server_without_ranges_starts_over(self):
        self.killed_pull()
        self.server.ignore_range = True
        self.lucid("pull", self.server.url + "/m.gguf", "--sha256", SHA256)

    def test_a_shorter_file_now_is_not_mixed(self):
        self.server.send_etag = False
        self.killed_pull()
        self.server.files["/m.gguf"] = b"GGUF short"
        self.lucid("pull", self.server.url + "/m.gguf")
        self.assertEqual(pathlib.Path(self.stored()["m"]["path"]).read_bytes(), b"GGUF short")

    def test_a_complete_part_only_needs_its_name(self):
        self.killed_pull()
        part = self.home / "models" / "m" / "m.gguf.part"
        part.write_bytes(MODEL)
        self.lucid("pull", self.server.url + "/m.gguf", "--sha256", SHA256)

    def test_busy_server_is_tried_again(self):
        self.server.fail_first = 2
        self.lucid("pull", self.server.url + "/m.gguf")

    def test_two_pulls_at_once_share_the_work(self):
        self.server.delay_s = 0.5
        both = [self.start("pull", self.server.url + "/m.gguf") for _ in range(2)]
        outs = [p.communicate(timeout=120) for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], outs)
        self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(sum("was there already" in out for out, _ in outs), 1)
        self.assertEqual(sum("waiting" in err for _, err in outs), 1)

    def test_disk_errors_are_reported(self):
        locked = self.home / "models"
        locked.mkdir()
        (locked / "m").write_text("a file where the folder should be")
        _, err = self.lucid("pull", self.server.url + "/m.gguf", code=1)
        self.assertIn("cannot create the folder", err)

    # ---- the hub

    def hub(self, repo, files):
        self.server.listings[repo] = [
            {"rfilename": name, "size": len(body),
             "lfs": {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}}
            for name, body in files.items()]
        for name, body in files.items():
            self.server.files[f"/{repo}/resolve/main/{name}"] = body

    def test_hub_chooses_the_quantisation(self):
        self.hub("o/r", {"m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": OTHER, "README.md": b"#"})
        self.lucid("pull", "hf:o/r")
        self.lucid("pull", "hf:o/r:q8_0")
        stored = self.stored()
        self.assertEqual(pathlib.Path(stored["hf:o/r"]["path"]).read_bytes(), MODEL)
        self.assertEqual(pathlib.Path(stored["hf:o/r:q8_0"]["path"]).read_bytes(), OTHER)
        _, err = self.lucid("pull", "hf:o/r:Q2_K", code=1)
        self.assertIn("m-Q8_0.gguf", err)
        _, err = self.lucid("pull", "hf:o/none", code=1)
        self.assertIn("404", err)

    def test_hub_split_files_and_safetensors(self):
        self.hub("o/split", {f"q/m-Q8_0-0000{i}-of-00002.gguf": MODEL[:999 + i] for i in (1, 2)})
        self.lucid("pull", "hf:o/split")
        path = pathlib.Path(self.stored()["hf:o/split"]["path"])
        self.assertEqual(path.name, "m-Q8_0-00001-of-00002.gguf")
        self.assertEqual((path.parent / "m-Q8_0-00002-of-00002.gguf").stat().st_size, 1001)
        self.hub("o/st", {"config.json": b"{}", "model.safetensors": b"x" * 99, "a.bin": b"y"})
        self.lucid("pull", "hf:o/st")
        folder = pathlib.Path(self.stored()["hf:o/st"]["path"])
        self.assertEqual(sorted(p.name for p in folder.iterdir()),
                         ["config.json", "model.safetensors"])

    def test_hub_checksum_is_checked(self):
        self.hub("o/r", {"m.gguf": MODEL})
        self.server.files["/o/r/resolve/main/m.gguf"] = OTHER
        _, err = self.lucid("pull", "hf:o/r", code=1)
        self.assertIn("was promised", err)
        self.assertEqual(self.files_left(), [])

    def test_hub_linked_etag_is_checked(self):
        self.server.listings["o/r"] = [{"rfilename": "m.gguf"}]
        self.server.redirects["/o/r/resolve/main/m.gguf"] = (
            self.server.url + "/m.gguf", [("X-Linked-Etag", f'"{"0" * 64}"')])
        _, err = self.lucid("pull", "hf:o/r", code=1)
        self.assertIn("was promised", err)
        self.server.redirects["/o/r/resolve/main/m.gguf"] = (
            self.server.url + "/m.gguf", [("X-Linked-Etag", f'"{SHA256}"')])
        self.lucid("pull", "hf:o/r")

    def test_token_goes_to_the_hub_only(self):
        elsewhere = Server()
        self.addCleanup(elsewhere.close)
        elsewhere.files["/blob"] = MODEL
        self.hub("o/r", {"m.gguf": MODEL})
        self.server.redirects["/o/r/resolve/main/m.gguf"] = (
            elsewhere.url.replace("127.0.0.1", "localhost") + "/blob", [])
        self.env["HF_TOKEN"] = "secret"
        self.lucid("pull", "hf:o/r")
        self.assertTrue(self.server.requests)
        for _, headers in self.server.requests:
            self.assertEqual(headers.get("Authorization"), "Bearer secret")
        self.assertEqual(len(elsewhere.requests), 1)
        self.assertNotIn("Authorization", elsewhere.requests[0][1])

    def test_endpoint_flag_and_hostile_listing(self):
        self.env["LUCID_HF_ENDPOINT"] = "http://127.0.0.1:1"
        self.hub("o/r", {"m.gguf": MODEL})
        self.lucid("pull", "hf:o/r", "--endpoint", self.server.url + "/")
        self.server.listings["o/evil"] = [{"rfilename": "../../evil.gguf"}]
        _, err = self.lucid("pull", "hf:o/evil", "--endpoint", self.server.url, code=1)
        self.assertIn("no plain path", err)

    # ---- offline, packages

    def test_offline(self):
        _, err = self.lucid("pull", "--offline", self.server.url + "/m.gguf", code=1)
        self.assertIn("offline", err)
        self.env["LUCID_OFFLINE"] = "1"
        self.lucid("pull", "smollm2", code=1)
        self.assertEqual(self.server.requests, [])

    def test_missing_python_and_pip_are_named(self):
        self.env["LUCID_PYTHON"] = "no-such-python"
        _, err = self.lucid("pull", "smollm2", code=1)
        self.assertIn("python3-pip", err)
        pip_fails = self.home / "python"
        pip_fails.write_text("#!/bin/sh\n"
                             "[ \"$3\" = --version ] && exit 0\necho 'ERROR: no route' >&2\nexit 3\n")
        pip_fails.chmod(0o755)
        self.env["LUCID_PYTHON"] = str(pip_fails)
        _, err = self.lucid("pull", "smollm2", code=1)
        self.assertIn("exit code 3", err)
        self.assertIn("no route", err)
        self.assertEqual(self.files_left(), [])

    # ---- resolution through the store

    def test_corrupt_index_is_one_sentence(self):
        (self.home / "models").mkdir()
        (self.home / "models" / "index.json").write_text("{")
        _, err = self.lucid("models", code=1)
        self.assertIn("index.json is damaged", err)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        LUCID = sys.argv.pop(1)
    if not os.access(LUCID, os.X_OK):
        sys.exit(f"there is no binary at {LUCID}; build it first or name it")
    unittest.main()
