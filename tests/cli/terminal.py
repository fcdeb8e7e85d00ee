#!/usr/bin/env python3
"""`inferd chat` and `inferd run` on a terminal: keys, history, several lines, commands, Ctrl-C and Ctrl-D.
usage: terminal.py BINARY URL FOLDER

FOLDER is the home of the histories and saved chats. Prints a line for each check, as tests/cli/run does."""
import fcntl, json, os, pty, re, select, signal, socket, struct, subprocess, sys, termios, threading, time

BINARY, URL, FOLDER = sys.argv[1:]
STATE = os.path.join(FOLDER, "state")
HISTORY = os.path.join(STATE, "inferd", "chat_history")
LIMIT_S = 60
UP, LEFT, HOME, END, DELETE = "\x1b[A", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~"


def check(name, condition, why=""):
    print(f"ok   {name}" if condition else f"FAIL {name}: {why!r}", flush=True)


def set_size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    def __init__(self, *args, program=BINARY, **env):
        self.out = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            set_size(0, 24, 200)
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": STATE, **env})
            os.execv(program, [program, *args])

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            self.out += data.decode(errors="replace")
            return bool(data)
        return True

    def until(self, pattern, seconds=LIMIT_S):
        """Reads until the output matches, forgets it up to there and returns the match's text; "" after the limit."""
        end = time.time() + seconds
        while time.time() < end:
            found = re.search(pattern, self.out, re.S)
            if found:
                self.out = self.out[found.end():]
                return found[0]
            if not self.read(0.1):
                break
        return ""

    def prompt(self):
        return self.until(r">>> (\x1b\[[0-9;]*[A-Za-z])*$")

    def send(self, text):
        os.write(self.fd, text.encode())

    def send_long(self, text, seconds=LIMIT_S):
        """Reads meanwhile, so that neither side waits for the other."""
        rest, end = text.encode(), time.time() + seconds
        while rest and time.time() < end:
            self.read(0)
            if select.select([], [self.fd], [], 0.1)[1]:
                rest = rest[os.write(self.fd, rest[:1024]):]

    def say(self, text):
        self.send(text + "\r")
        return self.prompt()

    def end(self, keys="\x04"):
        if keys:
            self.send(keys)
        end = time.time() + LIMIT_S
        while time.time() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "it did not end"


