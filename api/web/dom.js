// Makes elements. Text only ever becomes text nodes: no code of this page parses HTML.

export const $ = (id) => document.getElementById(id);

function setProp(el, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
  else el.setAttribute(name, value === true ? "" : value);
}

function make(el, props, children) {
  for (const [name, value] of Object.entries(props)) setProp(el, name, value);
  el.append(...children.filter((c) => c !== undefined && c !== null && c !== false));
  return el;
}

// h("a", {class: "x", href: "...", onclick: f}, "text", node)
export const h = (tag, props = {}, ...children) => make(document.createElement(tag), props, children);

export const svg = (tag, props = {}, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

const ICONS = {
  check: "M5 12.5l4.5 4.5L19 7.5",
  copy: "M9 9h10v11H9zM5 15V4h10",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  more: "M9 6l6 6-6 6",
  retry: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  previous: "M14 6l-6 6 6 6",
  next: "M10 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
};

export const icon = (name) =>
  svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

// A button with only an icon; `label` is its accessible name.
export const iconButton = (name, label, onclick, props = {}) =>
  h(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...props },
    icon(name),
  );

function morphText(old, fresh) {
  if (old.data === fresh.data) return;
  // Appending keeps the reader's selection.
  if (fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.data.length));
  else old.data = fresh.data;
}

function morphNode(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
  } else if (old.nodeType === Node.TEXT_NODE) {
    morphText(old, fresh);
  } else {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    morphChildren(old, [...fresh.childNodes]);
  }
}

// Makes the children of `parent` from `first` on equal to `fresh`, without touching those that are
// equal already, so that streaming text neither flickers nor loses focus and selection.
export function morphChildren(parent, fresh, first = parent.firstChild) {
  let old = first;
  for (const node of fresh) {
    if (!old) {
      parent.append(node);
      continue;
    }
    const next = old.nextSibling;
    morphNode(old, node);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // pages that are not from https or localhost
  }
}

function copyBySelection(text) {
  const box = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  const before = document.activeElement;
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  before?.focus();
  return done;
}

export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// `menu` (a popover of buttons) opens below `button`, and closes when one of its buttons is used.
export function openMenu(button, menu) {
  button.addEventListener("click", () => {
    menu.showPopover();
    const { right, bottom } = button.getBoundingClientRect();
    menu.style.top = `${bottom + 4}px`;
    menu.style.left = `${Math.max(8, right - menu.offsetWidth)}px`;
    menu.querySelector("button").focus();
  });
  menu.addEventListener("click", (e) => e.target.closest("button") && menu.hidePopover());
  menu.addEventListener("toggle", (e) => button.setAttribute("aria-expanded", String(e.newState === "open")));
}

export const number = (n) => n.toLocaleString("en-US");
