#!/usr/bin/env python3
"""lucid serve as clients meet it: endpoints, streams, limits, keys, TLS, Unix sockets, clients that go, an end with grace."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import e2e

MODEL = e2e.stored_model("smollm2")
CASES = e2e.SHARED / "cases"
SAY = {"messages": [{"role": "user", "content": "Name a river."}], "temperature": 0}


class Server:
    """A running `lucid serve`; a context manager that ends it with SIGTERM and expects it to end well."""

    def __init__(self, *flags, model=MODEL):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        port = [] if "--unix-socket" in flags else ["--port", "0"]
        self.process = subprocess.Popen([e2e.LUCID, "serve", "-m", str(model), *port, *map(str, flags)], stderr=self.log,
                                        stdin=subprocess.DEVNULL)
        deadline = time.time() + e2e.TIMEOUT_S
        while not (found := re.search(r"is served at (\S+)", self.text())):
            if self.process.poll() is not None or time.time() > deadline:
                self.process.kill()
                raise AssertionError(f"no server: {self.text()}")
            time.sleep(0.02)
        self.url = found[1]
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url.startswith("http") else 0

    def text(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()
        assert code == 0, code

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body; JSON where it is that."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=e2e.TIMEOUT_S)
        data = json.dumps(body).encode() if body is not None else None
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = answer.getheader("Content-Type", "").startswith("application/json") and text
        return answer.status, dict(answer.getheaders()), json.loads(text) if is_json else text

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def events(self, path, body):
        """The data of every event of a stream, [DONE] as that text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=e2e.TIMEOUT_S)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream", answer.read()
        text = answer.read().decode("utf-8")
        connection.close()
        events = [line[6:] for line in text.split("\n\n") if line]
        return [event if event == "[DONE]" else json.loads(event) for event in events]

    def running(self):
        """How many requests the engine works on."""
        return self.ask("GET", "/props")[2]["requests_running"]


class Endpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-a", "the-model", "--max-body", "300000")
        cls.enterClassContext(cls.server)

    def test_a_stream_says_what_the_whole_answer_says(self):
        body = {**SAY, "max_tokens": 24, "logprobs": True, "top_logprobs": 2, "seed": 3, "temperature": 1, "n": 2}
        status, _, whole = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, whole)
        events = self.server.events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        usage = events[-2]
        self.assertEqual((usage["choices"], usage["usage"]["completion_tokens"]), ([], whole["usage"]["completion_tokens"]))
        for i, choice in enumerate(whole["choices"]):
            mine = [c for event in events[:-2] for c in event["choices"] if c["index"] == i]
            self.assertEqual(mine[0]["delta"]["role"], "assistant")
            self.assertEqual("".join(c["delta"].get("content", "") for c in mine), choice["message"]["content"])
            self.assertEqual([t for c in mine if c["logprobs"] for t in c["logprobs"]["content"]], choice["logprobs"]["content"])
            self.assertEqual([c["finish_reason"] for c in mine if c["finish_reason"]], [choice["finish_reason"]])
        self.assertEqual(len({event["id"] for event in events[:-1]}), 1)
        self.assertEqual(whole["model"], "the-model")
        self.assertEqual(whole["seed"], 3)

    def test_a_completion_echoes_its_prompts_with_their_log_probabilities(self):
        ids = self.server.post("/tokenize", {"content": "The sky is"})[2]["tokens"]
        body = {"prompt": ["The sky is blue", ids], "max_tokens": 2, "echo": True, "logprobs": 1, "temperature": 0}
        choices = self.server.post("/v1/completions", body)[2]["choices"]
        self.assertEqual([c["index"] for c in choices], [0, 1])
        for choice, prompt in zip(choices, ["The sky is blue", "The sky is"]):
            self.assertTrue(choice["text"].startswith(prompt), choice)
            logprobs = choice["logprobs"]
            self.assertIsNone(logprobs["token_logprobs"][0])
            self.assertEqual("".join(logprobs["tokens"]), choice["text"])
            for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
                self.assertEqual(choice["text"][offset:offset + len(token)], token)
        # Scored as part of a longer prompt, or as the continuation of a shorter one: the same number.
        reply = choices[1]["logprobs"]
        longer = self.server.post("/v1/completions", {**body, "prompt": choices[1]["text"], "max_tokens": 0})[2]["choices"][0]
        self.assertEqual(longer["finish_reason"], "length")
        self.assertEqual(longer["logprobs"]["tokens"], reply["tokens"])
        for a, b in zip(longer["logprobs"]["token_logprobs"][1:], reply["token_logprobs"][1:]):
            self.assertAlmostEqual(a, b, delta=0.1)

    def test_streamed_completions_of_several_prompts(self):
        body = {"prompt": ["One two", "Three four"], "max_tokens": 3, "temperature": 0, "echo": True}
        whole = self.server.post("/v1/completions", body)[2]
        events = self.server.events("/v1/completions", body)[:-1]
        for choice in whole["choices"]:
            text = "".join(c["text"] for e in events for c in e["choices"] if c["index"] == choice["index"])
            self.assertEqual(text, choice["text"])

    def test_the_best_of_some_replies(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 1.5, "seed": 1}
        all_of_them = self.server.post("/v1/completions", {**body, "n": 5, "logprobs": 0})[2]["choices"]
        mean = lambda c: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
        best = self.server.post("/v1/completions", {**body, "n": 2, "best_of": 5})[2]["choices"]
        self.assertEqual([c["text"] for c in best], [c["text"] for c in sorted(all_of_them, key=mean, reverse=True)[:2]])
        self.assertIsNone(best[0]["logprobs"])
        self.assertEqual(self.server.post("/v1/completions", {**body, "n": 3, "best_of": 2})[0], 400)

    def test_what_has_not_to_do_with_the_engine(self):
        server = self.server
        self.assertEqual(server.ask("GET", "/health")[2], {"status": "ok"})
        self.assertEqual(server.ask("GET", "/v1/models")[2]["data"][0]["id"], "the-model")
        self.assertRegex(server.ask("GET", "/version")[2]["version"], r"\d+\.\d+\.\d+")
        self.assertEqual(server.ask("GET", "/props")[2]["model_alias"], "the-model")
        ids = server.post("/tokenize", {"content": "Hello wörld"})[2]["tokens"]
        self.assertEqual(server.post("/detokenize", {"tokens": ids})[2]["content"], "Hello wörld")
        prompt = server.post("/apply-template", {"messages": SAY["messages"]})[2]["prompt"]
        self.assertIn("<|im_start|>user\nName a river.<|im_end|>", prompt)
        with_template = server.post("/tokenize", {"messages": SAY["messages"]})[2]
        self.assertEqual(server.post("/detokenize", {"tokens": with_template["tokens"]})[2]["content"], prompt)

    def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(self):
        status, _, body = self.server.post("/v1/completions", {"prompt": [1] * 9000})
        self.assertEqual((status, body["error"]["code"]), (400, "context_length_exceeded"))
        self.assertRegex(body["error"]["message"], "9000.*8192|8192.*9000")

    def test_what_is_refused_and_what_is_told(self):
        server = self.server
        status, _, body = server.post("/v1/chat/completions", {**SAY, "model": "another"})
        self.assertEqual((status, body["error"]["code"]), (404, "model_not_found"))
        status, _, body = server.post("/v1/chat/completions", {**SAY, "max_tokens": 1, "functions": []})
        self.assertEqual((status, body["error"]["param"], body["error"]["code"]), (400, "functions", "unsupported_parameter"))
        status, _, body = server.post("/v1/chat/completions", {**SAY, "max_tokens": 1, "frobnicate": 1})
        self.assertEqual((status, body["ignored"]), (200, ["frobnicate"]))
        status, _, body = server.post("/v1/completions", {"prompt": "x" * 400000})
        self.assertEqual(status, 413)
        self.assertEqual(server.ask("GET", "/v1/nothing")[0], 404)
        status, headers, _ = server.ask("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))

    def test_an_answer_explains_itself_and_can_be_had_again(self):
        body = {**SAY, "max_tokens": 12, "temperature": 1.2, "seed": 5, "n": 2, "stop": ["zebra"], "logit_bias": {"504": -100}, "explain": True}
        answer = self.server.post("/v1/chat/completions", body)[2]
        explained = answer["lucid"]
        self.assertEqual(explained["seed"], 5)
        self.assertIn("temperature=1.2", explained["sampler"])
        [prompt] = explained["prompts"]
        self.assertEqual(prompt["cached_tokens"] + prompt["computed_tokens"], answer["usage"]["prompt_tokens"])
        self.assertRegex(explained["prompt_hash"], "^[0-9a-f]{32}$")
        streamed = [e for e in self.server.events("/v1/chat/completions", body)[:-1] if "lucid" in e]
        self.assertEqual(len(streamed), 1)
        self.assertEqual(streamed[0]["lucid"]["receipt"], explained["receipt"])
        for case, words in [("whole", f"the same: {answer['usage']['completion_tokens']} tokens in 2 replies"), ("token", "reply 1 differs at its token 3"),
                            ("model", "is of a model with the hash"), ("seed", "differs at its token"), ("missing", "sampler.top_k is missing")]:
            receipt = json.loads(json.dumps(explained["receipt"]))
            if case == "token":
                receipt["replies"][1]["tokens"][3] += 1
            elif case == "model":
                receipt["model"]["hash"] = "0" * 32
            elif case == "seed":
                receipt["sampler"]["seed"] = 6
            elif case == "missing":
                del receipt["sampler"]["top_k"]
            with self.subTest(case):
                ran = e2e.run("replay", "-", stdin=json.dumps(answer if case == "whole" else receipt))
                self.assertEqual(ran.code, 0 if case == "whole" else 1, ran)
                self.assertIn(words, ran.out + ran.err)

    def metrics(self):
        """Name with labels to value."""
        text = self.server.ask("GET", "/metrics")[2].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}

    def test_metrics_count_what_was_served(self):
        model = 'model_name="the-model"'
        before = self.metrics()
        self.server.post("/v1/completions", {"prompt": "Metrics of it", "max_tokens": 5, "ignore_eos": True})
        self.server.post("/v1/completions", {"prompt": 5})
        after = self.metrics()
        grew = lambda name: after[name] - before.get(name, 0)
        self.assertEqual(grew(f"lucid:time_to_first_token_seconds_count{{{model}}}"), 1)
        self.assertEqual(grew(f"lucid:inter_token_latency_seconds_count{{{model}}}"), 4)
        self.assertEqual(grew(f"lucid:request_generation_tokens_sum{{{model}}}"), 5)
        self.assertEqual(grew(f'lucid:request_success_total{{finished_reason="length",{model}}}'), 1)
        self.assertEqual(grew(f'lucid:request_refused_total{{{model},status="400"}}'), 1)
        self.assertGreaterEqual(grew(f"lucid:generation_tokens_total{{{model}}}"), 4)
        self.assertEqual(after[f"lucid:num_requests_running{{{model}}}"], 0)
        self.assertEqual(after[f'lucid:iteration_tokens_total_bucket{{{model},le="+Inf"}}'],
                         after[f"lucid:iteration_tokens_total_count{{{model}}}"])

    def test_the_dashboard_shows_metrics_that_there_are(self):
        self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        self.server.post("/v1/completions", {"prompt": 5})
        text = self.server.ask("GET", "/metrics")[2].decode()
        asked = set(re.findall(r"lucid:\w+", (e2e.ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8")))
        self.assertGreater(len(asked), 12)
        for name in asked:
            self.assertRegex(text, rf"(?m)^{name}\{{")

    def test_who_goes_ends_its_request(self):
        connection = socket.create_connection(("127.0.0.1", self.server.port))
        body = json.dumps({"prompt": "Once", "max_tokens": 8000, "ignore_eos": True}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        deadline = time.time() + 60
        while self.server.running() == 0 and time.time() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.server.running(), 1)
        connection.close()
        deadline = time.time() + 20
        while self.server.running() and time.time() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.server.running(), 0)

    @unittest.skipUnless((CASES / "http_cases.jsonl").exists(), f"no cases in {CASES}")
    def test_the_http_cases(self):
        done = subprocess.run([sys.executable, CASES / "run_http_cases.py", CASES / "http_cases.jsonl", "--port", str(self.server.port),
                               "--model", "the-model", "--vocab", "49152"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])


class Ways(unittest.TestCase):
    """Keys, prefixes, other sockets, the end."""

    def test_a_key_from_a_file_and_a_prefix(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("# of our clients\nsesame\n")
            keys.flush()
            with Server("--api-key-file", keys.name, "--api-prefix", "/llm") as server:
                self.assertEqual(server.ask("GET", "/llm/v1/models")[0], 401)
                self.assertEqual(server.ask("GET", "/llm/v1/models", None, {"Authorization": "Bearer sesame"})[0], 200)
                self.assertEqual(server.ask("GET", "/llm/health")[0], 200)
                self.assertEqual(server.ask("GET", "/v1/models")[0], 404)

    @unittest.skipUnless(shutil.which("openssl"), "there is no program openssl to make a certificate with")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key,
                            "-out", cert], check=True, capture_output=True)
            with Server("--ssl-cert-file", cert, "--ssl-key-file", key) as server:
                self.assertTrue(server.url.startswith("https://"))
                context = ssl.create_default_context(cafile=cert)
                context.check_hostname = False
                connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
                for _ in range(2):
                    connection.request("POST", "/v1/chat/completions", json.dumps({**SAY, "max_tokens": 3, "stream": True}))
                    text = connection.getresponse().read().decode()
                    self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
                connection.close()

    def test_the_log_of_requests(self):
        with Server("--log-requests") as server:
            trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            server.post("/v1/completions", {"prompt": "Hello there", "max_tokens": 3, "ignore_eos": True}, traceparent=trace)
            server.ask("GET", "/nothing")
            deadline = time.time() + 30
            lines = []
            while len(lines) < 2 and time.time() < deadline:  # a line is written once its answer is over
                lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{") and line.endswith("}")]
        self.assertEqual([(line["path"], line["status"]) for line in lines], [("/v1/completions", 200), ("/nothing", 404)])
        self.assertEqual((lines[0]["traceparent"], lines[0]["completion_tokens"]), (trace, 3))
        self.assertRegex(lines[0]["id"], "cmpl-")

    def test_settings_from_files_and_the_environment(self):
        """A flag wins over a variable, and that over the file."""
        with tempfile.TemporaryDirectory() as folder:
            toml, yaml = pathlib.Path(folder) / "lucid.toml", pathlib.Path(folder) / "lucid.yaml"
            toml.write_text('alias = ["from-file", "second"]\nctx-size = 512\nparallel = 3\nno_prefix_cache = true\n', encoding="utf-8")
            yaml.write_text("alias: [from-file, second]\nctx_size: 512\nparallel: 3\nno-prefix-cache: yes\n", encoding="utf-8")
            for file in [toml, yaml]:
                os.environ.update({"LUCID_SERVE_CONFIG": str(file), "LUCID_SERVE_PARALLEL": "5", "LUCID_SERVE_CTX_SIZE": "640"})
                try:
                    with Server("-c", "768") as server:
                        props = server.ask("GET", "/props")[2]
                finally:
                    for name in ["CONFIG", "PARALLEL", "CTX_SIZE"]:
                        del os.environ[f"LUCID_SERVE_{name}"]
                self.assertEqual((props["model_alias"], props["total_slots"], props["default_generation_settings"]["n_ctx"]), ("from-file", 5, 768))
            for text, words in [("colour = 1\n", "there is no setting colour"), ("[serve]\nport = 1\n", "there are no sections"),
                                ("no-prefix-cache = 7\n", "must be true or false"), ("port = 99999999\n", "--port")]:
                toml.write_text(text, encoding="utf-8")
                ran = e2e.run("serve", "-m", MODEL, "--config", toml)
                self.assertNotEqual(ran.code, 0, ran)
                self.assertIn(words, ran.err)
            yaml.write_text("port: {a: 1}\n", encoding="utf-8")
            self.assertIn("port must have a value", e2e.run("serve", "-m", MODEL, f"--config={yaml}").err)
            self.assertIn("/no/file", e2e.run("serve", "-m", MODEL, "--config", "/no/file").err)

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lucid.sock")
            with Server("--unix-socket", path):
                text = b""
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(path)
                    connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    while piece := connection.recv(4096):
                        text += piece
                self.assertTrue(text.endswith(b'{"status":"ok"}'), text)
            self.assertFalse(os.path.exists(path))

    def test_sigterm_lets_what_runs_finish(self):
        with Server("--grace", "60") as server:
            events = []
            reader = threading.Thread(target=lambda: events.extend(
                server.events("/v1/completions", {"prompt": "Once", "max_tokens": 200, "ignore_eos": True})))
            reader.start()
            while server.running() == 0:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            reader.join()
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")

    def test_what_is_wrong_is_told_before_the_model_is_loaded(self):
        for flags, words in [(["--host", "256.0.0.1"], "256.0.0.1"), (["--ssl-key-file", "x"], "certificate"),
                             (["--api-key-file", "/no/keys"], "/no/keys")]:
            ran = e2e.run("serve", "-m", MODEL, "--port", "0", *flags)
            self.assertEqual(ran.code, 1, ran)
            self.assertRegex(ran.err, rf"\Alucid: [^\n]*{re.escape(words)}[^\n]*\n\Z")


if __name__ == "__main__":
    e2e.main(need_shared=False)
