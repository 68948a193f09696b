//! One address: its parts and its normal form.

use crate::json::replaced;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::net::Ipv6Addr;
use url::{Host, Url};

/// Prefixes before the scheme of an address proper (`jdbc:mysql://…`, `view-source:https:…`) that are read.
const MAX_PREFIXES: usize = 4;
/// Hosts that one address may list (`mongodb://a,b,c/`).
const MAX_HOSTS: usize = 64;
const SPECIAL: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "file"];

/// What is known of an address; written, what is empty or false is left out.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Address {
    /// In lower case; empty where the address begins with its slashes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheme: String,
    /// As it is asked for: numbers as four decimal ones, other scripts in punycode, no dot at the end; empty if none.
    #[serde(rename = "host", serialize_with = "write_first", skip_serializing_if = "has_no_host")]
    pub hosts: Vec<String>,
    /// The normal form, without user and fragment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The host as it is written, where that is not ASCII or is punycode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The host is a number in another form than four decimal ones.
    #[serde(skip_serializing_if = "is_false")]
    pub disguised: bool,
    /// One host is shown before an `@` and another one meant.
    #[serde(skip_serializing_if = "is_false")]
    pub misleading: bool,
    /// There is a user or a password.
    #[serde(skip_serializing_if = "is_false")]
    pub user: bool,
    /// There is a fragment.
    #[serde(skip_serializing_if = "is_false")]
    pub fragment: bool,
    /// The path goes up.
    #[serde(skip)]
    pub climbs: bool,
    /// No client reads it, because of what stands at the place of the host.
    #[serde(skip_serializing_if = "is_false")]
    pub unreadable: bool,
    /// What makes it unreadable is the placeholder of a template.
    #[serde(skip)]
    pub template: bool,
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

fn has_no_host(hosts: &[String]) -> bool {
    hosts.first().is_none_or(String::is_empty)
}

fn write_first<S: Serializer>(hosts: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    hosts.first().serialize(serializer)
}

/// The address that a text is; None if it is none, or relative to another.
pub fn read(text: &str) -> Option<Address> {
    let cleaned = cleaned(text);
    let (prefixes, inner) = split_prefixes(&cleaned);
    let mut address = read_inner(inner)?;
    if !prefixes.is_empty() {
        address.url.insert_str(0, &prefixes.to_ascii_lowercase());
    }
    Some(address)
}

/// The normal form of a URI; None for what is an address and has none.
pub fn normal_form(uri: &str) -> Option<String> {
    match read(uri) {
        Some(address) if address.unreadable => None,
        Some(address) => Some(address.url),
        None => Some(opaque(&without_breaks(uri))),
    }
}

/// The host that clients read from what has no scheme (`127.0.0.1:80/x`); None if it is none.
pub fn bare_host(text: &str) -> Option<(String, bool)> {
    let cleaned = cleaned(text);
    let end = cleaned.find(['/', '?', '#', '\\']).unwrap_or(cleaned.len());
    let authority = &cleaned[..end];
    let url = Url::parse(&format!("http://{authority}/")).ok()?;
    let host = host_text(url.host()?);
    Some((host, is_disguised(authority, url.host())))
}

fn read_inner(text: &str) -> Option<Address> {
    let bytes = text.as_bytes();
    let slashes = |at: usize| bytes[at..].iter().take_while(|byte| is_slash(**byte)).count();
    let Some(colon) = scheme_end(text) else {
        let count = slashes(0);
        let names_host = count >= 2 && bytes.get(count).is_some_and(|byte| !matches!(byte, 0..=b' ' | b'?' | b'#'));
        return names_host.then(|| special("https", String::new(), &text[count..]));
    };
    let scheme = text[..colon].to_ascii_lowercase();
    let after = colon + 1;
    if scheme == "file" {
        return Some(file(&text[after..]));
    }
    if SPECIAL.contains(&scheme.as_str()) {
        let rest = &text[after + slashes(after)..];
        return Some(special(&scheme.clone(), scheme, rest));
    }
    if slashes(after) >= 2 {
        return Some(other(scheme, &text[after..]));
    }
    None
}

// -- the schemes of the web --------------------------------------------------------------------------------------------

/// An address of the web; `rest` begins with its authority.
fn special(read_as: &str, scheme: String, rest: &str) -> Address {
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let mut address = Address { scheme, ..Address::default() };
    address.misleading = shows_another(rest);
    address.user = authority.contains('@');
    address.shown = shown(behind_user(authority));
    address.climbs = climbs(&rest[end..]);
    match Url::parse(&format!("{read_as}://{rest}")) {
        Ok(url) => {
            if let Some(host) = url.host() {
                address.disguised = is_disguised(behind_user(authority), url.host());
                address.hosts.push(host_text(host));
            }
            // Nothing between two dots: no resolver knows such a name.
            if let Some(Host::Domain(name)) = url.host() {
                address.unreadable = name.is_empty() || name.starts_with('.') || name.contains("..");
                address.template = name.bytes().all(|byte| byte == b'.');
            }
            address.fragment = url.fragment().is_some_and(|fragment| !fragment.is_empty());
            address.url = web_form(&url, address.hosts.first().map_or("", String::as_str));
        }
        Err(_) => {
            address.unreadable = true;
            address.template = authority.is_empty() || is_template(authority);
        }
    }
    address
}

