"use strict";
(() => {
  const drawing = "http://www.w3.org/2000/svg";
  const colours = ["orange", "purple", "blue", "red", "green", "soft"];
  const make = (tag, values = {}) => {
    const found = document.createElementNS(drawing, tag);
    for (const [name, value] of Object.entries(values)) found.setAttribute(name, value);
    return found;
  };
  const number = x => String(x).replace("-", "−");
  const points = rows => rows.map(row => row.join(" ")).join(" ");

  for (const player of document.querySelectorAll(".player")) {
    const data = JSON.parse(player.querySelector("script").textContent);
    const [select, slider, output] = ["select", "input", "output"].map(tag => player.querySelector(tag));
    const map = player.querySelector(".map svg"), lines = player.querySelector(".lines");
    const path = make("polyline", { fill: "none", stroke: "var(--red)", "stroke-width": .8, "stroke-opacity": .7 });
    const here = make("circle", { r: 2.2, fill: "var(--red)", stroke: "var(--paper)", "stroke-width": .6 });
    map.append(make("path", { d: data.map, stroke: "var(--soft)", "stroke-opacity": .45, "stroke-width": 1 }), path, here);
    const panels = data.panels.map((panel, k) => {
      const figure = document.createElement("figure"), svg = make("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${panel.title} over the steps` });
      const legend = document.createElement("ul"), caption = document.createElement("figcaption");
      legend.className = "legend";
      caption.textContent = `${panel.title} (${number(panel.range[0])} … ${number(panel.range[1])})`;
      const values = panel.names.map((name, n) => {
        const item = document.createElement("li"), chip = document.createElement("i"), value = document.createElement("b");
        chip.style.borderTopColor = `var(--${colours[n % colours.length]})`;
        chip.style.borderTopStyle = n < colours.length ? "solid" : "dashed";
        item.append(chip, name, value);
        legend.append(item);
        return value;
      });
      figure.append(caption, svg, legend);
      lines.append(figure);
      return { svg, values, k, cursor: make("line", { y1: 0, y2: 100, stroke: "var(--ink)", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }) };
    });
    const step = () => {
      const episode = data.episodes[select.value], at = Number(slider.value), last = episode.steps.length - 1;
      output.textContent = `${episode.steps[at]} of ${episode.length}`;
      slider.setAttribute("aria-valuetext", `step ${episode.steps[at]} of ${episode.length}`);
      here.setAttribute("cx", episode.places[at][0]);
      here.setAttribute("cy", episode.places[at][1]);
      for (const { cursor, values, k } of panels) {
        const x = last ? 100 * at / last : 50;
        cursor.setAttribute("x1", x);
        cursor.setAttribute("x2", x);
        values.forEach((value, n) => { value.textContent = number(episode.values[k][n][at]); });
      }
    };
    const open = () => {
      const episode = data.episodes[select.value], last = episode.steps.length - 1;
      slider.max = last;
      slider.value = 0;
      path.setAttribute("points", points(episode.places));
      for (const { svg, cursor, k } of panels) {
        const [low, high] = data.panels[k].range, scale = y => 98 - 96 * (y - low) / ((high - low) || 1);
        svg.replaceChildren(...episode.values[k].map((row, n) => make("polyline", {
          points: points(row.map((y, at) => [(last ? 100 * at / last : 50).toFixed(2), scale(y).toFixed(2)])),
          fill: "none", stroke: `var(--${colours[n % colours.length]})`, "stroke-width": 1.6, "vector-effect": "non-scaling-stroke",
          "stroke-dasharray": n < colours.length ? "none" : "4 3",
        })), cursor);
      }
      step();
    };
    select.append(...data.episodes.map((episode, k) => new Option(episode.name, k)));
    select.addEventListener("input", open);
    slider.addEventListener("input", step);
    open();
    player.hidden = false;
  }
})();
