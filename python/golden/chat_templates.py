#!/usr/bin/env python3
"""Writes tests/data/chat_templates: what Python's jinja2, set up as transformers sets it up, renders.

    python3 python/golden/chat_templates.py --tokenizers ../shared/tokenizers [--gguf MODEL.gguf ...]

Needs jinja2 >= 3.1.6. Three files come out:
  templates.json    name -> source: templates of model files, and the ones of TEMPLATES below
  renderings.jsonl  {ref | template, context, ok | error, message}: raw renderings
  prefill.jsonl     {ref, messages, bos_token, eos_token, ok | error}: continue_final_message
The snippets and conversations are written here, so the files are the same on every run.
"""

import argparse
import copy
import datetime
import json
import pathlib
import struct

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1700000000  # the time strftime_now sees; the tests give the evaluator the same one


def environment(now=NOW):
    """The environment in which transformers renders chat templates."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                Namespace.check(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            Namespace.check(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def check(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError("underscore attribute")

    class Dict:
        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(now).strftime(f)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def outcome(env, template, context):
    """{"ok": text} or {"error": class name, "message": text}."""
    try:
        text = env.from_string(template).render(**context)
        text.encode("utf-8")
        return {"ok": text}
    except RecursionError:
        raise
    except Exception as e:  # every error of a template is an outcome
        return {"error": type(e).__name__, "message": str(e)}


def gguf_template(path):
    """tokenizer.chat_template of a GGUF file, or None."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as f:
        def u64():
            return struct.unpack("<Q", f.read(8))[0]

        def u32():
            return struct.unpack("<I", f.read(4))[0]

        def text():
            return f.read(u64())

        def skip(kind):
            if kind == 8:
                return text()
            if kind == 9:
                inner, count = u32(), u64()
                if inner in sizes:
                    f.seek(sizes[inner] * count, 1)
                else:
                    for _ in range(count):
                        skip(inner)
                return None
            f.seek(sizes[kind], 1)

        f.read(8)
        u64()
        for _ in range(u64()):
            key, kind = text().decode(), u32()
            value = skip(kind)
            if key == "tokenizer.chat_template":
                return value.decode()
    return None


