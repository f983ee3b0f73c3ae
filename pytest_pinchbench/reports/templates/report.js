"use strict";
// Sorting: a header is a button; numbers sort by data-value, the rest as text.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.querySelectorAll("th")];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
      };
      const order = (a, b) => typeof a === "number" && typeof b === "number"
        ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
      table.tBodies[0].append(...rows);
    });
  });
}
// A link to a task opens it.
const open = () => {
  const task = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (task instanceof HTMLDetailsElement) task.open = true;
};
addEventListener("hashchange", open);
open();
