// What the page shows: it asks the server of this machine, and sets all that comes as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const all = (selector) => [...document.querySelectorAll(selector)];

const FIRST = {
  see: "convert", source: "", from: "auto", to: "", view: "archive", side: "auto", format: "", thinking: "", as: "text",
  wrote: null, size: 8, reason: "", answer: "", shape: "body",
};
const INTRO = {
  convert: "Paste what a chat API says, or a transcript: see it in any other API or format, and all that was lost on the way.",
  prompt: "See the text that a model of any format is given for the request, and whose each piece of it is.",
  play: "Hear a model answer the request piece by piece: what a parser says to each, and what clients of every API get.",
};
const MEANS = {
  control: ["control", "the format's own"],
  content: ["content", "somebody's text"],
  trained: ["written", "what the model wrote, or begins to"],
  both: ["written control", "the format's own, where the model writes it"],
};
const REASONS = ["", "stop", "length", "tool_calls", "content_filter"];
const UNSEEN = /[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

let names = null;
let state = { ...FIRST };
let result = {};
let places = [];
let found = null;
let asked = null;
let waiting = 0;
let timer = 0;

// Elements.

function make(tag, given = {}, ...children) {
  const { data = {}, on = {}, ...rest } = given;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, data);
  for (const [event, listen] of Object.entries(on)) element.addEventListener(event, listen);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A text as nodes, in which what cannot be seen is a sign. */
function shown(text) {
  const nodes = [];
  let at = 0;
  for (const { 0: sign, index } of text.matchAll(UNSEEN)) {
    nodes.push(text.slice(at, index), make("i", {}, sign === "\n" ? "↵" : sign === "\t" ? "⇥" : code(sign)));
    if (sign === "\n" || sign === "\t") nodes.push(sign);
    at = index + 1;
  }
  return [...nodes, text.slice(at)].filter((node) => node !== "");
}

const code = (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0");

function fill(select, groups, value) {
  select.replaceChildren(...groups.map(([label, options]) => {
    const made = options.map(([name, text]) => make("option", { value: name, textContent: text }));
    return label ? make("optgroup", { label }, ...made) : made;
  }).flat());
  select.value = value;
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

// The source, and places in it.

function mark() {
  const text = $("source").value;
  const edges = new Set([0, text.length]);
  const drawn = found ? [...places, found] : places;
  for (const [start, end] of drawn) edges.add(start).add(end);
  const cuts = [...edges].filter((edge) => edge <= text.length).sort((one, other) => one - other);
  const within = (place, start, end) => place && place[0] <= start && end <= place[1];
  const nodes = cuts.slice(1).map((end, index) => {
    const start = cuts[index], piece = text.slice(start, end);
    if (within(found, start, end)) return make("mark", { className: "found" }, piece);
    return places.some((place) => within(place, start, end)) ? make("mark", {}, piece) : piece;
  });
  $("marks").replaceChildren(...nodes, "\n");
  $("marks").scrollTop = $("source").scrollTop;
}

function forget() {
  places = [];
  found = null;
  mark();
}

function show(place, name, button) {
  all("[aria-pressed=true]").forEach((one) => one.setAttribute("aria-pressed", "false"));
  button?.setAttribute("aria-pressed", "true");
  found = place;
  mark();
  const source = $("source"), target = $("marks").querySelector(".found");
  if (!target) return;
  source.scrollTop = Math.max(0, target.offsetTop - source.clientHeight / 3);
  $("marks").scrollTop = source.scrollTop;
  source.setSelectionRange(place[0], place[0]);
  const line = source.value.slice(0, place[0]).split("\n").length;
  $("status").textContent = `${name} is in line ${line} of the source`;
  source.closest("section").scrollIntoView({ block: "nearest" });
}

function link(path, place) {
  if (!place) return make("code", {}, path);
  const button = make("button", { className: "link", type: "button", title: "Show it in the source" }, path);
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => show(place, path, button));
  return button;
}

// What all three things show.

function showRecognised(recognised) {
  const nodes = recognised
    ? ["Recognised as ", make("strong", {}, `${recognised.title}${recognised.what === "transcript" ? "" : ` ${recognised.what}`}`),
      ` (${recognised.name})`]
    : [$("source").value.trim() ? "Not recognised." : "Nothing is here yet: paste something, or choose an example."];
  $("recognised").replaceChildren(...nodes);
}

function showFault(box, fault) {
  if (!fault) return box.replaceChildren();
  const where = fault.where ? make("p", {}, link(fault.where, fault.place)) : null;
  const expected = fault.expected ? make("p", { className: "fine" }, `expected ${fault.expected}`) : null;
  box.replaceChildren(make("div", { className: "fault", role: "alert" }, where,
    make("p", {}, make("strong", {}, "Error: "), fault.message), expected));
}

function showLosses(box, losses) {
  box.hidden = !losses;
  if (!losses) return;
  const rows = losses.listed.map((one) => make("li", {},
    make("div", { className: `kind ${one.kind}` }, one.kind),
    make("div", {}, link(one.path, one.place), make("span", {}, one.detail))));
  if (losses.more) rows.push(make("li", {}, "", `and ${losses.more} more`));
  const title = losses.summary === "no losses" ? "No losses" : losses.summary;
  box.replaceChildren(make("h2", {}, title), ...(rows.length ? [make("ul", {}, ...rows)] : []));
}

const say = (text) => { $("status").textContent = text; };

// Conversions.

function showConversion(told) {
  showFault($("convert-fault"), told.fault);
  $("value").hidden = told.value === null;
  $("value").textContent = told.value ?? "";
  showLosses($("convert-losses"), told.losses);
  say(told.fault ? `Error: ${told.fault.message}` : told.losses ? `Converted, ${told.losses.summary}` : "");
}

// Prompts.

function kindOf(piece) {
  const written = "weight" in piece ? piece.weight > 0 : piece.trainable;
  return piece.control ? (written ? "both" : "control") : written ? "trained" : "content";
}

function itemOf(index) {
  return index < 0 ? "belongs to no item" : `${result.items[index].name} (item ${index})`;
}

function about(piece, more = "") {
  const escapes = piece.escapes?.length ? `, ${count(piece.escapes.length, "character", "characters")} put in by the escape` : "";
  return `${itemOf(piece.item)}: ${MEANS[kindOf(piece)][0]}${escapes}${more}`;
}

/** An element that tells whose it is. One that is clicked shows that in the source. */
function telling(element, piece, more) {
  const text = about(piece, more);
  element.title = text;
  element.dataset.item = piece.item;
  element.addEventListener("mouseenter", () => { $("about").textContent = text; });
  element.addEventListener("click", () => {
    $("about").textContent = text;
    all("#pieces .same").forEach((one) => one.classList.remove("same"));
    if (piece.item < 0) return;
    all(`#pieces [data-item="${piece.item}"]`).forEach((one) => one.classList.add("same"));
    const { place, name } = result.items[piece.item];
    if (place) show(place, name);
  });
  return element;
}

function pieceOf(piece) {
  const nodes = [];
  let at = 0;
  for (const place of piece.escapes) {
    const why = "The escape put this here, so that the text forges no tag. A reader takes it away.";
    nodes.push(...shown(piece.text.slice(at, place)), make("span", { className: "escape", title: why }, piece.text[place]));
    at = place + 1;
  }
  nodes.push(...shown(piece.text.slice(at)));
  return telling(make("span", { className: `piece ${kindOf(piece)}` }, ...nodes), piece);
}

function tokenOf(box) {
  const classes = `token ${kindOf(box)}${box.straddles ? " straddles" : ""}`;
  const text = box.text ? shown(box.text).filter((node) => node !== "\n") : ["∅"];
  const more = `; token ${box.id}${box.weight ? ", trained" : ""}${box.straddles ? ", across a border" : ""}`;
  const element = telling(make("span", { className: classes }, ...text), box, more);
  return box.text.endsWith("\n") ? [element, "\n"] : [element];
}

function showPieces(told) {
  const row = (piece) => {
    const { name, place } = told.items[piece.item] ?? {};
    const owner = link([MEANS[kindOf(piece)][0], name].filter(Boolean).join(", "), place);
    return make("div", { className: "row" }, make("span", {}, owner), pieceOf(piece));
  };
  const nodes = told.tokens ? told.tokens.boxes.flatMap(tokenOf) : told.pieces.map(state.as === "list" ? row : pieceOf);
  if (told.tokens?.more) nodes.push(` and ${told.tokens.more} more`);
  $("pieces").hidden = Boolean(told.fault);
  $("pieces").replaceChildren(...nodes);
}

function showPrompt(told) {
  showFault($("prompt-fault"), told.fault ?? told.unheard);
  showPieces(told);
  const kinds = new Set((told.tokens?.boxes ?? told.pieces).map(kindOf));
  const legend = Object.entries(MEANS).filter(([kind]) => kinds.has(kind)).map(([kind, [name, meaning]]) =>
    make("li", {}, make("b", { className: kind }, name), meaning));
  if (told.pieces.some((piece) => piece.escapes.length) && !told.tokens)
    legend.push(make("li", {}, make("b", { className: "escape" }, "\\"), "put in by the escape"));
  $("legend").replaceChildren(...legend);
  $("about").textContent = told.fault ? "" : aboutPrompt(told);
  const values = (list) => list.length ? list.map((one) => make("code", {}, ...shown(one))) : [make("span", { className: "fine" }, "none")];
  const rows = [["Stops", told.stops], ["Of the client", told.client_stops], ["Prefill", told.prefill ? [told.prefill] : []]];
  $("facts").replaceChildren(...rows.flatMap(([name, list]) => [make("dt", {}, name), make("dd", {}, ...values(list))]));
  $("facts").closest("section").hidden = Boolean(told.fault);
  showLosses($("prompt-losses"), told.losses);
  say(told.fault ? `Error: ${told.fault.message}` : `${aboutPrompt(told)} ${told.losses?.summary ?? ""}`);
}

function aboutPrompt(told) {
  const length = told.pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  const tokens = told.tokens ? `${count(told.tokens.total, "token", "tokens")} in the mode ${told.tokens.mode}, ${told.tokens.trained} of them trained. ` : "";
  return `${count(length, "character", "characters")}. ${tokens}Point at a piece to see whose it is; click it to see where that stands in the source.`;
}

// Answers.

function showPlay(told) {
  clearInterval(timer);
  timer = 0;
  $("start").textContent = "Play";
  showFault($("play-fault"), told.fault);
  for (const id of ["steps", "parts", "told", "issues"]) $(id).closest("section").hidden = Boolean(told.fault);
  $("play-losses").hidden = Boolean(told.fault);
  say(told.fault ? `Error: ${told.fault.message}` : "");
  if (told.fault) return;
  if (state.wrote === null) $("wrote").value = told.text;
  const begun = told.prefill ? ["The prompt has begun the answer with ", make("strong", {}, JSON.stringify(told.prefill)), ". "] : [];
  $("wrote-about").replaceChildren(...begun, state.wrote === null ? "An example that fits the request: change it, break it." : "");
  $("size-is").textContent = told.size;
  $("steps").replaceChildren(...told.steps.map((step, index) => make("li", {}, make("span", {}, `${index + 1}`),
    make("span", {}, ...(step.text ? shown(step.text) : [make("i", {}, "end of the text")])),
    make("span", {}, ...(step.events.length ? step.events.map(eventOf) : [make("span", { className: "fine" }, "·")])))));
  const issues = told.response.issues.map((issue) => make("p", { className: "issue" }, make("b", {}, issue.kind),
    ` at ${issue.start} to ${issue.end}: ${issue.detail}`));
  $("issues").replaceChildren(...issues);
  $("heard").max = told.steps.length;
  hear(told.steps.length);
  showAnswer();
  say(`${count(told.steps.length, "piece", "pieces")}, ${count(told.response.items.length, "part", "parts")}, ${count(issues.length, "issue", "issues")}`);
}

function eventOf(event) {
  const said = event.type === "message_end" ? [event.finish_reason, event.stop_sequence].filter(Boolean).join(", ")
    : event.type === "part_delta" ? event.text
    : event.part ? [event.part.type, event.part.name, event.part.id].filter(Boolean).join(" ") : event.type === "part_end" ? "none after all" : "";
  return make("span", { className: `event ${event.type}` }, make("b", {}, event.type), ...shown(said ?? ""));
}

/** The parts as they are after so many pieces. */
function hear(number) {
  $("heard").value = number;
  $("heard-is").textContent = `${number} of ${result.steps.length}`;
  const parts = new Map();
  let end = null;
  for (const event of result.steps.slice(0, number).flatMap((step) => step.events)) {
    if (event.type === "part_start") parts.set(event.index, { ...event.part, open: true, said: "" });
    else if (event.type === "part_delta") parts.get(event.index).said += event.text;
    else if (event.type === "part_end" && !event.part) parts.delete(event.index);
    else if (event.type === "part_end")
      parts.set(event.index, { ...event.part, open: false, said: event.part.arguments ?? event.part.text ?? "" });
    else if (event.type === "message_end") end = event;
  }
  const told = [...parts.values()].map((part) => make("div", { className: part.open ? "part open" : "part" },
    make("span", {}, [part.type.replace("_", " "), part.name, part.open ? "is being written" : ""].filter(Boolean).join(" · ")),
    make("div", { className: "piece-text" }, ...shown(part.said))));
  if (end) told.push(make("div", { className: "part end" }, `Finish reason: ${end.finish_reason ?? "none"}`));
  $("parts").replaceChildren(...(told.length ? told : [make("span", { className: "fine" }, "Nothing is heard yet.")]));
  [...$("steps").children].forEach((row, index) => { row.hidden = index >= number; });
  $("steps").scrollTop = number < result.steps.length ? $("steps").scrollHeight : 0;
}

function play() {
  if (timer) {
    clearInterval(timer);
    timer = 0;
    $("start").textContent = "Play";
    return;
  }
  const total = result.steps?.length ?? 0;
  let number = Number($("heard").value) >= total ? 0 : Number($("heard").value);
  $("start").textContent = "Pause";
  hear(number);
  timer = setInterval(() => {
    hear(Math.min(++number, total));
    if (number >= total) play();
  }, Math.max(40, Math.min(320, 6000 / Math.max(1, total))));
}

function showAnswer() {
  const told = result.answers?.find((one) => one.api === state.answer) ?? result.answers?.[0];
  if (!told) return;
  $("told").textContent = told.fault ? told.fault.message : told[state.shape];
  showLosses($("play-losses"), told.losses);
}

// What is asked, and when.

const ASKS = {
  convert: ["/api/convert", () => ({ source: state.source, from_: state.from, to: state.to, side: state.side, view: state.view }), showConversion],
  prompt: ["/api/prompt", () => ({ source: state.source, from_: state.from, format: state.format, thinking: thinking(),
    tokenizer: names.tokenizers.includes(state.as) ? state.as : "" }), showPrompt],
  play: ["/api/play", () => ({ source: state.source, from_: state.from, format: state.format, thinking: thinking(),
    text: state.wrote, size: state.size, finish_reason: state.reason || null }), showPlay],
};

const thinking = () => state.thinking === "" ? null : state.thinking === "yes";

async function post(path, body, signal) {
  try {
    const headers = { "content-type": "application/json" };
    return await (await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
  } catch {
    return { fault: { message: "The playground does not answer. Is it still running?" } };
  }
}

async function ask() {
  asked?.abort();
  const mine = asked = new AbortController();
  const [path, body, present] = ASKS[state.see];
  document.body.setAttribute("aria-busy", "true");
  const blank = !state.source.trim() && state.see !== "play";
  const told = blank ? {} : await post(path, body(), mine.signal);
  if (mine !== asked) return;
  result = { value: null, pieces: [], items: [], stops: [], client_stops: [], prefill: "", steps: [], losses: null, ...told };
  found = null;
  places = [told.fault?.place, ...(told.losses?.listed ?? []).map((one) => one.place)].filter(Boolean);
  showRecognised(told.recognised);
  all(".thinking").forEach((select) => { select.disabled = told.thinks === false; });
  present(result);
  mark();
  document.body.removeAttribute("aria-busy");
}

function soon() {
  clearTimeout(waiting);
  asked?.abort();
  asked = null;
  document.body.setAttribute("aria-busy", "true");
  waiting = setTimeout(() => { remember(); ask(); }, 250);
}

function now() {
  clearTimeout(waiting);
  present();
  remember();
  ask();
}

// The link: what differs from how the page begins. Browsers take two million characters.
const LONGEST = 1_500_000;

function remember() {
  const said = new URLSearchParams();
  const example = names.examples.find((one) => one.text === state.source);
  for (const [key, value] of Object.entries(state)) {
    if (key === "source" && example) said.set("example", example.name);
    else if (key === "source" || (value !== null && value !== beginning()[key])) said.set(key, value);
  }
  const link = `#${said}`, fits = link.length < LONGEST;
  history.replaceState(null, "", fits ? link : "#");
  return fits;
}

function beginning() {
  const format = names.formats[0].name;
  return { ...FIRST, source: names.examples[0].text, to: names.apis[0].name, answer: names.apis[0].name, format };
}

function recall() {
  const said = new URLSearchParams(location.hash.slice(1));
  state = beginning();
  for (const [key, value] of said) if (key in FIRST) state[key] = key === "size" ? Number(value) || FIRST.size : value;
  const example = names.examples.find((one) => one.name === said.get("example"));
  if (example && !said.has("source")) state.source = example.text;
  if (!(state.see in ASKS)) state.see = FIRST.see;
  $("source").value = state.source;
  $("wrote").value = state.wrote ?? "";
  forget();
  present();
  ask();
}

async function share() {
  const fits = remember();
  const copied = fits && await navigator.clipboard.writeText(location.href).then(() => true, () => false);
  say($("share").textContent = copied ? "Link copied" : fits ? "It is in the address bar" : "Too long for a link");
  setTimeout(() => { $("share").textContent = "Copy link"; }, 2000);
}

// The controls.

const isFormat = (name) => [...names.formats, ...names.models].some((one) => one.name === name);

/** Let the controls say what the state is. */
function present() {
  for (const tab of all("[role=tab]")) {
    const here = tab.dataset.see === state.see;
    tab.setAttribute("aria-selected", here);
    tab.tabIndex = here ? 0 : -1;
    $(`see-${tab.dataset.see}`).hidden = !here;
  }
  $("intro").textContent = INTRO[state.see];
  for (const id of ["from", "to", "view", "side", "as", "reason", "answer", "shape", "size"]) $(id).value = state[id];
  for (const id of ["format", "thinking"]) all(`.${id}`).forEach((select) => { select.value = state[id]; });
  $("size-is").textContent = state.size;
  $("view-label").hidden = !isFormat(state.to);
  $("side-label").hidden = isFormat(state.to);
  $("example").value = names.examples.find((one) => one.text === state.source)?.name ?? "";
}

function listen() {
  const controls = [...["from", "to", "view", "side", "as", "reason"].map((id) => [id, $(id)]),
    ...["format", "thinking"].flatMap((id) => all(`.${id}`).map((select) => [id, select]))];
  for (const [id, select] of controls) select.addEventListener("change", () => { state[id] = select.value; now(); });
  for (const id of ["answer", "shape"])
    $(id).addEventListener("change", () => { state[id] = $(id).value; remember(); showAnswer(); });
  $("source").addEventListener("input", () => { state.source = $("source").value; forget(); $("example").value = ""; soon(); });
  $("source").addEventListener("scroll", () => { $("marks").scrollTop = $("source").scrollTop; });
  $("example").addEventListener("change", () => {
    state.source = names.examples.find((one) => one.name === $("example").value)?.text ?? "";
    Object.assign(state, { from: FIRST.from, side: FIRST.side, wrote: null });
    $("source").value = state.source;
    $("source").scrollTop = 0;
    forget();
    now();
  });
  $("wrote").addEventListener("input", () => { state.wrote = $("wrote").value; soon(); });
  $("size").addEventListener("input", () => { state.size = Number($("size").value); $("size-is").textContent = state.size; soon(); });
  $("heard").addEventListener("input", () => hear(Number($("heard").value)));
  $("start").addEventListener("click", play);
  $("share").addEventListener("click", share);
  window.addEventListener("hashchange", recall);
  for (const tab of all("[role=tab]")) {
    tab.addEventListener("click", () => { state.see = tab.dataset.see; now(); });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const tabs = all("[role=tab]"), next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  }
}

async function begin() {
  names = await (await fetch("/api/names")).json();
  const named = (list) => list.map((one) => [one.name, one.name]);
  const groups = [["APIs", named(names.apis)], ["Formats", named(names.formats)], ["Formats of models", named(names.models)]];
  const plain = (list) => [["", list.map((one) => [one, one])]];
  fill($("example"), [["", [["", "your own"], ...names.examples.map((one) => [one.name, one.title])]]], "");
  fill($("from"), [["", [["auto", "auto"]]], ...groups], "auto");
  fill($("to"), groups, "");
  fill($("view"), plain(names.views), "");
  fill($("side"), [["", [["auto", "auto"], ...names.sides.slice(1).map((one) => [one, one])]]], "auto");
  all(".format").forEach((select) => fill(select, groups.slice(1), ""));
  all(".thinking").forEach((select) => fill(select, [["", [["", "auto"], ["yes", "yes"], ["no", "no"]]]], ""));
  const tokens = names.tokenizers.length ? [["Tokens", names.tokenizers.map((one) => [one, `tokens: ${one}`])]] : [];
  fill($("as"), [["", [["text", "text"], ["list", "list"]]], ...tokens], "text");
  fill($("reason"), [["", REASONS.map((one) => [one, one || "itself"])]], "");
  fill($("answer"), [["", named(names.apis)]], "");
  listen();
  recall();
}

begin();
