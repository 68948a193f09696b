// The page: holds the state, has it judged as it changes, shows what comes back.

import { Editor } from "./editor.js";
import { fragment, packed, unpacked } from "./link.js";
import { element, showDecision, showViews } from "./panes.js";

const PAUSE = 300; // milliseconds without typing, then it is judged
const STAYS = 100_000; // characters of a state that the address bar still shows
const KEY = "cmf-playground-token"; // kept for this address, so that a shared link opens here
const $ = (id) => document.getElementById(id);

let files = [];
let current = 0;
let samples = []; // each with the number of its set of policy files
let sets = [];
let saves = false;
let lines = {};
let timer = 0;
let asked = 0;

const editors = {
  policy: new Editor($("policy-editor"), () => { files[current].text = editors.policy.value; later(); }),
  conversation: new Editor($("conversation-editor"), later),
  context: new Editor($("context-editor"), later),
};

// -- state ---------------------------------------------------------------------------------------------------------

function state() {
  return { files, format: $("format").value, kind: $("kind").value, conversation: editors.conversation.value, context: editors.context.value };
}

function load(given) {
  files = given.files.map((file) => ({ ...file }));
  if (!files.length) files = [{ path: "cmf/defaults/data.json", text: "{}\n" }];
  const rule = files.findIndex((file) => file.path.endsWith(".rego"));
  $("format").value = given.format;
  $("kind").value = given.kind;
  editors.conversation.value = given.conversation;
  editors.context.value = given.context;
  lines = {};
  showFile(Math.max(0, rule));
  showKind();
}

function showFile(index) {
  current = Math.min(index, files.length - 1);
  $("file").replaceChildren(...files.map((file, at) => element("option", { value: at, selected: at === current }, file.path)));
  $("file").value = current;
  $("remove-file").disabled = files.length < 2;
  editors.policy.language = files[current].path.endsWith(".rego") ? "rego" : "yaml";
  editors.policy.value = files[current].text;
  showMarks();
}

function showKind() {
  const isCase = $("format").value === "case";
  $("kind").disabled = isCase;
}

function showMarks() {
  const marks = lines[files[current].path];
  editors.policy.mark(marks);
  $("marks").textContent = marks ? `· ${marks.covered.length} of ${marks.covered.length + marks.missed.length} lines of this file` : "";
}

// -- judging -------------------------------------------------------------------------------------------------------

function later() {
  clearTimeout(timer);
  timer = setTimeout(judge, PAUSE);
}

async function judge() {
  clearTimeout(timer);
  const mine = ++asked;
  document.body.setAttribute("aria-busy", "true");
  const now = state();
  const [text, answer] = await Promise.all([packed(now), ask("/api/evaluate", now)]);
  if (mine !== asked) return; // something newer is on its way
  history.replaceState(null, "", text.length > STAYS ? location.pathname : `#s=${text}`);
  document.body.removeAttribute("aria-busy");
  if (answer.error) { verdict("not_judged"); notice(answer.error.message); return; }
  notice("");
  show(answer, now);
}

function show(answer, now) {
  showProblems(answer.problems);
  const judged = answer.problems.length === 0;
  for (const pane of [$("views-body"), $("decision-body")]) pane.classList.toggle("stale", !judged);
  $("save").disabled = !judged;
  if (!judged) {
    verdict("not_judged");
    const rows = answer.problems.map((problem) => problemElement(problem));
    $("decision-body").replaceChildren(element("p", { class: "wrong" }, "Not judged:"), element("ul", { class: "problems" }, ...rows));
    $("views-body").replaceChildren(element("p", { class: "quiet" }, "Nothing to show until it can be judged."));
    return;
  }
  lines = answer.lines;
  showMarks();
  verdict(answer.verdict);
  const typed = now.format === "case" ? null : now.conversation;
  showViews($("views-body"), answer, copy);
  showDecision($("decision-body"), answer, typed, go);
}

function verdict(word) {
  $("verdict").textContent = word.replaceAll("_", " ");
  $("verdict").className = `badge ${word}`;
}

function showProblems(problems) {
  for (const pane of Object.keys(editors)) {
    const own = problems.filter((problem) => problem.pane === pane);
    $(`${pane}-problems`).replaceChildren(...own.map(problemElement));
    const here = own.filter((problem) => pane !== "policy" || problem.file === files[current].path);
    editors[pane].blame(here.map((problem) => problem.line));
  }
}

function problemElement(problem) {
  const place = [problem.file || problem.pane, problem.line || "", problem.line ? problem.column || "" : ""].filter(Boolean).join(":");
  return element("li", {}, element("button", { type: "button", class: "place",
    onclick: () => go(problem.pane, problem.file, problem.line, problem.column) }, place),
    element("span", {}, problem.message), element("span", { class: "quiet" }, problem.hint));
}