# Templates in the manner of the model families, each leaning on other features of the language.
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "turns": (
        "{{ bos_token }}\n"
        "{%- if messages[0]['role'] == 'system' -%}\n"
        "    {%- if messages[0]['content'] is string -%}\n"
        "        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}\n"
        "    {%- else -%}\n"
        "        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}\n"
        "    {%- endif -%}\n"
        "    {%- set loop_messages = messages[1:] -%}\n"
        "{%- else -%}\n"
        "    {%- set first_user_prefix = '' -%}\n"
        "    {%- set loop_messages = messages -%}\n"
        "{%- endif -%}\n"
        "{%- for message in loop_messages -%}\n"
        "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
        "        {{ raise_exception('Turns must alternate user/assistant/user/assistant/...') }}\n"
        "    {%- endif -%}\n"
        "    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}\n"
        "    {{ '<turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}\n"
        "    {%- if message['content'] is string -%}\n"
        "        {{ message['content'] | trim }}\n"
        "    {%- elif message['content'] is iterable -%}\n"
        "        {%- for item in message['content'] -%}\n"
        "            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- else -%}<{{ item['type'] }}>"
        "{%- endif -%}\n"
        "        {%- endfor -%}\n"
        "    {%- else -%}\n"
        "        {{ raise_exception('Invalid content type') }}\n"
        "    {%- endif -%}\n"
        "    {{ '<end>\\n' }}\n"
        "{%- endfor -%}\n"
        "{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}\n"
    ),
    "headers": (
        "{{- bos_token }}\n"
        "{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}\n"
        "{%- if messages[0]['role'] == 'system' %}\n"
        "    {%- set system_message = messages[0]['content']|trim %}\n"
        "    {%- set messages = messages[1:] %}\n"
        "{%- else %}\n    {%- set system_message = '' %}\n{%- endif %}\n"
        "{{- '<h>system</h>\\n\\nToday: ' + date_string + '\\n\\n' + system_message }}\n"
        "{%- if tools is not none %}\n"
        "    {{- 'Tools as {\"name\": function name, \"parameters\": dictionary}.\\n\\n' }}\n"
        "    {%- for t in tools %}\n        {{- t | tojson(indent=4) }}\n        {{- '\\n\\n' }}\n    {%- endfor %}\n"
        "{%- endif %}\n{{- '<eot>' }}\n"
        "{%- for message in messages %}\n"
        "    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}\n"
        "        {{- '<h>' + message['role'] + '</h>\\n\\n' + message['content'] | trim + '<eot>' }}\n"
        "    {%- elif 'tool_calls' in message %}\n"
        "        {%- if not message.tool_calls|length == 1 %}\n"
        "            {{- raise_exception('This model only supports single tool-calls at once!') }}\n"
        "        {%- endif %}\n"
        "        {%- set tool_call = message.tool_calls[0].function %}\n"
        "        {{- '<h>assistant</h>\\n\\n{\"name\": \"' + tool_call.name + '\", \"parameters\": ' }}\n"
        "        {{- tool_call.arguments | tojson }}\n        {{- '}<eot>' }}\n"
        "    {%- elif message.role == 'tool' or message.role == 'ipython' %}\n"
        "        {{- '<h>ipython</h>\\n\\n' }}\n"
        "        {%- if message.content is mapping or message.content is iterable %}\n"
        "            {{- message.content | tojson }}\n        {%- else %}\n            {{- message.content }}\n"
        "        {%- endif %}\n        {{- '<eot>' }}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<h>assistant</h>\\n\\n' }}\n{%- endif %}\n"
    ),
    "instruct": (
        "{%- set user_messages = messages | selectattr('role', 'equalto', 'user') | list %}\n"
        "{%- set ns = namespace(index=0, last=user_messages | length - 1) %}\n"
        "{{- bos_token }}\n"
        "{%- for message in messages %}\n"
        "    {%- if message['role'] == 'user' %}\n"
        "        {%- if tools is defined and tools is not none and ns.index == ns.last %}\n"
        "            {{- '[TOOLS] [' }}\n"
        "            {%- for tool in tools %}\n"
        "                {%- set tool = tool.function %}\n"
        "                {{- '{\"type\": \"function\", \"function\": {' }}\n"
        "                {%- for key, val in tool.items() if key != 'return' %}\n"
        "                    {%- if val is string %}\n                        {{- '\"' + key + '\": \"' + val + '\"' }}\n"
        "                    {%- else %}\n                        {{- '\"' + key + '\": ' + val|tojson }}\n"
        "                    {%- endif %}\n"
        "                    {%- if not loop.last %}\n                        {{- ', ' }}\n                    {%- endif %}\n"
        "                {%- endfor %}\n                {{- '}}' }}\n"
        "                {%- if not loop.last %}\n                    {{- ', ' }}\n                {%- else %}\n"
        "                    {{- ']' }}\n                {%- endif %}\n            {%- endfor %}\n"
        "            {{- '[/TOOLS]' }}\n        {%- endif %}\n"
        "        {%- set ns.index = ns.index + 1 %}\n"
        "        {{- '[INST] ' + message['content'] + '[/INST]' }}\n"
        "    {%- elif message.tool_calls is defined and message.tool_calls is not none %}\n"
        "        {{- '[CALLS] [' }}\n"
        "        {%- for call in message.tool_calls %}\n"
        "            {%- set out = call.function|tojson %}\n            {{- out[:-1] }}\n"
        "            {%- if not call.id is defined or call.id|length != 9 %}\n"
        "                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}\n"
        "            {%- endif %}\n            {{- ', \"id\": \"' + call.id + '\"}' }}\n"
        "            {{- ', ' if not loop.last else ']' + eos_token }}\n        {%- endfor %}\n"
        "    {%- elif message['role'] == 'assistant' %}\n        {{- ' ' + message['content']|trim + eos_token }}\n"
        "    {%- elif message['role'] == 'tool' %}\n"
        "        {%- if message.content is defined and message.content.content is defined %}\n"
        "            {%- set content = message.content.content %}\n        {%- else %}\n"
        "            {%- set content = message.content %}\n        {%- endif %}\n"
        "        {{- '[RESULTS] {\"content\": ' + content|string + '}[/RESULTS]' }}\n"
        "    {%- elif message['role'] != 'system' %}\n"
        "        {{- raise_exception('Only user and assistant roles are supported!') }}\n"
        "    {%- endif %}\n{%- endfor %}\n"
    ),
    "schema": (
        "{%- macro render_type(spec, depth=0) -%}\n"
        "    {%- if spec.type == 'array' -%}\n        {{- render_type(spec['items'], depth + 1) + '[]' if spec['items'] else 'any[]' }}\n"
        "    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}\n"
        "        {{- spec.type | join(' | ') }}\n"
        "    {%- elif spec.enum -%}\n        {{- '\"' + spec.enum|join('\" | \"') + '\"' }}\n"
        "    {%- elif spec.type == 'object' -%}\n        {%- if spec.properties -%}\n            {{- '{\\n' }}\n"
        "            {%- for name, value in spec.properties.items() -%}\n"
        "                {{- '  ' * (depth + 1) + name -}}\n"
        "                {%- if name not in (spec.required or []) -%}?{%- endif -%}\n"
        "                {{- ': ' }}\n                {{- render_type(value, depth + 1) }}\n"
        "                {%- if not loop.last -%},{%- endif -%}\n"
        "                {%- if value.description %}{{ ' // ' + value.description }}{% endif %}\n"
        "                {{- '\\n' }}\n            {%- endfor -%}\n            {{- '  ' * depth + '}' }}\n"
        "        {%- else -%}\n            object\n        {%- endif -%}\n"
        "    {%- else -%}\n        {{- spec.type | default('any') }}\n    {%- endif -%}\n"
        "{%- endmacro -%}\n"
        "{%- for tool in tools or [] %}{{ 'type ' ~ tool.function.name ~ ' = (_: ' }}"
        "{{- render_type(tool.function.parameters) }}{{ ') => any;\\n' }}{% endfor -%}\n"
        "{%- for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}\n"
    ),
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a town (temp > 10 & \"hum\" < 50)",
        "parameters": {
            "type": "object",
            "properties": {
                "ville": {"type": "string", "description": "Où ? 🌍 東京"},
                "days": {"type": ["integer", "null"], "minimum": 0, "default": 1.5},
                "unit": {"enum": ["c", "f"]},
                "where": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
            },
            "required": ["ville"],
        },
    },
}


