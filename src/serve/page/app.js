// SPDX-License-Identifier: Apache-2.0
// The conversation: what is said, what comes back, what can be set.
import { get, set_key, stream } from "./api.js";
import { redraw, table, watch } from "./cache.js";
import { markdown } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const defaults = { system: "", temperature: 0.7, top_p: 0.95, min_p: 0.05, max_tokens: "", seed: "", theme: "", reuse: true, key: "" };
const settings = { ...defaults, ...read_kept() };
const messages = []; // {role, content, node}
let running = null;  // an AbortController
let chats = true;    // whether the model has a chat template; otherwise texts are gone on with

function read_kept() {
  try { return JSON.parse(localStorage.getItem("kvtile") ?? "{}"); } catch { return {}; }
}
function keep() {
  try { localStorage.setItem("kvtile", JSON.stringify(settings)); } catch { /* not kept, then */ }
}

// ---- messages ----

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function at_end() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
}
const to_end = () => { $("log").scrollTop = $("log").scrollHeight; };

function add(role, content) {
  const node = document.createElement("article"), text = document.createElement("div");
  node.className = `message ${role}`;
  node.setAttribute("aria-label", role === "user" ? "You" : "Answer");
  text.className = "text";
  node.append(text);
  $("empty").hidden = true;
  $("log").append(node);
  const message = { role, content, node, text };
  if (role === "user") text.textContent = content;
  messages.push(message);
  to_end();
  return message;
}

// The answer so far. Drawn once a frame however fast it comes.
function draw(message) {
  if (message.drawing) return;
  message.drawing = true;
  requestAnimationFrame(() => {
    const follow = at_end();
    message.drawing = false;
    message.text.classList.toggle("plain", !chats);
    if (chats) {
      message.text.replaceChildren(...markdown(message.content));
    } else {
      const given = document.createElement("span");
      given.className = "given";
      given.textContent = message.given;
      message.text.replaceChildren(given, message.content);
    }
    if (follow) to_end();
  });
}

function finish(message, words) {
  const under = document.createElement("div"), again = document.createElement("button"), copy = document.createElement("button");
  under.className = "under";
  again.type = copy.type = "button";
  again.textContent = "Retry";
  copy.textContent = "Copy";
  again.addEventListener("click", () => retry(message));
  copy.addEventListener("click", () => navigator.clipboard?.writeText(message.content));
  under.append(document.createTextNode(words), again, copy);
  message.node.append(under);
  if (at_end()) to_end();
}

// ---- asking ----

function number(name) {
  const value = settings[name];
  return value === "" || value === null || Number.isNaN(Number(value)) ? undefined : Number(value);
}

function body_of(given) {
  const body = {
    stream: true, stream_options: { include_usage: true }, temperature: number("temperature"), top_p: number("top_p"),
    min_p: number("min_p"), seed: number("seed"), max_tokens: number("max_tokens"), cache_prompt: settings.reuse,
  };
  if (!chats) return { ...body, prompt: given, max_tokens: body.max_tokens ?? 200 };
  const said = messages.filter((m) => m.content).map(({ role, content }) => ({ role, content }));
  return { ...body, messages: settings.system ? [{ role: "system", content: settings.system }, ...said] : said };
}

function set_running(controller) {
  running = controller;
  $("send").hidden = !!controller;
  $("stop").hidden = !controller;
}

const summary = (usage, seconds, finish_reason) => {
  const rate = seconds > 0 && usage.completion_tokens > 1 ? `, ${((usage.completion_tokens - 1) / seconds).toFixed(1)} a second` : "";
  const kept = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return `${usage.completion_tokens} tokens${rate}; ${kept} of ${usage.prompt_tokens} of the prompt kept` +
    (finish_reason === "length" ? "; ended by its length" : "");
};

