"use strict";
/**
 * Says what the parts of a table are, and puts the name of its column beside each figure: on a narrow screen a row is laid out
 * as a card, and is none of a table to a screen reader unless it says so.
 */
const label = table => {
  const names = [...table.tHead.rows[0].cells].map(head => head.textContent.trim());
  table.setAttribute("role", "table");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, column) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "columnheader" : "cell");
      if (cell.tagName === "TD") cell.dataset.label = names[column];
    });
  }
};