def conversations():
    """(name, context) of the conversations every model template is rendered with."""
    user = {"role": "user", "content": "Hi"}
    call = {"id": "abcd12345", "type": "function", "function": {"name": "get_weather", "arguments": {"ville": "Paris", "days": 2}}}
    text_call = json.loads(json.dumps(call))
    text_call["function"]["arguments"] = '{"ville": "Paris"}'
    chats = {
        "user": [user],
        "system": [{"role": "system", "content": " Be brief.\n"}, user],
        "turns": [user, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}],
        "many": [{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i}"} for i in range(21)],
        "unicode": [{"role": "user", "content": "Ünïcödé 👩‍🚀 العربية \u2028 ﬁn \u0000\u001f"}],
        "code": [{"role": "user", "content": "```py\nprint(\"{{ x }}\")\n{% if %}\n```\n\n"}],
        "empty": [{"role": "user", "content": ""}],
        "none": [],
        "parts": [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}, {"type": "image"}]}],
        "think": [user, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nans"}, {"role": "user", "content": "again"}],
        "reasoning": [user, {"role": "assistant", "content": "ans", "reasoning_content": "hm"}],
        "calls": [user, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "20", "name": "get_weather"}],
        "text_calls": [user, {"role": "assistant", "content": None, "tool_calls": [text_call, text_call]}, {"role": "tool", "content": "20"}, {"role": "tool", "content": "21"}],
        "bad_roles": [user, user, {"role": "critic", "content": "x"}],
        "no_content": [user, {"role": "assistant"}],
        "tool_object": [user, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": {"content": 3.0, "ok": True, "n": None}}],
    }
    for name, messages in chats.items():
        context = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": name != "turns", "bos_token": "<s>", "eos_token": "</s>"}
        yield name, context
        if name in ("user", "system", "calls", "turns"):
            yield name + "+tools", {**context, "tools": [WEATHER, WEATHER], "enable_thinking": False}


def prefills():
    user = {"role": "user", "content": "Hi"}
    for content in ("Sure, ", "Sure,", "a\nb\n", "é", "", "x" * 40):
        yield [user, {"role": "assistant", "content": content}]
    yield [user, {"role": "assistant", "content": [{"type": "text", "text": "part "}]}]
    yield [user]


def continue_final(env, source, messages, bos, eos):
    """apply_chat_template(continue_final_message=True) of transformers, for text and single-part content."""
    tag = "CONTINUE_FINAL_MESSAGE_TAG "
    messages = json.loads(json.dumps(messages))
    content = messages[-1]["content"]
    final = content if isinstance(content, str) else content[-1]["text"]
    if isinstance(content, str):
        messages[-1]["content"] = content + tag
    else:
        content[-1]["text"] = final + tag
    got = outcome(env, source, {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, "bos_token": bos, "eos_token": eos})
    if "ok" not in got:
        return {"error": got["error"]}
    text = got["ok"]
    if final.strip() not in text or tag.strip() not in text:
        return {"error": "ValueError"}
    at = text.rindex(tag.strip())
    return {"ok": text[:at] if text[at : at + len(tag)] == tag else text[:at].rstrip()}


# One snippet per line of behaviour; the context of all is CONTEXT.
CONTEXT = {
    "n": None, "t": True, "f": False, "i": 7, "neg": -3, "x": 2.5, "big": 12345678901234567890, "s": "Hello, World",
    "u": "ÀÉ straße ﬁ 東京 👩‍🚀", "ws": "  a\tb \n c  ", "html": "<b>\"it's\" & more</b>", "e": "",
    "l": [3, 1, 2], "m": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "items": "I", "C": [1, {"k": None}]},
    "rows": [{"g": "x", "v": 1, "o": {"k": 2}}, {"g": "Y", "v": 5}, {"g": "x", "v": 3, "o": {"k": None}}],
    "nested": [[1, [2, [3]]], {"a": {"b": ["c"]}}], "el": [], "ed": {},
}

