// Short messages at the edge of the page, and announcements of answers for screen readers.
import { $, h, iconButton } from "./dom.js";

const SHOWN_MS = 12_000;

// Shows `text`; `action` is {label, run}.
export function notify(text, action) {
  const box = h("div", { class: "notice" }, h("span", {}, text));
  const close = () => box.remove();
  if (action)
    box.append(
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            close();
            action.run();
          },
        },
        action.label,
      ),
    );
  box.append(iconButton("close", "Dismiss", close));
  $("notices").append(box);
  setTimeout(close, SHOWN_MS);
}

const SENTENCE = /[^]*?(?:[.!?…]["')\]]*(?=\s)|\n)\s*/y;
const PAUSE_MS = 1500;

// Screen readers would read markup: "star star".
const spoken = (text) =>
  text
    .replace(/```[^\n]*/g, " code ")
    .replace(/[*_`#>|~]+/g, "")
    .replace(/\s+/g, " ")
    .trim();

// Adds an answer to a polite live region by sentences, not by tokens.
export class Announcer {
  constructor() {
    this.region = $("announcer");
    this.reset();
  }

  reset() {
    this.said = 0;
    this.last = 0;
    this.region.replaceChildren();
  }

  say(text) {
    const clean = spoken(text);
    if (!clean) return;
    this.region.append(h("p", {}, clean));
    while (this.region.childElementCount > 20) this.region.firstChild.remove();
    this.last = performance.now();
  }

  progress(content) {
    if (performance.now() - this.last < PAUSE_MS) return;
    let end = this.said;
    for (;;) {
      SENTENCE.lastIndex = end;
      if (!SENTENCE.test(content)) break;
      end = SENTENCE.lastIndex;
    }
    if (end === this.said) return;
    this.say(content.slice(this.said, end));
    this.said = end;
  }

  end(content, how) {
    this.say(content.slice(this.said));
    this.say(how);
    this.said = 0;
    this.last = 0;
  }
}
