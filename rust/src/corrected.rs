//! Builtins as OPA answers them, where the crate answers otherwise [ENG-2].
//!
//! `count` of a text is its characters; an IPv4 address in IPv6's spelling is in IPv4 networks; what is unescaped loses
//! nothing, and fails where an escape is none; replacements are made all at once.
#![forbid(unsafe_code)]

use crate::builtins::Function;
use anyhow::{anyhow, Result};
use regorus::unstable::{Expr, Ref, Span, BUILTINS};
use regorus::Value;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// What answers in place of the crate's own.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "cmf.member_2" => |_, _, args, _| Ok(Value::from(is_member(None, &args[0], &args[1]))),
        "cmf.member_3" => |_, _, args, _| Ok(Value::from(is_member(Some(&args[0]), &args[1], &args[2]))),
        "count" => count,
        "net.cidr_contains" => cidr_contains,
        "strings.replace_n" => replace_n,
        "urlquery.decode" => query_decode,
        "urlquery.decode_object" => query_decode_object,
        _ => return None,
    })
}

/// How many arguments the functions take that only we call.
pub fn arity(name: &str) -> Option<u8> {
    match name {
        "cmf.member_2" => Some(2),
        "cmf.member_3" => Some(3),
        _ => None,
    }
}

fn is_member(key: Option<&Value>, value: &Value, collection: &Value) -> bool {
    match (collection, key) {
        (Value::Array(items), None) => items.contains(value),
        (Value::Object(members), None) => members.values().any(|member| member == value),
        (Value::Set(items), None) => items.contains(value),
        (Value::Array(_) | Value::Object(_), Some(key)) => collection[key] == *value,
        _ => false,
    }
}

fn of_crate(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let function = BUILTINS.get(name).ok_or_else(|| anyhow!("no such builtin"))?;
    (function.0)(span, params, args, strict)
}

fn text(value: Option<&Value>) -> Result<&Arc<str>> {
    match value {
        Some(Value::String(text)) => Ok(text),
        _ => Err(anyhow!("not a string")),
    }
}

fn count(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let count = match args {
        [Value::String(text)] => text.chars().count(),
        [Value::Array(items)] => items.len(),
        [Value::Set(items)] => items.len(),
        [Value::Object(members)] => members.len(),
        _ => return Err(anyhow!("nothing that can be counted")),
    };
    Ok(Value::from(u64::try_from(count)?))
}

fn cidr_contains(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let spelled = text(args.get(1))?;
    if let Some(network) = text(args.first())?.split_once('/').and_then(plain_network) {
        return cidr_contains(span, params, &[Value::from(network), args[1].clone()], strict);
    }
    match spelled.parse::<Ipv6Addr>().ok().and_then(|address| address.to_ipv4_mapped()) {
        Some(address) => {
            let plain = [args[0].clone(), Value::from(address.to_string())];
            of_crate("net.cidr_contains", span, params, &plain, strict)
        }
        None => of_crate("net.cidr_contains", span, params, args, strict),
    }
}

/// A network of IPv4 that is spelled in IPv6.
fn plain_network((address, bits): (&str, &str)) -> Option<String> {
    let address = address.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()?;
    let bits = bits.parse::<u32>().ok().filter(|bits| (96..=128).contains(bits))?;
    Some(format!("{address}/{}", bits - 96))
}

/// At each place the first of the sorted texts that stands there is replaced, and what took its place is left alone.
fn replace_n(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let given = text(args.get(1))?;
    let Some(Value::Object(pairs)) = args.first() else { return Err(anyhow!("not an object")) };
    let mut by_first: BTreeMap<u8, Vec<(&str, &str)>> = BTreeMap::new();
    for (old, new) in pairs.iter() {
        let (old, new) = (text(Some(old))?, text(Some(new))?);
        let Some(&first) = old.as_bytes().first() else {
            return of_crate("strings.replace_n", span, params, args, strict); // stands everywhere
        };
        by_first.entry(first).or_default().push((old, new));
    }
    by_first.values_mut().for_each(|listed| listed.sort_unstable());
    let mut made = String::with_capacity(given.len());
    let mut rest: &str = given;
    while let Some(next) = rest.chars().next() {
        let stands = |(old, _): &&(&str, &str)| rest.starts_with(*old);
        match by_first.get(&rest.as_bytes()[0]).and_then(|listed| listed.iter().find(stands)) {
            Some((old, new)) => {
                made.push_str(new);
                rest = &rest[old.len()..];
            }
            None => {
                made.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    Ok(Value::from(made))
}

fn query_decode(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    unescaped(text(args.first())?).map(Value::from)
}

fn query_decode_object(_: &Span, _: &[Ref<Expr>], args: &[Value], _: bool) -> Result<Value> {
    let mut found: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for pair in text(args.first())?.split('&').filter(|pair| !pair.is_empty()) {
        if pair.contains(';') {
            return Err(anyhow!("a semicolon separates nothing"));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(Value::from(unescaped(key)?)).or_default().push(Value::from(unescaped(value)?));
    }
    Ok(Value::from(found.into_iter().map(|(key, values)| (key, Value::from(values))).collect::<BTreeMap<_, _>>()))
}

fn unescaped(given: &str) -> Result<String> {
    let mut made = Vec::with_capacity(given.len());
    let mut bytes = given.bytes();
    while let Some(byte) = bytes.next() {
        made.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = digit().zip(digit()).ok_or_else(|| anyhow!("an escape that is none"))?;
                u8::try_from(high * 16 + low)?
            }
            other => other,
        });
    }
    Ok(String::from_utf8(made).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