SNIPPETS = r"""
{{ i / 2 }} {{ 6 / 2 }} {{ i // 2 }} {{ neg // 2 }} {{ neg % 5 }} {{ i % neg }} {{ x // 1 }} {{ -x % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -2 ** 2 }} {{ big + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ 1e3 }} {{ 1e16 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 123456789.123 }} {{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1e400 }} {{ -0.0 }} {{ 5e-324 }}
{{ t + 1 }} {{ t == 1 }} {{ 1 == 1.0 }} {{ "1" == 1 }} {{ [1, 2] == [1.0, 2] }} {{ {"a": 1} == {"a": t} }} {{ n == f }} {{ nothere == other }}
{{ "a" "b" 'c' }} {{ 'it\'s' }} {{ "tab\tnl\\n\x41\u00e9\101\q" }} {{ "\U0001F600" }} {{ "é\n" }}
{{ s ~ i ~ n ~ x ~ t ~ l }} {{ s + "!" }} {{ s * 2 }} {{ 3 * "ab" }} {{ [1] * 3 }} {{ (1, 2) + (3,) }} {{ "-" * neg }}
{{ s + 1 }}
{{ 1 + "a" }}
{{ l + (1,) }}
{{ n + 1 }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 < 2 > 1 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ l >= [3] }} {{ 1 != 2 }} {{ not 1 == 1 }}
{{ 1 < "a" }}
{{ n < 1 }}
{{ nothere < 1 }}
{{ 1 in l }} {{ 9 not in l }} {{ "lo" in s }} {{ "b" in d }} {{ 1 in d }} {{ "x" in nothere }} {{ 2 in range(3) }} {{ "b" in d.keys() }} {{ ("b", 1) in d.items() }} {{ not 1 in l }}
{{ 1 in s }}
{{ 1 in n }}
{{ t and i }} {{ f or e or "z" }} {{ n and 1 }} {{ not e }} {{ t or 1 / 0 }} {{ "a" if f else "b" }} [{{ "a" if f }}] {{ 1 if t else 2 if t else 3 }} {{ (1 if f) is defined }}
{{ (1 if f).x }}
{{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ s[-3:] }} {{ s[::3] }} {{ u[1:-2] }} {{ u[::-1] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::2] }} {{ l[5:] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:3] }} {{ s[99] }} {{ l[10] is defined }} {{ l["a"] is defined }}
{{ s[::0] }}
{{ d[1:] }}
{{ n[1:] }}
{{ l["x":] }}
{{ d.b }} {{ d["a"] }} {{ d.items is callable }} {{ d["items"] }} {{ d.C[1].k }} {{ d.get("zz") }} {{ d.get("zz", 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.nope is defined }} {{ d.keys() }} {{ d.copy() }}
{{ nothere.x }}
{{ nothere["x"] }}
{{ nothere() }}
{{ d.nope.x }}
{{ d.nope() }}
{{ n.x is defined }} {{ i.x is defined }} {{ n["x"] is defined }} {{ i.real }} {{ x.is_integer() }} {{ i.bit_length() }}
{{ s.upper }}{{ s.upper() }}
{{ l.append(1) }}
{{ d.update({}) }}
{{ l.append is defined }} {{ l.sort }}
{{ s.__class__ }}{{ l.__len__ }}|
{{ s._private is defined }}
{{ "%s %d %5.2f|%-5s|%05d %x %r %%" % ("a", 3, 2.5, "b", 42, 255, "q") }} {{ "%s" % l }} {{ "%(a)s" % {"a": 1} }} {{ "%s" % n }} {{ "%5s|%.2s" % ("ab", "xyz") }} {{ "%+d % d" % (3, 4) }} {{ "%e %g" % (12345.678, 0.0001) }} {{ "%c" % 65 }}
{{ "%d" % "a" }}
{{ "%s %s" % "a" }}
{{ "a" % 1 }}
{{ "{} {1}".format(1, 2) }}
{{ "{} {}".format(1, "b") }} {{ "{0}{1}{0}".format("a", "b") }} {{ "{a.b} {c[0]} {d[k]}".format(a={"b": 2}, c=[9], d={"k": "v"}) }} {{ "{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d") }} {{ "{:05d} {:,} {:.2f} {:x} {:#b} {:e} {:%}".format(42, 1234567, 2.345, 255, 5, 12.5, 0.25) }} {{ "{!r} {!s}".format("a", "b") }} {{ "{{}}".format() }} {{ "{:{}}|".format("a", 4) }} {{ "{:+} {: }".format(1, 2) }} {{ "{:.3}".format("abcdef") }} {{ "{:g} {}".format(1e20, 1e20) }}
{{ ws.strip() }}|{{ ws.lstrip() }}|{{ ws.rstrip() }}|{{ "xxaxx".strip("x") }}|{{ ws.split() }}|{{ ws.split(" ") }}|{{ "a,b,,c".split(",") }}|{{ "a,b,c".split(",", 1) }}|{{ "a,b,c".rsplit(",", 1) }}|{{ ws.split(none, 1) }}|{{ ws.rsplit(none, 1) }}|{{ "a\nb\r\nc\n".splitlines() }}|{{ "a\nb".splitlines(true) }}|{{ "".split() }}|{{ "".split(",") }}
{{ s.find("o") }} {{ s.rfind("o") }} {{ s.find("zz") }} {{ s.index("l") }} {{ s.count("l") }} {{ s.count("") }} {{ s.find("o", 5) }} {{ u.find("東") }} {{ s.startswith("He") }} {{ s.startswith(("x", "H")) }} {{ s.endswith("d") }} {{ s.startswith("W", 7) }} {{ s.replace("l", "L") }} {{ s.replace("l", "L", 1) }} {{ "abc".replace("", "-") }} {{ s.partition(", ") }} {{ s.rpartition("zz") }} {{ s.removeprefix("He") }} {{ s.removesuffix("ld") }}
{{ s.index("zz") }}
{{ s.split("") }}
{{ s.replace("l") }}
{{ s.upper() }} {{ u.lower() }} {{ u.upper() }} {{ u.title() }} {{ u.capitalize() }} {{ u.swapcase() }} {{ "ΑΣ".lower() }} {{ "they're bill's".title() }} {{ "they're bill's (x)"|title }} {{ "ǆ".title() }}
{{ s.center(20, "*") }} {{ "ab".center(5) }}| {{ "abc".center(6) }}| {{ s.ljust(15) }}| {{ s.rjust(15, "-") }} {{ "42".zfill(5) }} {{ "-42".zfill(5) }} {{ "a\tb".expandtabs(4) }} {{ "-".join(m) }} {{ "-".join("abc") }}
{{ "-".join(l) }}
{{ "12".isdigit() }} {{ "1a".isalnum() }} {{ "ab".isalpha() }} {{ " \t".isspace() }} {{ "".isspace() }} {{ "AB".isupper() }} {{ "ab1".islower() }} {{ "Ab Cd".istitle() }} {{ "é".isascii() }} {{ "a_1".isidentifier() }} {{ "²".isdigit() }} {{ "½".isnumeric() }} {{ "東".isalpha() }} {{ "a\n".isprintable() }}
{{ l | sort }} {{ m | sort }} {{ m | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ rows | sort(attribute="v") | map(attribute="v") | list }} {{ rows | sort(attribute="g,v") | map(attribute="v") | list }} {{ m | sort | first }} {{ s | sort | join }}
{{ [1, "a"] | sort }}
{{ l | join }} {{ l | join("-") }} {{ rows | join("/", attribute="v") }} {{ l | first }} {{ l | last }} [{{ el | first }}] {{ l | length }} {{ d | length }} {{ u | length }} {{ nothere | length }} {{ l | sum }} {{ rows | sum(attribute="v") }} {{ l | sum(start=10) }} {{ l | max }} {{ m | min }} {{ rows | max(attribute="v") }} [{{ el | max }}]
{{ n | length }}
{{ i | join }}
{{ l | reverse | list }} {{ s | reverse }} {{ l | batch(2) | list }} {{ l | batch(2, "x") | list }} {{ range(7) | slice(3) | list }} {{ range(7) | slice(3, "z") | list }} {{ m | unique | list }} {{ [1, 1.0, t, 2] | unique | list }} {{ rows | unique(attribute="g") | list | length }}
{{ rows | map(attribute="o.k") | list }} {{ rows | map(attribute="o") | map("default", "none") | list }} {{ rows | map(attribute="zz", default=0) | list }} {{ m | map("upper") | list }} {{ m | map("replace", "a", "z") | join }} {{ l | select("odd") | list }} {{ l | reject("odd") | list }} {{ l | select("gt", 1) | list }} {{ [0, 1, e, "a"] | select | list }} {{ rows | selectattr("o") | list | length }} {{ rows | selectattr("v", "gt", 2) | map(attribute="v") | list }} {{ rows | rejectattr("g", "equalto", "x") | list | length }} {{ rows | selectattr("zz", "defined") | list }}
{{ rows | groupby("g") | map("first") | list }} {% for g, items in rows | groupby("g") %}{{ g }}:{{ items | length }} {% endfor %}{% for g in rows | groupby("v") %}{{ g.grouper }}{{ g.list | length }}{% endfor %} {{ rows | groupby("zz", default="q") | length }}
{{ d | dictsort }} {{ d.items() | list | length }} {{ {"b": 2, "A": 1} | dictsort }} {{ {"b": 2, "A": 1} | dictsort(true) }} {{ {"b": 2, "A": 1} | dictsort(by="value", reverse=true) }} {{ {"b": 2} | items | list }} {{ nothere | items | list }} {{ d | list }}
{{ n | default("d") }} {{ n | default("d", true) }} {{ nothere | default }}| {{ nothere | d("x") }} {{ e | default("x", boolean=true) }} {{ nothere.x | default("y") }}
{{ "42" | int }} {{ "4.7" | int }} {{ "x" | int }} {{ "x" | int(9) }} {{ "ff" | int(base=16) }} {{ "0x1f" | int(0, 16) }} {{ x | int }} {{ n | int }} {{ " 5 " | int }} {{ "1_0" | int }} {{ "1e3" | int }} {{ t | int }} {{ "2.5" | float }} {{ "x" | float }} {{ "x" | float(1.5) }} {{ i | float }} {{ "inf" | float }} {{ "1e-3" | float }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 1234.5 | round(-2) }} {{ 42 | round }} {{ 2.1 | round(method="ceil") }} {{ 2.19 | round(1, "floor") }} {{ 15 | round(-1) }} {{ 25 | round(-1) }} {{ neg | abs }} {{ -2.5 | abs }} {{ x | round | int }}
{{ html | e }} {{ html | escape | e }} {{ html | safe }} {{ html | forceescape }} {{ (html | e) + "<i>" }} {{ "<i>" + (html | safe) }} {{ "<a>" ~ ("<b>" | safe) }} {{ html | striptags }} {{ "<b>" | safe is escaped }} {{ ("<b>" | safe) * 2 }} {{ ["<b>" | safe] }} {{ ("x" | safe).upper() is escaped }} {{ ("%s" | safe) % "<" }}
{{ "a b/c?d=é&" | urlencode }} {{ {"a b": 1, "c": "é/"} | urlencode }} {{ [("a", 1)] | urlencode }} {{ 5 | urlencode }} {{ {"class": "x<y", "id": none, "n": 3} | xmlattr }} {{ 1000000 | filesizeformat }} {{ 1024 | filesizeformat(true) }} {{ 1 | filesizeformat }} {{ 999 | filesizeformat }}
{{ "a\nb\n\nc" | indent }}|{{ "a\nb" | indent(2, true) }}|{{ "a\n\nb" | indent(1, blank=true) }}|{{ "a\nb" | indent("--") }}|{{ "foo bar baz qux" | truncate(9) }}|{{ "foo bar baz qux" | truncate(9, true) }}|{{ "foo bar baz qux" | truncate(11, false, "..", 0) }}|{{ "foo bar" | truncate(5) }}|{{ "the quick brown-fox jumps" | wordwrap(8) }}|{{ "abcdefghij" | wordwrap(4) }}|{{ "a b_c, d-e" | wordcount }}|{{ s | center(20) }}|{{ " x " | trim }}|{{ "xxaxx" | trim("x") }}
{{ "a" | indent(-1) }} {{ s | replace("l", "L", 2) }} {{ i | replace(7, 8) }} {{ i | upper }} {{ n | upper }} {{ s | lower }} {{ "aBC dEF" | capitalize }} {{ "foo-bar (baz) [q] <z>" | title }} {{ i | string + "x" }} {{ [1] | string }} {{ "%s-%s" | format(1, 2) }} {{ "%(a)s" | format(a=3) }} {{ s | list | length }} {{ s | attr("upper") is callable }} {{ d | attr("b") is defined }}
{{ d | tojson }} {{ u | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ nested | tojson(indent=2) }} {{ d | tojson(sort_keys=true, separators=(",", ":")) }} {{ (1, 2) | tojson }} {{ x | tojson }} {{ 1e16 | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }} {{ el | tojson(indent=2) }}{{ ed | tojson(indent="--") }} {{ [el, [1]] | tojson(indent="--") }} {{ big | tojson }} {{ "\x7f" | tojson(ensure_ascii=true) }}
{{ d.items() | tojson }}
{{ nothere | tojson }}
{{ l | map("nofilter") | list }}
{{ l | select("notest") | list }}
{{ l | map }}
{% if f %}{{ s | nofilter }}{% endif %}ok
{% for z in [] %}{{ s | nofilter }}{% endfor %}ok
{{ 1 if t else (s | nofilter) }}
{{ i is number }} {{ t is number }} {{ t is integer }} {{ x is float }} {{ s is string }} {{ l is sequence }} {{ d is mapping }} {{ d is sequence }} {{ l is iterable }} {{ i is iterable }} {{ nothere is iterable }} {{ nothere is sequence }} {{ d.items() is sequence }} {{ n is none }} {{ n is not none }} {{ t is true }} {{ 1 is true }} {{ f is false }} {{ t is boolean }} {{ nothere is undefined }} {{ i is odd }} {{ i is even }} {{ i is divisibleby 7 }} {{ i is divisibleby(2) }} {{ "a" is lower }} {{ "A" is upper }} {{ i is sameas i }} {{ t is sameas true }} {{ 1 is in l }} {{ "upper" is filter }} {{ "zz" is filter }} {{ "odd" is test }} {{ range is callable }} {{ nothere is callable }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 1 is le 1 }} {{ 1 is lessthan 2 }} {{ i is not odd and t }} {{ 1 is not eq 2 }} {{ s is escaped }}
{{ n is odd }}
{{ 1 is eq }}
{{ l is defined is true }}
{{ range(3) }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(3) | length }} {{ range(3)[1] }} {{ range(0) | list }} {{ range(3) == range(3) }} {{ range(10) | last }}
{{ range(1, 2, 0) }}
{{ range(100001) | length }}
{{ dict(a=1, b=2) }} {{ dict([("x", 1)]) }} {{ dict({"a": 1}, b=2) }} {{ dict(d) == d }} {{ {"a": 1, "a": 2} }} {{ {1: "a", 1.0: "b", true: "c"} }} {{ {(1, 2): 3}[1, 2] }} {{ dict.fromkeys([1, 2], 0) }}
{{ {[1]: 2} }}
{{ (1,) }} {{ () }} {{ (1, 2) }} {{ [1, [2, (3, "a")], {"k": none}] }} {{ ["it's", 'q"q', "b'\"", "\n\t\\", "é\x00\u200b\U0001F600"] }} {{ [1.0, 1e20, true, none] }} {{ [nothere] }} {{ {"a": {"b": ()}} }}
{% set a = 1 %}{% set a, b = b, a %}[{{ a }}][{{ b }}]{% set (p, q), r = [(1, 2), 3] %}{{ p }}{{ q }}{{ r }}{% set z = 1, 2 %}{{ z }}
{% set a, b = [1] %}
{% set a, b = 1 %}
{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a + ns.b }} {{ ns }} {{ ns.zz is defined }} {% set ns.a, q = 5, 6 %}{{ ns.a }}{{ q }} {{ ns["a"] }}
{% set d.x = 1 %}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._b = 1 %}
{% for a in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle("a", "b") }}{{ loop.changed(a > 1) }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for a in l if a > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ a }} {% else %}none{% endfor %}{% for a in l if a > 9 %}{{ a }}{% else %}none{% endfor %}{% for a in nothere %}x{% else %}empty{% endfor %}
{% for a in l %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% else %}else{% endfor %}{% for a in l %}{% break %}{% else %}else{% endfor %}{% for a in l %}{{ a }}{% break %}{% endfor %}{% for a in [1] %}{% continue %}{% else %}E{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in u %}[{{ c }}]{% endfor %}
{% for a, b in l %}{% endfor %}
{% for a in n %}{% endfor %}
{% for a in i %}{% endfor %}
{% for x in nested recursive %}{% if x is mapping %}m{% elif x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for a in l %}{% for b in m %}{% if loop.first %}{{ loop.index }}{% endif %}{% endfor %}{{ loop.index }}{% endfor %}{{ loop is defined }}
{% for a in l %}{{ loop(l) }}{% endfor %}
{% set x = 1 %}{% for a in l %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% for a in l %}{{ i }}{% endfor %}{% set i = 5 %}{{ i }}
{{ i }}{% if f %}{% set i = 3 %}{% endif %}{{ i }}{% if t %}{% set i = 4 %}{% endif %}{{ i }}
{% for a in l %}{% if loop.first %}{% set q = a %}{% endif %}[{{ q }}]{% endfor %}
{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f() }} {{ f(1, c="z") }} {{ f.name }} {{ f.arguments }} {{ f }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(z=2) }}
{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, z=4) }} {{ f.catch_kwargs }} {{ f.catch_varargs }}
{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}body {{ i }}{% endcall %}{% macro g() %}{% if caller %}{{ caller(1, 2) }}{% else %}no{% endif %}{% endmacro %}{{ g() }}{% call(a, b=9) g() %}{{ a }}-{{ b }}{% endcall %}
{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}
{% macro f() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ f() }}{% for y in [8] %}{{ f() }}{% endfor %}
{% macro f() %}{% set y = 1 %}{{ y }}{% endmacro %}{{ f() }}[{{ y }}]
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace("a", "b") | upper %}aXa{% endfilter %} {% set t2 | upper %}x{{ s }}{% endset %}{{ t2 }} {% set b %}  q {% endset %}[{{ b }}] {{ b is string }}
{% with a = 1, b = i %}{{ a }}{{ b }}{% set c = 2 %}{% endwith %}[{{ a }}][{{ c }}]{% with %}{{ i }}{% endwith %}{% with i = 1, j = i %}{{ j }}{% endwith %}
{% generation %}{% set g = 1 %}{{ g }}{% endgeneration %}[{{ g }}]{% for a in l %}{% generation %}{{ a }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% raw %}{{ x }} {% if %}{% endraw %} {%- raw -%}  y  {%- endraw -%}  z {# c #}{#- d -#} w
{% if i > 5 %}A{% elif i > 3 %}B{% else %}C{% endif %}{% if not t %}A{% elif n is none %}B{% endif %}{% if f %}{% else %}{% endif %}{% if (1, ) %}T{% endif %}
{% print 1 %}{% print s, i %}
{% set c = cycler("a", "b") %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner("|") %}{{ j() }}a{{ j() }}b{{ j() }}c
{% set a = l | map("string") %}{{ a | list }}{{ a | list }}{{ a is iterable }}{{ l | map("string") | first }}
{{ strftime_now("%Y-%m-%d") }} {{ strftime_now("%d %b %Y") }} {{ strftime_now("%A %B %j") }}
{{ raise_exception("stop: " ~ i) }}
{{ f(*l) }}
{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*l) }}{{ f(**{"a": 1, "b": 2, "c": 3}) }}{{ f(1, *[2], **{"c": 3}) }}{{ f(1, *[2], c=3) }}
{{ f(a=1, a=2) }}
{{ (i) }} {{ i|abs|string|length }} {{ -i|abs }} {{ -(i|abs) }} {{ s.lower().split(",")[0][1:].upper() }} {{ {"a": [1, 2]}.a[1] }} {{ [1, 2][0] }} {{ "abc"[1] }} {{ l.0 }} {{ d.C.1.k }} {{ rows[0].o.k }} {{ (l | sort)[0] }} {{ not t or t }} {{ not (t and f) }} {{ 1 + 2 * 3 - 4 / 2 }} {{ 2 ** 3 ** 2 }} {{ 7 - 2 - 1 }} {{ 1 ~ 2 + 3 }} {{ "a" in "abc" and "b" not in "xyz" }}
{{ i if }}
{{ }}
{{ 1 2 }}
{{ [1, 2 }}
{% if %}
{% endif %}
{% for a in l %}
{% unknown %}
{% set 1 = 2 %}
{% for loop in l %}{% endfor %}
{% break %}
{{ "abc }}
{{ a ! b }}
{# unclosed
{% raw %} unclosed
{{ 'a' if t
{% include "x" %}
{{ 012 }}
{{ a.b.1.5 }}
{{ [1, 2,] }} {{ (1, 2,) }} {{ {"a": 1,} }} {{ dict(a=1,) }} {{ 1,2 }}
""".strip("\n").split("\n")

