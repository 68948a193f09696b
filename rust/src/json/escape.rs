//! Text as a JSON string, with the same escapes as orjson.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
/// Bytes that are escaped at once: bounds the memory that is reserved for their escapes.
const BLOCK: usize = 1 << 14;
/// The length of the longest escape, in bytes.
const LONGEST: usize = 6;

/// Writes a text as a JSON string.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for block in text.as_bytes().chunks(BLOCK) {
        let is_plain = |chunk: &[u8]| !chunk.iter().fold(false, |found, byte| found | is_escaped(*byte));
        let plain = block.chunks_exact(32).take_while(|chunk| is_plain(chunk)).count() * 32;
        out.extend_from_slice(&block[..plain]);
        escaped(out, &block[plain..]);
    }
    out.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Escapes the bytes of a text, eight at a time: all eight are written, and from the first that needs an escape once
/// more.
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() * LONGEST + 8);
    let mut rest = bytes;
    let mut length = out.len();
    while !rest.is_empty() {
        let word = first_eight(rest);
        let here = rest.len().min(8);
        // SAFETY: each byte before this one took at most `LONGEST` of the reserved bytes, and eight more are reserved.
        unsafe { out.as_mut_ptr().add(length).cast::<[u8; 8]>().write_unaligned(word.to_le_bytes()) };
        let (quote, slash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        // The high bit of each byte that needs an escape. A borrow may also set that of a later byte, but never of an
        // earlier one, and only the first is used.
        let found = HIGHS
            & ((word.wrapping_sub(ONES * 0x20) & !word)
                | (quote.wrapping_sub(ONES) & !quote)
                | (slash.wrapping_sub(ONES) & !slash));
        let plain = found.trailing_zeros() as usize / 8;
        if plain >= here {
            length += here;
            rest = &rest[here..];
        } else {
            let (escape, size) = escape(rest[plain]);
            length += plain;
            // SAFETY: as above.
            unsafe { out.as_mut_ptr().add(length).cast::<[u8; 8]>().write_unaligned(escape) };
            length += size;
            rest = &rest[plain + 1..];
        }
    }
    // SAFETY: so many bytes were written.
    unsafe { out.set_len(length) };
}

/// Eight bytes, the first as the lowest; zeros after the end of the text.
fn first_eight(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*chunk);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (bytes.len() - 4));
    }
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The escape of a byte, and its length.
fn escape(byte: u8) -> ([u8; 8], usize) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            let digit = b"0123456789abcdef"[usize::from(byte & 15)];
            return ([b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), digit, 0, 0], 6);
        }
    };
    ([b'\\', short, 0, 0, 0, 0, 0, 0], 2)
}
