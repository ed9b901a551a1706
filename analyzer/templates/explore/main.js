"use strict";
// The parts of the page, and the runs that are chosen.
(() => {
  const said = document.getElementById("said");
  const app = {
    data: null, chosen: new Set(), full: false,
    /** Runs that can be chosen at once. */
    MOST: 20,
    /** Chooses a run or not; false if there are too many. */
    choose(id, is) {
      app.full = is && app.chosen.size >= app.MOST;
      if (!app.full) app.chosen[is ? "add" : "delete"](id);
      changed();
      return !app.full;
    },
    chooseOnly(ids) {
      app.full = false;
      app.chosen = new Set(ids);
      changed();
    },
    /** The rows that the filter leaves. */
    left: rows => parts.relations.left(rows),
    load: async () => {
      const begun = performance.now();
      try {
        app.data = runs.read(await runs.ask("/api/runs"));
      } catch (error) {
        said.textContent = error.message;
        said.className = "said bad";
        return;
      }
      said.className = "said soft";
      said.textContent = `${app.data.count.toLocaleString("en")} runs in ${app.data.dataset}${app.data.is_cut ? ": the newest, there are more" : ""}`;
      app.chosen = new Set([...app.chosen].filter(id => app.data.rows.has(id)));
      parts.overlay.forget();
      for (const part of Object.values(parts)) part.loaded?.();
      parts.overlay.draw();
      document.body.dataset.ms = (performance.now() - begun).toFixed(1);
      // From the navigation on: what a person waits for.
      document.body.dataset.first ??= performance.now().toFixed(1);
    },
  };
  const changed = () => { parts.list.mark(); parts.overlay.draw(); parts.relations.draw(); };
  document.documentElement.classList.add("js");
  if (!/^[0-9a-f]+$/.test(runs.token)) {
    said.textContent = "The address lacks its token: open the whole line that radrm explore printed.";
    said.className = "said bad";
    return;
  }
  const parts = { relations: relations(app), list: list(app), overlay: overlay(app), matrices: matrices(app) };
  app.load();
})();
