// Reading works without this. In lists, j and k go from row to row once one of them has the focus; a menu closes with Escape.
"use strict";

const rows = () => [...document.querySelectorAll("#rows a.row, .timeline a.row")];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    const open = document.activeElement?.closest("details.pop[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
    return;
  }
  const step = { j: 1, k: -1 }[event.key];
  const all = rows();
  const at = all.indexOf(document.activeElement);
  if (step && at >= 0) {
    event.preventDefault();
    all[Math.min(Math.max(at + step, 0), all.length - 1)].focus();
  }
});

// On a phone what narrows a list down comes before the list itself: it begins closed there.
if (matchMedia("(max-width: 62rem)").matches) {
  for (const each of document.querySelectorAll("details.facets")) each.open = false;
}
