//! `addresses`, as policy sees it.

use super::address::{read, Address};
use super::arguments::{self, Found, Place, MAX_FACTS};
use super::markup::{self, Link, Use};
use crate::json::write_text;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct View {
    #[serde(default)]
    properties: Properties,
}

/// Where a view has what came beside its content: none of the format's own parts, shown as it came.
#[derive(Deserialize, Default)]
struct Properties {
    #[serde(default)]
    extra: Value,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    choices: Value,
}

/// Writes the addresses in the content of a view, and in what came beside it, or that they were not read. `view` is None
/// where nothing came beside it.
pub(crate) fn write(out: &mut Vec<u8>, kind: &str, content: &str, view: Option<&[u8]>) {
    let start = out.len();
    write_content(out, kind, content);
    let Some(view) = view else { return };
    if !matches!(kind, "request" | "response" | "resource" | "text" | "tool_definition") {
        return;
    }
    match serde_json::from_slice::<View>(view) {
        Ok(View { properties }) => write_fields(out, &properties),
        Err(_) => {
            separate(out, out.len() - start);
            out.extend_from_slice(b"{\"kind\":\"unread\"}");
        }
    }
}

fn write_content(out: &mut Vec<u8>, kind: &str, content: &str) {
    let is_told = match kind {
        "tool_call" | "prompt_request" | "opaque" => write_found(out, arguments::of_arguments(content)),
        "resource_ref" | "image" | "audio" | "video" | "document" => write_found(out, arguments::of_reference(content)),
        _ => write_links(out, markup::links(content)),
    };
    if !is_told {
        out.extend_from_slice(b"{\"kind\":\"unread\"}");
    }
}

fn write_found(out: &mut Vec<u8>, found: Option<Found>) -> bool {
    let Some(found) = found else { return false };
    for (at, (place, address)) in found.iter().enumerate() {
        separate(out, at);
        let kind = match place {
            Place::Value => "value",
            Place::Text => "text",
            Place::Bare => "bare",
        };
        out.extend_from_slice(format!("{{\"kind\":\"{kind}\"").as_bytes());
        write_address(out, host_of(address), address);
        flag(out, "climbs", address.climbs);
        out.push(b'}');
    }
    true
}

fn write_links(out: &mut Vec<u8>, links: Option<Vec<Link>>) -> bool {
    let Some(links) = links else { return false };
    for (at, link) in links.iter().enumerate() {
        separate(out, at);
        let kind = match link.usage {
            Use::Base => "base",
            Use::Image => "image",
            Use::Link => "link",
            Use::Text => "text",
        };
        out.extend_from_slice(format!("{{\"kind\":\"{kind}\"").as_bytes());
        write_address(out, host_of(&link.address), &link.address);
        out.extend_from_slice(format!(",\"span\":[{},{}]}}", link.span.0, link.span.1).as_bytes());
    }
    true
}

fn write_fields(out: &mut Vec<u8>, properties: &Properties) {
    let mut fields = Vec::new();
    let choices = properties.choices.as_array().into_iter().flatten().map(|choice| &choice["extra"]);
    let mut is_told = true;
    for extra in [&properties.extra, &properties.message["extra"]].into_iter().chain(choices) {
        for (format, inner) in extra.as_object().into_iter().flatten() {
            is_told &= of_fields(inner, [format, "", ""], &mut fields);
        }
    }
    for Field { names: [format, above, name], loads, address } in &fields {
        let none = [String::new()];
        for host in if address.hosts.is_empty() { &none[..] } else { &address.hosts } {
            separate(out, usize::from(out.last() != Some(&b'[')));
            out.extend_from_slice(b"{\"kind\":\"field\"");
            text(out, "format", format);
            text(out, "field", &format!("{}.{}", start_of(above), start_of(name)));
            flag(out, "loads", *loads);
            write_address(out, host, address);
            out.push(b'}');
        }
    }
    if !is_told {
        separate(out, usize::from(out.last() != Some(&b'[')));
        out.extend_from_slice(b"{\"kind\":\"unread\"}");
    }
}

fn host_of(address: &Address) -> &str {
    address.hosts.first().map_or("", String::as_str)
}

fn write_address(out: &mut Vec<u8>, host: &str, address: &Address) {
    text(out, "scheme", &address.scheme);
    text(out, "host", host);
    text(out, "url", &address.url);
    text(out, "shown", address.shown.as_deref().unwrap_or_default());
    flag(out, "user", address.user);
    flag(out, "fragment", address.fragment);
    flag(out, "disguised", address.disguised);
    flag(out, "misleading", address.misleading);
    flag(out, "unreadable", address.unreadable);
}

struct Field<'a> {
    /// The format whose field it is, and the last two keys that lead to it.
    names: [&'a str; 3],
    /// It stands in markup, as what a renderer loads.
    loads: bool,
    address: Address,
}

/// Adds the texts that are addresses, and what the markup in others loads; false if there is too much.
fn of_fields<'a>(value: &'a Value, names: [&'a str; 3], fields: &mut Vec<Field<'a>>) -> bool {
    let [format, _, name] = names;
    match value {
        Value::Object(entries) => entries.iter().all(|(key, inner)| of_fields(inner, [format, name, key], fields)),
        Value::Array(items) => items.iter().all(|item| of_fields(item, names, fields)),
        Value::String(content) => {
            let trimmed = content.trim();
            if let Some(address) = (!trimmed.contains(' ')).then(|| read(trimmed)).flatten() {
                if !address.hosts.is_empty() || address.unreadable && !address.template {
                    fields.push(Field { names, loads: false, address });
                }
            } else if trimmed.contains(['<', '[']) {
                let Some(links) = markup::links(content) else { return false };
                let loaded = links.into_iter().filter(|link| matches!(link.usage, Use::Base | Use::Image));
                fields.extend(loaded.map(|link| Field { names, loads: true, address: link.address }));
            }
            fields.len() <= MAX_FACTS
        }
        _ => true,
    }
}

/// As much of a key as tells it from others.
fn start_of(key: &str) -> &str {
    key.char_indices().nth(64).map_or(key, |(end, _)| &key[..end])
}

fn separate(out: &mut Vec<u8>, at: usize) {
    if at > 0 {
        out.push(b',');
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    if !value.is_empty() {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        write_text(out, value);
    }
}

fn flag(out: &mut Vec<u8>, name: &str, value: bool) {
    if value {
        out.extend_from_slice(format!(",\"{name}\":true").as_bytes());
    }
}
