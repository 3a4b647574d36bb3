//! The schema: finding it, reading it, and decoding with it.
//!
//! A protobuf decoder normally skips unknown fields; here they are an error, at every depth.

use protobuf::reflect::{FileDescriptor, MessageDescriptor, ReflectFieldRef, ReflectValueRef};
use protobuf::{MessageDyn, UnknownValueRef};
use std::path::PathBuf;
use std::process::Command;

/// The package that contains the schema, and the path of its files.
const PACKAGE: &str = "perfetto-trace-proto";
const ROOT: &str = "perfetto";
const FILE: &str = "protos/perfetto/trace/trace.proto";
const MESSAGE: &str = ".perfetto.protos.Trace";

/// Perfetto's schema of a trace.
pub struct Schema {
    trace: MessageDescriptor,
}

impl Schema {
    /// Reads the schema from the dependency.
    ///
    /// # Errors
    /// A message about what could not be found or read.
    pub fn load() -> Result<Self, String> {
        let root = package()?.join(ROOT);
        let parsed = protobuf_parse::Parser::new()
            .pure()
            .include(&root)
            .input(root.join(FILE))
            .parse_and_typecheck()
            .map_err(|error| format!("{FILE}: {error:#}"))?;
        let files = FileDescriptor::new_dynamic_fds(parsed.file_descriptors, &[])
            .map_err(|error| format!("{FILE}: {error}"))?;
        let trace = files
            .iter()
            .find_map(|file| file.message_by_full_name(MESSAGE))
            .ok_or_else(|| format!("{FILE}: no message {MESSAGE}"))?;
        Ok(Self { trace })
    }

    /// Decodes a whole trace.
    ///
    /// # Errors
    /// A wire type that does not match the field, or an unknown field or enum value.
    pub fn decode(&self, bytes: &[u8]) -> Result<Box<dyn MessageDyn>, String> {
        let trace = self.trace.parse_from_bytes(bytes).map_err(|error| error.to_string())?;
        known(&*trace)?;
        Ok(trace)
    }
}

/// Refuses unknown fields and enum values at every depth.
fn known(message: &dyn MessageDyn) -> Result<(), String> {
    let descriptor = message.descriptor_dyn();
    if let Some((number, value)) = message.special_fields_dyn().unknown_fields().iter().next() {
        return Err(format!("{} has no field {number} ({})", descriptor.name(), wire_type(value)));
    }
    let value = |name: &str, value: ReflectValueRef<'_>| match value {
        ReflectValueRef::Message(inner) => known(&*inner),
        ReflectValueRef::Enum(kind, number) if kind.value_by_number(number).is_none() => {
            Err(format!("{}.{name}: {} has no value {number}", descriptor.name(), kind.name()))
        }
        _ => Ok(()),
    };
    for field in descriptor.fields() {
        match field.get_reflect(message) {
            ReflectFieldRef::Optional(found) => {
                found.value().map_or(Ok(()), |found| value(field.name(), found))?
            }
            ReflectFieldRef::Repeated(found) => {
                found.into_iter().try_for_each(|found| value(field.name(), found))?
            }
            ReflectFieldRef::Map(_) => {}
        }
    }
    Ok(())
}

fn wire_type(value: UnknownValueRef<'_>) -> &'static str {
    match value {
        UnknownValueRef::Fixed32(_) => "fixed32",
        UnknownValueRef::Fixed64(_) => "fixed64",
        UnknownValueRef::Varint(_) => "varint",
        UnknownValueRef::LengthDelimited(_) => "length-delimited",
    }
}

/// The directory of the package with the schema, from cargo.
fn package() -> Result<PathBuf, String> {
    let said = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&said.stdout).map_err(|error| {
        format!("cargo metadata: {error}: {}", String::from_utf8_lossy(&said.stderr))
    })?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let manifest = packages
        .iter()
        .find(|package| package["name"] == PACKAGE)
        .and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or_else(|| format!("cargo metadata: no package {PACKAGE}"))?;
    PathBuf::from(manifest)
        .parent()
        .map(PathBuf::from)
        .ok_or_else(|| format!("{manifest} is in no directory"))
}
