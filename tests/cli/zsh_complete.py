#!/usr/bin/env python3
"""Prints what zsh's completion offers for a command line, a word a line.
usage: zsh_complete.py FOLDER_OF_COMPLETIONS LINE

zsh completes in its line editor only, so it runs on a terminal; compadd is wrapped to print the matches."""
import os, pty, select, sys, time

SCRIPT = r"""
unsetopt zle_bracketed_paste
fpath=("$1" $fpath)
autoload -U compinit && compinit -u -D
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
    local -a found
    builtin compadd -A found "$@"
    print -l -- "match:"${^found}
    builtin compadd "$@"
}
complete_and_say() { zle complete-word; print -r -- "end:" }
zle -N complete_and_say
bindkey '^I' complete_and_say
PS1=ready:
"""


def main():
    folder, line = sys.argv[1:]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "dumb"
        os.execvp("zsh", ["zsh", "-f", "-i"])
    out = b""

    def read_until(mark, seconds):
        nonlocal out
        end = time.time() + seconds
        while time.time() < end and mark not in out:
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    out += os.read(fd, 65536)
                except OSError:
                    break

    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"zsh_complete.{os.getpid()}")
    with open(path, "w") as f:
        f.write(SCRIPT.replace('"$1"', "'" + folder + "'"))
    os.write(fd, f". {path}\n".encode())
    read_until(b"ready:", 20)
    os.unlink(path)
    out = b""
    os.write(fd, line.encode() + b"\t")
    read_until(b"end:", 10)
    os.write(fd, b"\x03\x04")
    os.close(fd)
    os.waitpid(pid, 0)
    for word in out.decode(errors="replace").replace("\r", "\n").split("\n"):
        if "match:" in word:
            print(word.split("match:", 1)[1].strip())


main()
