"use strict";
// How much runs slow each other: a matrix for each sweep, and one of what the daemon has observed.
const matrices = app => {
  const { html } = figures;
  const section = document.getElementById("matrices");
  const said = section.querySelector(".said"), all = section.querySelector(".all");
  const cell = value => {
    if (value === null) return html("td", "", "-");
    // A tint for each 0.2 above 1, six at most; the figure is in the text.
    const heat = Math.min(5, Math.max(0, Math.round((value - 1) / 0.2)));
    return html("td", `heat${heat}`, `${value.toFixed(2)}x`);
  };
  return {
    loaded: () => {
      all.replaceChildren();
      for (const matrix of app.data.matrices) {
        const table = html("table", "data matrix"), head = html("tr", "", html("th", "left", "slowdown of"));
        table.setAttribute("aria-label", `Interference: ${matrix.title}`);
        head.append(...matrix.columns.map(name => html("th", "", name)));
        const rows = matrix.rows.map((name, at) => html("tr", "", html("td", "left", name), ...matrix.cells[at].map(cell)));
        table.append(html("thead", "", head), html("tbody", "", ...rows));
        label(table);
        all.append(html("h3", "", matrix.title), html("p", "soft", matrix.how), html("div", "scroll", table));
      }
      said.textContent = app.data.matrices.length ? "" : app.data.no_matrix;
    },
  };
};
