//! `addresses`, as policy sees it.

use super::address::{is_false, read, Address};
use super::arguments::{self, Found, Place, MAX_FACTS};
use super::markup::{self, Link, Use};
use serde::{Deserialize, Serialize};
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

/// An address as a rule reads it; what is empty or false is left out.
#[derive(Serialize, Default)]
struct Fact<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    format: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
    /// It stands in markup, as what a renderer loads.
    #[serde(skip_serializing_if = "is_false")]
    loads: bool,
    #[serde(flatten)]
    address: Option<Address>,
    #[serde(skip_serializing_if = "is_false")]
    climbs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    span: Option<(usize, usize)>,
}

const UNREAD: Fact<'static> =
    Fact { kind: "unread", format: "", field: String::new(), loads: false, address: None, climbs: false, span: None };

/// Writes the addresses in the content of a view, and in what came beside it, or that they were not read. `view` is None
/// where nothing came beside it.
pub(crate) fn write(out: &mut Vec<u8>, kind: &str, content: &str, view: Option<&[u8]>) -> serde_json::Result<()> {
    let mut facts = match kind {
        "tool_call" | "prompt_request" | "opaque" => of_found(arguments::of_arguments(content)),
        "resource_ref" | "image" | "audio" | "video" | "document" => of_found(arguments::of_reference(content)),
        _ => of_links(markup::links(content)),
    };
    let has_fields = matches!(kind, "request" | "response" | "resource" | "text" | "tool_definition");
    let view = view.filter(|_| has_fields).map(serde_json::from_slice::<View>);
    match &view {
        None => {}
        Some(Ok(View { properties })) => of_properties(properties, &mut facts),
        Some(Err(_)) => facts.push(UNREAD),
    }
    serde_json::to_writer(out, &facts)
}

fn of_found(found: Option<Found>) -> Vec<Fact<'static>> {
    let Some(found) = found else { return vec![UNREAD] };
    let fact = |(place, address): (Place, Address)| {
        let kind = match place {
            Place::Value => "value",
            Place::Text => "text",
            Place::Bare => "bare",
        };
        Fact { kind, climbs: address.climbs, address: Some(address), ..Fact::default() }
    };
    found.into_iter().map(fact).collect()
}

fn of_links(links: Option<Vec<Link>>) -> Vec<Fact<'static>> {
    let Some(links) = links else { return vec![UNREAD] };
    let fact = |link: Link| {
        let kind = match link.usage {
            Use::Base => "base",
            Use::Image => "image",
            Use::Link => "link",
            Use::Text => "text",
        };
        Fact { kind, address: Some(link.address), span: Some(link.span), ..Fact::default() }
    };
    links.into_iter().map(fact).collect()
}

fn of_properties<'a>(properties: &'a Properties, facts: &mut Vec<Fact<'a>>) {
    let mut fields = Vec::new();
    let choices = properties.choices.as_array().into_iter().flatten().map(|choice| &choice["extra"]);
    let mut is_told = true;
    for extra in [&properties.extra, &properties.message["extra"]].into_iter().chain(choices) {
        for (format, inner) in extra.as_object().into_iter().flatten() {
            is_told &= of_fields(inner, [format, "", ""], &mut fields);
        }
    }
    for Field { names: [format, above, name], loads, mut address } in fields {
        let hosts = std::mem::take(&mut address.hosts);
        for host in if hosts.is_empty() { vec![String::new()] } else { hosts } {
            let address = Some(Address { hosts: vec![host], ..address.clone() });
            let field = format!("{}.{}", start_of(above), start_of(name));
            facts.push(Fact { kind: "field", format, field, loads, address, ..Fact::default() });
        }
    }
    if !is_told {
        facts.push(UNREAD);
    }
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
