// Colours for Rego, YAML and JSON: pieces of a text with what they are. No parser: comments, texts, numbers, words.

const KEYWORDS = "as|contains(?!\\()|default|else|every|false|if|import|in|not|null|package|some|true|with";
const EFFECTS = "deny|label|redact|require_approval|rewrite|strip_tool|warn";
const LANGUAGES = {
  rego: new RegExp([
    "(?<comment>#.*)",
    '(?<text>"(?:\\\\.|[^"\\\\\\n])*"|`[^`]*`)',
    `(?<effect>^(?:${EFFECTS})\\b)`,
    "(?<root>\\b(?:input|data)(?=[.[]|\\b))",
    `(?<word>(?<![.\\w])(?:${KEYWORDS})\\b)`,
    "(?<number>(?<![.\\w])-?\\d+(?:\\.\\d+)?\\b)",
  ].join("|"), "gm"),
  yaml: new RegExp([
    "(?<comment>(?<=^|\\s)#.*)",
    '(?<root>(?:"(?:\\\\.|[^"\\\\\\n])*"|[A-Za-z_][\\w./-]*)(?=\\s*:(?:\\s|$)))',
    "(?<text>\"(?:\\\\.|[^\"\\\\\\n])*\"|'[^'\\n]*')",
    "(?<word>\\b(?:true|false|null)\\b)",
    "(?<number>(?<![.\\w])-?\\d+(?:\\.\\d+)?\\b)",
  ].join("|"), "gm"),
};

export const MOST = 60_000; // characters: longer texts stay plain, so that typing stays quick

// The text as a list of [kind or "", piece], in order; together they are the text.
export function pieces(text, language) {
  if (text.length > MOST) return [["", text]];
  const found = [];
  let at = 0;
  for (const match of text.matchAll(LANGUAGES[language])) {
    if (match.index > at) found.push(["", text.slice(at, match.index)]);
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    found.push([kind, match[0]]);
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push(["", text.slice(at)]);
  return found;
}
