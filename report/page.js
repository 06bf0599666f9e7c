/* page.js: zoom, and details of what the pointer or the keyboard is on. The page is whole without it. */
"use strict";
for (const figure of document.querySelectorAll("figure.timeline")) {
  const drawings = [...figure.querySelectorAll(".lane svg")], span = Number(figure.dataset.span);
  const ticks = figure.querySelector(".ticks"), output = document.createElement("output");
  const tools = document.createElement("div");
  let from = 0, width = 1000, chosen = null;
  if (!drawings.length) continue;

  const time = (ns, largest) => {
    const units = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]].filter((u) => largest >= u[1]);
    const unit = units[units.length - 1] || ["ns", 1];
    return Number((ns / unit[1]).toPrecision(6)) + " " + unit[0];
  };
  const drawTicks = () => {
    if (!ticks || !span) return;
    const begin = span * from / 1000, length = span * width / 1000, rough = length / 5;
    const power = 10 ** Math.floor(Math.log10(rough)), factor = rough / power;
    const distance = power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
    ticks.textContent = "";
    for (let k = Math.ceil(begin / distance - 1e-9); k * distance <= begin + length * (1 + 1e-9); k++) {
      const tick = document.createElement("span");
      tick.style.left = 100 * (k * distance - begin) / length + "%";
      tick.textContent = time(k * distance, begin + length);
      ticks.append(tick);
    }
  };
  const show = (newFrom, newWidth) => {
    width = Math.min(1000, Math.max(0.5, newWidth));
    from = Math.min(1000 - width, Math.max(0, newFrom));
    for (const drawing of drawings) {
      const height = drawing.getAttribute("viewBox").split(" ")[3];
      drawing.setAttribute("viewBox", `${from} 0 ${width} ${height}`);
    }
    drawTicks();
  };
  const zoom = (factor, at) => show(at - (at - from) * factor, width * factor);
  const choose = (shape) => {
    if (chosen) chosen.classList.remove("chosen");
    chosen = shape;
    if (!shape) return;
    shape.classList.add("chosen");
    output.textContent = shape.querySelector("title").textContent;
  };
  const begin = (shape) => Number(/^M([\d.]+)/.exec(shape.getAttribute("d"))[1]);
  const step = (drawing, by) => {
    const shapes = [...drawing.children].filter((s) => s.querySelector("title") && s.getAttribute("d") &&
      !s.classList.contains("critical")).sort((a, b) => begin(a) - begin(b));
    const now = shapes.indexOf(chosen);
    const next = shapes[now < 0 ? 0 : Math.min(shapes.length - 1, Math.max(0, now + by))];
    if (!next) return;
    choose(next);
    if (begin(next) < from || begin(next) > from + width) show(begin(next) - width / 2, width);
  };

  tools.className = "tools";
  for (const [label, action] of [
    ["Zoom in", () => zoom(0.5, from + width / 2)], ["Zoom out", () => zoom(2, from + width / 2)],
    ["Earlier", () => show(from - width / 3, width)], ["Later", () => show(from + width / 3, width)],
    ["All", () => show(0, 1000)]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", action);
    tools.append(button);
  }
  output.textContent = "Point at a shape, or press the arrow keys on a row; + and \u2212 zoom.";
  output.setAttribute("aria-live", "polite");
  tools.append(output);
  figure.prepend(tools);

  for (const drawing of drawings) {
    drawing.addEventListener("pointerover", (event) => {
      const shape = event.target.closest("path");
      if (shape && shape.querySelector("title")) choose(shape);
    });
    drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = drawing.getBoundingClientRect();
      zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, from + width * (event.clientX - box.left) / box.width);
    }, { passive: false });
    drawing.addEventListener("keydown", (event) => {
      const actions = {
        ArrowRight: () => step(drawing, 1), ArrowLeft: () => step(drawing, -1),
        "+": () => zoom(0.5, chosen ? begin(chosen) : from + width / 2),
        "-": () => zoom(2, from + width / 2), 0: () => show(0, 1000),
        Home: () => { choose(null); step(drawing, 0); } };
      if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[event.key]();
    });
  }
}
