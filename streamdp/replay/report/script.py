"""What moves in a report: the pointer along time, and the histogram, drawn over the axes that are chosen."""

SCRIPT = r"""
"use strict";
const show = value => value.toLocaleString("en", {maximumSignificantDigits: 6});
const make = (name, parent, attributes = {}, text = "") => {
  const element = name === "svg" || name === "path"
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
};

function followPointer(section, data) {
  const slider = section.querySelector(".pointer input"), output = section.querySelector(".pointer output");
  const count = data.points.length;
  const tell = () => {
    const at = Number(slider.value), last = Math.min(data.points[at] + data.size, data.points[count - 1] + 1) - 1;
    section.style.setProperty("--at", `${(at + 0.5) / count * 100}%`);
    const facts = [
      [data.size > 1 && last > data.points[at] ? `points ${data.points[at]} to ${last}` : `point ${data.points[at]}`,
       new Date(data.closed[at]).toISOString().slice(0, 19).replace("T", " ") + " UTC"],
      [data.kinds[at], `(${data.reasons[at].replace("_", " ")})`],
      ["error", `${show(data.absolute[at])} (${show(data.relative[at] * 100)} %)`],
      ["L1", show(data.l1[at])],
    ];
    if (data.distances[at] !== null) facts.push(["distance", show(data.distances[at])]);
    if (data.thresholds[at] !== null) facts.push(["threshold", show(data.thresholds[at])]);
    facts.push(["spent", `${show(data.spent[at])} of ${show(data.epsilon)}`]);
    output.replaceChildren();
    for (const [name, value] of facts) {
      const item = make("span", output);
      make("b", item, {}, name);
      item.append(" " + value);
    }
  };
  slider.addEventListener("input", tell);
  for (const area of section.querySelectorAll(".chart .area")) {
    const point = event => {
      const box = area.getBoundingClientRect();
      slider.value = Math.floor((event.clientX - box.left) / box.width * count);
      tell();
    };
    area.addEventListener("pointermove", event => { if (event.pointerType === "mouse") point(event); });
    area.addEventListener("pointerdown", point);
  }
  tell();
}

function project(counts, shape, roles) {
  const across = roles.indexOf("across"), down = roles.indexOf("down");
  const columns = across < 0 ? 1 : shape[across], rows = down < 0 ? 1 : shape[down];
  const sums = new Array(rows * columns).fill(0);
  counts.forEach((count, cell) => {
    let rest = cell, row = 0, column = 0;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const code = rest % shape[axis];
      rest = Math.floor(rest / shape[axis]);
      if (axis === across) column = code;
      else if (axis === down) row = code;
      else if (roles[axis] !== "sum" && roles[axis] !== code) return;
    }
    sums[row * columns + column] += count;
  });
  return sums;
}

function step(span) {
  const power = 10 ** Math.floor(Math.log10(span / 4));
  return Math.max(1, [1, 2, 5, 10].find(factor => factor * power * 4 >= span * 0.999) * power);
}

const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function colour(fraction) {
  const at = Math.min(Math.max(fraction, 0), 1) * 4, low = Math.min(Math.floor(at), 3);
  return [0, 1, 2].map(part => COLOURS[low][part] + (at - low) * (COLOURS[low + 1][part] - COLOURS[low][part]));
}

/* Labels under an axis, as many as have room, each in the middle of its slot. */
function labelAcross(element, labels) {
  const widest = Math.max(...labels.map(label => label.length)) * 7 + 10;
  const every = Math.ceil(labels.length * widest / Math.max(element.clientWidth, widest));
  labels.forEach((label, place) => {
    if (place % every === 0) make("span", element, {style: `left:${(place + 0.5) / labels.length * 100}%`}, label);
  });
}

class Histogram {
  constructor(section, data) {
    this.data = data;
    this.drawing = section.querySelector(".drawing");
    this.output = section.querySelector("output.cell");
    const bySize = data.shape.map((_, axis) => axis).sort((a, b) => data.shape[b] - data.shape[a]);
    this.roles = data.shape.map((_, axis) => axis === bySize[0] ? "across" : axis === bySize[1] ? "down" : "sum");
    this.current = null;
    const form = section.querySelector(".axes");
    if (data.shape.length > 1) this.selects = data.names.map((name, axis) => this.choice(form, name, axis));
    else form.remove();
    this.draw();
    let width = this.drawing.clientWidth;
    new ResizeObserver(() => {
      if (this.drawing.clientWidth === width) return;
      width = this.drawing.clientWidth;
      this.draw();
    }).observe(this.drawing);
  }

  choice(form, name, axis) {
    const label = make("label", form, {}, name), select = make("select", label);
    for (const [value, text] of [["across", "across"], ["down", "down"], ["sum", "all, summed"]])
      make("option", select, {value}, text);
    this.data.labels[axis].forEach((text, code) => make("option", select, {value: code}, "only " + text));
    select.value = this.roles[axis];
    select.addEventListener("change", () => {
      const role = ["across", "down", "sum"].includes(select.value) ? select.value : Number(select.value);
      const other = this.roles.indexOf(role);
      if ((role === "across" || role === "down") && other >= 0)
        this.roles[other] = this.roles[axis] === "across" || this.roles[axis] === "down" ? this.roles[axis] : "sum";
      this.roles[axis] = role;
      if (!this.roles.includes("across") && this.roles.includes("down"))
        this.roles[this.roles.indexOf("down")] = "across";
      this.selects.forEach((other, place) => { other.value = this.roles[place]; });
      this.current = null;
      this.draw();
    });
    return select;
  }

  draw() {
    const {shape, labels, names} = this.data;
    this.across = this.roles.indexOf("across");
    this.down = this.roles.indexOf("down");
    this.columns = this.across < 0 ? ["all"] : labels[this.across];
    this.rows = this.down < 0 ? [""] : labels[this.down];
    this.truth = project(this.data.true, shape, this.roles);
    this.held = this.data.released.length ? project(this.data.released, shape, this.roles) : null;
    this.areas = [];
    this.drawing.replaceChildren();
    if (this.down < 0) this.bars(this.across < 0 ? "" : names[this.across]); else this.maps();
    this.tell();
  }

  bars(unit) {
    const legend = make("ul", this.drawing, {class: "legend"});
    make("li", legend, {class: "true"}, "true");
    if (this.held) make("li", legend, {class: "released"}, "released");
    const all = [...this.truth, ...(this.held || [])], size = step(Math.max(1, Math.max(...all) - Math.min(0, ...all)));
    const low = Math.floor(Math.min(0, ...all) / size) * size;
    const high = Math.max(size, Math.ceil(Math.max(...all) / size) * size);
    const y = value => 1000 * (high - value) / (high - low);
    const plot = make("div", this.drawing, {class: "plot"});
    const ticks = make("div", plot, {class: "y", "aria-hidden": "true"});
    const area = this.area(plot, "bars, true and released");
    const svg = make("svg", area, {viewBox: "0 0 10000 1000", preserveAspectRatio: "none", "aria-hidden": "true"});
    for (let value = low; value <= high + size / 2; value += size) {
      make("span", ticks, {style: `bottom:${100 - y(value) / 10}%`}, show(value));
      make("path", svg, {class: "grid", d: `M0 ${y(value)}H10000`});
    }
    const slot = 10000 / this.columns.length;
    const bar = (style, value, from, to) => make("path", svg, {
      class: "bar " + style, d: `M${from} ${y(0)}V${y(value)}H${to}V${y(0)}z`});
    this.columns.forEach((_, place) => {
      bar("true", this.truth[place], (place + 0.1) * slot, (place + 0.5) * slot);
      if (this.held) bar("released", this.held[place], (place + 0.5) * slot, (place + 0.9) * slot);
    });
    labelAcross(make("div", plot, {class: "x", "aria-hidden": "true"}), this.columns);
    make("div", plot, {class: "unit"}, unit);
  }

  maps() {
    const most = Math.max(1, ...this.truth, ...(this.held || [])), maps = make("div", this.drawing, {class: "maps"});
    const labelled = [], height = Math.min(Math.max(this.rows.length * 26, 120), 380);
    for (const [title, sums] of [["true", this.truth], ["released", this.held]]) {
      if (!sums) continue;
      const map = make("div", maps);
      make("h4", map, {}, title);
      const plot = make("div", map, {class: "plot"}), labels = make("div", plot, {class: "y", "aria-hidden": "true"});
      const every = Math.ceil(this.rows.length * 15 / height);
      make("b", labels, {}, this.rows.reduce((one, other) => other.length > one.length ? other : one));
      this.rows.forEach((label, place) => {
        if (place % every === 0)
          make("span", labels, {style: `bottom:${100 - (place + 0.5) / this.rows.length * 100}%`}, label);
      });
      const area = this.area(plot, "heat map, " + title);
      area.style.height = height + "px";
      const canvas = make("canvas", area, {width: this.columns.length, height: this.rows.length});
      const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
      sums.forEach((sum, cell) => image.data.set([...colour(sum / most), 255], cell * 4));
      context.putImageData(image, 0, 0);
      labelled.push(make("div", plot, {class: "x", "aria-hidden": "true"}));
      make("div", plot, {class: "unit"}, `${this.data.names[this.across]} across, ${this.data.names[this.down]} down`);
    }
    // Only now, because the second map halves the room of the first.
    for (const element of labelled) labelAcross(element, this.columns);
    const scale = make("div", this.drawing, {class: "scale"}, "0");
    make("i", scale);
    scale.append(`${show(most)} records; noise below zero is drawn as 0`);
  }

  /* What can be pointed at and, with the arrow keys, walked through. */
  area(plot, what) {
    const area = make("div", plot, {class: "area", tabindex: "0", role: "group",
      "aria-label": `${what}; the arrow keys walk through the cells`});
    const columns = this.columns.length, rows = this.rows.length;
    const point = event => {
      const box = area.getBoundingClientRect();
      const place = (at, count) => Math.min(Math.max(Math.floor(at * count), 0), count - 1);
      this.current = place((event.clientY - box.top) / box.height, rows) * columns
        + place((event.clientX - box.left) / box.width, columns);
      this.tell();
    };
    area.addEventListener("pointermove", event => { if (event.pointerType === "mouse") point(event); });
    area.addEventListener("pointerdown", point);
    area.addEventListener("keydown", event => {
      const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
      if (!by) return;
      event.preventDefault();
      const from = this.current === null
        ? [0, by[1] > 0 ? -1 : 0] : [Math.floor(this.current / columns), this.current % columns];
      const row = Math.min(Math.max(from[0] + by[0], 0), rows - 1);
      this.current = row * columns + Math.min(Math.max(from[1] + by[1], 0), columns - 1);
      this.tell();
    });
    this.areas.push(area);
    return area;
  }

  tell() {
    for (const area of this.areas) area.querySelector(".mark")?.remove();
    this.output.setAttribute("aria-live", "polite");
    if (this.current === null) {
      this.output.textContent = "Point at a cell, or use the arrow keys, to read its counts.";
      return;
    }
    const columns = this.columns.length, rows = this.rows.length;
    const row = Math.floor(this.current / columns), column = this.current % columns;
    for (const area of this.areas) make("i", area, {class: "mark", style:
      `left:${column / columns * 100}%;width:${100 / columns}%;top:${row / rows * 100}%;height:${100 / rows}%`});
    const where = this.data.names.map((name, axis) => {
      const role = this.roles[axis], code = role === "across" ? column : role === "down" ? row : role;
      return code === "sum" ? null : `${name} ${this.data.labels[axis][code]}`;
    }).filter(Boolean).join(", ") || "all cells";
    const truth = this.truth[this.current], held = this.held && this.held[this.current];
    this.output.textContent = `${where}: true ${show(truth)}` + (this.held
      ? `, released ${show(held)}, off by ${show(held - truth)}` : "; nothing was released");
  }
}

for (const section of document.querySelectorAll("section.histogram")) {
  const data = JSON.parse(section.querySelector('script[type="application/json"]').textContent);
  followPointer(section, data);
  new Histogram(section, data);
}
"""