WHITESPACE = [
    "a\n", "a\n\n", "\n", "", "  \n  ", "a\r\nb\rc\n", "{% if true %}\n\nx\n{% endif %}\n\ny\n",
    "  {% if true %}  \n  x  \n  {% endif %}  \n", "\t{% if true %}\n\tx\n\t{% endif %}y\n", "a {%- if true %} b {%- endif %} c",
    "a\n  {%+ if true +%}\n b\n{%+ endif %}\n", "{{ 1 }}\n{{ 2 }}\n", "  {{- 1 -}}  \n  x", "{%- set x = 1 -%}\n\n {{ x }}",
    "x\n  {# c #}\ny {# c #}\n  {#- c -#}  \nz", "{# a\nb #}\n c", "{#+ a +#}\n b", "a{% raw %}\n b {% endraw %}\nc", " {% raw -%} \n b {%- endraw %}\nc",
    "{% for i in [1, 2] %}\n  {{ i }}\n{% endfor %}\nend", "{% for i in [1, 2] -%}\n  {{ i }},\n{%- endfor %}\nend",
    "{{ '\n' }}{{ \"a\r\nb\" }}|", "{{ {'a': {'b': 1}}}}", "{{ {'a': 1}['a'] }}{% if {'a': {}} %}y{% endif %}", "{% set x %}\n a\n{% endset %}[{{ x }}]",
    "\u00a0{%- if true -%}\u3000x{% endif %}", "{%if true%}a{%endif%}{{1}}{{'a'-}} b", "{{ 1 }}{%- if true %}\n{% endif %}", "{ {% if true %}} %}{% endif %}", "{{ '}}' }}{{ '%}' }}",
    "{% if true %}\n{% if true %}\n  x\n{% endif %}\n{% endif %}\n", "a\n\n  {%- if true %}b{% endif -%}\n\n c\n", "{{ 5 -}}\n\n{{- 6 }}", "{%- macro f() %}\n x\n{% endmacro -%}\n{{ f() }}", "# x\n## y\n{{ 1 }}",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--tokenizers", type=pathlib.Path, help="folder of tokenizer_config.json folders")
    parser.add_argument("--gguf", nargs="*", default=[], help="GGUF files with a chat template, as NAME=PATH")
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/data/chat_templates")
    args = parser.parse_args()

    templates = dict(TEMPLATES)
    for config in sorted(args.tokenizers.glob("*/tokenizer_config.json")) if args.tokenizers else []:
        source = json.loads(config.read_text()).get("chat_template")
        if source:
            templates[config.parent.name] = source
    for item in args.gguf:
        name, path = item.split("=", 1)
        source = gguf_template(path)
        if source:
            templates[name] = source

    env = environment()
    rows = []
    for name, source in templates.items():
        for _, context in conversations():
            rows.append({"ref": name, "context": context, **outcome(env, source, copy.deepcopy(context))})
    for snippet in SNIPPETS:
        rows.append({"template": snippet, "context": CONTEXT, **outcome(env, snippet, copy.deepcopy(CONTEXT))})
    for snippet in WHITESPACE:
        rows.append({"template": snippet, **outcome(env, snippet, {})})
    # Addresses of Python objects are no expectation.
    rows = [row for row in rows if " at 0x" not in row.get("ok", "")]

    prefill = []
    for name, source in templates.items():
        for messages in prefills():
            if isinstance(messages[-1]["content"], list) and name != "turns":
                continue  # the evaluator joins parts first; only this template takes them as they are
            row = {"ref": name, "messages": messages, "bos_token": "<s>", "eos_token": "</s>"}
            prefill.append({**row, **continue_final(env, source, messages, "<s>", "</s>")})

    args.out.mkdir(parents=True, exist_ok=True)
    def dump(value):
        return json.dumps(value, ensure_ascii=False)
    (args.out / "templates.json").write_text(json.dumps(templates, ensure_ascii=False, indent=1) + "\n")
    (args.out / "renderings.jsonl").write_text("".join(dump(row) + "\n" for row in rows))
    (args.out / "prefill.jsonl").write_text("".join(dump(row) + "\n" for row in prefill))
    print(f"{len(templates)} templates, {len(rows)} renderings, {len(prefill)} prefills in {args.out}")


if __name__ == "__main__":
    main()
