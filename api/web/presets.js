// Presets: system prompt and sampling under a name, kept in this browser.
import { $ } from "./dom.js";
import { notify } from "./notices.js";

const KEY = "inferd.presets";
const MAX_PRESETS = 100;

function read() {
  try {
    const all = JSON.parse(localStorage.getItem(KEY));
    return all && typeof all === "object" && !Array.isArray(all) ? all : {};
  } catch {
    return {};
  }
}

export class Presets {
  // get() returns the settings of the moment, set(settings) shows others.
  constructor({ get, set }) {
    Object.assign(this, { get, set });
    this.picker = $("preset");
    this.name = $("preset-name");
    this.picker.addEventListener("change", () => this.pick());
    $("preset-form").addEventListener("submit", (e) => {
      e.preventDefault();
      this.save();
    });
    $("preset-delete").addEventListener("click", () => this.remove());
    addEventListener("storage", (e) => e.key === KEY && this.render());
    this.render();
  }

  render(picked = this.picker.value) {
    const names = Object.keys(read()).sort((a, b) => a.localeCompare(b));
    this.picker.replaceChildren(
      new Option(names.length ? "none" : "none saved", ""),
      ...names.map((n) => new Option(n, n)),
    );
    this.picker.value = names.includes(picked) ? picked : "";
    $("preset-delete").disabled = !this.picker.value;
  }

  pick() {
    const settings = read()[this.picker.value];
    $("preset-delete").disabled = !this.picker.value;
    if (!settings) return;
    this.name.value = this.picker.value;
    this.set(settings);
  }

  // Another chat is shown: its settings no longer belong to a preset.
  forget() {
    this.picker.value = "";
    $("preset-delete").disabled = true;
  }

  write(all) {
    try {
      localStorage.setItem(KEY, JSON.stringify(all));
      return true;
    } catch {
      notify("The browser has no room for the preset.");
      return false;
    }
  }

  save() {
    const name = this.name.value.trim(),
      all = read();
    if (!name) return;
    if (!(name in all) && Object.keys(all).length >= MAX_PRESETS) {
      notify(`There are ${MAX_PRESETS} presets: delete one first.`);
      return;
    }
    if (this.write({ ...all, [name]: this.get() })) this.render(name);
  }

  remove() {
    const all = read(),
      name = this.picker.value,
      { [name]: gone, ...rest } = all;
    if (!gone || !this.write(rest)) return;
    this.render();
    notify(`Deleted the preset “${name}”.`, {
      label: "Undo",
      run: () => this.write({ ...read(), [name]: gone }) && this.render(name),
    });
  }
}
