"""Writes the held-out text used by the goldens: public-domain chapters and tales that training did not see.

usage: heldout.py CORPUS_FOLDER OUT_FOLDER
"""
import os
import sys

import corpus


def main():
    folder, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    picked, size = [], 0
    for r in corpus.load(folder):
        if r["held"] and r["file"].startswith("books-") and 2500 < len(r["text"]) < 9000 and size < 32000:
            if any(r["source"] == p["source"] for p in picked):
                continue
            picked.append(r)
            size += len(r["text"])
    with open(os.path.join(out, "heldout.txt"), "w", encoding="utf-8") as f:
        f.write("\n\n".join(r["text"] for r in picked) + "\n")
    with open(os.path.join(out, "heldout-sources.txt"), "w", encoding="utf-8") as f:
        for r in picked:
            f.write("%s | %s | %s | %d characters\n" % (r["title"], r["source"], r["licence"], len(r["text"])))
    print(size)


if __name__ == "__main__":
    main()
