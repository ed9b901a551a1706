"use strict";
// The table of runs: a filter, an order, and one page of rows at a time.
const list = app => {
  const { html } = figures;
  const ROWS = 100;
  const SHOWN = ["run", "start", "command", "outcome", "run_time", "peak", "sm_activity", "steps", "energy", "batch", "gpu_model"];
  const section = document.getElementById("list"), table = section.querySelector("table");
  const named = name => section.querySelector(`[name=${name}]`);
  const found = document.getElementById("found"), pages = document.getElementById("page");
  const choices = section.querySelector(".columns div");
  const order = { key: view.get("order") ?? "start", down: view.get("up") === null };
  let page = 0, rows = [], shown = null;

  /** Parameters that differ between runs are shown too, the first ones, and what programs logged. */
  const usual = () => {
    const columns = app.data.columns, varied = columns.filter(column => column.is_parameter && new Set(column.values).size > 1);
    const logged = columns.filter(column => column.key.startsWith("metric."));
    return new Set([...SHOWN, ...[...varied.slice(0, 4), ...logged.slice(0, 2)].map(column => column.key)]);
  };
  /** The columns of the view in the address, if there is one. */
  const viewed = () => {
    const keys = view.get("columns")?.split(",").filter(key => app.data.byKey.has(key));
    return keys?.length ? new Set(keys) : null;
  };
  const columns = () => app.data.columns.filter(column => shown.has(column.key));

  const head = () => {
    const heads = columns().map(column => {
      const made = html("th", column.isText ? "left" : ""), button = html("button", "", column.title);
      button.type = "button";
      if (column.key === "command") made.className = "name";
      if (order.key === column.key) made.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      button.addEventListener("click", () => {
        order.down = order.key === column.key ? !order.down : !column.isText;
        order.key = column.key;
        view.set("order", order.key);
        view.set("up", order.down ? "" : "1");
        page = 0;
        arrange();
        // The head was made anew.
        [...table.tHead.rows[0].cells].find(cell => cell.dataset.key === column.key)?.querySelector("button").focus();
      });
      made.dataset.key = column.key;
      made.append(button);
      return made;
    });
    table.tHead.rows[0].replaceChildren(html("th", "left", "chosen"), ...heads);
  };

  const row = at => {
    const id = app.data.number[at], made = html("tr", "");
    const box = html("input", "");
    box.type = "checkbox";
    box.value = id;
    box.checked = app.chosen.has(id);
    box.setAttribute("aria-label", `choose run ${id}`);
    box.addEventListener("change", () => app.choose(id, box.checked));
    made.append(html("td", "left", box));
    for (const column of columns()) {
      const text = runs.cell(app.data, column, at), kind = column.key === "command" ? "name" : column.isText ? "left" : "";
      const title = column.isText ? text : "";
      if (column.key === "run" && app.data.byKey.get("profile").values[at]) {
        const link = html("a", "", text);
        link.href = `/run#${id}.${runs.token}`;
        link.target = "_blank";
        link.rel = "noopener";
        link.setAttribute("aria-label", `run ${id}, its report`);
        made.append(html("td", kind, link));
      } else {
        const cell = html("td", kind, text);
        // A long text is cut, so that a run is one line.
        if (title) cell.title = title;
        made.append(cell);
      }
    }
    return made;
  };

  const draw = () => {
    const last = Math.max(0, Math.ceil(rows.length / ROWS) - 1);
    page = Math.min(page, last);
    table.closest(".scroll").scrollTop = 0;
    head();
    table.tBodies[0].replaceChildren(...rows.slice(page * ROWS, (page + 1) * ROWS).map(row));
    label(table);
    const count = n => n.toLocaleString("en");
    pages.textContent = rows.length ? `${count(page * ROWS + 1)} to ${count(Math.min((page + 1) * ROWS, rows.length))} of ${count(rows.length)}` : "no run";
    named("before").disabled = page === 0;
    named("after").disabled = page === last;
  };

  const arrange = () => {
    const { rows: left, problem } = runs.filter(app.data, named("filter").value);
    rows = runs.sorted(app.data.byKey.get(order.key) ?? app.data.byKey.get("start"), left, order.down);
    const count = n => n.toLocaleString("en");
    found.textContent = problem || `${count(rows.length)} of ${count(app.data.count)} runs`;
    draw();
    app.left(left);
  };

  const choose = () => choices.replaceChildren(...app.data.columns.filter(column => column.key !== "profile" && column.key !== "peak_exact").map(column => {
    const made = html("label", ""), box = html("input", "");
    box.type = "checkbox";
    box.checked = shown.has(column.key);
    box.addEventListener("change", () => { shown[box.checked ? "add" : "delete"](column.key); view.set("columns", [...shown].join(",")); draw(); });
    made.append(box, ` ${column.title}`);
    return made;
  }));

  let waits = 0;
  named("filter").value = view.get("filter") ?? "";
  named("filter").addEventListener("input", () => {
    clearTimeout(waits);
    waits = setTimeout(() => { page = 0; view.set("filter", named("filter").value); arrange(); }, 80);
  });
  named("choose").addEventListener("click", () => app.chooseOnly(rows.filter(at => app.data.byKey.get("profile").values[at]).slice(0, app.MOST).map(at => app.data.number[at])));
  named("clear").addEventListener("click", () => app.chooseOnly([]));
  named("again").addEventListener("click", () => app.load());
  named("before").addEventListener("click", () => { page--; draw(); });
  named("after").addEventListener("click", () => { page++; draw(); });
  const scroll = table.closest(".scroll");
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Runs");
  new ResizeObserver(() => requestAnimationFrame(() => scroll.scrollWidth > scroll.clientWidth || scroll.scrollHeight > scroll.clientHeight ? scroll.tabIndex = 0 : scroll.removeAttribute("tabindex"))).observe(scroll);

  return {
    loaded: () => { shown ??= viewed() ?? usual(); choose(); arrange(); },
    /** Marks the chosen runs in the rows that are there: what has the focus keeps it. */
    mark: () => { for (const box of table.querySelectorAll("input")) box.checked = app.chosen.has(Number(box.value)); },
  };
};
