// Starts the page: tabs, theme, side panels, the API key. Each tab has files of its own.
import { $ } from "./dom.js";
import { getKey, setKey } from "./api.js";
import { Connection } from "./connection.js";
import { ChatStore } from "./store.js";
import { Chat } from "./chat.js";
import { Dashboard } from "./dashboard.js";
import { startPlayground } from "./playground.js";
import { Tabs } from "./tabs.js";

const THEMES = ["auto", "light", "dark"];
const narrow = matchMedia("(max-width: 56rem)");

// ---- theme ----

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = $("theme");
  button.dataset.shows = theme;
  button.setAttribute("aria-label", `Theme: ${theme}`);
  button.title = `Theme: ${theme}`;
}

function startTheme() {
  let theme = document.documentElement.dataset.theme ?? "auto";
  showTheme(theme);
  $("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("inferd.theme", theme);
    showTheme(theme);
  });
}

// ---- tabs ----

function startTabs(onShow) {
  const show = (name) => {
    document.body.dataset.tab = name;
    onShow(name);
  };
  const tabs = new Tabs($("tabs"), (name) => {
    history.replaceState(null, "", name === "chat" ? "./" : `#${name}`);
    show(name);
  });
  const follow = () => {
    const name = tabs.names.find((n) => `#${n}` === location.hash) ?? "chat";
    tabs.show(name);
    show(name);
  };
  addEventListener("hashchange", follow);
  follow();
  $("skip").addEventListener("click", (e) => {
    e.preventDefault();
    tabs.turn("chat");
    $("input").focus();
  });
}

// ---- side panels: the list of chats, the settings ----

const panels = [
  { panel: $("chats"), button: $("open-chats") },
  { panel: $("settings"), button: $("open-settings") },
];

function showPanel({ panel, button }, open) {
  panel.classList.toggle("open", open);
  button.setAttribute("aria-expanded", String(open));
  // On a narrow screen a panel covers the rest, which must not get the focus then.
  const covers = narrow.matches && panels.some((p) => p.panel.classList.contains("open"));
  $("conversation").inert = covers;
  $("shade").hidden = !covers;
}

function closePanels() {
  for (const p of panels) {
    const hadFocus = p.panel.contains(document.activeElement);
    if (narrow.matches || p.panel.id === "settings") showPanel(p, false);
    if (hadFocus && !p.panel.classList.contains("open")) p.button.focus();
  }
}

function startPanels() {
  for (const p of panels)
    p.button.addEventListener("click", () => {
      const open = !p.panel.classList.contains("open");
      if (narrow.matches) panels.forEach((other) => showPanel(other, false));
      showPanel(p, open);
      if (open) p.panel.querySelector("button, input, textarea")?.focus();
    });
  const reset = () => {
    showPanel(panels[0], !narrow.matches);
    showPanel(panels[1], false);
  };
  narrow.addEventListener("change", reset);
  reset();
  $("shade").addEventListener("click", closePanels);
  for (const close of document.querySelectorAll(".close-panel"))
    close.addEventListener("click", () => {
      const p = panels.find(({ panel }) => panel.contains(close));
      showPanel(p, false);
      p.button.focus();
    });
  document.addEventListener("close-panels", () => narrow.matches && closePanels());
  document.addEventListener("open-settings", () => showPanel(panels[1], true));
}

// ---- the API key ----

function startKey(connection) {
  const box = $("api-key");
  box.value = getKey();
  box.addEventListener("change", () => {
    setKey(box.value.trim());
    connection.unlock();
  });
  $("api-key-form").addEventListener("submit", (e) => e.preventDefault());
  $("key-form").addEventListener("submit", (e) => {
    e.preventDefault();
    setKey($("key-input").value.trim());
    box.value = getKey();
    connection.unlock();
  });
  connection.addEventListener("state", () => {
    const locked = connection.state === "locked";
    if (locked && $("key-form").hidden) setTimeout(() => $("key-input").focus());
    $("key-form").hidden = !locked;
    $("key-wrong").hidden = !getKey();
  });
}

startTheme();
startPanels();
const connection = new Connection();
const chat = new Chat(await ChatStore.open(), connection);
await chat.start();
const modes = startPlayground(connection);
const dashboard = new Dashboard($("panel-dashboard"));
startKey(connection);
startTabs((name) => dashboard.show(name === "dashboard"));
document.addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (!$("shade").hidden || $("settings").contains(document.activeElement)) closePanels();
  else [chat, ...modes].forEach((m) => m.stop());
});
connection.look();
