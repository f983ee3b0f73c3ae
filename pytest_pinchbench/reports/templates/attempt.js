"use strict";
// j and k go from step to step, o opens or closes them all.
const steps = [...document.querySelectorAll(".step > summary")];
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !steps.length) return;
  const at = steps.indexOf(document.activeElement);
  if (event.key === "j") steps[Math.min(at + 1, steps.length - 1)].focus();
  if (event.key === "k") steps[Math.max(at - 1, 0)].focus();
  if (event.key === "o") {
    const open = !steps.every((step) => step.parentElement.open);
    steps.forEach((step) => { step.parentElement.open = open; });
  }
});
