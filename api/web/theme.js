// Runs before the first paint, so that a chosen theme does not flash. "auto" follows the system.
const stored = localStorage.getItem("inferd.theme");
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