fn web_form(url: &Url, host: &str) -> String {
    let mut out = format!("{}://{host}", url.scheme());
    if let Some(port) = url.port() {
        out.push(':');
        out.push_str(&port.to_string());
    }
    out.push_str(&unreserved(url.path()));
    if let Some(query) = url.query() {
        out.push('?');
        out.push_str(&unreserved(query));
    }
    out
}

/// `file:` in all its spellings. Escaped slashes are slashes to who opens the file, and slashes in a row are one.
fn file(rest: &str) -> Address {
    let mut address = Address { scheme: "file".to_owned(), ..Address::default() };
    let Ok(url) = Url::parse(&format!("file:{rest}")) else {
        address.unreadable = true;
        address.template = is_template(rest);
        return address;
    };
    let host = url.host().map(host_text).unwrap_or_default();
    let path = unreserved(url.path());
    let written = rest.split(['?', '#']).next().unwrap_or_default();
    address.climbs = climbs(&format!("/{written}"));
    address.url = format!("file://{host}{}", resolved(&with_slashes(&path)));
    if !host.is_empty() {
        address.hosts.push(host);
    }
    address
}

// -- all other schemes -------------------------------------------------------------------------------------------------

/// An address of another scheme; `rest` begins with its slashes. Its host is read as that of the web, where it can be:
/// clients hand it to the same resolver.
fn other(scheme: String, rest: &str) -> Address {
    let rest = &rest[2..];
    let end = rest.find(['/', '?', '#', '\\', ';']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let hosts = behind_user(authority);
    let mut address = Address { scheme, ..Address::default() };
    address.user = hosts.len() < authority.len();
    address.shown = shown(hosts);
    address.climbs = climbs(tail);
    let mut spelled = Vec::new();
    for host in hosts.split(',').take(MAX_HOSTS) {
        let (name, port) = split_port(host);
        let read = Url::parse(&format!("http://{name}/")).ok();
        let known = read.as_ref().and_then(Url::host);
        address.disguised |= is_disguised(name, known.clone());
        let name = known.map_or_else(|| unreserved(name).to_lowercase(), host_text);
        spelled.push(format!("{name}{port}"));
        if !name.is_empty() {
            address.hosts.push(name);
        }
    }
    address.unreadable = hosts.split(',').nth(MAX_HOSTS).is_some() || has_controls(hosts);
    let stop = tail.find(['?', '#']).unwrap_or(tail.len());
    let (path, more) = tail.split_at(stop);
    address.url =
        format!("{}://{}{}{}", address.scheme, spelled.join(","), resolved(&unreserved(path)), unreserved(more));
    address
}

/// What is no address with a host: its scheme in lower case, and unreserved characters unescaped.
fn opaque(uri: &str) -> String {
    match scheme_end(uri) {
        Some(colon) => format!("{}{}", uri[..colon].to_ascii_lowercase(), unreserved(&uri[colon..])),
        None => unreserved(uri).into_owned(),
    }
}

// -- pieces ------------------------------------------------------------------------------------------------------------

/// Without the spaces and control characters around it, and without tabs and line breaks: clients skip them. Wide
/// letters of the scheme are plain ones to who folds text first.
fn cleaned(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim_matches(|sign: char| {
        sign <= ' '
            || sign.is_whitespace()
            || matches!(sign, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
    });
    let unbroken = without_breaks(trimmed);
    let is_narrow = |sign: char| narrow(sign) == sign;
    let scheme = unbroken.chars().take_while(|sign| u8::try_from(narrow(*sign)).is_ok_and(is_scheme_byte));
    let slashes =
        unbroken.chars().skip(scheme.clone().count()).take_while(|sign| matches!(narrow(*sign), ':' | '/' | '\\'));
    if scheme.clone().all(is_narrow) && slashes.clone().all(is_narrow) {
        return unbroken;
    }
    let count = scheme.count() + slashes.count();
    Cow::Owned(unbroken.chars().enumerate().map(|(at, sign)| if at < count { narrow(sign) } else { sign }).collect())
}

/// The plain form of a wide sign (U+FF01 to U+FF5E).
pub(super) fn narrow(sign: char) -> char {
    match sign {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(sign) - 0xfee0).unwrap_or(sign),
        _ => sign,
    }
}

fn without_breaks(text: &str) -> Cow<'_, str> {
    if text.contains(['\t', '\n', '\r']) {
        Cow::Owned(text.replace(['\t', '\n', '\r'], ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Where the colon of a scheme is.
fn scheme_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let length = bytes.iter().take_while(|byte| is_scheme_byte(**byte)).count();
    (bytes.first()?.is_ascii_alphabetic() && bytes.get(length) == Some(&b':')).then_some(length)
}

pub(super) fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_')
}

pub(super) fn is_slash(byte: u8) -> bool {
    byte == b'/' || byte == b'\\'
}

fn split_prefixes(text: &str) -> (&str, &str) {
    let mut at = 0;
    for _ in 0..MAX_PREFIXES {
        let rest = &text[at..];
        let Some(colon) = scheme_end(rest) else { break };
        let inner = &rest[colon + 1..];
        let scheme = rest[..colon].to_ascii_lowercase();
        if SPECIAL.contains(&scheme.as_str()) || inner.bytes().next().is_some_and(is_slash) {
            break;
        }
        let Some(next) = scheme_end(inner) else { break };
        let is_special = SPECIAL.contains(&inner[..next].to_ascii_lowercase().as_str());
        if !is_special && !inner.contains("//") {
            break;
        }
        at += colon + 1;
    }
    text.split_at(at)
}

fn behind_user(authority: &str) -> &str {
    authority.rfind('@').map_or(authority, |at| &authority[at + 1..])
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rfind(':') {
        Some(at) if host[at + 1..].bytes().all(|byte| byte.is_ascii_digit()) => host.split_at(at),
        _ => (host, ""),
    }
}

/// Whether what stands before the `@` looks like the host: a dot or a backslash in it, and no password that is more
/// than a port. A backslash ends the host for one reader, and is part of the user for another.
fn shows_another(rest: &str) -> bool {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else { return false };
    let user = &rest[..at];
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    user.contains('\\') || name.contains('.') && password.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn host_text(host: Host<&str>) -> String {
    match host {
        Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        Host::Ipv4(number) => number.to_string(),
        Host::Ipv6(number) => format!("[{}]", short(number)),
    }
}

/// IPv6 as the WHATWG writes it: no part of it in dots.
fn short(number: Ipv6Addr) -> String {
    match Url::parse(&format!("http://[{number}]/")) {
        Ok(url) => url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
        Err(_) => number.to_string(),
    }
}

fn is_disguised(authority: &str, host: Option<Host<&str>>) -> bool {
    let Some(Host::Ipv4(number)) = host else { return false };
    let (name, _) = split_port(authority);
    let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    let plain = idna::domain_to_ascii_cow(decoded.as_bytes(), idna::AsciiDenyList::EMPTY);
    plain.map_or(true, |plain| plain.trim_end_matches('.') != number.to_string())
}

fn shown(host: &str) -> Option<String> {
    let (name, _) = split_port(host);
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy().to_lowercase();
    (!name.is_ascii() || name.contains("xn--")).then_some(name)
}

fn has_controls(text: &str) -> bool {
    text.bytes().any(|byte| byte < b' ' || byte == 0x7f)
}

/// Whether a place for the host is left open, as in `https://{host}/`, `http://%s`, `http://HOST:PORT`.
fn is_template(authority: &str) -> bool {
    let bytes = authority.as_bytes();
    let is_escape = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    let has_marks = bytes.iter().enumerate().any(|(at, byte)| match byte {
        b'{' | b'}' | b'<' | b'>' | b'$' | b'|' | b'^' | b'*' | b'`' | b'"' | b'\'' | b'(' | b')' => true,
        b'%' => !is_escape(at),
        _ => false,
    });
    let names_port = authority.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && !authority.contains('[')
    });
    (has_marks || names_port) && !has_controls(authority)
}

/// Whether a path goes up, its escapes read once.
fn climbs(tail: &str) -> bool {
    let path = tail.split(['?', '#']).next().unwrap_or_default();
    if !path.contains(['.', '%']) {
        return false;
    }
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    decoded.split(['/', '\\']).any(|part| part == "..")
}

fn with_slashes(path: &str) -> String {
    let slashed = path.replace("%2F", "/").replace("%5C", "/").replace('\\', "/");
    let mut out = String::with_capacity(slashed.len());
    for sign in slashed.chars() {
        if sign != '/' || !out.ends_with('/') {
            out.push(sign);
        }
    }
    out
}

/// A path without its dot segments.
fn resolved(path: &str) -> String {
    if !path.contains("/.") {
        return path.to_owned();
    }
    let parts: Vec<&str> = path.split('/').collect();
    let mut kept: Vec<&str> = Vec::with_capacity(parts.len());
    for part in &parts {
        match *part {
            ".." if kept.len() > 1 => {
                kept.pop();
            }
            "." | ".." => {}
            _ => kept.push(part),
        }
    }
    if matches!(parts.last(), Some(&"." | &"..")) {
        kept.push("");
    }
    kept.join("/")
}

/// Escapes of unreserved characters read, all others in capitals; a percent sign that begins none is escaped.
fn unreserved(text: &str) -> Cow<'_, str> {
    let read = |rest: &str, out: &mut String| {
        let two = rest.get(1..3).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match two.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            // Else it could become an escape when another one behind it is read.
            None => {
                out.push_str("%25");
                return Some(1);
            }
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') => {
                out.push(char::from(byte));
            }
            Some(byte) => out.push_str(&format!("%{byte:02X}")),
        }
        Some(3)
    };
    replaced(text, |byte| byte == b'%', read)
}
