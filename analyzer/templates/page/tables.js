"use strict";
// Tables: sorting by column and searching.
(() => {
  /** Rows below which a search costs more than it finds. */
  const SEARCHED = 8;

  const number = cell => cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  const order = column => (a, b) => {
    const [x, y] = [a.cells[column], b.cells[column]];
    const [p, q] = [number(x), number(y)];
    return p === null || q === null
      ? x.textContent.localeCompare(y.textContent, undefined, { numeric: true })
      : p - q;
  };

  const sort = (table, column, down) => {
    const body = table.tBodies[0], compare = order(column);
    body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
  };

  const sortable = (table, heads) => heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const isText = head.classList.contains("name") || head.classList.contains("left");
      const down = isText ? now === "ascending" : now !== "descending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table, column, down);
    });
  });

  const searchable = (table, name) => {
    const rows = [...table.tBodies[0].rows];
    const tools = document.createElement("div"), label = document.createElement("label");
    const field = document.createElement("input"), found = document.createElement("span");
    tools.className = "tools";
    label.append("Search ", field);
    field.type = "search";
    field.setAttribute("aria-label", `Search in ${name}`);
    found.className = "soft";
    found.setAttribute("role", "status");
    tools.append(label, found);
    table.closest(".scroll").before(tools);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase() + " " + (row.title || "").toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      found.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
  };

  for (const table of document.querySelectorAll("table.data")) {
    const heads = [...table.tHead.rows[0].cells];
    const name = table.getAttribute("aria-label") || "table";
    label(table);
    if (table.classList.contains("sortable")) {
      sortable(table, heads);
      // Figures of the rows have changed.
      table.addEventListener("radrm-rows", () => {
        const column = heads.findIndex(head => head.hasAttribute("aria-sort"));
        if (column >= 0) sort(table, column, heads[column].getAttribute("aria-sort") === "descending");
      });
    }
    if (table.tBodies[0].rows.length >= SEARCHED && table.classList.contains("sortable")) searchable(table, name);
    const scroll = table.closest(".scroll");
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", name);
    const reach = () => scroll.scrollWidth > scroll.clientWidth ? scroll.tabIndex = 0 : scroll.removeAttribute("tabindex");
    new ResizeObserver(() => requestAnimationFrame(reach)).observe(scroll);
  }
})();
