// A text area with line numbers, marks beside lines, colours below the text, and places that can be gone to.

import { pieces } from "./colours.js";

export class Editor {
  constructor(root, changed) {
    this.text = root.querySelector("textarea");
    this.gutter = root.querySelector(".gutter");
    this.below = root.querySelector(".below");
    this.language = "yaml";
    this.marks = { covered: new Set(), missed: new Set() };
    this.wrong = new Set();
    this.text.addEventListener("input", () => { this.number(); changed(); });
    this.text.addEventListener("scroll", () => this.follow());
    this.text.addEventListener("keydown", (event) => this.typed(event));
  }

  get value() { return this.text.value; }

  set value(text) {
    if (text !== this.text.value) this.text.value = text;
    this.number();
  }

  // Marks from the engine: lines that were reached, and lines that were not.
  mark(lines) {
    this.marks = { covered: new Set(lines?.covered), missed: new Set(lines?.missed) };
    this.number();
  }

  // Lines with something wrong.
  blame(lines) {
    this.wrong = new Set(lines);
    this.number();
  }

  // The same text below the one that is typed, which is transparent: it brings the colours.
  colour() {
    const language = this.language;
    if (this.shown === this.text.value && this.in === language) return;
    [this.shown, this.in] = [this.text.value, language];
    this.below.replaceChildren(...pieces(this.shown, language).map(([kind, piece]) => {
      if (!kind) return document.createTextNode(piece);
      const made = document.createElement("span");
      made.className = `is-${kind}`;
      made.textContent = piece;
      return made;
    }), "\n\n");
  }

  follow() {
    this.gutter.scrollTop = this.text.scrollTop;
    this.below.scrollTop = this.text.scrollTop;
    this.below.scrollLeft = this.text.scrollLeft;
  }

  number() {
    this.colour();
    const count = this.text.value.split("\n").length;
    while (this.gutter.childElementCount > count) this.gutter.lastElementChild.remove();
    while (this.gutter.childElementCount < count) this.gutter.append(document.createElement("div"));
    Array.from(this.gutter.children).forEach((line, index) => {
      const at = index + 1;
      const kind = this.wrong.has(at) ? "wrong" : this.marks.missed.has(at) ? "missed" : this.marks.covered.has(at) ? "reached" : "";
      const sign = { wrong: "▲", missed: "○", reached: "●" }[kind] ?? "";
      const text = `${sign} ${at}`;
      if (line.textContent !== text) line.textContent = text;
      if (line.className !== kind) line.className = kind;
    });
    this.follow();
  }

  // Puts the cursor there; lines and columns count from 1.
  go(line, column = 1) {
    const lines = this.text.value.split("\n");
    const before = lines.slice(0, Math.max(0, line - 1)).reduce((sum, each) => sum + each.length + 1, 0);
    const end = before + (lines[line - 1] ?? "").length;
    this.text.focus();
    this.text.setSelectionRange(Math.min(before + Math.max(0, column - 1), end), end);
    const height = this.text.scrollHeight / lines.length;
    this.text.scrollTop = Math.max(0, (line - 4) * height);
  }

  typed(event) {
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      const line = this.text.value.slice(0, this.text.selectionStart).split("\n").at(-1);
      const indent = line.match(/^[ \t]*/)[0] + (/[{([]\s*$/.test(line) ? (line.startsWith("  ") ? "  " : "\t") : "");
      if (indent) { event.preventDefault(); document.execCommand("insertText", false, `\n${indent}`); }
    } else if ((event.ctrlKey || event.metaKey) && (event.key === "]" || event.key === "[")) {
      event.preventDefault();
      this.indent(event.key === "]");
    }
  }

  indent(deeper) {
    const { selectionStart: start, selectionEnd: end, value } = this.text;
    const from = value.lastIndexOf("\n", start - 1) + 1;
    const lines = value.slice(from, end).split("\n");
    const changed = lines.map((line) => (deeper ? `\t${line}` : line.replace(/^(\t| {1,2})/, ""))).join("\n");
    this.text.setSelectionRange(from, end);
    document.execCommand("insertText", false, changed);
    this.text.setSelectionRange(from, from + changed.length);
  }
}
