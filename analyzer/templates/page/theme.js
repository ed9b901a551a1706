"use strict";
// Light and dark.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const say = () => button.lastElementChild.textContent = dark() ? "light" : "dark";
  const stored = () => { try { return localStorage.getItem("radrm-theme"); } catch { return null; } };
  const store = theme => { try { localStorage.setItem("radrm-theme", theme); } catch { /* a page from disk may have none */ } };
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  say();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", say);
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    store(root.dataset.theme);
    say();
  });
})();
