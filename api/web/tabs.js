// A row of tabs (the ARIA pattern): arrow keys, Home and End select a tab and show its panel.
import { $ } from "./dom.js";

const nameOf = (tab) => tab.id.slice("tab-".length);

export class Tabs {
  // onChange(name) is called when another tab is selected.
  constructor(list, onChange) {
    this.tabs = [...list.querySelectorAll('[role="tab"]')];
    this.names = this.tabs.map(nameOf);
    this.onChange = onChange;
    list.addEventListener("click", (e) => {
      const tab = e.target.closest('[role="tab"]');
      if (tab) this.turn(nameOf(tab));
    });
    list.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    const at = this.tabs.indexOf(e.target),
      n = this.tabs.length;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: n - 1 }[e.key];
    if (at < 0 || to === undefined) return;
    e.preventDefault();
    const tab = this.tabs[(to + n) % n];
    this.turn(nameOf(tab));
    tab.focus();
  }

  turn(name) {
    this.show(name);
    this.onChange?.(name);
  }

  show(name) {
    for (const tab of this.tabs) {
      const on = nameOf(tab) === name;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      $(tab.getAttribute("aria-controls")).hidden = !on;
    }
  }
}
