// Light or dark: what the switch last said, else what the system prefers. A plain script in the head: no wrong colour is painted first.
(() => {
  const KEY = "kstream-theme";
  const root = document.documentElement;

  /** @returns {string | null} */
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // no storage is allowed here
    }
  };

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

  const choose = () => {
    const theme = isDark() ? "light" : "dark";
    root.dataset.theme = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // it holds for this visit
    }
  };

  const before = stored();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  addEventListener("DOMContentLoaded", () => document.getElementById("theme")?.addEventListener("click", choose));
})();
