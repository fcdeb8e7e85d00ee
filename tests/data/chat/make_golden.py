#!/usr/bin/env python3
"""Writes golden/TEMPLATE/CASE.txt (or .error) for every template in templates/ and every case in
cases.json. Run in this folder."""
import json
import os

import jinja_env


def cut_after_final(text, message):
    """continue_final_message, as transformers does it."""
    final = message["content"]
    at = text.rindex(final.strip())
    if text[at:at + len(final.lstrip())] == final.lstrip():
        return text[:at + len(final.lstrip())]
    return text[:at + len(final.strip())]


env = jinja_env.make()
cases = json.load(open("cases.json"))["cases"]
for name in sorted(os.listdir("templates")):
    template = env.from_string(open("templates/" + name).read())
    folder = "golden/" + name.removesuffix(".jinja")
    os.makedirs(folder, exist_ok=True)
    for case in cases:
        variables = {k: case[k] for k in ("messages", "tools", "documents", "add_generation_prompt",
                                          "bos_token", "eos_token")}
        path = folder + "/" + case["name"]
        try:
            text = template.render(**variables, **case["extra"])
            if case["continue_final_message"]:
                text = cut_after_final(text, case["messages"][-1])
            with open(path + ".txt", "w", newline="") as f:
                f.write(text)
        except Exception as e:
            with open(path + ".error", "w") as f:
                f.write(f"{type(e).__name__}: {e}\n")
