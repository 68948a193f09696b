//! Addresses as browsers and clients read them, and where they stand in the text of a view [VIEW-9] [INP-9].
//!
//! - [`address`] reads one address (the WHATWG URL Standard, and what clients of other schemes do) and gives its normal
//!   form;
//! - [`arguments`] finds addresses in the arguments of a call, and in text inside of them;
//! - [`markup`] finds what a renderer of Markdown or HTML loads or links to, with its place;
//! - [`facts`] writes both for policy.
#![forbid(unsafe_code)]

pub mod address;
pub mod arguments;
pub mod facts;
pub mod markup;
