//! The description of the interface (OpenAPI 3.1), from the table of routes and the types.

use super::routes::{Carries, Gives, Of, ROUTES, Route, Scope};
use crate::problem::STATUSES;
use serde_json::{Map, Value, json};
use wavelock_client::api::{Field, TYPES, Type};

/// The description, as `docs/openapi.json` has it.
#[must_use]
pub fn openapi() -> String {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
    }
    let mut schemas: Map<String, Value> =
        TYPES.iter().map(|found| (found.name.to_owned(), object(found))).collect();
    let word = |words: &[&str]| json!({"type": "string", "enum": words});
    schemas.insert("Role".into(), word(&["viewer", "operator", "admin"]));
    let states = ["recovering", "running", "paused", "ended", "failed"];
    schemas.insert("State".into(), word(&states));
    schemas.insert("Overrun".into(), word(&["throttle", "demote", "end"]));
    let classes = ["urgent", "interactive", "normal", "batch", "idle"];
    schemas.insert("Class".into(), word(&classes));
    schemas.insert("Empty".into(), json!({"type": "object", "additionalProperties": false}));
    let whole = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wavelock serve",
            "version": "1",
            "description": "Hosts recorded machines. Every change is an input of the machine, \
                answered when it is durable with the frame that takes it. See docs/serve.md.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    });
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

fn operation(route: &Route) -> Value {
    let mut parameters = Vec::new();
    for part in route.path.split('/') {
        if let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            let schema = match name {
                "machine" => name_schema(),
                "segment" => json!({"type": "integer", "minimum": 1}),
                "module" => json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
                _ => json!({"type": "string", "minLength": 1}),
            };
            let parameter = json!({"name": name, "in": "path", "required": true, "schema": schema});
            parameters.push(parameter);
        }
    }
    for parameter in route.query {
        let schema = match parameter.of {
            Of::Number => integer(u64::MAX),
            Of::Text => json!({"type": "string", "minLength": 1}),
        };
        parameters.push(json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "schema": schema,
        }));
    }
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": right(route),
        "parameters": parameters,
        "responses": responses(route),
        "security": match route.scope {
            Scope::Public => json!([]),
            _ => json!([{"token": []}]),
        },
    });
    let body = match route.carries {
        Carries::Nothing | Carries::Upgrade => return operation,
        Carries::Json(name) => json!({"application/json": {"schema": reference(name)}}),
        Carries::Module => json!({"application/wasm": {"schema": {}}}),
    };
    operation["requestBody"] = json!({"required": true, "content": body});
    operation
}

fn right(route: &Route) -> String {
    let role = format!("{:?}", route.role).to_lowercase();
    match route.scope {
        Scope::Public => "Needs no token.".into(),
        Scope::Any => format!("Needs a token with the role {role}."),
        Scope::Machine => format!("Needs a token with the role {role} for the machine."),
        Scope::All => format!("Needs a token with the role {role} for all machines."),
    }
}

fn responses(route: &Route) -> Value {
    let of = |kind: &str, schema: Value| json!({kind: {"schema": schema}});
    let (status, content) = match route.gives {
        Gives::Json(name) => ("200", of("application/json", reference(name))),
        Gives::Nothing => ("200", of("application/json", reference("Empty"))),
        Gives::Object => ("200", of("application/json", json!({"type": "object"}))),
        Gives::Text => ("200", of("text/plain", json!({"type": "string"}))),
        Gives::Bytes => ("200", of("application/octet-stream", json!({}))),
        Gives::Upgrade => ("101", json!({})),
    };
    let mut responses = Map::new();
    let mut done = json!({"description": "Done"});
    if status == "200" {
        done["content"] = content;
    } else {
        done["description"] = "The WebSocket is open".into();
    }
    responses.insert(status.into(), done);
    for (status, code) in STATUSES {
        let refused = of("application/json", reference("Refusal"));
        let refusal = json!({"description": format!("Refused: {code}"), "content": refused});
        responses.insert(status.to_string(), refusal);
    }
    responses.into()
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn integer(most: u64) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": most})
}

fn name_schema() -> Value {
    json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"})
}

fn object(found: &Type) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in found.fields {
        let mut schema = schema(field.of);
        if field.name == "name" && found.name.starts_with("Create") || is_name_of_fork(found, field)
        {
            schema = name_schema();
        }
        if let Some(text) = documentation(field.attributes) {
            schema["description"] = text.into();
        }
        properties.insert(field.name.into(), schema);
        if !field.attributes.iter().any(|attribute| attribute.starts_with("serde(default")) {
            required.push(field.name);
        }
    }
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if let Some(text) = documentation(found.attributes) {
        object["description"] = text.into();
    }
    object
}

fn is_name_of_fork(found: &Type, field: &Field) -> bool {
    found.name == "Fork" && field.name == "name"
}

/// The text of `doc = "..."` attributes.
fn documentation(attributes: &[&str]) -> Option<String> {
    let lines = attributes.iter().filter_map(|attribute| {
        let text = attribute.trim().strip_prefix("doc")?.trim_start().strip_prefix('=')?;
        let text = text.trim().trim_start_matches('r').trim_matches('"').trim();
        Some(text.replace("\\\"", "\""))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { None } else { Some(lines.join(" ")) }
}

/// The schema of a type, in Rust's words.
fn schema(of: &str) -> Value {
    let of = of.replace(' ', "");
    let inner = |outer: &str| {
        of.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>')).map(str::to_owned)
    };
    if let Some(inner) = inner("Option<") {
        return schema(&inner);
    }
    if let Some(inner) = inner("Vec<") {
        return json!({"type": "array", "items": schema(&inner)});
    }
    if let Some(inner) = inner("BTreeMap<String,") {
        return json!({"type": "object", "additionalProperties": schema(&inner)});
    }
    match &*of {
        "String" => json!({"type": "string"}),
        "bool" => json!({"type": "boolean"}),
        "f64" => json!({"type": "number"}),
        "u8" => integer(u8::MAX.into()),
        "u16" => integer(u16::MAX.into()),
        "u32" => integer(u32::MAX.into()),
        "u64" => integer(u64::MAX),
        name => reference(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_and_every_type_of_a_route_exists() {
        let text = openapi();
        let whole: Value = serde_json::from_str(&text).expect("JSON");
        let schemas = whole["components"]["schemas"].as_object().expect("schemas");
        let mut count = 0;
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
            count += 1;
        }
        assert!(count > 100, "{count}");
        for found in TYPES {
            assert!(documentation(found.attributes).is_some(), "{}", found.name);
            for field in found.fields {
                assert!(documentation(field.attributes).is_some(), "{}", field.name);
            }
        }
    }
}
