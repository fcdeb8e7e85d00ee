"""Reads the corpus files (JSON Lines, xz): documents, held-out split, open nouns, chats made from stories."""
import glob
import json
import lzma
import os
import re
import zlib

import words as W
from textgen import article

_QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": " - ", "\u2026": "...",
           "\u00a0": " ", "\t": " ", "\r": "", "\ufeff": ""}
_QUOTE_RE = re.compile("|".join(map(re.escape, _QUOTES)))
HELD_OUT_MODULUS = 64


def normalise(text):
    """Typographic quotes and dashes to plain ones; runs of blanks to one."""
    text = _QUOTE_RE.sub(lambda m: _QUOTES[m.group(0)], text)
    text = re.sub(r" +", " ", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *\n *", "\n", text)).strip()


def load(folder):
    """All records in file order, with "file" and "held" (True for the held-out part)."""
    out = []
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl.xz"))):
        with lzma.open(path, "rt", encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                r["file"] = os.path.basename(path).split(".")[0]
                r["text"] = normalise(r["text"])
                r["held"] = zlib.crc32((r["title"] + r["source"]).encode()) % HELD_OUT_MODULUS == 0
                out.append(r)
    return out


def is_prose(r):
    return r["file"].startswith(("books-", "stories-"))


def open_nouns(records, limit=4000):
    """Singular nouns guessed from "a/an X" followed by a function word or full stop, the frequent ones."""
    count = {}
    known = set(W.ANIMALS) | set(W.PEOPLE) | set(W.OBJECTS)
    pat = re.compile(r"\b(?:a|an) ([a-z]{3,12})(?=[.,;!?]| and | of | with | that | who | in | on | was | which )")
    for r in records:
        if is_prose(r) and not r["held"]:
            for w in pat.findall(r["text"]):
                count[w] = count.get(w, 0) + 1
    bad = ("ing", "ed", "ly", "ous", "ful", "est", "less")
    # words that make no good topic: vague ones, and those that are unfit for a children's story or offend people
    skip = set("""few little great good long while moment lot kind sort bit time minute hour day week month year night second
        third fourth half dozen thousand hundred million certain way thing man woman such whole number fool devil corpse slave
        gun pistol rifle murder beast savage drunkard gypsy jew negro squaw heathen beggar cripple murderer killer coffin
        whip gallows poison knife bullet wound bomb dead death hell sin liar bore bastard cannibal witch coward idiot lunatic
        pipe cigar beer wine whisky body virgin breast kiss naked more less very most one two""".split())
    good = [w for w, c in count.items() if c >= 2 and not w.endswith(bad) and w not in skip and w not in known]
    good.sort(key=lambda w: (-count[w], w))
    return good[:limit]


def open_questions(records, limit=6000):
    """Questions met in the books, of which a small model cannot know the answer."""
    pat = re.compile(r'"((?:What|Who|Where|When|Why|How|Which|Did|Was|Were|Will|Shall|Could) [A-Za-z\' ,]{12,70}\?)"')
    out = []
    for r in records:
        if r["file"].startswith("books-") and not r["held"]:
            out += [q for q in pat.findall(r["text"]) if not re.search(r"(?i)kill|die|dead|devil|god|hang|blood|murder|slave|are you|your name|time is it|do you do", q)]
    return sorted(set(out))[:: max(1, len(set(out)) // limit)]


def trivia_facts(records):
    """Question and answer pairs of the trivia part of qa-chatterbot, in the form of facts.qa()."""
    out = []
    for r in records:
        if r["file"] == "qa-chatterbot" and r["title"].startswith("trivia") and not re.search("testicle|sex|drug|naked", r["text"]):
            lines = r["text"].split("\n")
            if len(lines) == 2 and lines[0].startswith("User: ") and lines[1].startswith("Assistant: "):
                q, a = lines[0][6:].strip().rstrip("?"), lines[1][11:].strip().rstrip(".")
                if len(a) < 60:
                    out.append(([q], a, a))
    return out


def _dialogue(text, first, second):
    turns = []
    for line in text.split("\n"):
        if line.startswith(first):
            role, body = "user", line[len(first):]
        elif line.startswith(second):
            role, body = "assistant", line[len(second):]
        else:
            if turns:
                turns[-1]["content"] += "\n" + line
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += " " + body
        else:
            turns.append({"role": role, "content": body})
    while turns and turns[0]["role"] != "user":
        turns.pop(0)
    return turns


def chats(records, rng):
    """Chats made from the corpus itself; yields (messages, held)."""
    for r in records:
        text, title = r["text"], r["title"]
        n_words = text.count(" ") + 1
        if r["file"].startswith("stories-") and 40 <= n_words <= 700 or is_prose(r) and 60 <= n_words <= 380:
            name = normalise(title.split(": ")[-1]).strip()
            name = name.title() if name.isupper() else name
            if len(name) > 60 or name.lower().startswith("chapter") or not re.search("[a-z]", name):
                continue
            old = "an old" if r["file"].startswith("books-") else "a"
            ask = rng.choice(['Tell me %s story called "%s".' % (old, name), 'Tell me the story "%s".' % name,
                              "Do you know %s story called %s?" % (old, name), 'Read me "%s".' % name])
            nouns = [w for w in re.findall(r"[a-z]+", name.lower()) if w in W.ANIMALS or w in W.PEOPLE]
            if nouns and rng.random() < .4:
                ask = "Tell me %s story about %s." % (old if old != "a" else "a folk", " and ".join(article(n) for n in nouns[:2]))
            yield [{"role": "user", "content": ask}, {"role": "assistant", "content": text}], r["held"]
        elif r["file"] == "qa-grade-school-math":
            t = _dialogue(text, "User: ", "Assistant: ")
            if len(t) == 2:
                if rng.random() < .5:
                    t = [{"role": "system", "content": "Solve the problem step by step."}] + t
                yield t, r["held"]
        elif r["file"] == "dialogues-taskmaster-4":
            t = _dialogue(text, "User: ", "Assistant: ")
            yield [{"role": "system", "content": "You take orders in a coffee shop."}] + t, r["held"]
        elif r["file"] == "dialogues-persona-chat" and "[" not in text:
            t = _dialogue(text, "User 1: ", "User 2: ")
            yield [{"role": "system", "content": rng.choice(["You are a person. Have a chat.", "Have a friendly chat as a person."])}] + t, r["held"]
