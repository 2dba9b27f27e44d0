"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const list = document.getElementById("list");
const items = [...list.children];
let chosen = -1;

function choose(row, scroll) {
  if (row < 0 || row >= items.length) return;
  document.querySelectorAll(".chosen").forEach((each) => each.classList.remove("chosen"));
  if (chosen >= 0) {
    items[chosen].setAttribute("aria-selected", "false");
    document.getElementById("p" + chosen).hidden = true;
  }
  chosen = row;
  items[row].setAttribute("aria-selected", "true");
  list.setAttribute("aria-activedescendant", items[row].id);
  document.getElementById("none").hidden = true;
  document.getElementById("p" + row).hidden = false;
  document.querySelectorAll(`.timeline rect[data-row="${row}"]`).forEach((bar) => bar.classList.add("chosen"));
  document.querySelectorAll(".edges path").forEach((edge) => {
    if (edge.dataset.rows.split(" ").includes(String(row))) edge.classList.add("chosen");
  });
  if (scroll) items[row].scrollIntoView({ block: "nearest" });
}

list.addEventListener("click", (event) => {
  const item = event.target.closest("li");
  if (item) choose(Number(item.dataset.row), false);
});
list.addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -items.length, End: items.length };
  if (!(event.key in steps)) return;
  event.preventDefault();
  choose(Math.min(Math.max(chosen + steps[event.key], 0), items.length - 1), true);
});
document.querySelectorAll("svg.timeline").forEach((timeline) => {
  timeline.addEventListener("click", (event) => {
    const bar = event.target.closest("[data-row]");
    if (bar) choose(Number(bar.dataset.row), true);
  });
});
document.getElementById("zoom").addEventListener("input", (event) => {
  document.querySelectorAll("svg.timeline").forEach((each) => (each.style.width = 100 * event.target.value + "%"));
});
document.getElementById("panel").addEventListener("change", (event) => {
  const row = Number(event.target.dataset.row);
  const outcome = event.target.closest("article").querySelector(".outcome");
  outcome.replaceChildren();
  if (event.target.value === "") return;
  const { number, choices } = data.operators[row];
  const { placement, total_ms } = choices[Number(event.target.value)];
  const more = total_ms - data.predicted_ms;
  const command = document.createElement("code");
  command.textContent = `${data.what_if} --what-if ${number}=${placement}`;
  const words = `predicted ${total_ms.toFixed(3)} ms, ${more < 0 ? "−" : "+"}${Math.abs(more).toFixed(3)}. The rest planned again: `;
  outcome.append(words, command);
});
