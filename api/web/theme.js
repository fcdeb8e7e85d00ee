// Runs before the first paint, so that the page does not flash in another theme. "auto" follows the system.
const stored = localStorage.getItem("inferd.theme");
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
