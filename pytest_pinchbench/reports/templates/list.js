"use strict";
// Sorting: a header is a button; numbers sort by data-value, the rest as text.
const key = (row, column) => {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
};
const order = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
const sortBy = (table, column, up) => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (up ? 1 : -1) * order(key(a, column), key(b, column)));
  table.tBodies[0].append(...rows);
};
for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      sortBy(table, column, head.getAttribute("aria-sort") !== "ascending");
      if (table === list) save();
    });
  });
}

// Filtering: the controls above the list; their state is in the address, after the #.
const list = document.querySelector("table.list");
const form = document.querySelector("form.filters");
const controls = [...form.elements].filter((one) => one.name);
const visible = () => [...list.tBodies[0].rows].filter((row) => !row.hidden);
const fits = (row, { name, value }) => {
  if (!value) return true;
  if (name === "q") return row.textContent.toLowerCase().includes(value.toLowerCase());
  const has = row.dataset[name];
  return has === value || (name === "state" && has.split(" ").includes(value));
};
const filter = () => {
  for (const row of list.tBodies[0].rows) row.hidden = !controls.every((one) => fits(row, one));
  form.querySelector("output").textContent = visible().length;
};
const ticks = () => [...list.querySelectorAll("input:checked")].map((box) => box.value);
const save = () => {
  const state = new URLSearchParams();
  for (const { name, value } of controls) if (value) state.set(name, value);
  const sorted = list.querySelector("th[aria-sort]");
  if (sorted) {
    state.set("sort", (sorted.getAttribute("aria-sort") === "descending" ? "-" : "")
      + sorted.textContent);
  }
  for (const run of ticks()) state.append("run", run);
  history.replaceState(null, "", `#${state}`);
};
const load = () => {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const one of controls) one.value = state.get(one.name) ?? "";
  const sort = state.get("sort");
  const column = [...list.tHead.rows[0].cells]
    .findIndex((head) => sort && head.textContent === sort.replace(/^-/, ""));
  if (column >= 0) sortBy(list, column, !sort.startsWith("-"));
  const runs = state.getAll("run");
  for (const box of list.querySelectorAll("input")) box.checked = runs.includes(box.value);
  filter();
};
form.addEventListener("input", () => { filter(); save(); });
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", load);
load();

// Keys: / searches, j and k go from row to row.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input[type=search], select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    controls[0].focus();
  }
  if (event.key !== "j" && event.key !== "k") return;
  const links = visible().map((row) => row.querySelector("a")).filter((link) => link);
  const row = document.activeElement.closest("tr");
  const at = links.findIndex((link) => row !== null && link.closest("tr") === row);
  const next = event.key === "j" ? at + 1 : at - 1;
  links[Math.max(0, Math.min(next, links.length - 1))]?.focus();
});
