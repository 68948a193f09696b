//! A hash of bytes under a secret: the value, at a secret point, of the polynomial whose coefficients they are.
//!
//! The coefficients are blocks of 15 bytes, filled up with zero blocks to a multiple of four, and then the length; the
//! value is taken modulo the prime 2^127 - 1. Two different texts of up to n blocks have the same hash with a
//! probability of at most n / 2^126, as long as neither the secret nor a hash is disclosed.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

pub(crate) type Hash = [u8; 16];

const PRIME: u128 = u128::MAX >> 1;
const BLOCK: usize = 15;
/// The part of the sixteen bytes read for a block that belongs to it.
const OF_BLOCK: u128 = u128::MAX >> 8;
/// Blocks that are multiplied independently of each other, which lets the processor do so in parallel.
const AT_ONCE: usize = 4;
const READ: usize = AT_ONCE * BLOCK + 1;

/// The powers of the secret point, the highest first.
pub(crate) struct Secret([u128; AT_ONCE]);

impl Secret {
    /// A new random secret.
    pub(crate) fn new() -> Self {
        let random = [RandomState::new(), RandomState::new()].map(|keys| u128::from(keys.hash_one(0_u8)));
        Self::at((random[0] << 64 | random[1]) & PRIME)
    }

    /// A known one, for tests.
    pub(crate) fn at(point: u128) -> Self {
        let square = times(point, point);
        Self([times(square, square), times(square, point), square, point])
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> Hash {
        let (mut sum, mut rest) = (0, bytes);
        // One byte more is read than belongs to the last block.
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
        let [fourth_power, cube, square, point] = self.0;
        let one = times(plus(sum, block(some, 0)), fourth_power);
        let two = times(block(some, 1), cube);
        let three = times(block(some, 2), square);
        let four = times(block(some, 3), point);
        plus(plus(one, two), plus(three, four))
    }
}

fn block(bytes: &[u8; READ], place: usize) -> u128 {
    bytes[place * BLOCK..].first_chunk().map_or(0, |some| u128::from_le_bytes(*some) & OF_BLOCK)
}

/// The sum of two numbers up to the prime, as a number up to the prime.
fn plus(one: u128, other: u128) -> u128 {
    let sum = one + other;
    (sum & PRIME) + (sum >> 127)
}

fn times(one: u128, other: u128) -> u128 {
    const HALF: u128 = u64::MAX as u128;
    let (low, high) = ((one & HALF) * (other & HALF), (one >> 64) * (other >> 64));
    // Neither product is above 2^127, since no upper half is above 2^63.
    let middle = (one & HALF) * (other >> 64) + (one >> 64) * (other & HALF);
    let (low, carried) = low.overflowing_add(middle << 64);
    let high = high + (middle >> 64) + u128::from(carried);
    plus(low & PRIME, low >> 127 | high << 1)
}
