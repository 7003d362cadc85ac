/* Asks the daemon every second what was published, and draws it. Everything it gets was released. */
"use strict";

const EVERY = 1000;
const SVG = "http://www.w3.org/2000/svg";
const dark = matchMedia("(prefers-color-scheme: dark)");
const find = id => document.getElementById(id);
const show = (value, digits = 4) => value === null || value === undefined ? "–"
  : Number(value).toLocaleString("en", {maximumSignificantDigits: Math.abs(value) >= 1000 ? 15 : digits});
const clock = ms => new Date(ms).toLocaleTimeString([], {hour12: false});

function make(name, parent, attributes = {}, text) {
  const drawn = ["svg", "path", "rect", "circle", "title", "g"].includes(name);
  const element = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

const place = (element, style) => { Object.assign(element.style, style); return element; };

function ago(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

/* Steps of 1, 2 or 5 times a power of ten, about four of them. */
function step(range) {
  const power = 10 ** Math.floor(Math.log10(range / 4));
  return Math.max(1, power * [1, 2, 5, 10].find(factor => power * factor >= range / 4));
}

/* From nothing to the most, in the colours of the scheme in force. */
function colour(part) {
  const [from, to] = dark.matches ? [[38, 46, 54], [150, 210, 255]] : [[238, 242, 246], [4, 66, 130]];
  const at = Math.min(Math.max(part, 0), 1);
  return from.map((value, index) => Math.round(value + (to[index] - value) * at));
}

/* As many labels across as there is room for. */
function labelAcross(element, labels) {
  const widest = Math.max(...labels.map(label => label.length)) * 7 + 14;
  const every = Math.max(1, Math.ceil(labels.length * widest / Math.max(1, element.clientWidth)));
  labels.forEach((label, index) => {
    const at = (index + 0.5) / labels.length;
    const outside = at * element.clientWidth < widest / 2 - 8 || (1 - at) * element.clientWidth < widest / 2 - 8;
    if (index % every === 0 && !(outside && labels.length > 1 && every > 1))
      place(make("span", element, {}, label), {left: `${at * 100}%`});
  });
}

class Histogram {
  constructor(parent, about) {
    this.name = about.name;
    this.attributes = about.attributes;
    this.across = about.attributes[about.attributes.length > 1 ? 1 : 0];
    this.down = about.attributes.length > 1 ? about.attributes[0] : "";
    this.current = null;
    this.drawn = null;
    this.jobs = [];
    const section = this.section = make("section", parent, {class: "histogram", "data-name": about.name});
    make("h2", section, {}, about.name);
    this.facts = make("p", section, {class: "facts"}, "Nothing was released yet.");
    if (about.attributes.length > 1) this.pickers(section);
    this.drawing = make("div", section, {class: "drawing"});
    this.readout = make("output", section, {class: "readout", "aria-live": "polite"});
    this.time = make("div", section, {class: "time"});
  }

  pickers(section) {
    const row = make("div", section, {class: "pickers"});
    const pick = (key, title, none) => {
      const label = make("label", row, {}, title + " ");
      const select = make("select", label, {"data-axis": key});
      for (const name of this.attributes) make("option", select, {value: name}, name);
      if (none) make("option", select, {value: ""}, "(nothing: bars)");
      select.value = this[key];
      select.addEventListener("change", () => {
        const other = key === "across" ? "down" : "across";
        if (select.value === this[other]) {
          this[other] = this[key];
          row.querySelector(`[data-axis=${other}]`).value = this[other];
        }
        this[key] = select.value;
        if (!this.across) {
          this.across = this.attributes.find(name => name !== this.down);
          row.querySelector("[data-axis=across]").value = this.across;
        }
        this.current = null;
        this.fetch();
      });
    };
    pick("across", "Across", false);
    pick("down", "Down", true);
  }

  update(about, jobs, span) {
    const release = about.release, wanted = JSON.stringify(jobs);
    this.about = about;
    this.span = span;
    this.tellAge();
    this.drawTime(about.points);
    const fresh = release && release.release_id !== this.drawn;
    if (fresh || wanted !== this.wantedJobs) {
      this.wantedJobs = wanted;
      this.jobs = jobs;
      if (release) this.fetch();
    }
  }

  tellAge() {
    const release = this.about?.release;
    if (!release) return;
    const off = release.total_off === null ? "" : ` ± ${show(Math.round(release.total_off))}`;
    this.facts.textContent = `${(release.kind === "forecast") ? "Forecast for" : "Released at"} time point ${release.time_point}, `
      + `${clock(release.closed)} (${ago(release.closed)}) · ${show(release.total)}${off} records in ${show(release.cells)} cells · `
      + ((release.kind === "forecast") ? "cost nothing: from earlier releases" : `cost epsilon ${show(release.epsilon, 3)}`)
      + (release.noise_scale === null ? "" : ` · noise of scale ${show(release.noise_scale, 3)} in each count`);
  }

  async fetch() {
    const query = new URLSearchParams({histogram: this.name, across: this.across});
    if (this.down) query.set("down", this.down);
    const answer = await fetch(`drawing.json?${query}`);
    if (!answer.ok) return;
    const data = await answer.json();
    this.data = data;
    this.drawn = data.release_id;
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const [across, down] = this.data.axes;
    this.columns = across.labels;
    this.rows = down ? down.labels : [""];
    // The counts come with the first axis slowest; the drawing wants rows from top to bottom.
    const wide = this.columns.length, high = this.rows.length;
    this.counts = down
      ? Array.from({length: wide * high}, (_, cell) => this.data.counts[(cell % wide) * high + Math.floor(cell / wide)])
      : this.data.counts;
    const focused = this.area && document.activeElement === this.area;
    this.drawing.replaceChildren();
    if (down) this.map(across, down); else this.bars(across);
    this.section.dataset.drawn = this.drawn;
    if (focused) this.area.focus();
    this.tell();
  }

  bars(axis) {
    const most = Math.max(1, ...this.counts), least = Math.min(0, ...this.counts), size = step(most - least);
    const low = Math.floor(least / size) * size, high = Math.ceil(most / size) * size;
    const y = value => 1000 * (high - value) / (high - low);
    const plot = make("div", this.drawing, {class: "plot"});
    const ticks = make("div", plot, {class: "y", "aria-hidden": "true"});
    make("b", ticks, {}, show(Math.abs(low) > high ? low : high));
    const area = this.makeArea(plot, `bars of ${this.name} by ${axis.name}`);
    const svg = make("svg", area, {viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true"});
    for (let value = low; value <= high + size / 2; value += size) {
      place(make("span", ticks, {}, show(value)), {bottom: `${100 - y(value) / 10}%`});
      make("path", svg, {class: "grid", d: `M0 ${y(value)}H1000`});
    }
    const slot = 1000 / this.counts.length;
    this.counts.forEach((count, index) => {
      make("rect", svg, {class: "bar", "data-count": count, x: (index + 0.1) * slot, width: 0.8 * slot,
        y: Math.min(y(count), y(0)), height: Math.abs(y(count) - y(0))});
    });
    labelAcross(make("div", plot, {class: "x", "aria-hidden": "true"}), this.columns);
    make("div", plot, {class: "axis"}, axis.name);
  }

  map(across, down) {
    const most = Math.max(1, ...this.counts), height = Math.min(Math.max(this.rows.length * 30, 110), 420);
    const plot = make("div", this.drawing, {class: "plot"});
    const labels = make("div", plot, {class: "y", "aria-hidden": "true"});
    make("b", labels, {}, this.rows.reduce((one, other) => other.length > one.length ? other : one));
    const every = Math.ceil(this.rows.length * 16 / height);
    this.rows.forEach((label, index) => {
      if (index % every === 0)
        place(make("span", labels, {}, label), {bottom: `${100 - (index + 0.5) / this.rows.length * 100}%`});
    });
    const area = this.makeArea(plot, `heat map of ${this.name}: ${across.name} across, ${down.name} down`);
    area.style.height = `${height}px`;
    const canvas = make("canvas", area, {width: this.columns.length, height: this.rows.length, "aria-hidden": "true"});
    paint(canvas, this.counts.map(count => count / most));
    this.centres(area, across, down);
    labelAcross(make("div", plot, {class: "x", "aria-hidden": "true"}), this.columns);
    make("div", plot, {class: "axis"}, `${across.name} across, ${down.name} down`);
    const scale = make("div", this.drawing, {class: "scale"}, "0");
    paint(make("canvas", scale, {width: 64, height: 1, "aria-hidden": "true"}), Array.from({length: 64}, (_, i) => i / 63));
    scale.append(`${show(most)} records; noise below 0 is drawn as 0`);
  }

  /* Of the newest job that clustered by both attributes. */
  centres(area, across, down) {
    const job = this.jobs.find(one => one.summary?.centres && across.edges && down.edges
      && one.summary.attributes.includes(across.name) && one.summary.attributes.includes(down.name));
    if (!job) return;
    const summary = job.summary, svg = make("svg", area, {"aria-hidden": "true", "data-job": job.id});
    const [x, y] = [across, down].map(axis => summary.attributes.indexOf(axis.name));
    for (const centre of summary.centres) {
      const dot = make("circle", svg, {class: "centre", r: 6,
        cx: `${along(across.edges, centre[x]) * 100}%`, cy: `${along(down.edges, centre[y]) * 100}%`});
      make("title", dot, {}, `${across.name} ${show(centre[x])}, ${down.name} ${show(centre[y])}`);
    }
    make("p", this.drawing, {class: "facts"}, `Dots: cluster centres of job ${job.id}, at time point ${job.time_point}.`);
  }

  /* What can be pointed at and, with the arrow keys, walked through. */
  makeArea(plot, label) {
    const area = this.area = make("div", plot, {class: "area", tabindex: "0", role: "group",
      "aria-label": `${label}; the arrow keys walk through the cells`});
    const wide = this.columns.length, high = this.rows.length;
    const inside = (at, count) => Math.min(Math.max(Math.floor(at * count), 0), count - 1);
    const point = event => {
      const box = area.getBoundingClientRect();
      this.current = inside((event.clientY - box.top) / box.height, high) * wide
        + inside((event.clientX - box.left) / box.width, wide);
      this.tell();
    };
    area.addEventListener("pointermove", event => { if (event.pointerType === "mouse") point(event); });
    area.addEventListener("pointerdown", point);
    area.addEventListener("keydown", event => {
      const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
      if (!by) return;
      event.preventDefault();
      const from = this.current === null ? [0, by[1] > 0 ? -1 : 0] : [Math.floor(this.current / wide), this.current % wide];
      const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
      this.current = clamp(from[0] + by[0], high) * wide + clamp(from[1] + by[1], wide);
      this.tell();
    });
    return area;
  }

  tell() {
    this.area.querySelector(".mark")?.remove();
    const wide = this.columns.length, high = this.rows.length;
    if (this.current === null || this.current >= wide * high) {
      this.readout.textContent = "Point at a cell, or use the arrow keys, to read its count.";
      return;
    }
    const row = Math.floor(this.current / wide), column = this.current % wide;
    place(make("i", this.area, {class: "mark"}), {left: `${column / wide * 100}%`, width: `${100 / wide}%`,
      top: `${row / high * 100}%`, height: `${100 / high}%`});
    const [across, down] = this.data.axes;
    const where = [`${across.name} ${this.columns[column]}`, ...(down ? [`${down.name} ${this.rows[row]}`] : [])];
    this.readout.textContent = `${where.join(", ")}: about ${show(this.counts[this.current])} records`;
  }

  drawTime(points) {
    const wanted = JSON.stringify(points.at(-1) ?? null);
    if (wanted === this.lastPoint) return;
    this.lastPoint = wanted;
    this.time.replaceChildren();
    if (!points.length) return;
    const first = points[0].first, count = points.at(-1).time_point - first + 1;
    const svgIn = (kind, label, wide = count) => make("svg", make("div", this.time, {class: kind}),
      {viewBox: `0 0 ${wide} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label});
    make("h3", this.time, {}, "Time points");
    const releases = points.filter(point => point.kind === "release").length;
    const strip = svgIn("line strip", `${releases} releases in the last ${count} time points`);
    const kind = point => point.kind !== "repeat" ? point.kind
      : ["below"].includes(point.reason) ? "asked" : "unasked";
    for (const point of points) {
      const tall = {release: 100, forecast: 60, asked: 60, unasked: 15}[kind(point)];
      const bar = make("rect", strip, {class: kind(point), x: point.first - first + 0.08,
        width: point.time_point - point.first + 0.84, y: 100 - tall, height: tall});
      make("title", bar, {}, `time point ${point.time_point}, ${clock(point.closed)}: ${point.kind} (${point.reason})`);
    }
    this.ends(points);
    const legend = make("ul", this.time, {class: "legend"});
    make("li", legend, {class: "release"}, "release");
    if (points.some(point => point.kind === "forecast"))
      make("li", legend, {class: "forecast"}, "forecast: from earlier releases, for nothing");
    make("li", legend, {class: "asked"}, "repeat: below the threshold");
    make("li", legend, {class: "unasked"}, "repeat: nothing was asked");
    this.threshold(points.filter(point => point.threshold !== null), first, svgIn);
    this.burnDown(points, svgIn);
  }

  ends(points) {
    const row = make("div", this.time, {class: "ends"});
    for (const point of points.length > 1 ? [points[0], points.at(-1)] : points)
      make("span", row, {}, `${point.time_point} · ${clock(point.closed)}`);
  }

  threshold(points, first, svgIn) {
    if (!points.length) return;
    const most = Math.max(1, ...points.map(point => point.threshold)), now = show(points.at(-1).threshold);
    make("h3", this.time, {}, `Public threshold: ${now} records (at most ${show(most)} here)`);
    const svg = svgIn("line threshold", `the public threshold, now ${now} records`);
    make("path", svg, {d: steps(points, first, point => point.threshold / most)});
  }

  /* Against the whole horizon, or with the current window shaded. */
  burnDown(points, svgIn) {
    const {window, horizon, reserved} = this.span, first = points[0].first, last = points.at(-1);
    if (!reserved) return;
    const wide = (horizon ?? last.time_point) - first + 1;
    make("h3", this.time, {}, `Epsilon left: ${show(last.epsilon_left, 3)} of ${show(reserved, 3)} `
      + (window ? "in the window (shaded)" : `until time point ${show(horizon)}`));
    const svg = svgIn("line left", `epsilon left, now ${show(last.epsilon_left, 3)} of ${show(reserved, 3)}`, wide);
    if (window) {
      const begin = Math.max(0, last.time_point - window + 1 - first);
      make("rect", svg, {class: "window", x: begin, width: wide - begin, y: 0, height: 100});
    } else {
      const at = point => 96 - 92 * (1 - point / horizon);
      make("path", svg, {class: "even", d: `M0 ${at(first - 1)}L${wide} ${at(horizon)}`});
    }
    make("path", svg, {d: steps(points, first, point => point.epsilon_left / reserved)});
  }
}

/* A line that holds its height for the length of a time point. */
function steps(points, first, part) {
  let path = "";
  for (const point of points) {
    path += `${path ? "L" : "M"}${point.first - first} ${(96 - 92 * part(point)).toFixed(2)}`
      + `H${point.time_point - first + 1}`;
  }
  return path;
}

function paint(canvas, parts) {
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  parts.forEach((part, cell) => image.data.set([...colour(part), 255], cell * 4));
  context.putImageData(image, 0, 0);
}

/* Where a value lies along an axis whose cells are drawn equally wide. */
function along(edges, value) {
  const cells = edges.length - 1;
  if (value <= edges[0]) return 0;
  for (let cell = 0; cell < cells; cell++)
    if (value < edges[cell + 1]) return (cell + (value - edges[cell]) / (edges[cell + 1] - edges[cell])) / cells;
  return 1;
}

function drawBudget(status) {
  find("budget").hidden = !status.budget.histograms;
  if (!status.budget.histograms) return;
  const list = find("shares"), jobs = status.budget.jobs;
  const rows = status.budget.histograms.map(one => [one.name, one.spent, one.reserved]);
  if (jobs.limit > 0) rows.push(["jobs", jobs.spent, jobs.limit]);
  list.replaceChildren();
  for (const [name, spent, limit] of rows) {
    const row = make("li", list, {class: "share"});
    make("span", row, {}, name);
    const track = make("div", row, {class: "track", role: "img", "aria-label": `${show(100 * spent / limit, 3)} % spent`});
    place(make("div", track, {class: "fill"}), {width: `${Math.min(100, 100 * spent / limit)}%`});
    make("span", row, {class: "said"}, `${show(spent, 3)} of ${show(limit, 3)} spent`);
  }
}

function drawJobs(jobs) {
  find("jobs").hidden = false;
  find("no-jobs").hidden = jobs.length > 0;
  const list = find("job-list");
  list.replaceChildren();
  for (const job of jobs) {
    const item = make("li", list, {class: "job", "data-id": job.id});
    const head = make("p", item, {}, `${job.kind || "job"} ${job.id}`);
    make("span", head, {class: `badge ${job.state}`}, job.state);
    const facts = [job.epsilon ? `epsilon ${show(job.epsilon, 3)}` : "", job.time_point ? `snapshot of time point ${job.time_point}` : "",
      job.published_at ? `published at ${job.published_at}` : "", job.reason || ""];
    make("p", item, {class: "facts"}, facts.filter(Boolean).join(" · "));
    if (!job.summary) continue;
    const values = Object.entries(job.summary.values).map(([key, value]) => `${key} ${typeof value === "number" ? show(value) : value}`);
    if (values.length) make("p", item, {class: "facts"}, values.join(" · "));
    if (job.summary.centres) drawCentres(item, job.summary);
  }
}

function drawCentres(item, summary) {
  const table = make("table", item, {class: "centres"}), head = make("tr", table);
  for (const name of [...summary.attributes, "size"]) make("th", head, {scope: "col"}, name);
  summary.centres.forEach((centre, index) => {
    const row = make("tr", table);
    for (const value of centre) make("td", row, {}, show(value));
    make("td", row, {}, show(summary.sizes[index]));
  });
}

const histograms = new Map();
let version = null, last = null;

function draw(status) {
  document.title = `${status.stream} – streamdp`;
  find("stream").textContent = status.stream;
  find("promise").textContent = `Epsilon ${show(status.epsilon)} ` + (status.window
    ? `in every window of ${show(status.window)} time points` : `over ${show(status.horizon)} time points`)
    + `, each ${show(status.length_ms / 1000)} s long.`;
  drawBudget(status);
  for (const about of status.histograms) {
    if (!histograms.has(about.name)) histograms.set(about.name, new Histogram(find("histograms"), about));
    histograms.get(about.name).update(about, status.jobs, {window: status.window,
      horizon: status.horizon, reserved: status.budget.histograms?.find(one => one.name === about.name)?.reserved});
  }
  drawJobs(status.jobs);
}

function tellState(connected) {
  find("dot").className = connected ? "live" : "lost";
  const where = !last ? "" : last.ended ? `The horizon ended with time point ${last.time_point}.`
    : last.time_point ? `Time point ${last.time_point} closed at ${clock(last.closed)}.` : "No time point has closed yet.";
  const text = connected ? where : `No answer from the daemon. ${where}`;
  if (find("state").textContent !== text) find("state").textContent = text;
  for (const histogram of histograms.values()) histogram.tellAge();
}

async function turn() {
  let connected = true;
  try {
    const answer = await fetch(version === null ? "status.json" : `status.json?since=${version}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const status = await answer.json();
    if (status.version !== version || last === null) {
      version = status.version;
      last = status;
      draw(status);
    }
  } catch (error) {
    if (!(error instanceof TypeError)) console.error(error);
    connected = false;
    version = null;
  }
  tellState(connected);
  setTimeout(turn, EVERY);
}

const redraw = () => { for (const histogram of histograms.values()) histogram.draw(); };
dark.addEventListener("change", redraw);
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });
turn();
