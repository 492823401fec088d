//! Schemas of the JSON that the command writes, where a type's own do not come out of its derive.

use schemars::generate::SchemaSettings;
pub use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The schema of what is written of a `T`: JSON Schema, draft 2020-12.
pub fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

/// An object with all of these keys and no other, each a `T`.
pub fn keys<'a, T: JsonSchema>(
    names: impl Iterator<Item = &'a str>,
    of: &mut SchemaGenerator,
) -> Schema {
    let each = of.subschema_for::<T>().to_value();
    let properties: Map<String, Value> =
        names.map(|name| (name.to_owned(), each.clone())).collect();
    let required: Vec<&String> = properties.keys().collect();
    let object = json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    });
    Schema::try_from(object).unwrap_or_default()
}

/// A type that is serialized as another has that one's schema.
macro_rules! shown_as {
    ($type:ty, $shown:ty, $name:literal) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(of: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$shown as schemars::JsonSchema>::json_schema(of)
            }
        }
    };
}
pub(crate) use shown_as;
