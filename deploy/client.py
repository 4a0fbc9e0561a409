#!/usr/bin/env python3
"""A conversation with `lucid serve` through the openai package: client.py [URL [MODEL]].

pip install openai
"""
import sys

from openai import OpenAI


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
    client = OpenAI(base_url=url, api_key="none")
    model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id
    messages = []
    while True:
        try:
            messages.append({"role": "user", "content": input("> ")})
        except EOFError:
            return
        reply = ""
        for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
            for choice in chunk.choices:
                reply += choice.delta.content or ""
                print(choice.delta.content or "", end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": reply})


if __name__ == "__main__":
    main()
