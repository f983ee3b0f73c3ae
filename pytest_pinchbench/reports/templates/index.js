"use strict";
// The matrix of the ticked runs, and what the statistics say of each pair. Nothing is computed
// here: every number and verdict comes with the page.
const data = JSON.parse(document.getElementById("data").textContent);
const matrix = document.getElementById("matrix");
const cell = (kind, text, name = "") => {
  const made = document.createElement(kind);
  made.textContent = text;
  if (name) made.className = name;
  if (kind === "th") made.scope = "col";
  return made;
};
const table = (heads, rows) => {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  head.append(...heads);
  const body = made.createTBody();
  for (const row of rows) body.insertRow().append(...row);
  return made;
};
const draw = () => {
  const chosen = ticks().map((key) => data.runs[key]).filter((run) => run);
  matrix.hidden = chosen.length < 2;
  if (matrix.hidden) return;
  const [scores, pairs] = matrix.querySelectorAll("div");
  const tasks = data.tasks.map((id, at) => [id, at])
    .filter(([, at]) => chosen.some((run) => run.scores[at]));
  const heads = ["run", "mean", "95 % interval"].map((title) => cell("th", title));
  scores.replaceChildren(table(
    [...heads, ...tasks.map(([id]) => cell("th", id, "upright"))],
    chosen.map((run) => [
      cell("td", run.name, "wide"), cell("td", run.mean, `n ${run.heat}`),
      cell("td", run.interval, "n"),
      ...tasks.map(([, at]) => run.scores[at]
        ? cell("td", run.scores[at][0], `n ${run.scores[at][1]}`) : cell("td", "")),
    ])));
  const rows = [];
  chosen.forEach((one, place) => chosen.slice(place + 1).forEach((other) => {
    const [old, now] = one.place < other.place ? [other, one] : [one, other];
    const found = data.pairs[`${old.key} ${now.key}`];
    rows.push([cell("td", now.name, "wide"), cell("td", old.name, "wide"),
      cell("td", found ? found[0] : "not computed"),
      cell("td", found ? found[1] : `pytest --pinchbench --pinchbench-compare ${old.path} `
        + `--pinchbench-compare ${now.path}`, "wide")]);
  }));
  pairs.replaceChildren(table(
    ["run", "against", "verdict", "findings"].map((title) => cell("th", title)), rows));
};
list.addEventListener("change", () => { save(); draw(); });
addEventListener("hashchange", draw);
draw();
