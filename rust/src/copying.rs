//! Plain JSON as Python holds it, copied all the way down beside the text that says it: half of what it takes to parse that.

use crate::value_bytes::{next, Item};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// A copy of `item`, a list, that shares no container with it and is what `text` says; None if it is something else, if
/// that is not plain to see, if there is a null in it, or if it has more than `levels` levels.
///
/// `text` is what `cmf.codec.dumps` wrote of such a value.
#[pyfunction]
pub(crate) fn plain_copy<'py>(
    item: &Bound<'py, PyAny>,
    text: &Bound<'py, PyBytes>,
    levels: u32,
) -> Option<Bound<'py, PyAny>> {
    let mut copier = Copier { left: Some(text.as_bytes()).filter(|text| !text.contains(&b'\\'))? };
    let made = copier.container(item, levels)?;
    copier.left.is_empty().then_some(made)
}

struct Copier<'a> {
    left: &'a [u8],
}

impl Copier<'_> {
    /// The copy is made first, and then what is inside it replaced: nobody else can change it meanwhile.
    fn container<'py>(&mut self, item: &Bound<'py, PyAny>, levels: u32) -> Option<Bound<'py, PyAny>> {
        let levels = levels.checked_sub(1)?;
        if let Ok(members) = item.cast_exact::<PyDict>() {
            let made = members.copy().ok()?;
            let (mut at, mut before) = (0, b'{');
            while let Some((key, held)) = next(&made, &mut at) {
                self.sign(before)?;
                self.string(key)?;
                self.sign(b':')?;
                if !self.leaf(held)? {
                    let (key, held) = (key.to_owned(), held.to_owned());
                    made.set_item(key, self.container(&held, levels)?).ok()?;
                }
                before = b',';
            }
            self.end(before, b'{', b'}')?;
            return Some(made.into_any());
        }
        let items = item.cast_exact::<PyList>().ok()?;
        let made = items.get_slice(0, items.len());
        let mut before = b'[';
        for at in 0..made.len() {
            self.sign(before)?;
            let held = made.get_item(at).ok()?;
            if !self.leaf(held.as_borrowed())? {
                made.set_item(at, self.container(&held, levels)?).ok()?;
            }
            before = b',';
        }
        self.end(before, b'[', b']')?;
        Some(made.into_any())
    }

    /// Whether it is text, a number or a truth, and the text says it; None if the text says something else.
    fn leaf(&mut self, item: Item<'_, '_>) -> Option<bool> {
        if item.cast_exact::<PyString>().is_ok() {
            self.string(item)?;
        } else if let Ok(held) = item.cast_exact::<PyBool>() {
            self.word(if held.is_true() { b"true" } else { b"false" })?;
        } else if let Ok(held) = item.cast_exact::<PyInt>() {
            let held = held.extract::<i64>().ok()?;
            (self.number()?.parse() == Ok(held)).then_some(())?;
        } else if let Ok(held) = item.cast_exact::<PyFloat>() {
            let said = self.number()?;
            // One is a whole number, and 1.0 is not.
            (said.contains(['.', 'e']) && said.parse() == Ok(held.value())).then_some(())?;
        } else {
            return Some(false);
        }
        Some(true)
    }

    /// As nothing in the text is escaped, it stands for itself.
    fn string(&mut self, item: Item<'_, '_>) -> Option<()> {
        let held = item.cast_exact::<PyString>().ok()?;
        let held = held.to_str().ok()?.as_bytes();
        let (said, left) = self.left.split_at_checked(held.len() + 2)?;
        self.left = left;
        matches!(said, [b'"', inner @ .., b'"'] if inner == held).then_some(())
    }

    fn number(&mut self) -> Option<&str> {
        let length = self.left.iter().position(|byte| matches!(byte, b',' | b']' | b'}'))?;
        let (said, left) = self.left.split_at_checked(length)?;
        self.left = left;
        std::str::from_utf8(said).ok()
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.left = self.left.strip_prefix(word)?;
        Some(())
    }

    fn sign(&mut self, sign: u8) -> Option<()> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        (*first == sign).then_some(())
    }

    /// The bracket that closes; and the one that opens, if there was nothing between them.
    fn end(&mut self, before: u8, opens: u8, closes: u8) -> Option<()> {
        if before == opens {
            self.sign(opens)?;
        }
        self.sign(closes)
    }
}
