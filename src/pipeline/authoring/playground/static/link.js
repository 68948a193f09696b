// State in the address, behind the `#`: browsers send that to no server.

const MAX_CHARACTERS = 4_000_000; // what a link may unpack to
const FIELDS = ["format", "kind", "conversation", "context"];

// The parts of an address's fragment, by name.
export function fragment(hash) {
  return new URLSearchParams(hash.replace(/^#/, "").replaceAll("+", "%2B"));
}

export async function packed(state) {
  const stream = new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The state in a link; throws where it is none.
export async function unpacked(text) {
  const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))
    .pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
  let json = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    json += value;
    if (json.length > MAX_CHARACTERS) throw new Error("too large");
  }
  return checked(JSON.parse(json));
}

// Only texts, and only those that a state has: whatever else a link says is left behind.
function checked(given) {
  const state = { files: [] };
  for (const name of FIELDS) state[name] = textOf(given[name]);
  for (const file of given.files) state.files.push({ path: textOf(file.path), text: textOf(file.text) });
  return state;
}

function textOf(value) {
  if (typeof value !== "string") throw new Error("not a text");
  return value;
}
