//! Character references of HTML: numbers, and the names of ASCII signs.
#![forbid(unsafe_code)]

/// What a reference at the beginning of a text means, and its length.
pub fn reference(text: &str) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    if bytes.get(1) == Some(&b'#') {
        let is_hex = matches!(bytes.get(2), Some(b'x' | b'X'));
        let from = if is_hex { 3 } else { 2 };
        let is_digit = |byte: &&u8| if is_hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
        let length = bytes[from..].iter().take_while(is_digit).count();
        if length == 0 {
            return None;
        }
        let digits = text[from..from + length].trim_start_matches('0');
        let point = u32::from_str_radix(if digits.is_empty() { "0" } else { digits }, if is_hex { 16 } else { 10 });
        let sign = point.ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        let end = from + length;
        return Some((sign.to_string(), end + usize::from(bytes.get(end) == Some(&b';'))));
    }
    let length = bytes[1..].iter().take(16).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = &text[1..=length];
    if bytes.get(1 + length) == Some(&b';') {
        return named(name).map(|sign| (sign.to_owned(), length + 2));
    }
    let known =
        ["amp", "AMP", "lt", "LT", "gt", "GT", "quot", "QUOT"].into_iter().find(|known| name.starts_with(known))?;
    named(known).map(|sign| (sign.to_owned(), known.len() + 1))
}

/// What a name of HTML stands for, if that is ASCII.
fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "AMP" | "amp" => "&",
        "GT" | "gt" | "nvgt" => ">",
        "Hat" => "^",
        "LT" | "lt" | "nvlt" => "<",
        "NewLine" => "\n",
        "QUOT" | "quot" => "\"",
        "Tab" => "\t",
        "UnderBar" | "lowbar" => "_",
        "VerticalLine" | "verbar" | "vert" => "|",
        "apos" => "'",
        "ast" | "midast" => "*",
        "bne" | "equals" => "=",
        "bsol" => "\\",
        "colon" => ":",
        "comma" => ",",
        "commat" => "@",
        "dollar" => "$",
        "excl" => "!",
        "fjlig" => "fj",
        "grave" => "`",
        "lbrace" | "lcub" => "{",
        "lbrack" | "lsqb" => "[",
        "lpar" => "(",
        "num" => "#",
        "percnt" => "%",
        "period" => ".",
        "plus" => "+",
        "quest" => "?",
        "rbrace" | "rcub" => "}",
        "rbrack" | "rsqb" => "]",
        "rpar" => ")",
        "semi" => ";",
        "sol" => "/",
        _ => return None,
    })
}