// Puts the cursor where something was said about.
function go(pane, file, line, column) {
  if (pane === "policy" && file) {
    const at = files.findIndex((each) => each.path === file);
    if (at < 0) { say(`${file} comes with the package`); return; }
    if (at !== current) showFile(at);
  }
  editors[pane].go(line || 1, column || 1);
}

// -- talking -------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const headers = { "x-cmf-token": localStorage.getItem(KEY) ?? "" };
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    const answer = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, credentials: "omit",
      redirect: "error", body: body === undefined ? undefined : JSON.stringify(body) });
    return await answer.json();
  } catch {
    return { error: { code: "playground.gone", message: "The playground does not answer: is `cmf playground` still running?" } };
  }
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function say(text) {
  $("said").textContent = text;
}

async function copy(text, what = text) {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${what}`);
  } catch {
    say(text); // where the clipboard is closed to us, it can be copied from here
  }
}

// -- the address ---------------------------------------------------------------------------------------------------

async function fromAddress() {
  const parts = fragment(location.hash);
  const token = parts.get("t");
  if (token) {
    localStorage.setItem(KEY, token);
    parts.delete("t");
    history.replaceState(null, "", `${location.pathname}${parts.size ? `#${parts}` : ""}`);
  }
  const shared = parts.get("s");
  if (!shared) return null;
  try {
    return await unpacked(shared);
  } catch {
    say("The link is damaged; a sample is shown instead.");
    return null;
  }
}

// -- the controls --------------------------------------------------------------------------------------------------

function toggle(button, form, field) {
  $(form).hidden = !$(form).hidden;
  $(button).setAttribute("aria-expanded", String(!$(form).hidden));
  if (!$(form).hidden) { $(field).focus(); $(field).select(); }
}

$("sample").addEventListener("change", () => {
  const chosen = samples[$("sample").value];
  if (!chosen) return;
  history.pushState(null, "", location.href); // going back brings what was there before
  load({ ...chosen.state, files: sets[chosen.set] });
  judge();
});
$("file").addEventListener("change", () => { showFile(Number($("file").value)); later(); });
$("new-file").addEventListener("click", () => toggle("new-file", "file-form", "file-path"));
$("file-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const path = $("file-path").value.trim();
  if (files.some((file) => file.path === path)) { say(`${path} is there already`); return; }
  const name = path.replace(/\.rego$/, "").split("/").slice(0, -1).join(".");
  files.push({ path, text: path.endsWith(".rego") ? fresh(name) : "{}\n" });
  toggle("new-file", "file-form", "file-path");
  showFile(files.length - 1);
  editors.policy.text.focus();
  judge();
});
$("remove-file").addEventListener("click", () => { files.splice(current, 1); showFile(0); judge(); });
$("format").addEventListener("change", () => { showKind(); judge(); });
$("kind").addEventListener("change", judge);
$("copy-link").addEventListener("click", async () => {
  const link = `${location.origin}${location.pathname}#s=${await packed(state())}`;
  await copy(link, `a link of ${link.length.toLocaleString()} characters; what it shows is in it, and no token`);
});
$("save").addEventListener("click", () => toggle("save", "save-form", "case-name"));
$("save-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await ask("/api/save", { name: $("case-name").value, state: state() });
  if (answer.error) { say(answer.error.message); return; }
  toggle("save", "save-form", "case-name");
  $("save").focus();
  say(answer.problems.length
    ? `Saved as ${answer.file}; under the policies on disk it fails: ${answer.problems.join("; ")}`
    : `Saved as ${answer.file}; it passes`);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); judge(); }
  if (event.key === "Escape") {
    for (const [button, form, field] of [["new-file", "file-form", "file-path"], ["save", "save-form", "case-name"]]) {
      if (!$(form).hidden) { toggle(button, form, field); $(button).focus(); }
    }
  }
});
addEventListener("hashchange", arrive);
addEventListener("popstate", arrive);

async function arrive() {
  const shared = await fromAddress();
  if (shared) { load(shared); judge(); }
}

const fresh = (name) => `# METADATA
# title: What it is about
# description: What it does, in a sentence.
# custom:
#   code: mine.first
#   severity: high
#   kinds: [text]
package ${name}

deny contains {"code": "mine.first", "reason": "This may not be said."} if {
\tcontains(input.content, "xyzzy")
}
`;

async function begin() {
  const shared = await fromAddress();
  const answer = await ask("/api/start");
  if (answer.error) { verdict("not_judged"); notice(answer.error.message); return; }
  ({ samples, sets, saves } = answer);
  $("format").replaceChildren(...answer.formats.map((name) => element("option", { value: name }, name === "case" ? "short (YAML)" : name)));
  const groups = Map.groupBy(samples.map((sample, at) => ({ ...sample, at })), (sample) => sample.group);
  for (const [group, own] of groups) {
    $("sample").append(element("optgroup", { label: group }, ...own.map((sample) => element("option", { value: sample.at }, sample.name))));
  }
  $("save").hidden = !saves;
  load(shared ?? { ...samples[0].state, files: sets[samples[0].set] });
  await judge();
}

await begin();
