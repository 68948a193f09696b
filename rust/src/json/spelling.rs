//! Whether a JSON text differs from what `cmf.json.codec.dumps` writes, or would write, only in spaces between its tokens.
//!
//! Then nothing was lost when it was parsed: no object has a key twice, no number was rounded. The text has to be valid
//! JSON: of other text the answer means nothing, but is safe to ask for.
#![forbid(unsafe_code)]

/// Bytes that two texts are compared by, as long as they are the same.
const STEP: usize = 16;

/// Whether two texts are the same once the spaces of JSON are left out of both, those in strings too.
pub fn same_but_spaces(mut left: &[u8], mut right: &[u8]) -> bool {
    loop {
        // Where both have the same bytes, both can do without them, spaces or not.
        while let (Some((one, after)), Some((other, beyond))) = (left.split_first_chunk(), right.split_first_chunk()) {
            let (one, other): (&[u8; STEP], &[u8; STEP]) = (one, other);
            if one != other {
                break;
            }
            (left, right) = (after, beyond);
        }
        while let ([one, after @ ..], [other, beyond @ ..]) = (left, right) {
            if one != other {
                break;
            }
            (left, right) = (after, beyond);
        }
        (left, right) = (behind_spaces(left), behind_spaces(right));
        if left.first() != right.first() {
            return false;
        }
        if left.is_empty() {
            return true;
        }
    }
}

fn behind_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\r' | b'\t', after @ ..] = text {
        text = after;
    }
    text
}
