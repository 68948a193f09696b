// What the answer says, as elements. Everything that is shown is put in as text, never as markup.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const badge = (word) => element("span", { class: `badge ${word}` }, word.replaceAll("_", " "));

// -- views ---------------------------------------------------------------------------------------------------------

export function showViews(body, answer, copy) {
  const open = new Map(Array.from(body.querySelectorAll("details"), (each) => [each.dataset.path, each.open]));
  const first = answer.views.find((view) => view.hits.length) ?? answer.views.at(-1);
  const shown = answer.views.map((view) => viewElement(view, open.get(view.path) ?? view === first, copy));
  if (answer.left_out) shown.push(element("p", { class: "quiet" }, `and ${answer.left_out} more, judged but not shown`));
  body.replaceChildren(...shown);
}

function viewElement(view, open, copy) {
  const labels = [
    ...view.labels.map((label) => element("span", { class: "chip" }, label)),
    ...view.added.map((label) => element("span", { class: "chip added" }, `+ ${label}`)),
  ];
  return element("details", { "data-path": view.path, open },
    element("summary", {}, badge(view.verdict), element("b", {}, view.path), element("span", {}, view.kind),
      view.uri ? element("span", { class: "uri" }, view.uri) : null, ...labels),
    element("ul", { class: "values" }, ...view.values.map(([path, value]) => valueElement(path, value, copy))));
}

function valueElement(path, value, copy) {
  return element("li", {}, element("button", { type: "button", title: `Copy ${path}`, onclick: () => copy(path) },
    element("span", { class: "path" }, path), " ", element("span", { class: "value" }, value)));
}

// -- decision ------------------------------------------------------------------------------------------------------

export function showDecision(body, answer, typed, go) {
  const { evaluated, produced, skipped } = answer.coverage;
  const hits = [...answer.stages.map((hit) => hitElement(hit, "stage", go)),
    ...answer.views.flatMap((view) => view.hits.map((hit) => hitElement(hit, view.path, go)))];
  body.replaceChildren(
    element("p", { class: "facts" }, badge(answer.verdict), element("span", {}, answer.action.replaceAll("_", " ")),
      answer.out.format ? null : element("span", { class: "wrong" }, "nothing goes out"),
      element("span", { class: evaluated === produced ? "" : "wrong" }, `${evaluated} of ${produced} views judged`),
      element("span", {}, `${answer.milliseconds} ms`), element("span", { class: "quiet" }, answer.revision.slice(0, 12))),
    ...skipped.map((one) => element("p", { class: "wrong" }, `${one.path} was not judged: ${one.reason}`)),
    ...(hits.length ? [element("ul", { class: "hits" }, ...hits)] : [element("p", { class: "quiet" }, "No rule hit.")]),
    ...printed(answer.printed, go),
    ...whyNot(answer, go),
    ...(answer.labels.length ? [element("p", {}, "Labels of the session: ", ...answer.labels.map((label) => element("span", { class: "chip" }, label)))] : []),
    ...out(answer.out, typed, answer.action === "forward_modified"),
    ...findings(answer.findings, go),
  );
}

function placeButton(file, line, go) {
  const place = line ? `${file}:${line}` : file;
  return element("button", { type: "button", class: "place", onclick: () => go("policy", file, line, 1) }, place);
}

function hitElement(hit, path, go) {
  return element("li", {}, badge(hit.effect), element("b", {}, hit.rule), element("span", {}, hit.reason),
    element("code", {}, hit.code), hit.mode === "enforce" ? null : element("span", { class: "chip" }, `mode ${hit.mode}`),
    element("span", { class: "quiet" }, path), hit.file ? placeButton(hit.file, hit.line, go) : null,
    hit.detail ? element("pre", {}, hit.detail) : null);
}

