// Draws the figures of /charts/data as SVG lines, one chart for each figure and one line for each broker.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 720, HEIGHT = 200, LEFT = 56, BOTTOM = 24, TOP = 8, SPAN_MS = 3600_000, COLOURS = 4;
const box = document.querySelector(".charts");

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shown(value, figure) {
  if (figure === "disk_ratio") return `${(value * 100).toFixed(1)}%`;
  return value.toLocaleString(document.documentElement.lang, { maximumFractionDigits: 1 });
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit" });
}

function chart(figure, index, brokers, now) {
  const points = Object.values(brokers).flat();
  const top = Math.max(...points.map((sample) => sample[index]), figure === "disk_ratio" ? 0.01 : 1);
  const x = (ms) => LEFT + (1 - (now - ms) / SPAN_MS) * (WIDTH - LEFT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const newest = Object.entries(brokers).map(([name, samples]) => [name, samples.at(-1)]).filter(([, last]) => last);
  const about = newest.map(([name, last]) => `${name}: ${shown(last[index], figure)}`).join("; ");
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": about });
  for (const part of [0, 0.5, 1]) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(top * part), y2: y(top * part) }));
    svg.append(element("text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, shown(top * part, figure)));
  }
  for (const minutes of [60, 45, 30, 15, 0]) {
    const anchor = minutes === 60 ? "start" : minutes === 0 ? "end" : "middle";
    const ms = now - minutes * 60_000;
    svg.append(element("text", { x: x(ms), y: HEIGHT - 6, "text-anchor": anchor }, clock(ms)));
  }
  Object.values(brokers).forEach((samples, number) => {
    const seen = samples.filter((sample) => now - sample[0] <= SPAN_MS);
    const line = seen.map((sample) => `${x(sample[0]).toFixed(1)},${y(sample[index]).toFixed(1)}`).join(" ");
    svg.append(element("polyline", { class: `series series-${(number % COLOURS) + 1}`, points: line }));
  });
  return svg;
}

function legend(figure, index, brokers) {
  const list = document.createElement("ul");
  list.className = "legend";
  Object.entries(brokers).forEach(([name, samples], number) => {
    const item = document.createElement("li");
    item.className = `key-${(number % COLOURS) + 1}`;
    item.textContent = samples.length ? `${name}: ${shown(samples.at(-1)[index], figure)}` : name;
    list.append(item);
  });
  return list;
}

async function draw() {
  const answer = await fetch(box.dataset.source, { headers: { accept: "application/json" } });
  if (!answer.ok || answer.redirected) return;
  const { brokers } = await answer.json();
  const now = Date.now();
  for (const figure of box.querySelectorAll("figure")) {
    const { figure: name, index } = figure.dataset;
    figure.querySelectorAll("svg, ul").forEach((old) => old.remove());
    figure.append(chart(name, Number(index), brokers, now), legend(name, Number(index), brokers));
  }
}

async function run() {
  try { await draw(); } catch { /* the console is stopped: the next round may find it again */ }
  setTimeout(run, Number(box.dataset.interval) * 1000);
}

run();
