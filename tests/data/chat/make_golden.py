#!/usr/bin/env python3
"""Writes golden/TEMPLATE/CASE.txt (or .error) for every template in templates/ and every case in
cases.json; CASE.undef.txt where tools and documents that are undefined instead of None give another
text, CASE.mutable.txt where only the immutable sandbox stands in the way. Run in this folder."""
import json
import os

import jinja2

import jinja_env


def cut_after_final(text, message):
    """continue_final_message, as transformers does it."""
    final = message["content"]
    if isinstance(final, list):
        final = final[-1]["text"]
    at = text.rindex(final.strip())
    if text[at:at + len(final.lstrip())] == final.lstrip():
        return text[:at + len(final.lstrip())]
    return text[:at + len(final.strip())]


def render(template, case, undefined=False):
    """(text, None) or (None, exception)"""
    names = ["messages", "add_generation_prompt", "bos_token", "eos_token"]
    names += [n for n in ("tools", "documents") if case[n] is not None or not undefined]
    try:
        text = template.render(**{n: case[n] for n in names}, **case["extra"])
        if case["continue_final_message"]:
            text = cut_after_final(text, case["messages"][-1])
        return text, None
    except Exception as e:
        return None, e


def write(path, text):
    with open(path, "w", newline="") as f:
        f.write(text)


if __name__ == "__main__":
    env = jinja_env.make()
    mutable = jinja_env.make(jinja2.sandbox.SandboxedEnvironment)
    cases = json.load(open("cases.json"))["cases"]
    for name in sorted(os.listdir("templates")):
        source = open("templates/" + name).read()
        template, changing = env.from_string(source), mutable.from_string(source)
        folder = "golden/" + name.removesuffix(".jinja")
        os.makedirs(folder, exist_ok=True)
        for case in cases:
            path = folder + "/" + case["name"]
            text, e = render(template, case)
            if text is not None:
                write(path + ".txt", text)
            else:
                write(path + ".error", f"{type(e).__name__}: {e}\n")
            undefined, _ = render(template, case, True)
            if undefined is not None and undefined != text:
                write(path + ".undef.txt", undefined)
            if isinstance(e, jinja2.exceptions.SecurityError):
                text, _ = render(changing, case)
                if text is not None:
                    write(path + ".mutable.txt", text)