async function answer(given) {
  const body = body_of(given), message = add("assistant", ""), controller = new AbortController();
  let usage = null, first = 0, last = 0, why = "";
  message.given = given;
  message.text.classList.add("waits");
  notice("");
  set_running(controller);
  try {
    await stream(chats ? "/v1/chat/completions" : "/v1/completions", body, controller.signal, (object) => {
      if (message.id !== object.id) watch(true, message.id = object.id);
      usage = object.usage ?? usage;
      const choice = object.choices[0];
      if (!choice) return;
      why = choice.finish_reason ?? why;
      const piece = (chats ? choice.delta.content : choice.text) ?? "";
      if (!piece) return;
      last = performance.now();
      first ||= last;
      message.content += piece;
      draw(message);
    });
    finish(message, usage ? summary(usage, (last - first) / 1000, why) : "");
  } catch (error) {
    if (error.name === "AbortError") {
      finish(message, "stopped");
    } else {
      if (!message.content) message.node.classList.add("failed");
      if (error.status === 401) notice("The server asks for an API key: it is set under Settings.");
      else notice(error.message);
      finish(message, "failed");
    }
  }
  message.text.classList.remove("waits");
  set_running(null);
  watch(false);
}

function retry(message) {
  if (running) return;
  const at = messages.indexOf(message);
  for (const old of messages.splice(at)) old.node.remove();
  answer(message.given);
}

function send() {
  const said = $("say").value;
  if (running || !said.trim()) return;
  $("say").value = "";
  grow();
  if (chats) add("user", said);
  answer(said);
}

// ---- the page ----

function grow() {
  const say = $("say");
  say.style.height = "auto";
  say.style.height = `${say.scrollHeight + 2}px`;
}

function set_view(view) {
  document.body.dataset.view = view;
  for (const tab of document.querySelectorAll(".tabs button")) tab.setAttribute("aria-pressed", String(tab.dataset.view === view));
  redraw();
}

function apply() {
  set_key(settings.key);
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
  redraw();
}

function open_settings() {
  const form = $("settings").querySelector("form");
  for (const name of Object.keys(defaults)) {
    const input = form.elements[name];
    if (input.type === "checkbox") input.checked = settings[name];
    else input.value = settings[name];
  }
  $("settings").showModal();
}

function read_settings() {
  const form = $("settings").querySelector("form");
  for (const name of Object.keys(defaults)) {
    const input = form.elements[name];
    settings[name] = input.type === "checkbox" ? input.checked : input.value;
  }
  keep();
  apply();
  begin();
}

function restart() {
  running?.abort();
  for (const message of messages.splice(0)) message.node.remove();
  $("empty").hidden = false;
  notice("");
  $("say").focus();
}

async function show_fidelity() {
  const report = await get("/fidelity");
  $("fidelity-text").textContent = `KL divergence from the ${report.positions} positions of a 16-bit cache, in nats, on ${report.text}; flips: how often the ` +
    "likeliest token is another.";
  const digits = (x, n) => (typeof x === "number" ? x.toPrecision(n) : "");
  $("fidelity-table").replaceChildren(table(["cache", "bits", "mean KL", "99 %", "flips"], report.caches.map((c) => [
    c.kv, digits(c.bits, 3), digits(c.kl, 2), digits(c.kl_p99, 2), typeof c.flips === "number" ? `${(100 * c.flips).toFixed(1)} %` : ""])));
  $("fidelity").hidden = false;
}

async function begin() {
  try {
    const model = (await get("/v1/models")).data[0];
    chats = model.meta.chat;
    $("model").textContent = `${model.id}, ${(model.meta.n_params / 1e6).toFixed(0)} M parameters, cache ${model.kv_quant.kv}`;
    document.title = `${model.id} - kvtile`;
    $("greeting").textContent = chats ? "Ask something." : "Begin a text.";
    $("hint").textContent = chats ? "Answers come from this machine; nothing leaves it. Beside them, the cache fills tile by tile."
      : "This model has no chat template: it goes on with what you write. Beside it, the cache fills tile by tile.";
    $("say").placeholder = chats ? "Message" : "Once upon a time";
    notice("");
    watch(false);
    if (model.meta.fidelity) await show_fidelity();
  } catch (error) {
    notice(error.status === 401 ? "The server asks for an API key: it is set under Settings." : `The server does not answer: ${error.message}`);
  }
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("say").addEventListener("input", grow);
$("say").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running && !$("settings").open) running.abort(); });
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", restart);
$("open-settings").addEventListener("click", open_settings);
$("settings").addEventListener("close", read_settings);
for (const tab of document.querySelectorAll(".tabs button")) tab.addEventListener("click", () => set_view(tab.dataset.view));
apply();
begin();
$("say").focus();
