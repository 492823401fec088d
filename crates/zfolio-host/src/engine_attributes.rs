//! Attributes of engines as JSON has them.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use zfolio_runtime::options::Attributes;

/// The value of an attribute of the engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum AttributeShown {
    /// One of several words.
    Name(&'static str),
    /// Any other.
    Number(u64),
}

impl fmt::Display for AttributeShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// All of them, by name.
#[must_use]
pub fn shown(attributes: &Attributes) -> BTreeMap<&'static str, AttributeShown> {
    let all = Attributes::NAMES.into_iter().zip(attributes.numbers());
    let all = all.map(|(name, number)| {
        let value = match name {
            "sync_mode" => AttributeShown::Name(attributes.sync_mode.name()),
            "decompress" => AttributeShown::Name(attributes.decompress.name()),
            _ => AttributeShown::Number(number),
        };
        (name, value)
    });
    all.collect()
}
