//! A hash of bytes under a secret: the value, at a secret place, of the polynomial whose coefficients they are.
//!
//! Modulo the prime 2^127 - 1, of blocks of 15 bytes, filled up with zeros to four or a multiple, and then the length. Two texts of up to n blocks are taken for one with a
//! probability of at most n / 2^126, whatever they are, as long as nobody learns of the secret or of what was hashed.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

pub(crate) type Print = [u8; 16];

const PRIME: u128 = u128::MAX >> 1;
const BLOCK: usize = 15;
/// Of the sixteen bytes that are read for a block.
const OF_BLOCK: u128 = u128::MAX >> 8;
/// Blocks that are added up at once, as none of them has to wait for another's product.
const AT_ONCE: usize = 4;
const READ: usize = AT_ONCE * BLOCK + 1;

/// The powers of the secret place, the highest first.
pub(crate) struct Secret([u128; AT_ONCE]);

impl Secret {
    /// Another one each time, that nobody can foretell.
    pub(crate) fn new() -> Self {
        let random = [RandomState::new(), RandomState::new()].map(|keys| u128::from(keys.hash_one(0_u8)));
        Self::at((random[0] << 64 | random[1]) & PRIME)
    }

    /// One that is known, for tests.
    pub(crate) fn at(place: u128) -> Self {
        let square = times(place, place);
        Self([times(square, square), times(square, place), square, place])
    }

    pub(crate) fn print(&self, bytes: &[u8]) -> Print {
        let (mut sum, mut rest) = (0, bytes);
        // One byte more is read than is taken of the last block.
        while let Some(some) = rest.first_chunk() {
            sum = self.further(sum, some);
            rest = &rest[AT_ONCE * BLOCK..];
        }
        let mut padded = [0; READ];
        padded[..rest.len()].copy_from_slice(rest);
        let sum = times(plus(self.further(sum, &padded), bytes.len() as u128), self.0[AT_ONCE - 1]);
        (if sum == PRIME { 0 } else { sum }).to_le_bytes()
    }

    fn further(&self, sum: u128, some: &[u8; READ]) -> u128 {
        let [first, second, third, place] = self.0;
        let one = times(plus(sum, block(some, 0)), first);
        let two = times(block(some, 1), second);
        let three = times(block(some, 2), third);
        let four = times(block(some, 3), place);
        plus(plus(one, two), plus(three, four))
    }
}

fn block(bytes: &[u8; READ], place: usize) -> u128 {
    bytes[place * BLOCK..].first_chunk().map_or(0, |some| u128::from_le_bytes(*some) & OF_BLOCK)
}

/// Of two numbers up to the prime, one that is up to the prime as well.
fn plus(one: u128, other: u128) -> u128 {
    let sum = one + other;
    (sum & PRIME) + (sum >> 127)
}

fn times(one: u128, other: u128) -> u128 {
    const HALF: u128 = u64::MAX as u128;
    let (low, high) = ((one & HALF) * (other & HALF), (one >> 64) * (other >> 64));
    // Neither is above 2^127, as no upper half is above 2^63.
    let middle = (one & HALF) * (other >> 64) + (one >> 64) * (other & HALF);
    let (low, carried) = low.overflowing_add(middle << 64);
    let high = high + (middle >> 64) + u128::from(carried);
    plus(low & PRIME, low >> 127 | high << 1)
}
