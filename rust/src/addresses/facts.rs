//! `addresses`, as policy sees it: added to the JSON of a view.

use super::arguments::{self, Found, Place};
use super::markup::{self, Link, Use};
use crate::json::escape;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(default)]
    addresses: Option<serde::de::IgnoredAny>,
}

/// The JSON object of a view with its addresses; None if it has them.
pub fn with_addresses(view: &[u8]) -> Option<Vec<u8>> {
    let end = view.iter().rposition(|byte| *byte == b'}')?;
    let mut out = Vec::with_capacity(view.len() + 64);
    out.extend_from_slice(&view[..end]);
    out.extend_from_slice(b",\"addresses\":[");
    let known: View<'_> = serde_json::from_slice(view).ok()?;
    if known.addresses.is_some() {
        return None;
    }
    write(&mut out, known.kind.as_deref().unwrap_or_default(), known.content.as_deref().unwrap_or_default());
    out.extend_from_slice(b"]}");
    Some(out)
}

fn write(out: &mut Vec<u8>, kind: &str, content: &str) {
    let is_told = match kind {
        "tool_call" | "prompt_request" | "opaque" => write_found(out, arguments::of_arguments(content)),
        "resource_ref" | "image" | "audio" | "video" | "document" => write_found(out, arguments::of_reference(content)),
        _ => write_links(out, markup::links(content)),
    };
    if !is_told {
        out.extend_from_slice(b"{\"kind\":\"unread\"}");
    }
}

fn write_found(out: &mut Vec<u8>, found: Option<std::collections::BTreeSet<Found>>) -> bool {
    let Some(found) = found else { return false };
    for (at, entry) in found.iter().enumerate() {
        separate(out, at);
        let kind = match entry.place {
            Place::Value => "value",
            Place::Text => "text",
            Place::Bare => "bare",
        };
        out.extend_from_slice(format!("{{\"kind\":\"{kind}\"").as_bytes());
        text(out, "scheme", &entry.scheme);
        text(out, "host", &entry.host);
        text(out, "url", &entry.url);
        text(out, "shown", entry.shown.as_deref().unwrap_or_default());
        flag(out, "disguised", entry.disguised);
        flag(out, "misleading", entry.misleading);
        flag(out, "climbs", entry.climbs);
        flag(out, "unreadable", entry.unreadable);
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
        text(out, "scheme", &link.address.scheme);
        text(out, "host", link.address.hosts.first().map_or("", String::as_str));
        text(out, "url", &link.address.url);
        text(out, "shown", link.address.shown.as_deref().unwrap_or_default());
        flag(out, "user", link.address.user);
        flag(out, "fragment", link.address.fragment);
        flag(out, "disguised", link.address.disguised);
        flag(out, "misleading", link.address.misleading);
        flag(out, "unreadable", link.address.unreadable);
        out.extend_from_slice(format!(",\"span\":[{},{}]}}", link.span.0, link.span.1).as_bytes());
    }
    true
}

fn separate(out: &mut Vec<u8>, at: usize) {
    if at > 0 {
        out.push(b',');
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    if !value.is_empty() {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        escape::text(out, value);
    }
}

fn flag(out: &mut Vec<u8>, name: &str, value: bool) {
    if value {
        out.extend_from_slice(format!(",\"{name}\":true").as_bytes());
    }
}
