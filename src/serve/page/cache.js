// SPDX-License-Identifier: Apache-2.0
// The cache as it is: bytes by region against f16, tiles of 128 rows by layer, kept prefixes.
import { get } from "./api.js";

const $ = (id) => document.getElementById(id);
const TILE = 128, REGIONS = ["sink", "body", "tail"];
let state = null, picked = "", own = "", timer = 0, period = 3000;

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)} ${units[i]}`;
}
const share = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %");
const element = (name, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

// The session to show: the one that was picked, the one that answers this page, one that runs, the longest.
function shown() {
  const all = state.sessions;
  return all.find((s, i) => picked === name_of(s, i)) ?? all.find((s) => s.id && s.id === own) ?? all.find((s) => s.id) ??
    all.reduce((best, s) => (!best || s.rows > best.rows ? s : best), null);
}
const name_of = (s, i) => (s.id ? s.id : `kept ${i}`);
const words_of = (s) => (s.id ? "answering" : "kept");

function show_figures() {
  const { pool, prefixes, work } = state;
  const total = prefixes.hits + prefixes.misses;
  const rows = [
    [bytes(pool.bytes), pool.limit ? `of ${bytes(pool.limit)} in pages` : "in pages"],
    [bytes(pool.shared), "saved by sharing"],
    [share(prefixes.hits, total), `prefix hits, ${prefixes.hits} of ${total}`],
    [`${work.per_second.toFixed(1)} /s`, `tokens of late; ${work.running} running, ${work.waiting} waiting`],
  ];
  $("figures").replaceChildren(...rows.map(([value, what]) => {
    const box = element("div", undefined, "figure");
    box.append(element("b", value), element("span", what));
    return box;
  }));
}

function bar(label, parts, whole, total) {
  const strip = element("div", undefined, "bar");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", `${label}: ${bytes(total)}`);
  for (const [kind, value] of parts) {
    const piece = element("i", undefined, kind);
    piece.style.width = `${whole > 0 ? (100 * value) / whole : 0}%`;
    strip.append(piece);
  }
  return [element("span", label), strip, element("span", bytes(total))];
}

function show_bars(session) {
  if (!session) return $("bars").replaceChildren();
  const b = session.bytes, whole = Math.max(b.f16, b.total);
  const side = (s) => REGIONS.map((region) => [region, b[s][region]]);
  const sum = (s) => REGIONS.reduce((n, region) => n + b[s][region], 0);
  const last = bar("f16", [["f16", b.f16]], whole, b.f16);
  last[2].textContent = `${bytes(b.f16)} (${share(b.total, b.f16)})`;
  $("bars").replaceChildren(...bar("keys", side("k"), whole, sum("k")), ...bar("values", side("v"), whole, sum("v")), ...last);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function draw_tiles(session) {
  const canvas = $("tiles"), n_layers = state.layers.length;
  const n_tiles = Math.max(1, Math.ceil((session?.rows ?? 0) / TILE), Math.min(16, Math.ceil(state.n_ctx / TILE)));
  const room = Math.max(160, canvas.parentElement.clientWidth - 34);
  const size = Math.max(6, Math.min(22, Math.floor(room / n_tiles))), height = Math.max(6, Math.min(12, size));
  const width = 30 + n_tiles * size, tall = n_layers * height, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = tall * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext("2d");
  const paint = Object.fromEntries([...REGIONS, "free", "soft", "ink"].map((name) => [name, colour(name)]));
  pen.scale(scale, scale);
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (let l = 0; l < n_layers; l++) {
    const y = l * height;
    const [sink, body_end] = session ? session.layers[l] : [0, 0];
    if (l % Math.ceil(12 / height) === 0) {
      pen.fillStyle = paint.soft;
      pen.fillText(String(l), 2, y + height / 2);
    }
    for (let t = 0; t < n_tiles; t++) {
      const x = 30 + t * size, w = size - 1, first = t * TILE;
      pen.fillStyle = paint.free;
      pen.fillRect(x, y, w, height - 1);
      const piece = (from, to, kind) => {
        const a = Math.max(from, first), b = Math.min(to, first + TILE);
        if (b <= a) return;
        pen.fillStyle = paint[kind];
        pen.fillRect(x + (w * (a - first)) / TILE, y, Math.max(1, (w * (b - a)) / TILE), height - 1);
      };
      if (!session) continue;
      piece(0, sink, "sink");
      piece(sink, body_end, "body");
      piece(Math.max(body_end, sink), session.rows, "tail");
    }
  }
  if (session?.cached) hatch(pen, 30, (session.cached / TILE) * size, tall, paint.ink);
  describe(session, n_layers);
}

function hatch(pen, x, width, tall, ink) {
  pen.save();
  pen.beginPath();
  pen.rect(x, 0, width, tall);
  pen.clip();
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.35;
  for (let at = -tall; at < width; at += 6) {
    pen.beginPath();
    pen.moveTo(x + at, tall);
    pen.lineTo(x + at + tall, 0);
    pen.stroke();
  }
  pen.restore();
}

function describe(session, n_layers) {
  if (!session) {
    $("tile-words").textContent = "Nothing is in the cache yet.";
    $("tiles").setAttribute("aria-label", "The cache is empty.");
    return;
  }
  const [sink, body_end] = session.layers[0];
  const words = `${session.rows} rows in ${n_layers} layers; in the first layer ${sink} are sink, ${Math.max(0, body_end - sink)} body and ` +
    `${session.rows - Math.max(body_end, sink)} tail. ${bytes(session.bytes.total)}, ${share(session.bytes.total, session.bytes.f16)} of f16.` +
    (session.cached ? ` ${session.cached} rows came from a kept prefix.` : "");
  $("tile-words").textContent = words;
  $("tiles").setAttribute("aria-label", words);
}

export function table(heads, rows) {
  const node = document.createElement("table"), head = node.createTHead().insertRow();
  heads.forEach((text) => { const th = element("th", text); th.scope = "col"; head.append(th); });
  const body = node.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text) => { line.insertCell().textContent = text; });
  }
  return node;
}

function show_table(session) {
  if (!$("layer-table").parentElement.open) return;
  $("layer-table").replaceChildren(table(["layer", "keys", "values", "sink", "body", "tail", "bytes", "why"], state.layers.map((layer, l) => {
    const [sink, end, n] = session ? session.layers[l] : [0, 0, 0];
    const rows = session ? session.rows : 0;
    return [l, layer.k, layer.v, sink, Math.max(0, end - sink), rows - Math.max(end, sink), bytes(n), layer.reason];
  })));
}

function show_sessions(current) {
  const most = Math.max(1, ...state.sessions.map((s) => s.rows));
  const options = state.sessions.map((s, i) => {
    const option = element("option", `${words_of(s)}, ${s.rows} rows`);
    option.value = name_of(s, i);
    option.selected = s === current;
    return option;
  });
  if (document.activeElement !== $("pick")) $("pick").replaceChildren(...options);
  $("pick").hidden = !state.sessions.length;
  $("sessions").replaceChildren(...(state.sessions.length ? state.sessions.map((s) => {
    const item = element("li"), strip = element("div", undefined, "bar");
    for (const [kind, n] of [["was", s.id ? s.cached : s.rows], ["fresh", s.id ? s.rows - s.cached : 0]]) {
      const piece = element("i", undefined, kind);
      piece.style.width = `${(100 * n) / most}%`;
      strip.append(piece);
    }
    strip.setAttribute("aria-hidden", "true");
    const what = s.id ? `${s.cached} of ${s.prompt} kept, ${s.generated} written` : s.hits === 1 ? "1 hit" : `${s.hits} hits`;
    item.append(element("span", `${words_of(s)}, ${s.rows}`), strip, element("span", what));
    return item;
  }) : [element("li", "None yet.", "quiet")]));
}

function show() {
  const session = shown();
  $("kv").textContent = `${state.kv}, ${state.n_ctx} tokens of context`;
  show_figures();
  show_bars(session);
  show_sessions(session);
  draw_tiles(session);
  show_table(session);
}

async function look() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      state = await get("/cache");
      show();
    } catch { /* said by whoever asks for something; the view stays as it was */ }
  }
  timer = setTimeout(look, period);
}

// More often while an answer is written; `id` is its request's.
export function watch(busy, id = "") {
  period = busy ? 400 : 3000;
  if (id) own = id;
  look();
}

$("pick").addEventListener("change", () => { picked = $("pick").value; if (state) show(); });
$("layer-table").parentElement.addEventListener("toggle", () => { if (state) show_table(shown()); });
new ResizeObserver(() => { if (state) draw_tiles(shown()); }).observe($("tiles").parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state) show(); });
export const redraw = () => { if (state) show(); };