// Rules that were asked and did not hit, with the expression at which each stopped.
function whyNot(answer, go) {
  const silent = answer.rules.filter((rule) => rule.asked && !rule.hit);
  const idle = answer.rules.filter((rule) => !rule.asked).length;
  if (!silent.length && !idle) return [];
  const rows = silent.map((rule) => element("li", {}, element("b", {}, rule.rule), element("span", {}, rule.title),
    element("span", { class: "quiet" }, `asked of ${rule.asked}, hit in none`),
    ...(rule.stopped.length ? rule.stopped.map((stop) => stopElement(rule, stop, go)) : [placeButton(rule.file, 0, go)])));
  return [element("details", { open: silent.length < 6 },
    element("summary", {}, `Why not: ${silent.length} asked without a hit, ${idle} not asked of these kinds`),
    element("ul", { class: "hits" }, ...rows))];
}

// The expression at which a definition stopped where it came furthest: the values that it looked at, and what is behind.
function stopElement(rule, stop, go) {
  const had = stop.had.map(([path, value]) => element("span", { class: "had" }, element("code", {}, path), " was ", element("code", { class: "value" }, value)));
  const behind = stop.behind.map((one) => element("span", { class: "had" }, placeButton(one.file, one.line, go), " ", element("code", {}, one.text)));
  return element("div", { class: "stop" }, placeButton(rule.file, stop.line, go), " ", element("code", {}, stop.text),
    element("span", { class: "quiet" }, ` ${stop.held} of ${stop.of} hold`), ...had, ...behind);
}

function printed(said, go) {
  if (!said.length) return [];
  const rows = said.map((one) => element("li", {}, placeButton(one.file, one.line, go), element("code", {}, one.text)));
  return [element("details", { open: true }, element("summary", {}, `Printed: ${said.length}`), element("ul", { class: "hits" }, ...rows))];
}

function findings(found, go) {
  if (!found.length) return [];
  const rows = found.map((one) => element("li", {}, element("span", {}, one.message),
    element("span", { class: "quiet" }, one.hint), placeButton(one.file, one.line, go)));
  return [element("details", {}, element("summary", {}, `Remarks on the policy: ${found.length}`), element("ul", { class: "hits" }, ...rows))];
}

// -- what goes out -------------------------------------------------------------------------------------------------

function out(sent, typed, changed) {
  if (sent.problem) return [element("p", { class: "quiet" }, `As ${sent.format}: ${sent.problem}`)];
  if (!sent.body) return [];
  const lines = typed === null ? null : difference(pretty(typed), pretty(sent.body));
  const shown = lines === null ? [element("pre", {}, sent.body)] : [element("pre", {}, ...lines)];
  const title = lines === null || !lines.length ? `Goes out, as ${sent.format}` : `What was changed, as ${sent.format}`;
  if (lines !== null && !lines.length) shown[0] = element("pre", {}, sent.body);
  return [element("details", { open: changed }, element("summary", {}, title), ...shown,
    ...sent.losses.map((loss) => element("p", { class: "wrong" }, `dropped: ${loss}`)))];
}

const INVISIBLE = /[\p{C}\p{Z}]/gu;

// JSON text with sorted keys, one value a line, invisible characters as escapes; null where it is no JSON.
function pretty(text) {
  try {
    const sorted = JSON.stringify(JSON.parse(text), (_, value) => value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1))) : value, 1);
    return sorted.split("\n").map((line) => line.replace(INVISIBLE, (character) => character === " " ? " "
      : `\\u{${character.codePointAt(0).toString(16)}}`));
  } catch { return null; }
}

// The lines that differ, as elements; null where there is nothing to compare.
function difference(before, after) {
  if (before === null || after === null || before.length * after.length > 4_000_000) return null;
  const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  for (let i = 0, j = 0; i < before.length || j < after.length;) {
    if (before[i] === after[j]) { i++; j++; }
    else if (j >= after.length || (i < before.length && common[i + 1][j] >= common[i][j + 1])) lines.push(element("del", {}, `- ${before[i++]}\n`));
    else lines.push(element("ins", {}, `+ ${after[j++]}\n`));
  }
  return lines;
}
