#!/usr/bin/env python3
"""Explains, with Jinja2, what `inferd render` makes of each case by default, and writes
normalised.tsv: TEMPLATE, CASE and the changes to the messages after which Jinja2 renders the same
text (strictly, or else with undefined tools or mutation). Cases that need no change have no line.
What cannot be explained is printed, and the exit status is 1. Usage, in the repository:
tests/data/chat/make_normalised.py build/inferd"""
import copy
import itertools
import json
import os
import subprocess
import sys

import jinja2

import jinja_env
import make_golden

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (HERE, "../shared/data/chat-templates")


def calls_of(message):
    return [c["function"] for c in message.get("tool_calls") or []]


def parts_of(content):
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def joined(first, second):
    if isinstance(first, str) and isinstance(second, str):
        return first + ("\n\n" if first and second else "") + second
    return parts_of(first) + parts_of(second)


def folded(messages, first_too):
    """System messages join those next to them, except a first one that may stay."""
    systems = ("system", "developer")
    roles = [m["role"] for m in messages]
    i = 0 if first_too else 1
    while i < len(messages):
        before = roles[i - 1] if i else ""
        after = roles[i + 1] if i + 1 < len(roles) else ""
        if roles[i] not in systems:
            i += 1
            continue
        text = messages[i]["content"]
        if after in systems or (after == "user" and before not in systems):
            messages[i + 1]["content"] = joined(text, messages[i + 1]["content"])
        elif before == "user" or before in systems:
            messages[i - 1]["content"] = joined(messages[i - 1]["content"], text)
        else:
            messages[i]["role"] = roles[i] = "user"
            continue
        del messages[i], roles[i]
    return messages


def possible(messages):
    """The changes that would touch these messages, simplest first."""
    callers = [m for m in messages if calls_of(m)]
    arguments = [f["arguments"] for m in callers for f in calls_of(m)]
    tests = {
        "empty": any(m["content"] is None for m in callers),
        "null": any(m["content"] == "" for m in callers),
        "object": any(isinstance(a, str) for a in arguments),
        "text": any(isinstance(a, dict) for a in arguments),
        "join": any(isinstance(m["content"], list) for m in messages),
        "wrap": any(isinstance(m["content"], str) for m in messages),
        "system": any(m["role"] == "developer" for m in messages),
        "name": any(m["role"] == "tool" and "name" not in m for m in messages),
        "late": any(m["role"] in ("system", "developer") for m in messages[1:]),
        "fold": any(m["role"] in ("system", "developer") for m in messages),
    }
    return [name for name, holds in tests.items() if holds]


def changed(case, changes):
    case = copy.deepcopy(case)
    for m in case["messages"]:
        if calls_of(m) and "empty" in changes and m["content"] is None:
            m["content"] = ""
        elif calls_of(m) and "null" in changes and m["content"] == "":
            m["content"] = None
        for f in calls_of(m):
            if "object" in changes and isinstance(f["arguments"], str):
                f["arguments"] = json.loads(f["arguments"])
            elif "text" in changes and isinstance(f["arguments"], dict):
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=False)
        if "join" in changes and isinstance(m["content"], list):
            m["content"] = "\n".join(p["text"] for p in m["content"])
        elif "wrap" in changes and isinstance(m["content"], str):
            m["content"] = [{"type": "text", "text": m["content"]}]
        if "system" in changes and m["role"] == "developer":
            m["role"] = "system"
        if "name" in changes and m["role"] == "tool" and "name" not in m:
            m["name"] = [c["function"]["name"] for k in case["messages"]
                         for c in k.get("tool_calls", []) if c["id"] == m["tool_call_id"]][-1]
    if "late" in changes or "fold" in changes:
        folded(case["messages"], "fold" in changes)
    return case


def gives(templates, case, answer):
    """Does one of the renderings give this answer?"""
    strict, mutable = templates
    text, e = make_golden.render(strict, case)
    if "error" in answer:
        return text is None and type(e).__name__ == answer["class"] and (
            answer["class"] != "TemplateError" or str(e) in answer["error"])
    for template, undefined in ((mutable, False), (strict, True), (mutable, True)):
        if text is None:
            text, _ = make_golden.render(template, case, undefined)
    return text == answer["text"]


def explain(templates, case, answer):
    names = possible(case["messages"])
    for n in range(len(names) + 1):
        for changes in itertools.combinations(names, n):
            if gives(templates, changed(case, changes), answer):
                return changes
    return None


def main(inferd):
    lines, unexplained = set(), 0
    envs = [jinja_env.make(), jinja_env.make(jinja2.sandbox.SandboxedEnvironment)]
    for folder in FOLDERS:
        if not os.path.isdir(folder):
            print(f"no {folder}")
            continue
        data = json.load(open(folder + "/cases.json"))
        stdin = "".join(json.dumps({**c, "now": data["now"]}) + "\n" for c in data["cases"])
        for file in sorted(os.listdir(folder + "/templates")):
            path = folder + "/templates/" + file
            run = subprocess.run([inferd, "render", "--template", path, "--jsonl"],
                                 input=stdin.encode(), capture_output=True, check=True)
            templates = [env.from_string(open(path).read()) for env in envs]
            for case, line in zip(data["cases"], run.stdout.splitlines(), strict=True):
                changes = explain(templates, case, json.loads(line))
                if changes is None:
                    unexplained += 1
                    print("unexplained:", path, case["name"], line[:200])
                elif changes:
                    lines.add("\t".join((file.removesuffix(".jinja"), case["name"],
                                         ",".join(changes))))
    with open(HERE + "/normalised.tsv", "w") as f:
        f.write("".join(line + "\n" for line in sorted(lines)))
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
