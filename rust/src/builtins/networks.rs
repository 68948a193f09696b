//! Builtins on networks and versions as OPA answers them, where regorus answers otherwise [ENG-2].
//!
//! - An IPv4 address that is written as IPv6 is in IPv4 networks.
//! - A value that is not a string is not a network or a version; a `v` before a version is ignored.
#![forbid(unsafe_code)]

use crate::builtins::{of_regorus, string, Function};
use anyhow::Result;
use regorus::unstable::{Expr, Ref, Span};
use regorus::Value;
use std::net::Ipv6Addr;

/// The function to use in place of the one of regorus.
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "net.cidr_contains" => cidr_contains,
        "net.cidr_is_valid" => |span, params, args, strict| match args {
            [Value::String(_)] => of_regorus("net.cidr_is_valid", span, params, args, strict),
            _ => Ok(Value::from(false)),
        },
        "semver.compare" => |span, params, args, strict| versions("semver.compare", span, params, args, strict),
        "semver.is_valid" => |span, params, args, strict| versions("semver.is_valid", span, params, args, strict),
        _ => return None,
    })
}

fn cidr_contains(span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let address = string(args, 1)?;
    if let Some(network) = string(args, 0)?.split_once('/').and_then(ipv4_network) {
        return cidr_contains(span, params, &[Value::from(network), args[1].clone()], strict);
    }
    match address.parse::<Ipv6Addr>().ok().and_then(|address| address.to_ipv4_mapped()) {
        Some(address) => {
            let plain = [args[0].clone(), Value::from(address.to_string())];
            of_regorus("net.cidr_contains", span, params, &plain, strict)
        }
        None => of_regorus("net.cidr_contains", span, params, args, strict),
    }
}

/// A network of IPv4 addresses that is written as IPv6, as IPv4.
fn ipv4_network((address, bits): (&str, &str)) -> Option<String> {
    let address = address.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()?;
    let bits = bits.parse::<u32>().ok().filter(|bits| (96..=128).contains(bits))?;
    Some(format!("{address}/{}", bits - 96))
}

/// The versions without a `v` before them.
fn versions(name: &str, span: &Span, params: &[Ref<Expr>], args: &[Value], strict: bool) -> Result<Value> {
    let plain: Vec<Value> = args
        .iter()
        .map(|arg| match arg {
            Value::String(text) => Value::from(text.strip_prefix('v').unwrap_or(text)),
            other => other.clone(),
        })
        .collect();
    match plain.as_slice() {
        [Value::String(_)] | [_, _] => of_regorus(name, span, params, &plain, strict),
        _ => Ok(Value::from(false)),
    }
}
