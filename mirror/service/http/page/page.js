"use strict";
// Keeps the page live: asks for it again, and takes over the parts that have changed. Lines are drawn from what was seen.
const EVERY_MS = 5000;
const MOST = 120; // points of a line: ten minutes
const SVG = "http://www.w3.org/2000/svg";
const seen = new Map(); // flow -> points {at, lag, bytes, records}
const parts = new Map(); // name of a part -> its HTML as it came

const amount = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function size(bytes) {
  for (const [unit, factor] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(1)} ${unit}`;
  }
  return `${amount.format(bytes)} B`;
}

function number(text) {
  return text === "" || text === undefined ? null : Number(text);
}

function remember(flow, at) {
  const { name, lag, bytes, records } = flow.dataset;
  const points = seen.get(name) || [];
  if (!points.length || points[points.length - 1].at < at) {
    points.push({ at, lag: number(lag), bytes: Number(bytes), records: Number(records) });
  }
  seen.set(name, points.slice(-MOST));
  return seen.get(name);
}

function rates(points, what) {
  return points.slice(1).map((point, index) => {
    const seconds = point.at - points[index].at;
    return Math.max(0, point[what] - points[index][what]) / seconds; // less than before: the mirror was restarted
  });
}

function draw(place, values, label, text) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return;
  const most = Math.max(...known);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${label}: now ${text(known[known.length - 1])}, at most ${text(most)}`);
  const line = document.createElementNS(SVG, "polyline");
  const step = 100 / (values.length - 1);
  const spots = values.map((value, index) => (value === null ? "" : `${index * step},${19 - (18 * value) / (most || 1)}`));
  line.setAttribute("points", spots.filter(Boolean).join(" "));
  svg.append(line);
  place.replaceChildren(svg);
}

function fill(at) {
  for (const flow of document.querySelectorAll("[data-flow]")) {
    const points = remember(flow, at);
    const bytes = rates(points, "bytes");
    const records = rates(points, "records");
    if (bytes.length) {
      const last = bytes.length - 1;
      flow.querySelector("[data-rate]").textContent =
        `${size(bytes[last])}/s, ${amount.format(records[last])} records/s`;
    }
    draw(flow.querySelector("[data-line=lag]"), points.map((point) => point.lag), "Lag",
      (value) => `${amount.format(value)} records`);
    draw(flow.querySelector("[data-line=rate]"), bytes, "Throughput", (value) => `${size(value)} a second`);
  }
}

function take(found) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = found.querySelector(`[data-part=${part.dataset.part}]`);
    if (!other || other.innerHTML === parts.get(part.dataset.part)) continue; // what is read or marked stays as it is
    parts.set(part.dataset.part, other.innerHTML);
    part.replaceChildren(...[...other.childNodes].map((node) => document.importNode(node, true)));
  }
  document.title = found.title;
  fill(Number(found.querySelector("main").dataset.at));
}

async function ask() {
  if (document.hidden) return;
  const stale = document.getElementById("stale");
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(4 * EVERY_MS) });
    if (!answer.ok) throw new Error(`it answers with ${answer.status}`);
    take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    stale.hidden = true;
  } catch (error) {
    if (stale.hidden) {
      stale.textContent = `No answer since ${new Date().toLocaleTimeString()}; what is below is from before. (${error.message})`;
    }
    stale.hidden = false;
  }
}

async function live() {
  await ask();
  setTimeout(live, EVERY_MS);
}

for (const part of document.querySelectorAll("[data-part]")) parts.set(part.dataset.part, part.innerHTML);
fill(Number(document.querySelector("main").dataset.at));
document.addEventListener("visibilitychange", ask);
setTimeout(live, EVERY_MS);