def saved(t, name):
    t.send(f"/save {name}\r")
    t.until(rf"saved to \S*{name}\.json")
    t.prompt()
    with open(os.path.join(STATE, "inferd", "chats", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def user_texts(body):
    return [m["content"] for m in body["messages"] if m["role"] == "user"]


def keys_and_lines():
    t = Terminal("chat", "--url", URL, "--max-tokens", "4")
    check("a terminal says what it talks to", "inferd-demo" in t.until("Talking to .*?/help"), t.out)
    t.prompt()
    t.say("Hxllo!" + HOME + "\x06" + DELETE + "e")
    t.say("na\u00efvex\x7f" + LEFT + "\u00e9" + END + "!")
    t.say("one \\\rtwo\\\rthree")
    t.say('"""first\rsecond \\\r\r"""')
    t.say('"""in one"""')
    t.say("\x1b[200~pasted\rtext\x1b[201~ and typed")
    t.say("draft\x15final")
    texts = user_texts(saved(t, "keys"))
    want = ["Hello!", "na\u00efv\u00e9e!", "one \ntwo\nthree", "first\nsecond \\\n", "in one", "pasted\ntext and typed",
            "final"]
    for name, text in zip(["cursor keys and delete", "UTF-8", "lines that end with a backslash", "a block of lines",
                           "a block in one line", "a paste of two lines", "Ctrl-U"], want):
        check(f"line editor: {name}", text in texts, texts)
    t.send("not sent\x03")
    check("Ctrl-C at the prompt forgets the line", t.until(r"Ctrl-D or /bye ends"), t.out)
    t.prompt()
    t.say("/set max_tokens 4000")
    for _ in range(5):  # a short story may be over before the key arrives
        t.send("Tell me a long story about a fox.\r")
        t.until(r"fox\.\r\n.*?\w+ \w+ ")
        t.send("\x13")  # Ctrl-S: the program waits in a write, which Ctrl-C must not spoil
        time.sleep(0.1)
        t.send("\x03")
        stopped = t.until(r"\[stopped\]|Ctrl-D or /bye ends")
        if stopped == "[stopped]":
            break
        t.prompt()
    check("Ctrl-C ends the answer", stopped == "[stopped]", t.out)
    check("and not the program", t.prompt(), t.out)
    check("a stopped answer is kept", saved(t, "stopped")["messages"][-1]["role"] == "assistant")
    status = t.end()
    check("Ctrl-D ends the program", status == 0, (status, t.out))
    t = Terminal("chat", "--url", URL, "--max-tokens", "4")
    t.prompt()
    t.send("final" + UP)
    t.say(UP * 3)
    check("the history outlives the program", "Tell me a long story" in open(HISTORY).read().replace("\\040", " "))
    t.send("\x12long st")
    check("Ctrl-R finds a line", t.until("a long story about"), t.out)
    t.send("\x03")  # drops what was typed behind it
    check("Ctrl-C leaves the search", t.prompt(), t.out)
    t.send("\x00")  # what a terminal makes of a Ctrl-D during an answer
    t.read(0.3)  # nothing comes; it is read before the next key
    check("and Ctrl-D the program", t.end() == 0)


def long_paste():
    t = Terminal("chat", "--url", URL, "--max-tokens", "1")
    t.prompt()
    t.send_long("\x1b[200~" + "not typed\r" * 110000 + "\x1b[201~")
    t.say("typed")
    texts = user_texts(saved(t, "paste"))
    check("of a paste that is too long nothing is taken", texts == ["typed"], texts[:3])
    t.end()


def other_keys_of_the_terminal():
    """Ctrl-Z and Ctrl-\\ give the terminal back as it was; after fg the line is there again."""
    script = 'ulimit -c 0; "$0" "$@"; stty -a; echo was stopped; fg; stty -a; echo was ended'
    t = Terminal("-m", "-c", script, BINARY, "chat", "--url", URL, "--max-tokens", "1", program="/bin/sh")
    t.prompt()
    t.send("Hel")
    t.until("Hel")
    t.send("\x1a")
    modes = t.until(r"speed .*was stopped")
    check("Ctrl-Z restores the terminal", re.search(r" icanon .* echo ", modes, re.S), modes)
    check("fg shows the line again", t.until(r">>> (\x1b\[[0-9;]*[A-Za-z])*Hel"), t.out)
    t.say("lo!")
    texts = user_texts(saved(t, "continued"))
    check("and goes on with it", texts == ["Hello!"], texts)
    t.send("\x1c")
    modes = t.until(r"speed .*was ended")
    check("Ctrl-\\ restores the terminal", re.search(r" icanon .* echo ", modes, re.S), modes)
    t.end("")


def window_changes():
    t = Terminal("chat", "--url", URL, "--max-tokens", "1")
    t.prompt()
    text = "the quick brown fox jumps over the lazy dog"
    t.send(text)
    t.until("lazy dog")
    for rows, columns in (24, 60), (5, 7), (24, 4), (2, 2), (24, 200):
        set_size(t.fd, rows, columns)
        t.until(r"\r\x1b\[J", 5)
        t.send(" and more")
    t.say("")
    texts = user_texts(saved(t, "window"))
    check("a line is kept while the window changes", texts == [text + 5 * " and more"], texts)
    check("and the program ends well", t.end() == 0)


def history_is_bounded():
    t = Terminal("chat", "--url", URL, "--max-tokens", "1")
    t.prompt()
    with open(HISTORY, "w") as f:
        f.write("_HiStOrY_V2_\n" + "".join(f"line{i}\n" for i in range(1500)))
    t.end()
    t = Terminal("chat", "--url", URL, "--max-tokens", "1")
    t.prompt()
    t.say("the newest")
    lines = open(HISTORY).read().splitlines()
    check("the history has at most 1000 lines", len(lines) <= 1001 and "newest" in lines[-1], len(lines))
    check("the history is the user's alone", os.stat(HISTORY).st_mode & 0o777 == 0o600, oct(os.stat(HISTORY).st_mode))
    check("/bye ends", t.end("/bye\r") == 0)


def commands():
    t = Terminal("chat", "--url", URL, "--system", "Be brief.", "--max-tokens", "4", "--seed", "1")
    t.prompt()

    def says(name, line, pattern):
        t.send(line + "\r")
        check(name, t.until(pattern, 20), t.out)
        t.prompt()

    says("/help lists commands", "/help", r'/system \[TEXT\].*"""')
    says("a misspelt command", "/sytem x", r"unknown command /sytem: did you mean /system\?")
    says("a misspelt setting", "/set tempratur 1", r"did you mean temperature\?")
    says("a value out of bounds", "/set top-p 2", r"top_p: 2 is out of bounds \(above 0 to 1\)")
    says("/set shows values", "/set", r"max_tokens +4 .*seed +1 ")
    says("/system shows the message", "/system", r"Be brief\.")
    says("/model lists", "/model", r"\* inferd-demo")
    says("a misspelt model", "/model inferd-dem", r"did you mean inferd-demo\?")
    says("/image says that there are none", "/image a.png", r"inferd-demo takes no images")
    says("Tab completes a command", "/sys\t", r"Be brief\.")
    t.say("/set temp\t0.5")
    t.say("/model demo")
    t.say("Hello!")
    path = os.path.join(FOLDER, "text.txt")
    with open(path, "w") as f:
        f.write("From a file.")
    says("/read", f"/read {path}", "12 bytes of")
    t.say("What is this?")
    body = saved(t, "chat")
    check("Tab completes a setting", body.get("temperature") == 0.5, body)
    check("a saved chat is a request's body", body["model"] == "demo" and body["seed"] == 1
          and body["messages"][0] == {"role": "system", "content": "Be brief."}, body)
    check("/read precedes the message", "From a file.\n\nWhat is this?" in user_texts(body), user_texts(body))
    says("/regen without an answer", "/clear\r/regen", "there is no answer yet")
    t.say("/set temperature")
    t.say("/system -")
    empty = saved(t, "empty")
    check("/clear, /system - and a setting's default", empty["messages"] == [] and "temperature" not in empty, empty)
    says("/load", "/load chat", "loaded 4 messages for demo")
    t.say("/regen")
    again = saved(t, "again")
    check("/load and /regen", len(again["messages"]) == 5 and user_texts(again) == user_texts(body), again)
    path = os.path.join(FOLDER, "other.json")
    with open(path, "w") as f:
        json.dump({**again, "model": "other"}, f)
    t.say(f"/load {path}")
    says("/regen that fails", "/regen", "the server answers 404")
    body = saved(t, "kept")
    check("and keeps the answer", body["messages"] == again["messages"], body)
    t.say("/load chat")
    says("/load of nothing", "/load nothing", "No such file")
    t.say("/etc/hosts is a file")
    check("and was asked", "/etc/hosts is a file" in user_texts(saved(t, "path")))
    status = t.end()
    check("commands: Ctrl-D ends", status == 0, (status, t.out))


def lost_output():
    """A server whose answer has no end, and a pipe that nobody reads."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        client = listener.accept()[0]
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                client.sendall(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
        except OSError:
            client.close()

    threading.Thread(target=answer, daemon=True).start()
    reader, writer = os.pipe()
    os.close(reader)
    chat = subprocess.Popen([BINARY, "chat", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}", "--model", "m", "hi"],
                            stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    try:
        why = chat.communicate(timeout=LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        chat.kill()
        why = b"it did not end"
    check("chat ends when nobody reads its output", chat.returncode == 1 and b"cannot write the output" in why, why)


def run_own():
    """A daemon of its own, that ends with the chat, even if that is killed."""
    model = "demo"
    t = Terminal("run", model, "--max-tokens", "4")
    check("run loads and talks", t.prompt(), t.out)
    daemons = os.path.join(STATE, "inferd", "run")
    check("run has a daemon", len(os.listdir(daemons)) == 1, os.listdir(daemons))
    pid = int(os.listdir(daemons)[0])
    t.send("\x03")
    t.prompt()
    t.say("Hello!")
    check("Ctrl-C does not reach the daemon", len(user_texts(saved(t, "run"))) == 1)
    other = Terminal("run", model, "--max-tokens", "4")
    other.prompt()
    check("another run has a daemon of its own", len(os.listdir(daemons)) == 2, os.listdir(daemons))
    other.end()
    os.kill(t.pid, signal.SIGKILL)
    os.waitpid(t.pid, 0)
    end = time.time() + 20
    while time.time() < end and os.path.exists(f"/proc/{pid}") and os.listdir(daemons):
        time.sleep(0.1)
    check("the daemon of a killed run ends", not os.listdir(daemons), os.listdir(daemons))


keys_and_lines()
long_paste()
other_keys_of_the_terminal()
window_changes()
history_is_bounded()
commands()
lost_output()
run_own()
